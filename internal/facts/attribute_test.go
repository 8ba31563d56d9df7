package facts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/record"
)

// happens records a change of the object "web", with what its metadata has in addition, and who wrote it.
func (r *tape) happens(event, meta string, writers ...record.FieldManager) {
	r.changed()
	h := &r.run.History[len(r.run.History)-1]
	h.Event, h.Writers = event, writers
	h.Object = fmt.Appendf(nil, `{"kind": "Set", "apiVersion": "v1", "spec": {"n": 1}, "status": {"n": %d},
		"metadata": {"name": "web", "namespace": "default", "uid": "u", "resourceVersion": "%d"%s}}`,
		r.version, r.version, meta)
}

// answered records a call of the controller. What happens meanwhile is recorded before its answer.
func (r *tape) answered(o record.Observation, meanwhile func()) {
	r.calls++
	o.Call, o.Point, o.Phase, o.Name = r.calls, wire.ControllerWrite, wire.Before, "web"
	r.see(o)
	if meanwhile != nil {
		meanwhile()
	}
	o.Phase, o.Object = wire.After, nil
	if o.Op != wire.Delete && o.Subresource != "eviction" {
		o.Object = r.run.History[len(r.run.History)-1].Object
	}
	r.see(o)
}

const (
	marked    = `, "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0`
	finalizer = `, "finalizers": ["f"]`
)

// Some writes have no effect. Changes of other clients, before, meanwhile or later, do not belong to them.
func TestOthersChanges(t *testing.T) {
	update, patch := record.Observation{Op: wire.Update}, record.Observation{Op: wire.Patch}
	patch.Patch = json.RawMessage(`{"spec": {"n": 1}}`)
	apply := record.Observation{Op: wire.Apply, Patch: patch.Patch, Query: "fieldManager=op&force=true"}
	status := record.FieldManager{Manager: "kube-controller-manager", Operation: "Update", Subresource: "status"}
	for name, happens := range map[string]func(r *tape){
		"deleted a minute after an update": func(r *tape) {
			r.answered(update, nil)
			r.now += 60
			r.happens(record.Deleted, "")
		},
		"marked a minute after a deletion of a marked object": func(r *tape) {
			r.happens(record.Updated, marked+finalizer)
			r.answered(record.Observation{Op: wire.Delete}, nil)
			r.now += 60
			r.happens(record.Deleted, marked)
			r.happens(record.Created, "")
			r.happens(record.Updated, marked)
		},
		"deleted while it is updated": func(r *tape) {
			r.happens(record.Updated, marked+finalizer)
			r.answered(update, nil)
			r.happens(record.Deleted, marked)
		},
		"changed just before an update whose beginning is unknown": func(r *tape) {
			r.happens(record.Updated, "")
			r.see(record.Observation{Call: 1, Point: wire.ControllerWrite, Phase: wire.After, Op: wire.Update,
				Name: "web", Object: r.run.History[1].Object})
		},
		"its status changed while it is applied": func(r *tape) {
			r.answered(apply, func() { r.happens(record.Updated, "", status) })
		},
		"another client applies it meanwhile": func(r *tape) {
			r.answered(apply, func() {
				r.happens(record.Updated, "", record.FieldManager{Manager: "kubectl", Operation: "Apply"})
			})
		},
		"changed elsewhere than a patch says": func(r *tape) {
			r.answered(patch, func() { r.happens(record.Updated, "") })
		},
		"another process has taken in what an update is answered with": func(r *tape) {
			r.happens(record.Updated, "")
			state := r.run.History[1]
			r.run.History[1].Time = time.Unix(100, 0) // the history's connection is slow
			r.see(record.Observation{Point: wire.ControllerRecv, Phase: wire.After, Name: "web", Object: state.Object})
			r.answered(update, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &tape{t: t}
			r.happens(record.Created, "")
			happens(r)
			for _, c := range r.changes() {
				if c.By != "" {
					t.Errorf("%s has %s version %d by %s", c.By, c.Event, c.Version, c.Op)
				}
			}
		})
	}
}

