// Package reporttest has runs for the tests of reports.
package reporttest

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Start is when the runs started.
var Start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// At is a time after the start.
func At(d time.Duration) time.Time { return Start.Add(d) }

// Object is a StatefulSet with these replicas.
func Object(name string, replicas string) json.RawMessage {
	return json.RawMessage(`{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"name":"` + name +
		`"},"spec":{"replicas":` + replicas + `}}`)
}

// Runs returns one run for each verdict.
func Runs() []*record.Run {
	one := 1
	bug := &record.Run{
		Dir: "trommel-runs/stale-deletion",
		Meta: record.Meta{
			Plan: "stale-deletion", PlanFile: "testdata/plans/stale-deletion.yaml",
			Suite: "testdata/trommel.yaml", Verdict: record.Bug,
			Reason: "StatefulSet db was deleted although its Database is alive", Trommel: "v0.1.0",
			Kubernetes: "v1.36.3", Started: Start, Ended: At(20 * time.Second), WorkloadStart: At(5 * time.Second),
			WorkloadEnd: At(15 * time.Second), Clock: &record.Clock{Virtual: true, Took: 1800 * time.Millisecond},
			Phases: []record.Phase{{Name: "cluster", Duration: 4 * time.Second},
				{Name: "workload", Duration: 10 * time.Second}},
			StaleReads: []record.StaleRead{{
				Controller: "db", APIServer: "apiserver-3", Event: 4, Time: At(11 * time.Second), Received: true,
				Op: wire.Create, Object: "database/default/db", Version: 100, HeldEvent: 1, HeldOp: wire.Delete,
				HeldVersion: 105,
			}},
		},
		Events: []record.Event{
			{Seq: 1, Time: At(7 * time.Second), Observation: &record.Observation{
				By: "apiserver-3", Point: wire.APIServerRecv, Phase: wire.After, Op: wire.Update, Kind: "database",
				Namespace: "default", Name: "db",
			}},
			{Seq: 2, Time: At(8 * time.Second), Completed: &one},
			{Seq: 3, Time: At(9 * time.Second), Timeout: &record.Timeout{Action: 1}},
			{Seq: 4, Time: At(11 * time.Second), Observation: &record.Observation{
				By: "db", Point: wire.ControllerRecv, Phase: wire.After, Op: wire.Create, Kind: "database",
				Namespace: "default", Name: "db", Aside: true,
			}},
			{Seq: 5, Time: At(12 * time.Second), Observation: &record.Observation{
				By: "db", Point: wire.ControllerWrite, Phase: wire.After, Op: wire.Create, Kind: "service",
				Namespace: "default", Name: "db", Failed: wire.Lost, Code: 201, Error: "deadline exceeded",
			}},
			{Seq: 6, Time: At(13 * time.Second), Observation: &record.Observation{
				By: "db", Point: wire.ControllerWrite, Phase: wire.After, Op: wire.Update, Kind: "service",
				Namespace: "default", Name: "db", Failed: wire.Refused, Code: 409, Error: "conflict",
			}},
			{Seq: 7, Time: At(15 * time.Second), End: true},
		},
		Actions: []record.Action{
			{Index: 0, Type: "pauseAPIServer", Target: "apiserver-3", FiredBy: 1,
				Cause: "update of database/default/db (after apiServerRecv at apiserver-3)", Fired: At(7 * time.Second),
				Began: At(7 * time.Second), Done: At(7*time.Second + 1234*time.Microsecond)},
			{Index: 1, Type: "apply", Target: "pod/default/a", FiredBy: 3, Fired: At(9 * time.Second),
				Began: At(9 * time.Second), Done: At(9*time.Second + 20*time.Millisecond),
				Error: "refused:\nno & never"},
		},
		History: []record.HistoryEntry{
			{Time: At(5 * time.Second), ResourceVersion: 90, Event: record.Existing, Type: "statefulset", Group: "apps",
				Namespace: "default", Name: "old", Object: Object("old", "1")},
			{Time: At(6 * time.Second), ResourceVersion: 100, Event: record.Created, Type: "statefulset", Group: "apps",
				Namespace: "default", Name: "db", Object: Object("db", "1")},
			{Time: At(8 * time.Second), ResourceVersion: 101, Event: record.Updated, Type: "statefulset", Group: "apps",
				Namespace: "default", Name: "db",
				Writers: []record.FieldManager{{Manager: "db-operator", Operation: "Update"}},
				Object:  Object("db", "2")},
			{Time: At(12 * time.Second), ResourceVersion: 110, Event: record.Deleted, Type: "statefulset",
				Group: "apps", Namespace: "default", Name: "db", Object: Object("db", "2")},
		},
		Findings: []record.Finding{
			{Severity: record.SeverityBug, Judge: record.JudgeInvariant,
				Title: "StatefulSet db was deleted although its Database is alive", Subject: "statefulset/default/db",
				Detail: "first line\nsecond <line>", Time: At(12 * time.Second)},
			{Severity: record.SeverityInconclusive, Judge: record.JudgeHold, Title: "held too long"},
		},
	}
	return []*record.Run{
		bug,
		{Dir: "trommel-runs/b", Meta: record.Meta{Plan: "stale-deletion", Variant: "fixed", Verdict: record.Pass,
			Started: Start, Ended: At(1500 * time.Millisecond)}},
		{Dir: "trommel-runs/c", Meta: record.Meta{Plan: "never", Verdict: record.Inconclusive,
			Reason: "0 of 1 actions fired\naction 1 waits for x", Started: Start, Ended: At(time.Second)}},
		{Dir: "trommel-runs/d", Meta: record.Meta{Plan: "broken", Verdict: record.Error, Reason: "interrupted",
			Started: Start, Ended: At(time.Second)}},
		{Dir: "trommel-runs/e", Truncated: true},
		{ // a bug in a run whose plan was not carried out
			Dir: "trommel-runs/f", Meta: record.Meta{
				Plan: "not-begun", PlanFile: "gone.yaml", Verdict: record.Bug, Reason: "step 2 failed", ActionsTotal: 1,
				Unfinished: "0 of 1 actions fired: the workload failed\naction 1 (killController db): trigger \"a\" " +
					"still waits for x",
				Started: Start, Ended: At(time.Second), WorkloadStart: At(100 * time.Millisecond),
				WorkloadEnd: At(900 * time.Millisecond),
			},
			Findings: []record.Finding{{Severity: record.SeverityBug, Judge: record.JudgeWorkload,
				Title: "step 2 failed", Time: At(900 * time.Millisecond)}},
		},
		{ // fired before the workload, changed nothing, failed
			Dir: "trommel-runs/g", Meta: record.Meta{
				Plan: "at-once", PlanFile: "testdata/plans/stale-deletion.yaml", Verdict: record.Inconclusive,
				Reason:       "action 2 (patch pod/default/a) failed: no",
				ActionsFired: 2, ActionsTotal: 2, Started: Start, Ended: At(time.Second),
				WorkloadStart: At(100 * time.Millisecond), WorkloadEnd: At(900 * time.Millisecond),
			},
			Actions: []record.Action{
				{
					Index: 0, Type: "startController", Target: "db", Cause: "the start of the plan",
					Note: "found db running already", Fired: At(97100 * time.Microsecond),
					Began: At(97100 * time.Microsecond), Done: At(98 * time.Millisecond),
				},
				{
					Index: 1, Type: "patch", Target: "pod/default/a", Cause: "the completion of action 1", Error: "no",
					Fired: At(98 * time.Millisecond), Began: At(98 * time.Millisecond), Done: At(99 * time.Millisecond),
				},
			},
			Findings: []record.Finding{{Severity: record.SeverityInconclusive, Judge: record.JudgeAction,
				Title: "action 2 (patch pod/default/a) failed: no", Time: At(99 * time.Millisecond)}},
		},
		{Meta: record.Meta{Plan: "interrupted", Suite: "testdata/trommel.yaml", Verdict: record.NotRun,
			Reason: "interrupted"}},
	}
}

const text = `
testName: stale-deletion
actions:
- actionType: pauseAPIServer
  actionTarget: apiserver-3
  pauseScope: database/default/db
  trigger:
    definitions:
    - triggerName: seen
      condition: {triggerType: onObjectUpdate, resourceKey: database/default/db}
      observationPoint: {timing: afterAPIServerRecv, observeBy: apiserver-3}
    expression: seen
- actionType: apply
  manifest: {apiVersion: v1, kind: Pod, metadata: {name: a, namespace: default}}
  trigger: {definitions: [{triggerName: a, condition: {triggerType: onTimeout, timeout: 1s}}]}
- actionType: resumeAPIServer
  actionTarget: apiserver-3
  pauseScope: database/default/db
  trigger: {definitions: [{triggerName: later, condition: {triggerType: onTimeout, timeout: 5s}}]}
`

// Plan is the plan of the first run.
func Plan(t testing.TB) *plan.Plan {
	t.Helper()
	p, err := plan.Parse([]byte(text), "")
	if err != nil {
		t.Fatal(err)
	}
	return p
}
