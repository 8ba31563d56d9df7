package facts

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/record"
)

// tape is a recorded run in the making. Each step takes a second.
type tape struct {
	t       *testing.T
	run     record.Run
	version uint64
	now     int64
	calls   uint64
	callers record.Callers // of the writes
}

func (r *tape) time() time.Time { return time.Unix(r.now, 0) }

func (r *tape) see(o record.Observation) {
	r.now++
	o.By, o.Session, o.Kind, o.Namespace = "db", 1, "set", "default"
	o.Resource = "sets"
	r.run.Events = append(r.run.Events, record.Event{Time: r.time(), Observation: &o})
}

// changed records a new state of the object "web".
func (r *tape) changed() json.RawMessage {
	r.version++
	r.now++
	event := record.Updated
	if r.version == 1 {
		event = record.Created
	}
	r.run.History = append(r.run.History, record.HistoryEntry{
		Time: r.time(), ResourceVersion: r.version, Event: event, Type: "set", Namespace: "default", Name: "web",
		Object: r.state(),
	})
	return r.state()
}

func (r *tape) state() json.RawMessage {
	return fmt.Appendf(nil, `{"kind": "Set", "apiVersion": "v1", "metadata": {"name": "web", "namespace": "default",
		"resourceVersion": "%d"}, "spec": {"n": %d}}`, r.version, r.version)
}

// writes records a call of the controller, with or without effect.
func (r *tape) writes(op wire.Operation, sent, reconcile string, effect bool) {
	r.calls++
	o := record.Observation{
		Call: r.calls, Point: wire.ControllerWrite, Phase: wire.Before, Op: op, Name: "web", ReconcileID: reconcile,
		Request: "default/web", Callers: r.callers,
	}
	if op == wire.Apply || op == wire.Patch {
		o.Patch = json.RawMessage(sent)
	} else {
		o.Object = json.RawMessage(sent)
	}
	r.see(o)
	if effect {
		r.changed()
	}
	o.Phase, o.Object, o.Callers = wire.After, r.state(), record.Callers{} // they are asked for before the call
	r.see(o)
}

func (r *tape) reads(name, reconcile string) {
	op := wire.Get
	if name == "" {
		op = wire.List
	}
	r.see(record.Observation{
		Point: wire.ControllerRead, Phase: wire.After, Op: op, Name: name, ReconcileID: reconcile,
		Request: "default/web",
	})
}

func (r *tape) changes() []Change {
	r.t.Helper()
	all, err := Changes(&r.run)
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

// A write without effect is answered with the version that another client has written.
func TestWriteWithoutEffect(t *testing.T) {
	r := &tape{t: t}
	r.changed()
	r.writes(wire.Update, `{}`, "", false)
	if c := r.changes()[0]; c.By != "" {
		t.Errorf("%s has made it", c.By)
	}
}

func TestAppliedAgain(t *testing.T) {
	for _, again := range []bool{false, true} {
		r := &tape{t: t, callers: record.Callers{{Function: "main.f", File: "main.go", Line: 1}}}
		r.writes(wire.Apply, `{"spec": {"n": 1}}`, "", true)
		if again {
			r.writes(wire.Apply, `{"spec": {"n": 1}}`, "", false)
		}
		c := r.changes()[0]
		if c.By != "db" || c.AppliedAgain != again {
			t.Errorf("written by %q, applied again: %t, want %t", c.By, c.AppliedAgain, again)
		}
		if spec, _ := c.Sent["spec"].(map[string]any); spec["n"] != 1.0 {
			t.Errorf("sent %v", c.Sent)
		}
		if c.Origin.Callers != r.callers {
			t.Errorf("written at %v", c.Origin.Callers)
		}
	}
}

// A reconcile's writes may rest on what it and the one before it have read.
func TestReads(t *testing.T) {
	r := &tape{t: t}
	r.reads("old", "r1")
	r.reads("a", "r2")
	r.reads("web", "r3")
	r.writes(wire.Update, `{}`, "r3", true)
	r.reads("late", "r3")
	r.reads("", "r3")
	r.writes(wire.Update, `{}`, "r3", true)
	r.writes(wire.Update, `{}`, "", true)
	all := r.changes()
	for i, want := range [][]string{
		{"set/default/a", "set/default/web"},
		{"set/default/*", "set/default/a", "set/default/late", "set/default/web"},
		nil,
	} {
		if !slices.Equal(all[i].Read, want) || (all[i].Read == nil) != (want == nil) {
			t.Errorf("write %d: read %q, want %q", i+1, all[i].Read, want)
		}
	}
}
