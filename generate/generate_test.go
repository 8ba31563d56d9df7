package generate

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
	"github.com/trommel-dev/trommel/reference"
)

func suite(t *testing.T) *plan.Suite {
	t.Helper()
	file := filepath.Join(t.TempDir(), plan.SuiteFile)
	text := "controllers: [{name: op, build: {dir: .}}]\nworkloads: {w: [{sleep: 1s}]}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := plan.LoadSuite(file)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func spec(replicas int) object { return object{"spec": object{"replicas": replicas}} }

func marked(o object) object {
	return object{"spec": o["spec"], "metadata": object{"deletionTimestamp": "2026-01-01T00:00:00Z"}}
}

// change is one of an object that the operator takes in; by is empty for somebody else's.
func change(by string, op wire.Operation, key reference.Key, event string, prev, cur object) reference.Change {
	return reference.Change{Key: key, Event: event, Prev: prev, Cur: cur, By: by, Op: op, Taken: []string{"op"}}
}

// plans tells what was made, a line each.
func plans(all []Candidate) []string {
	var lines []string
	for _, c := range all {
		if c.Plan == nil {
			lines = append(lines, fmt.Sprintf("dropped: %s", c.Dropped))
			continue
		}
		var actions []string
		for _, a := range c.Plan.Actions {
			d := a.Trigger.Definitions[0]
			at := fmt.Sprintf("%s %s #%d %s", d.Condition.Type, d.Condition.ResourceKey, d.Condition.Repeat,
				d.Observe.Timing)
			if d.Condition.Type == plan.OnTimeout {
				at = d.Condition.Timeout.String()
			}
			if d.Condition.CurState != nil {
				at += fmt.Sprintf(" %v→%v", d.Condition.PrevState, d.Condition.CurState)
			}
			for _, d := range a.Trigger.Definitions[1:] {
				at += fmt.Sprintf("; then %s", d.Condition.Timeout)
			}
			actions = append(actions, fmt.Sprintf("%s at %s", a.Type, at))
		}
		lines = append(lines, strings.Join(actions, "; "))
	}
	return lines
}

const (
	db  = reference.Key("database/default/db")
	set = reference.Key("statefulset.apps/default/db")
	key = reference.Key("secret/default/db")
)

func TestPatterns(t *testing.T) {
	scaled := []reference.Change{
		change("", "", db, record.Created, nil, spec(2)),
		change("op", wire.Create, set, record.Created, nil, spec(2)),
		change("", "", db, record.Updated, spec(2), spec(1)),
		change("op", wire.Update, set, record.Updated, spec(2), spec(1)),
		change("", "", db, record.Updated, spec(1), spec(2)),
		change("op", wire.Update, set, record.Updated, spec(1), spec(2)),
	}
	recreated := []reference.Change{
		change("", "", db, record.Created, nil, spec(2)),
		change("op", wire.Create, key, record.Created, nil, object{}),
		change("", "", db, record.Updated, spec(2), marked(spec(2))),
		change("op", wire.Delete, key, record.Deleted, object{}, nil),
		change("", "", db, record.Deleted, marked(spec(2)), nil),
		change("", "", db, record.Created, nil, spec(2)),
		change("op", wire.Create, key, record.Created, nil, object{}),
	}
	for _, tt := range []struct {
		pattern string
		changes []reference.Change
		want    []string
	}{
		{"intermediate", scaled, []string{
			"restartController at onObjectCreation statefulset.apps/default/db #1 afterControllerWrite",
			"restartController at onObjectUpdate statefulset.apps/default/db #1 afterControllerWrite " +
				"map[spec:map[replicas:2]]→map[spec:map[replicas:1]]",
			"restartController at onObjectUpdate statefulset.apps/default/db #1 afterControllerWrite " +
				"map[spec:map[replicas:1]]→map[spec:map[replicas:2]]",
		}},
		{"unobserved", scaled, []string{
			"pauseController at onObjectUpdate database/default/db #1 afterControllerRecv " +
				"map[spec:map[replicas:2]]→map[spec:map[replicas:1]]; " +
				"resumeController at onObjectUpdate database/default/db #1 afterControllerRecv " +
				"map[spec:map[replicas:1]]→map[spec:map[replicas:2]]",
			"pauseController at onObjectUpdate statefulset.apps/default/db #1 afterControllerWrite " +
				"map[spec:map[replicas:2]]→map[spec:map[replicas:1]]; " +
				"resumeController at onObjectUpdate database/default/db #1 afterControllerRecv " +
				"map[spec:map[replicas:1]]→map[spec:map[replicas:2]]",
		}},
		{"own-write-unseen", recreated, []string{
			"pauseController at onObjectCreation secret/default/db #1 beforeControllerWrite; resumeController at 3s",
			"pauseController at onObjectDeletion secret/default/db #1 beforeControllerWrite; resumeController at 3s",
		}},
		{"drift", recreated, []string{
			"delete at onObjectCreation secret/default/db #2 afterControllerWrite",
			"delete at onObjectCreation secret/default/db #2 afterControllerWrite; then 1s",
		}},
		{"stale", recreated, []string{
			"pauseAPIServer at onObjectUpdate database/default/db #1 afterAPIServerRecv " +
				"map[metadata:map[deletionTimestamp:$absent]]→map[metadata:map[deletionTimestamp:$present]]; " +
				"reconnectController at onObjectCreation secret/default/db #1 afterAPIServerRecv; resumeController " +
				"at 5s",
		}},
	} {
		t.Run(tt.pattern, func(t *testing.T) {
			ref := &reference.Reference{Workload: "w", Changes: tt.changes, Objects: reference.Objects(tt.changes)}
			got := plans(Generate(suite(t), ref, tt.pattern))
			for _, want := range tt.want {
				want = strings.Replace(want, "resumeController at 5s", "resumeAPIServer at 5s", 1)
				if !slices.Contains(got, want) {
					t.Errorf("no plan\n%s\nbut\n%s", want, strings.Join(got, "\n"))
				}
			}
		})
	}
}

// Of what is likely to find the same there are three plans, and the first of each kind comes before the second.
func TestFirstOneOfEachKind(t *testing.T) {
	var changes []reference.Change
	for i := range 5 {
		changes = append(changes, change("op", wire.Create, reference.Key(fmt.Sprintf("pod/default/p%d", i)),
			record.Created, nil, object{}))
	}
	changes = append(changes, change("op", wire.Create, "secret/default/s", record.Created, nil, object{}))
	var got []string
	for _, c := range Generate(suite(t), &reference.Reference{Workload: "w", Changes: changes}, "intermediate") {
		text := c.Dropped
		if c.Plan != nil {
			text = c.Plan.Actions[0].Trigger.Definitions[0].Condition.ResourceKey.String()
		}
		got = append(got, text)
	}
	want := []string{
		"pod/default/p0", "secret/default/s", "pod/default/p1", "pod/default/p2", "there are 3 plans like it",
		"there are 3 plans like it",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
