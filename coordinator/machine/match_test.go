package machine

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// What observations of a controller satisfy: the rules below the tables in docs/plan-format.md, on pod/default/a.
func TestWhatAnObservationSatisfies(t *testing.T) {
	const (
		update = plan.OnObjectUpdate
		remove = plan.OnObjectDeletion
		create = plan.OnObjectCreation
	)
	object := func(namespace, name string, n int) json.RawMessage {
		text, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"namespace": namespace, "name": name}, "n": n})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	list := func(namespace string, objects ...json.RawMessage) record.Observation {
		return record.Observation{Point: wire.ControllerRead, Op: wire.List, Namespace: namespace, Objects: objects}
	}
	get := record.Observation{Point: wire.ControllerRead, Op: wire.Get, Namespace: "default", Name: "a"}
	write := get
	write.Point = wire.ControllerWrite
	with := func(o record.Observation, f func(*record.Observation)) record.Observation { f(&o); return o }
	deletes := func(namespace string, objects ...json.RawMessage) record.Observation {
		o := list(namespace, objects...)
		o.Point, o.Op = wire.ControllerWrite, wire.DeleteCollection
		return o
	}
	a1, b1 := object("default", "a", 1), object("default", "b", 1)
	for _, tt := range []struct {
		name  string
		typ   plan.TriggerType
		where string
		in    string // the definition's cluster
		cur   map[string]any
		phase wire.Phase // empty: after
		o     record.Observation
		miss  string // how the nearest miss ends; empty: it is satisfied
	}{
		{name: "a get finds it", typ: update, o: with(get, func(o *record.Observation) { o.Object = a1 })},
		{name: "a get does not find it", typ: remove, o: with(get, func(o *record.Observation) {
			o.Error, o.Code = "not found", 404
		})},
		{name: "a get from the cache does not find it", typ: remove, o: get},
		{name: "a get fails", typ: remove, miss: " failed: too many requests", o: with(get,
			func(o *record.Observation) { o.Error, o.Code = "too many requests", 429 })},
		{name: "a get fails, and it would have to be found", typ: update, miss: " failed: refused", o: with(get,
			func(o *record.Observation) { o.Error = "refused" })},
		{name: "a get of another object", typ: update, miss: " is another object", o: with(get,
			func(o *record.Observation) { o.Name = "b" })},
		{name: "a get of the log", typ: update, miss: " neither changes nor shows the object", o: with(get,
			func(o *record.Observation) { o.Subresource = "log" })},
		{name: "before a get", typ: update, phase: wire.Before, o: get},
		{name: "before a list", typ: update, phase: wire.Before, o: list("default")},
		{name: "before a list of all namespaces", typ: update, phase: wire.Before, o: list("")},
		{name: "before a list of another namespace", typ: update, phase: wire.Before, o: list("other"),
			miss: " is another object"},
		{name: "it is in a list", typ: update, o: list("default", b1, a1)},
		{name: "it is in a list of all namespaces", typ: update, o: list("", object("other", "a", 1), a1)},
		{name: "it is not in a list", typ: update, o: list("default", b1), miss: ": it was not found"},
		{name: "it is not in a list, and must not be", typ: remove, o: list("default", b1)},
		{name: "it is not in an empty list, and must not be", typ: remove, o: list("")},
		{name: "it is in a list, and must not be", typ: remove, o: list("", b1, a1), miss: ": it was found"},
		{name: "it is in a list of another namespace", typ: remove, o: list("other"), miss: " is another object"},
		{name: "another of its name is in the list", typ: update, o: list("", object("other", "a", 1)),
			miss: ": it was not found"},
		{name: "it is not on a page of a list", typ: remove,
			miss: " is one page of a list: the object may be on another",
			o:    with(list("default", b1), func(o *record.Observation) { o.Partial = true })},
		{name: "it is on a page of a list", typ: update,
			o: with(list("default", a1), func(o *record.Observation) { o.Partial = true })},
		{name: "a list fails", typ: remove, miss: " failed: refused",
			o: with(list("default"), func(o *record.Observation) { o.Error = "refused" })},
		{name: "it is in a list in another state", typ: update, where: "object.n == 2", o: list("default", b1, a1),
			miss: ": where is false"},
		{name: "an object of the list is not JSON", typ: update, where: "object.n == 2",
			o: list("default", json.RawMessage(`[`), a1), miss: ": where is false"},
		{name: "a collection with it is deleted", typ: remove, o: deletes("default", b1, a1)},
		{name: "before a collection with it is deleted", typ: remove, phase: wire.Before, o: deletes("default", a1)},
		{name: "a collection with it is deleted in another state", typ: remove, where: "object.n == 2",
			o: deletes("default", b1, a1), miss: ": where is false"},
		{name: "a collection without it is deleted", typ: remove, o: deletes("default", b1),
			miss: " deletes no such object"},
		{name: "a collection of another namespace is deleted", typ: remove, o: deletes("other", b1),
			miss: " is another object"},
		{name: "it is created", typ: create, o: with(write, func(o *record.Observation) {
			o.Op, o.Object = wire.Create, a1
		})},
		{name: "its creation fails", typ: create, miss: " failed: it exists", o: with(write,
			func(o *record.Observation) { o.Op, o.Error, o.Code = wire.Create, "it exists", 409 })},
		{name: "it is not found for a deletion", typ: remove, miss: " failed: not found", o: with(write,
			func(o *record.Observation) { o.Op, o.Error, o.Code = wire.Delete, "not found", 404 })},
		{name: "its deletion succeeds, and the plan makes its answer an error", typ: remove, o: with(write,
			func(o *record.Observation) { o.Op, o.Error, o.Failed, o.Code = wire.Delete, "lost", wire.Lost, 200 })},
		{name: "it is evicted", typ: remove, o: with(write,
			func(o *record.Observation) { o.Op, o.Subresource = wire.Create, "eviction" })},
		{name: "a token is created", typ: create, miss: " neither changes nor shows the object", o: with(write,
			func(o *record.Observation) { o.Op, o.Subresource = wire.Create, "token" })},
		{name: "it is updated", typ: update, cur: map[string]any{"n": 1}, o: with(write, func(o *record.Observation) {
			o.Op, o.OldObject, o.Object = wire.Update, object("default", "a", 0), a1
		})},
		{name: "it is updated, and nothing changes", typ: update, cur: map[string]any{"n": 1},
			miss: ": n did not change: it is 1", o: with(write, func(o *record.Observation) {
				o.Op, o.OldObject, o.Object = wire.Update, a1, a1
			})},
		{name: "another type of its name", typ: update, miss: "; nothing like it was observed", o: with(get,
			func(o *record.Observation) { o.Kind = "service" })},
		{name: "it is in the cluster", typ: update, in: "west", o: with(get, func(o *record.Observation) {
			o.Cluster, o.Object = "west", a1
		})},
		{name: "it is in another cluster", typ: update, in: "west", miss: " in east (after controllerRead at db) " +
			"is another object", o: with(get, func(o *record.Observation) { o.Cluster, o.Object = "east", a1 })},
		{name: "it is in any cluster", typ: update, o: with(get, func(o *record.Observation) {
			o.Cluster, o.Object = "east", a1
		})},
		{name: "nobody knows its cluster", typ: update, in: "west", miss: " may be in any cluster, and not in west",
			o: with(get, func(o *record.Observation) { o.Cluster, o.Object = record.UnknownCluster, a1 })},
		{name: "nobody knows the cluster of another object", typ: update, miss: " is another object", o: with(get,
			func(o *record.Observation) { o.Cluster, o.Name = record.UnknownCluster, "b" })},
		{name: "nobody knows the cluster of another type", typ: update, in: "west",
			miss: "; nothing like it was observed", o: with(get, func(o *record.Observation) {
				o.Cluster, o.Kind = record.UnknownCluster, "service"
			})},
		{name: "invalid JSON", typ: update, where: "object.n == 1", miss: ": object: unexpected end of JSON input",
			o: with(get, func(o *record.Observation) { o.Object = json.RawMessage(`{"n":`) })},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := tt.o
			o.By, o.GroupKnown, o.Phase = "db", true, wire.After
			if o.Kind == "" {
				o.Kind = "pod"
			}
			timings := map[wire.Point]plan.Timing{
				wire.ControllerRead: plan.AfterControllerRead, wire.ControllerWrite: plan.AfterControllerWrite}
			if tt.phase == wire.Before {
				o.Phase = wire.Before
				timings = map[wire.Point]plan.Timing{
					wire.ControllerRead: plan.BeforeControllerRead, wire.ControllerWrite: plan.BeforeControllerWrite}
			}
			m, err := New(&plan.Plan{Actions: []plan.Action{restart(plan.Trigger{
				Expression: "it", Graph: mustGraph(t, "it"), Definitions: []plan.Definition{{
					Name: "it", Condition: plan.Condition{Type: tt.typ, Where: tt.where, CurState: stateOf(tt.cur),
						ResourceKey: plan.ResourceKey{Type: "pod", Namespace: "default", Name: "a"}},
					Observe: plan.ObservationPoint{Timing: timings[o.Point], ObserveBy: "db", Cluster: tt.in},
				}},
			})}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			m.Start()
			m.Step(record.Event{Seq: 1, Observation: &o})
			switch waiting := strings.Join(m.Waiting(), "\n"); {
			case (m.Fired() == 1) != (tt.miss == ""):
				t.Errorf("fired %d actions, want miss %q: %s", m.Fired(), tt.miss, waiting)
			case !strings.HasSuffix(waiting, tt.miss):
				t.Errorf("waiting: %s, want miss %q", waiting, tt.miss)
			}
		})
	}
}

