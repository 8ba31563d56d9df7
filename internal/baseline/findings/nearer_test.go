package findings

import (
	"slices"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
)

// custom is a custom resource of a generation with a status.
func custom(generation float64, status map[string]any) map[string]any {
	return map[string]any{
		"metadata": map[string]any{"name": "db", "generation": generation}, "spec": map[string]any{"n": generation},
		"status": status,
	}
}

func conditionsOf(pairs ...string) []any {
	var all []any
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, map[string]any{"type": pairs[i], "status": pairs[i+1]})
	}
	return all
}

// Regression: a run with a fault in which an object became Ready was reported as a bug of the fault, because without
// faults the operator overwrote its own "running".
func TestNearerToWhatTheStatusPromises(t *testing.T) {
	type status = map[string]any
	const key = "database.example.com/default/db"
	creating := status{"phase": "Creating", "conditions": conditionsOf("Available", "False"), "readyReplicas": 0.0}
	running := status{"phase": "Running", "conditions": conditionsOf("Available", "True"), "readyReplicas": 3.0}
	with := func(s status, name string, v any) status {
		all := status{name: v}
		for name, old := range s {
			if _, given := all[name]; !given {
				all[name] = old
			}
		}
		return all
	}
	for _, test := range []struct {
		name      string
		want, got status
		late      bool // a user changes something after the object has become ready
		stale     bool // the plan shows the past
		fields    string
		nearer    string // of the fields, those that are reported as wrong without any fault
	}{
		{name: "nearer", want: creating, got: running,
			fields: "phase conditions[type=Available].status readyReplicas",
			nearer: "phase conditions[type=Available].status readyReplicas"},
		{name: "farther", want: running, got: creating,
			fields: "phase conditions[type=Available].status readyReplicas"},
		{name: "it may have missed what makes it unready", want: creating, got: running, late: true,
			fields: "phase conditions[type=Available].status"},
		{name: "it is shown the past", want: creating, got: running, stale: true,
			fields: "phase conditions[type=Available].status"},
		{name: "what is asked for differs, too", want: creating, got: running,
			fields: "spec conditions[type=Available].status", nearer: "conditions[type=Available].status"},
		{name: "fewer replicas", want: with(creating, "readyReplicas", 3.0), got: with(running, "readyReplicas", 1.0),
			fields: "conditions[type=Available].status readyReplicas", nearer: "conditions[type=Available].status"},
		{name: "the promise is unknown without faults", fields: "conditions[type=Ready].status",
			want:   status{"conditions": conditionsOf("Ready", "Unknown")},
			got:    status{"conditions": conditionsOf("Ready", "True")},
			nearer: "conditions[type=Ready].status"},
		{name: "the promise is absent without faults", fields: "conditions[type=Ready].status", want: status{},
			got: status{"conditions": conditionsOf("Ready", "True")}, nearer: "conditions[type=Ready].status"},
		{name: "the promise is absent in the run", fields: "conditions[type=Ready].status",
			want: status{"conditions": conditionsOf("Ready", "False", "Available", "False")},
			got:  status{"conditions": conditionsOf("Available", "True")}},
		{name: "one of two promises", fields: "conditions[type=Ready].status conditions[type=Available].status",
			want: status{"conditions": conditionsOf("Ready", "False", "Available", "True")},
			got:  status{"conditions": conditionsOf("Ready", "True", "Available", "False")}},
		{name: "both hold", fields: "conditions[type=Ready].status phase",
			want: with(running, "phase", "Pending"), got: running},
		{name: "degraded only in the run", fields: "conditions[type=Ready].status conditions[type=Degraded].status",
			want: status{"conditions": conditionsOf("Ready", "False", "Degraded", "False")},
			got:  status{"conditions": conditionsOf("Ready", "True", "Degraded", "True")}},
		{name: "degraded without faults", fields: "conditions[type=Ready].status conditions[type=Degraded].status",
			want:   status{"conditions": conditionsOf("Ready", "False", "Degraded", "True")},
			got:    status{"conditions": conditionsOf("Ready", "True", "Degraded", "False")},
			nearer: "conditions[type=Ready].status conditions[type=Degraded].status"},
		{name: "the status of another generation in the run", fields: "conditions[type=Ready].status",
			want: status{"conditions": conditionsOf("Ready", "False"), "observedGeneration": 2.0},
			got:  status{"conditions": conditionsOf("Ready", "True"), "observedGeneration": 1.0}},
		{name: "a status that is behind without faults", fields: "observedGeneration phase",
			want:   status{"observedGeneration": 1.0, "phase": "Pending"},
			got:    status{"observedGeneration": 2.0, "phase": "Ready"},
			nearer: "observedGeneration phase"},
		{name: "it has failed in the run", fields: "conditions[type=Available].status phase",
			want: creating, got: with(running, "phase", "Failed"), nearer: "conditions[type=Available].status"},
	} {
		t.Run(test.name, func(t *testing.T) {
			want, got := custom(2, test.want), custom(2, test.got)
			start := custom(1, status{})
			changes := []facts.Change{
				{Key: key, Event: "created", Version: 1, Cur: start},
				{Key: key, Event: "updated", Version: 2, Prev: start, Cur: custom(2, status{})},
				{Key: key, Event: "updated", Version: 3, Prev: custom(2, status{}), Cur: got, By: "op"},
				{Key: "endpoints/default/db", Event: "created", Version: 4, Cur: map[string]any{}},
			}
			if test.late {
				changes = append(changes, facts.Change{Key: "secret/default/s", Event: "deleted", Version: 5,
					Prev: map[string]any{"metadata": map[string]any{"name": "s"}}})
			}
			var differ []baseline.Difference
			for field := range strings.FieldsSeq(test.fields) {
				name := "status." + field
				if field == "spec" {
					name = "spec.n"
				}
				differ = append(differ, baseline.Difference{Key: key, Own: key, Field: name,
					Want: valueAt(want, name), Got: valueAt(got, name)})
			}
			r := Run{
				Baseline: &baseline.Baseline{Objects: map[facts.Key]*facts.Object{key: {End: want}}},
				Changes:  changes, Objects: map[facts.Key]*facts.Object{key: {End: got}},
				Interrupted: !test.stale,
			}
			var nearer, rest []string
			for _, told := range r.Parts(differ) {
				without := strings.HasPrefix(told.Finding.Title, "without any fault, "+key+" is farther")
				if told.Nearer != without {
					t.Errorf("nearer: %t, title: %s", told.Nearer, told.Finding.Title)
				}
				for _, l := range told.Lines {
					for _, d := range l.Differ {
						if told.Nearer {
							nearer = append(nearer, strings.TrimPrefix(d.Field, "status."))
						} else {
							rest = append(rest, d.Field)
						}
					}
				}
			}
			expected := strings.Fields(test.nearer)
			slices.Sort(nearer)
			slices.Sort(expected)
			if !slices.Equal(nearer, expected) || len(nearer)+len(rest) != len(differ) {
				t.Errorf("nearer: %v, want %v; the rest: %v", nearer, expected, rest)
			}
		})
	}
}