// A controller's own writes are known, also if another client could have made them.
func TestOwnChanges(t *testing.T) {
	update := record.Observation{Op: wire.Update, Object: json.RawMessage(`{"metadata": {"resourceVersion": "1"}}`)}
	apply := record.Observation{Op: wire.Apply, Query: "fieldManager=op"}
	by := record.FieldManager{Manager: "op", Operation: "Apply"}
	inNone := func(r *tape) { // the object is in no namespace, though the controller gives one
		for i := range r.run.History {
			h := &r.run.History[i]
			h.Namespace, h.Object = "", bytes.Replace(h.Object, []byte(`"namespace": "default", `), nil, 1)
		}
	}
	for name, happens := range map[string]func(r *tape){
		"creation of an object in no namespace": func(r *tape) {
			r.run.History = nil
			r.answered(record.Observation{Op: wire.Create}, func() { r.happens(record.Created, ""); inNone(r) })
		},
		"deletion of an object in no namespace": func(r *tape) {
			r.answered(record.Observation{Op: wire.Delete}, func() { r.happens(record.Deleted, ""); inNone(r) })
		},
		"update": func(r *tape) {
			r.answered(update, func() { r.happens(record.Updated, "", record.FieldManager{Manager: "x"}) })
		},
		"apply": func(r *tape) { r.answered(apply, func() { r.happens(record.Updated, "", by) }) },
		"apply that creates it": func(r *tape) {
			r.run.History = nil
			r.answered(apply, func() { r.happens(record.Created, "", by) })
		},
		"patch": func(r *tape) {
			r.answered(record.Observation{Op: wire.Patch, Patch: json.RawMessage(`{"status": {"n": 2}}`)},
				func() { r.happens(record.Updated, "") })
		},
		"deletion that is in the history only after its answer": func(r *tape) {
			r.answered(record.Observation{Op: wire.Delete}, func() {
				r.happens(record.Deleted, "")
				r.run.History[len(r.run.History)-1].Time = time.Unix(r.now+1, 2e8)
			})
		},
		"mark for deletion": func(r *tape) {
			r.answered(record.Observation{Op: wire.Delete}, func() { r.happens(record.Updated, marked+finalizer) })
		},
		"eviction": func(r *tape) {
			r.answered(record.Observation{Op: wire.Create, Subresource: "eviction"}, func() {
				r.happens(record.Updated, marked)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &tape{t: t}
			r.happens(record.Created, "")
			happens(r)
			all := r.changes()
			if c := all[len(all)-1]; c.By != "db" {
				t.Errorf("version %d is %q's", c.Version, c.By)
			}
		})
	}
}

// An update that removes the last finalizer of a marked object deletes it.
func TestLastFinalizer(t *testing.T) {
	r := &tape{t: t}
	r.happens(record.Created, finalizer)
	r.happens(record.Updated, marked+finalizer)
	before := r.run.History[1].Object
	r.answered(record.Observation{Op: wire.Update, Object: before}, func() { r.happens(record.Deleted, marked) })
	all := r.changes()
	if all[1].By != "" || all[2].By != "db" {
		t.Errorf("marked by %q, deleted by %q", all[1].By, all[2].By)
	}
}

// The answer to the removal of the last finalizer has the version of the state before, which another client may have
// written since the call began.
func TestLastFinalizerWhileSomebodyElseWrites(t *testing.T) {
	r := &tape{t: t}
	r.happens(record.Created, finalizer)
	o := record.Observation{Call: 1, Point: wire.ControllerWrite, Phase: wire.Before, Op: wire.Patch, Name: "web",
		Patch: json.RawMessage(`[{"op": "remove", "path": "/metadata/finalizers"}]`)}
	r.see(o)
	r.happens(record.Updated, marked+finalizer)
	o.Object = bytes.Replace(r.run.History[1].Object, []byte(finalizer), nil, 1)
	r.happens(record.Deleted, marked)
	o.Phase = wire.After
	r.see(o)
	all := r.changes()
	if all[1].By != "" || all[2].By != "db" {
		t.Errorf("marked by %q, deleted by %q", all[1].By, all[2].By)
	}
}

// The deletion of a collection ends all objects that it selects, and no others.
func TestDeletedCollection(t *testing.T) {
	for query, want := range map[string]string{
		"":                                "a b",
		"labelSelector=app%3Dweb":         "a",
		"fieldSelector=metadata.name%3Db": "b",
		"fieldSelector=status.n%3D1":      "",
	} {
		r := &tape{t: t}
		state := func(event, name, labels string) {
			r.happens(event, `, "labels": {`+labels+`}`)
			h := &r.run.History[len(r.run.History)-1]
			h.Name, h.Object = name, bytes.Replace(h.Object, []byte(`"name": "web"`), []byte(`"name": "`+name+`"`), 1)
		}
		for name, labels := range map[string]string{"a": `"app": "web"`, "b": "", "later": `"app": "web"`} {
			state(record.Created, name, labels)
		}
		o := record.Observation{Call: 1, Point: wire.ControllerWrite, Phase: wire.Before, Op: wire.DeleteCollection,
			Query: query}
		r.see(o)
		state(record.Deleted, "a", `"app": "web"`)
		state(record.Deleted, "b", "")
		o.Phase = wire.After
		r.see(o)
		state(record.Deleted, "later", `"app": "web"`)
		var got []string
		for _, c := range r.changes() {
			if c.By != "" {
				got = append(got, c.Name())
			}
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%q has deleted %q, want %q", query, text, want)
		}
	}
}

// A controller that is killed before the answer to its write has written, if the change shows what it sent.
func TestUnansweredWrites(t *testing.T) {
	const manager = "fieldManager=op"
	op := record.FieldManager{Manager: "op", Operation: "Update"}
	update := func(n int, based string) record.Observation {
		return record.Observation{Op: wire.Update, Query: manager, Object: fmt.Appendf(nil,
			`{"spec": {"n": 1}, "status": {"n": %d}, "metadata": {"name": "web", "resourceVersion": %q}}`, n, based)}
	}
	for name, test := range map[string]struct {
		sent    record.Observation
		event   string
		writer  record.FieldManager
		first   bool // the change is the object's first
		before  bool // an answered write has shown the controller's name
		claimed bool
	}{
		"update":                          {sent: update(2, "1"), event: record.Updated, writer: op, claimed: true},
		"update of another state":         {sent: update(2, "7"), event: record.Updated, writer: op},
		"update that sent something else": {sent: update(3, "1"), event: record.Updated, writer: op},
		"update that another client names": {sent: update(2, "1"), event: record.Updated,
			writer: record.FieldManager{Manager: "kubectl", Operation: "Update"}},
		"update without a version":    {sent: update(2, ""), event: record.Updated, writer: op},
		"update, and then a deletion": {sent: update(2, "1"), event: record.Deleted, writer: op},
		"patch": {sent: record.Observation{Op: wire.Patch, Query: manager,
			Patch: json.RawMessage(`{"status": {"n": 2}}`)}, event: record.Updated, writer: op, claimed: true},
		"patch of something else": {sent: record.Observation{Op: wire.Patch, Query: manager,
			Patch: json.RawMessage(`{"spec": {"n": 2}}`)}, event: record.Updated, writer: op},
		"patch by the name that another write has shown": {sent: record.Observation{Op: wire.Patch,
			Patch: json.RawMessage(`{"status": {"n": 3}}`)}, event: record.Updated, writer: op, before: true,
			claimed: true},
		"patch by another name than another write has shown": {sent: record.Observation{Op: wire.Patch,
			Patch: json.RawMessage(`{"status": {"n": 3}}`)}, event: record.Updated, before: true,
			writer: record.FieldManager{Manager: "kubectl", Operation: "Update"}},
		"creation": {sent: record.Observation{Op: wire.Create, Query: manager,
			Object: json.RawMessage(`{"spec": {"n": 1}, "metadata": {"creationTimestamp": null}}`)},
			event: record.Created, writer: op, first: true, claimed: true},
		"creation of something else": {sent: record.Observation{Op: wire.Create, Query: manager,
			Object: json.RawMessage(`{"spec": {"n": 1, "m": 2}}`)}, event: record.Created, writer: op, first: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := &tape{t: t}
			if !test.first {
				r.happens(record.Created, "")
			}
			if test.before {
				r.answered(record.Observation{Op: wire.Update}, func() { r.happens(record.Updated, "", op) })
			}
			o := test.sent
			o.Call, o.Point, o.Phase, o.Name = 9, wire.ControllerWrite, wire.Before, "web"
			r.see(o)
			r.happens(test.event, "", test.writer)
			all := r.changes()
			if got := all[len(all)-1].By != ""; got != test.claimed {
				t.Errorf("claimed: %t, want %t", got, test.claimed)
			}
			// An answer that reports a failure shows that the write had no effect.
			o.Phase, o.Object, o.Error = wire.After, nil, "conflict"
			r.see(o)
			all = r.changes()
			if by := all[len(all)-1].By; by != "" {
				t.Errorf("%s has it in spite of the failure", by)
			}
		})
	}
}

