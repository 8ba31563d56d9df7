package judge

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// An object that is written again and again is named in each run. It is a bug only without any action, and only if the
// workload does not come to its end.
func TestHot(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var events []record.Event
	for i := range 200 {
		events = append(events, record.Event{
			Time: began.Add(time.Duration(i) * 100 * time.Millisecond),
			Observation: &record.Observation{
				By: "c", Point: wire.ControllerWrite, Phase: wire.After,
				Kind: "Database", Namespace: "default", Name: "db",
				Object: fmt.Appendf(nil, `{"metadata": {"resourceVersion": "%d"}, "status": {"attempts": %d}}`, i+1, i),
			},
		})
	}
	const names = "c writes database/default/db again and again: 200 times in 19.9s; from one write to the next, " +
		"these fields change: status.attempts"
	failed := []record.Finding{{Severity: record.SeverityBug, Judge: record.JudgeWorkload}}
	early := []record.Finding{{Severity: record.SeverityInconclusive, Judge: record.JudgeTimeout}}
	for _, tt := range []struct {
		name     string
		actions  int
		found    []record.Finding
		severity record.Severity
		title    string
	}{
		{"the workload ends", 0, nil, record.SeverityNote, "without any fault, " + names},
		{"the workload fails", 0, failed, record.SeverityBug, "without any fault, " + names},
		{"the run ends early", 0, early, record.SeverityBug, "without any fault, " + names},
		{"of a plan", 1, nil, record.SeverityNote, names},
		{"of a plan whose workload fails", 1, failed, record.SeverityNote, names},
	} {
		t.Run(tt.name, func(t *testing.T) {
			findings, err := hot{}.Judge(t.Context(), Evidence{
				Plan: &plan.Plan{Actions: make([]plan.Action, tt.actions)}, Events: events, Found: tt.found,
				Meta: record.Meta{WorkloadStart: began},
			})
			if err != nil || len(findings) != 1 {
				t.Fatalf("%v: %+v", err, findings)
			}
			if f := findings[0]; f.Severity != tt.severity || f.Title != tt.title ||
				!strings.Contains(f.Detail, "the first of these writes was at +0s") {
				t.Errorf("%s: %s\n%s", f.Severity, f.Title, f.Detail)
			}
		})
	}
}