// valueAt is the value of a field named as differences name it.
func valueAt(object map[string]any, name string) any {
	status, _ := object["status"].(map[string]any)
	rest, isCondition := strings.CutPrefix(name, "status.conditions[type=")
	if isCondition {
		condition, _, _ := strings.Cut(rest, "]")
		if value, has := conditions(object)[condition]; has {
			return value
		}
		return nil
	}
	if name == "spec.n" {
		return object["spec"].(map[string]any)["n"]
	}
	return status[strings.TrimPrefix(name, "status.")]
}

func TestOnlyInterrupts(t *testing.T) {
	for name, test := range map[string]struct {
		actions []plan.Action
		want    bool
	}{
		"nothing":         {nil, false},
		"a restart":       {[]plan.Action{{Type: plan.RestartController, Target: "op"}}, true},
		"a paused server": {[]plan.Action{{Type: plan.PauseAPIServer, Target: "apiserver-1"}}, false},
		"a deletion":      {[]plan.Action{{Type: plan.RestartController}, {Type: plan.DeleteObject}}, false},
		"a frozen one":    {[]plan.Action{{Type: plan.FreezeController, Target: "op"}}, false},
		"a partition":     {[]plan.Action{{Type: plan.DisturbConnection, Target: "op"}}, false},
		"a refused call":  {[]plan.Action{{Type: plan.FailCall, Target: "op"}}, true},
	} {
		if got := OnlyInterrupts(test.actions); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
