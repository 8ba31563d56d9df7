package pattern

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/campaign/pattern/moment"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// A state is past not only when exactly what was before is back: Sieve takes any other value, and a deletion.
func TestUndone(t *testing.T) {
	scale := func(from, to int) facts.Change {
		return change("", "", db, record.Updated, spec(from), spec(to))
	}
	created := change("", "", db, record.Created, nil, spec(3))
	mark := change("", "", db, record.Updated, spec(3), marked(spec(3)))
	gone := change("op", wire.Update, db, record.Deleted, marked(spec(3)), nil)
	status := change("op", wire.Update, db, record.Updated, spec(3),
		object{"spec": spec(3)["spec"], "status": object{"ready": 3.0}})
	type undone struct {
		at int
		by moment.Past
	}
	for _, tt := range []struct {
		name    string
		changes []facts.Change
		want    []undone // of the first
	}{
		{"there and back", []facts.Change{scale(2, 1), scale(1, 2)}, []undone{{1, moment.Restored}}},
		{"to another value", []facts.Change{scale(3, 1), scale(1, 2)}, []undone{{1, moment.Replaced}}},
		{"further on", []facts.Change{scale(1, 2), scale(2, 3)}, []undone{{1, moment.Replaced}}},
		{"by another value, and back", []facts.Change{scale(3, 1), scale(1, 2), scale(2, 3)},
			[]undone{{1, moment.Replaced}, {2, moment.Restored}}},
		{"created, then updated", []facts.Change{created, scale(3, 2)}, []undone{{1, moment.Replaced}}},
		{"created, then its status", []facts.Change{created, status}, nil},
		{"updated, then marked", []facts.Change{scale(2, 3), mark}, []undone{{1, moment.Leaving}}},
		{"created, marked, gone", []facts.Change{created, mark, gone},
			[]undone{{1, moment.Leaving}, {2, moment.Restored}}},
		{"marked, gone", []facts.Change{mark, gone}, nil},
		{"marked, and a namesake", []facts.Change{mark, gone, created}, []undone{{2, moment.Restored}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []undone
			for _, u := range moment.NewHistory(baselines(tt.changes)).Undone(0) {
				got = append(got, undone{u.At, u.By})
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// The controller deletes the Secret because of a state that is past, and makes it again: shown that state once more, it
// deletes what is there now.
func TestStaleWhenItsDeletionIsMadeAgain(t *testing.T) {
	off := func(o object) object { return object{"spec": object{"suspend": true}, "kind": o["kind"]} }
	changes := []facts.Change{
		change("", "", db, record.Updated, spec(2), off(spec(2))),
		change("op", wire.Delete, key, record.Deleted, object{}, nil),
		change("", "", db, record.Updated, off(spec(2)), object{"spec": object{"suspend": false}}),
		change("", "", "configmap/default/go", record.Created, nil, object{}),
		change("op", wire.Create, key, record.Created, nil, object{}),
	}
	changes[4].Read = []string{"configmap/default/go"}
	got := plans(Generate(suite(t), baselines(changes), "stale"))
	if !slices.ContainsFunc(got, func(line string) bool {
		return strings.HasPrefix(line, "pauseAPIServer at onObjectUpdate database/default/db #1") &&
			strings.Contains(line, "reconnectController at onObjectCreation secret/default/db #1")
	}) {
		t.Errorf("no plan for the Secret that is there again\n%s", strings.Join(got, "\n"))
	}
}

// A mark for deletion of an object whose namesake lives is the most harmful past.
func TestStaleMarkOfANamesakeComesFirst(t *testing.T) {
	changes := []facts.Change{
		change("", "", db, record.Created, nil, spec(2)),
		change("op", wire.Create, key, record.Created, nil, object{}),
		change("", "", db, record.Updated, spec(2), spec(1)),
		change("op", wire.Update, key, record.Updated, object{}, object{"data": object{"a": "b"}}),
		change("", "", db, record.Updated, spec(1), spec(2)),
		change("op", wire.Update, key, record.Updated, object{"data": object{"a": "b"}}, object{}),
		change("", "", db, record.Updated, spec(2), marked(spec(2))),
		change("op", wire.Delete, key, record.Deleted, object{}, nil),
		change("", "", db, record.Deleted, marked(spec(2)), nil),
		change("", "", db, record.Created, nil, spec(2)),
		change("op", wire.Create, key, record.Created, nil, object{}),
	}
	first := Generate(suite(t), baselines(changes), "stale")[0]
	if !strings.Contains(first.Why, "stops at: database/default/db is marked for deletion") {
		t.Errorf("first: %s", first.Why)
	}
}

// Each moment for which there is no stale plan says why.
func TestStaleSaysWhyNot(t *testing.T) {
	all := Generate(suite(t), baselines([]facts.Change{change("", "", db, record.Created, nil, spec(2))}), "stale")
	if got := plans(all); !slices.Equal(got, []string{"dropped: nothing undoes it later"}) {
		t.Errorf("got %q", got)
	}
	s := suite(t)
	s.Cluster.APIServers = 1
	all = Generate(s, baselines([]facts.Change{change("", "", db, record.Created, nil, spec(2))}), "stale")
	want := "dropped: there is only one API server (apiServers: of the suite's cluster)"
	if got := plans(all); !slices.Equal(got, []string{want}) {
		t.Errorf("got %q", got)
	}
}

// A change in a list is identified by its place. What only fills the places before it need not change.
func TestPlacesInLists(t *testing.T) {
	conditions := func(all ...string) object {
		var list []any
		for i, status := range all {
			list = append(list, object{"type": string(rune('A' + i)), "status": status})
		}
		return object{"status": object{"conditions": list}}
	}
	containers := func(names ...string) object {
		var list []any
		for _, name := range names {
			list = append(list, object{"name": name})
		}
		return object{"spec": object{"containers": list}}
	}
	for _, tt := range []struct {
		name      string
		prev, cur object
	}{
		{"the second condition", conditions("True", "False"), conditions("True", "True")},
		{"a second condition is added", conditions("True"), conditions("True", "True")},
		{"a container is added", containers("a"), containers("a", "b")},
		{"a container is removed", containers("a", "b"), containers("a")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := change("op", wire.Update, db, record.Updated, tt.prev, tt.cur)
			got := plans(Generate(suite(t), baselines([]facts.Change{c}), "intermediate"))
			if len(got) != 1 || strings.HasPrefix(got[0], "dropped") {
				t.Errorf("got %q", got)
			}
		})
	}
}

// The controller stays down while the workload goes on without it, but not over a step that waits for it, nor while one
// step undoes another.
func TestDown(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(c facts.Change, seconds int) facts.Change {
		c.Time = began.Add(time.Duration(seconds) * time.Second)
		return c
	}
	apply, wait := plan.Step{Apply: &plan.ApplyStep{}}, plan.Step{Wait: &plan.WaitStep{}}
	user := func(from, to, seconds int) facts.Change {
		return at(change("", "", db, record.Updated, spec(from), spec(to)), seconds)
	}
	made := at(change("op", wire.Create, set, record.Created, nil, spec(1)), 1)
	told := at(change("op", wire.Update, "service/default/db", record.Created, nil, object{}), 2)
	const (
		kill  = "killController at onObjectCreation statefulset.apps/default/db #1 afterControllerWrite; "
		start = "startController at onObjectUpdate database/default/db #1 afterAPIServerRecv "
	)
	to := func(from, to int) string {
		n := string(rune('0' + from))
		return start + "map[spec:map[replicas:" + n + "]]→map[spec:map[replicas:" + string(rune('0'+to)) + "]]"
	}
	for _, tt := range []struct {
		name    string
		steps   []plan.Step
		changes []facts.Change
		want    []string
	}{
		{"the next step", []plan.Step{apply, apply}, []facts.Change{made, user(1, 2, 10)},
			[]string{kill + to(1, 2) + " or 48s"}},
		{"a step that has waited for this write", []plan.Step{apply, wait, apply},
			[]facts.Change{made, user(1, 2, 20)}, []string{kill + to(1, 2) + " or 1m8s"}},
		{"a step that waits for more", []plan.Step{apply, wait, apply},
			[]facts.Change{made, told, user(1, 2, 20)}, nil},
		{"the last step", []plan.Step{apply, apply, apply},
			[]facts.Change{made, user(1, 2, 10), at(change("", "", key, record.Created, nil, object{}), 20)},
			[]string{
				kill + to(1, 2) + " or 48s",
				kill + "startController at onObjectCreation secret/default/db #1 afterAPIServerRecv or 1m8s",
			}},
		{"what is undone", []plan.Step{apply, apply, apply},
			[]facts.Change{made, user(1, 2, 10), user(2, 1, 20)}, []string{kill + to(1, 2) + " or 48s"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ref := baselines(tt.changes)
			var course facts.Course
			for n := range tt.steps {
				course.Steps = append(course.Steps, record.Step{Started: began.Add(time.Duration(10*n) * time.Second)})
			}
			ref.Courses = []facts.Course{course}
			m := moment.New(suite(t), ref, tt.steps)
			p := newPlanner(m, nil)
			p.take(down, down.drafts(m))
			got := plans(p.ordered())
			got = slices.DeleteFunc(got, func(line string) bool { return !strings.HasPrefix(line, kill) })
			slices.Sort(got)
			slices.Sort(tt.want)
			if !slices.Equal(got, tt.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

// A process is killed once more at the first write of the one that was started after the first crash.
func TestTwoCrashes(t *testing.T) {
	changes := []facts.Change{
		change("op", wire.Create, key, record.Created, nil, object{}),
		change("op", wire.Create, set, record.Created, nil, spec(1)),
	}
	got := plans(Generate(suite(t), baselines(changes), "twice"))
	want := "restartController at onObjectCreation secret/default/db #1 afterControllerWrite; " +
		"restartController at onObjectCreation statefulset.apps/default/db #1 afterControllerWrite"
	if !slices.Contains(got, want) {
		t.Errorf("no plan\n%s\nbut\n%s", want, strings.Join(got, "\n"))
	}
}

// The controller is killed after each annotated call that all runs make, and gets no answer to those that can fail.
func TestAnnotatedCalls(t *testing.T) {
	ref := baselines(nil)
	ref.Calls = map[string]map[string]int{"op": {"backup": 2, "rare": 0, "sum": 1}}
	ref.Failing = map[string][]string{"op": {"backup", "rare"}}
	s := suite(t)
	s.Controllers[0].AnnotatedCalls = []plan.AnnotatedCall{
		{Name: "backup", Function: "backup"}, {Name: "sum", Function: "sum"},
	}
	got := plans(Generate(s, ref, "intermediate", "lost-answer"))
	want := []string{
		"failCall at onAnnotatedCall backup #1 beforeAnnotatedCall",
		"restartController at onAnnotatedCall backup #1 afterAnnotatedCall",
		"restartController at onAnnotatedCall sum #1 afterAnnotatedCall",
		"failCall at onAnnotatedCall backup #2 beforeAnnotatedCall",
		"restartController at onAnnotatedCall backup #2 afterAnnotatedCall",
		"dropped: the function returns no error",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Regression: while two of three replicas came up, which may be when they are made or when they are scaled up again, an
// object was created that asked for one, and the workload waited for three until its timeout.
func TestNamesakeIsWhatUsersAskFor(t *testing.T) {
	const database = facts.Key("database.example.org/default/db")
	state := func(replicas, ready float64) object {
		return object{
			"kind": "Database", "apiVersion": "example.org/v1", "spec": object{"replicas": replicas},
			"metadata": object{"name": "db", "namespace": "default", "uid": "1"}, "status": object{"ready": ready},
		}
	}
	steps := []struct {
		by       string
		cur      object
		op       wire.Operation
		previous object
	}{
		{"", state(3, 0), "", nil},
		{"op", state(3, 3), wire.Update, state(3, 0)},
		{"", state(1, 3), "", state(3, 3)},
		{"op", state(1, 2), wire.Update, state(1, 3)},
	}
	var changes []facts.Change
	for _, s := range steps {
		event := record.Updated
		if s.previous == nil {
			event = record.Created
		}
		changes = append(changes, change(s.by, s.op, database, event, s.previous, s.cur))
	}
	var got []string
	for _, c := range Generate(suite(t), baselines(changes), "namesake") {
		if c.Plan == nil {
			t.Errorf("dropped: %s", c.Dropped)
			continue
		}
		got = append(got, c.Plan.Actions[0].Trigger.Definitions[0].Condition.Where)
	}
	want := []string{
		`object["spec"]["replicas"] == 3`, `object["spec"]["replicas"] == 1`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Another client replaces the object between two tries of the controller's write.
func TestNamesake(t *testing.T) {
	const database = facts.Key("database.example.org/default/db")
	created := object{
		"kind": "Database", "apiVersion": "example.org/v1", "spec": spec(2)["spec"],
		"metadata": object{"name": "db", "namespace": "default", "uid": "1", "labels": object{"a": "b"}},
	}
	ready := maps.Clone(created)
	ready["status"] = object{"ready": 2.0}
	changes := []facts.Change{
		change("", "", database, record.Created, nil, created),
		change("op", wire.Update, database, record.Updated, created, ready),
		change("op", wire.Create, "cache.example.org/default/c", record.Created, nil, spec(1)),
		change("op", wire.Update, "cache.example.org/default/c", record.Updated, spec(1), spec(2)),
	}
	marked := maps.Clone(ready)
	marked["metadata"] = object{"name": "db", "deletionTimestamp": "2026-01-01T00:00:00Z"}
	cleaned := maps.Clone(marked)
	cleaned["status"] = object{"ready": 0.0}
	changes = append(changes,
		change("", "", database, record.Updated, ready, marked),
		change("op", wire.Update, database, record.Updated, marked, cleaned))
	all := Generate(suite(t), baselines(changes), "namesake")
	const update = "onObjectUpdate database.example.org/default/db #1 "
	want := []string{
		"failCall at " + update + "beforeControllerWrite <nil>→map[status:map[ready:2]]; " +
			"delete at " + update + "afterAPIServerRecv <nil>→map[status:map[ready:2]]; " +
			"apply at onObjectDeletion database.example.org/default/db #1 afterAPIServerRecv or 20s",
		"dropped: no other client has created the object",
		"dropped: its users are deleting it, and do not create it again: no step would wait for it",
	}
	if got := plans(all); !slices.Equal(got, want) {
		t.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	manifest := all[0].Plan.Actions[2].Manifest
	meta, _ := manifest["metadata"].(object)
	if meta["uid"] != nil || meta["name"] != "db" || manifest["status"] != nil || manifest["spec"] == nil {
		t.Errorf("it is created as %v", manifest)
	}
}
