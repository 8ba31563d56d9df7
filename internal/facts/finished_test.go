package facts

import (
	"encoding/json"
	"testing"
)

func TestFinished(t *testing.T) {
	for _, tt := range []struct {
		name, object string
		want         bool
	}{
		{"a running pod", `{"kind": "Pod", "status": {"phase": "Running"}}`, false},
		{"a pod", `{"kind": "Pod", "status": {"phase": "Succeeded"}}`, true},
		{"a failed pod", `{"kind": "Pod", "status": {"phase": "Failed"}}`, true},
		{"a Job", `{"kind": "Job", "status": {"completionTime": "2026-01-02T03:04:05Z",
			"conditions": [{"type": "Complete", "status": "True"}]}}`, true},
		{"a failed Job, without a time",
			`{"kind": "Job", "status": {"conditions": [{"type": "Failed", "status": "True"}]}}`,
			true},
		{"a Job that runs", `{"kind": "Job", "status": {"active": 1}}`, false},
		{"a Job that is about to fail",
			`{"kind": "Job", "status": {"conditions": [{"type": "FailureTarget", "status": "True"}]}}`, false},
		{"a suspended Job", `{"kind": "Job", "status": {"conditions": [{"type": "Suspended", "status": "True"}]}}`,
			false},
		{"a CronJob", `{"kind": "CronJob", "status": {"lastSuccessfulTime": "2026-01-02T03:04:05Z"}}`, false},
		{"an MPIJob", `{"kind": "MPIJob", "status": {"conditions": [{"type": "Succeeded", "status": "True"}]}}`, true},
		{"a failed run, which has not succeeded", `{"kind": "PipelineRun", "status": {
			"completionTime": "2026-01-02T03:04:05Z", "conditions": [{"type": "Succeeded", "status": "False"}]}}`,
			true},
		{"a run that goes on",
			`{"kind": "PipelineRun", "status": {"conditions": [{"type": "Succeeded", "status": "Unknown"}]}}`, false},
		{"a backup", `{"kind": "Backup", "status": {"conditions": [{"type": "Completed", "status": "True"}]}}`, true},
		{"a database that failed",
			`{"kind": "Database", "status": {"conditions": [{"type": "Failed", "status": "True"}]}}`,
			false},
		{"a database", `{"kind": "Database", "status": {"conditions": [{"type": "Ready", "status": "True"}]}}`, false},
		{"no status", `{"kind": "Job"}`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var object map[string]any
			if err := json.Unmarshal([]byte(tt.object), &object); err != nil {
				t.Fatal(err)
			}
			if got := Finished(object); got != tt.want {
				t.Errorf("finished: %t", got)
			}
		})
	}
}