// If a controller is killed, the end of its session can be the first event that has the whole object of its last write.
func TestUnansweredWriteIsCompletedAtTheEnd(t *testing.T) {
	for _, n := range []int{2, 3} {
		r := &tape{t: t}
		r.happens(record.Created, "")
		o := record.Observation{
			Call: 9, Point: wire.ControllerWrite, Phase: wire.Before, Name: "web", Op: wire.Update,
			Object: json.RawMessage(`{"metadata": {"name": "web", "resourceVersion": "1"}}`),
		}
		r.see(o)
		r.happens(record.Updated, "", record.FieldManager{Manager: "op", Operation: "Update"})
		end := *r.run.Events[len(r.run.Events)-1].Observation
		end.Object = fmt.Appendf(nil,
			`{"spec": {"n": 1}, "status": {"n": %d}, "metadata": {"name": "web", "resourceVersion": "1"}}`, n)
		r.run.Events = append(r.run.Events, record.Event{
			SessionEnd: &record.SessionEnd{By: end.By, Session: end.Session, Unanswered: []record.Observation{end}},
		})
		all := r.changes()
		if by, wrote := all[len(all)-1].By, n == 2; (by != "") != wrote {
			t.Errorf("sent %d, which the change shows: %t; written by %q", n, wrote, by)
		}
	}
}