// stateOf returns a state that is not given for an empty one.
func stateOf(fields map[string]any) any {
	if fields == nil {
		return nil
	}
	return fields
}

// Of what controllers read, the observation that came closest is reported.
func TestNearestMissOfReads(t *testing.T) {
	get := func(n string) record.Observation {
		return record.Observation{Op: wire.Get, Name: "a", Object: json.RawMessage(`{"n":` + n + `}`)}
	}
	list := func(numbers ...string) record.Observation {
		o := record.Observation{Op: wire.List}
		for i, n := range numbers {
			o.Objects = append(o.Objects,
				json.RawMessage(fmt.Sprintf(`{"metadata":{"namespace":"default","name":"p%d"},"n":%s}`, i, n)))
		}
		return o
	}
	failed := get("0")
	failed.Error = "refused"
	for _, tt := range []struct {
		name string
		all  []record.Observation
		want string
	}{
		{"a state after a call that failed", []record.Observation{failed, get("3")}, "of 2: get of pod/default/a " +
			"(after controllerRead at db): n is 3, not 2"},
		{"a state before a call that failed", []record.Observation{get("3"), failed}, ": n is 3, not 2"},
		{"a state before what is not JSON", []record.Observation{get("3"), get("x")}, ": n is 3, not 2"},
		{"another type before another value, in a list", []record.Observation{list(`"2"`, "3")}, `: n is "2", not 2`},
		{"another type after another value, in a list", []record.Observation{list("3", `"2"`)}, `: n is "2", not 2`},
		{"the later of two equally near ones in a list", []record.Observation{list("3", "4")}, ": n is 4, not 2"},
		{"a list before an object", []record.Observation{list(`"2"`), get("3")}, `: n is "2", not 2`},
	} {
		m, err := New(&plan.Plan{Actions: []plan.Action{restart(plan.Trigger{
			Expression: "it", Graph: mustGraph(t, "it"), Definitions: []plan.Definition{{
				Name: "it", Condition: plan.Condition{Type: plan.OnObjectUpdate, CurState: map[string]any{"n": 2},
					ResourceKey: plan.ResourceKey{Type: "pod", Namespace: "default", Name: "*"}},
				Observe: plan.ObservationPoint{Timing: plan.AfterControllerRead, ObserveBy: "db"},
			}},
		})}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		m.Start()
		for i, o := range tt.all {
			o.By, o.Point, o.Phase, o.Kind, o.Namespace = "db", wire.ControllerRead, wire.After, "pod", "default"
			m.Step(record.Event{Seq: i + 1, Observation: &o})
		}
		if got := m.Waiting(); len(got) != 1 || !strings.HasSuffix(got[0], tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// A reconciler is given by its controller's name or by its type, in full or from any place on.
func TestReconcilerMatches(t *testing.T) {
	full := "example.com/op/controller.(*DatabaseReconciler)"
	for _, tt := range []struct {
		want string
		o    record.Observation
		ok   bool
	}{
		{"database", record.Observation{Reconciler: "database", ReconcilerType: full}, true},
		{"data", record.Observation{Reconciler: "database", ReconcilerType: full}, false},
		{"backup", record.Observation{Reconciler: "database"}, false},
		{full, record.Observation{Reconciler: "database", ReconcilerType: full}, true},
		{"controller.(*DatabaseReconciler)", record.Observation{ReconcilerType: full}, true},
		{full + ".Reconcile", record.Observation{ReconcilerType: full}, true},
		{"example.com/op/controller.(*BackupReconciler)", record.Observation{ReconcilerType: full}, false},
	} {
		if got := reconcilerMatches(tt.want, &tt.o); got != tt.ok {
			t.Errorf("%s matches %+v: %t, want %t", tt.want, tt.o, got, tt.ok)
		}
	}
}

// A reconcile is compared by its namespace and name.
func TestRequestMatches(t *testing.T) {
	for _, tt := range []struct {
		key, request string
		want         bool
	}{
		{"", "default/db", true},
		{"database/default/db", "default/db", true},
		{"database/default/db", "other/db", false},
		{"database/default/db", "default/web", false},
		{"database.example.com/*/d*", "default/db", true},
		{"node//n1", "n1", true},
		{"node//n1", "/n1", true},
		{"node//n1", "n2", false},
		{"node//n1", "default/n1", false},
	} {
		var key plan.ResourceKey
		if tt.key != "" {
			var err error
			if key, err = plan.ParseResourceKey(tt.key); err != nil {
				t.Fatal(err)
			}
		}
		if got := requestMatches(key, &record.Observation{Request: tt.request}); got != tt.want {
			t.Errorf("%q matches a reconcile of %s: %t, want %t", tt.key, tt.request, got, tt.want)
		}
	}
}

func TestDescribe(t *testing.T) {
	read := record.Observation{By: "db", Point: wire.ControllerRead, Phase: wire.After, Op: wire.Get, Kind: "pod",
		Resource: "pods", Namespace: "default", Name: "a"}
	with := func(f func(*record.Observation)) record.Observation { o := read; f(&o); return o }
	for _, tt := range []struct {
		o    record.Observation
		want string
	}{
		{read, "get of pod/default/a (after controllerRead at db)"},
		{with(func(o *record.Observation) { o.Subresource = "status" }),
			"get status of pod/default/a (after controllerRead at db)"},
		{with(func(o *record.Observation) { o.Op, o.Kind, o.Name = wire.List, "", "" }),
			"list of pods/default/* (after controllerRead at db)"},
		{with(func(o *record.Observation) { o.Cluster = "west" }),
			"get of pod/default/a in west (after controllerRead at db)"},
		{with(func(o *record.Observation) { o.Cluster = record.UnknownCluster }),
			"get of pod/default/a (after controllerRead at db)"},
		{record.Observation{Point: wire.Reconcile, Phase: wire.Before, Request: "default/a"},
			"before reconcile of default/a"},
		{record.Observation{Point: wire.AnnotatedCall, Phase: wire.After, CallName: "backup"}, "after call of backup"},
	} {
		if got := Describe(&tt.o); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

func TestDescribeDefinition(t *testing.T) {
	at := plan.ObservationPoint{Timing: plan.AfterControllerWrite, ObserveBy: "db"}
	west := at
	west.Cluster = "west"
	key := plan.ResourceKey{Type: "pod", Namespace: "default", Name: "a"}
	for _, tt := range []struct {
		d    plan.Definition
		want string
	}{
		{plan.Definition{Condition: plan.Condition{Type: plan.OnNone}}, "nothing"},
		{plan.Definition{Condition: plan.Condition{Type: plan.OnTimeout, Timeout: 20 * time.Second}},
			"its timeout of 20s"},
		{plan.Definition{Condition: plan.Condition{Type: plan.OnAnnotatedCall, Call: "backup"},
			Observe: plan.ObservationPoint{Timing: plan.BeforeAnnotatedCall, ObserveBy: "db"}},
			"call backup, beforeAnnotatedCall at db"},
		{plan.Definition{Observe: at,
			Condition: plan.Condition{Type: plan.OnObjectCreation, ResourceKey: key, Repeat: 1}},
			"onObjectCreation of pod/default/a, afterControllerWrite at db"},
		{plan.Definition{Observe: west,
			Condition: plan.Condition{Type: plan.OnObjectUpdate, ResourceKey: key, Repeat: 2}},
			"onObjectUpdate of pod/default/a in west, afterControllerWrite at db, 2 times"},
	} {
		if got := describeDefinition(&tt.d); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}
