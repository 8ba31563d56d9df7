package lead

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/record"
)

// scene makes the record of a run. Each event is a second after the one before.
type scene struct {
	record.Run
	calls uint64
}

func (s *scene) now() time.Time { return time.Unix(int64(len(s.Events)), 0) }

func (s *scene) add(o record.Observation) int {
	if o.By == "" {
		o.By = "op"
	}
	if o.Call == 0 {
		s.calls++
		o.Call = s.calls
	}
	s.Events = append(s.Events, record.Event{Seq: len(s.Events) + 1, Time: s.now(), Observation: &o})
	return len(s.Events)
}

func body(version int) json.RawMessage {
	if version == 0 {
		return nil
	}
	return json.RawMessage(fmt.Sprintf(`{"metadata": {"resourceVersion": "%d"}}`, version))
}

// stored adds a state to the history.
func (s *scene) stored(name, event, by string, version int) {
	s.History = append(s.History, record.HistoryEntry{
		Time: s.now(), ResourceVersion: uint64(version), Event: event, Type: "thing", Namespace: "ns", Name: name,
		Writers: []record.FieldManager{{Manager: by}}, Object: body(version),
	})
}

func (s *scene) received(session uint64, op wire.Operation, name string, version int) {
	s.add(record.Observation{
		Session: session, Point: wire.ControllerRecv, Phase: wire.After, Op: op, Kind: "thing", Namespace: "ns",
		Name:   name,
		Object: body(version),
	})
}

// process reconciles ns/a.
type process struct {
	*scene
	session uint64
	id      string
}

func (p process) reconcile(phase wire.Phase, err string) {
	p.add(record.Observation{
		Session: p.session, Point: wire.Reconcile, Phase: phase, ReconcileID: p.id, Request: "ns/a", Error: err,
	})
}

func at(line int) record.Callers {
	return record.Callers{{Function: "main.f", File: "main.go", Line: line}}
}

func (p process) read(name string, version, line int) {
	o := record.Observation{
		Session: p.session, Point: wire.ControllerRead, Phase: wire.After, ReconcileID: p.id, Op: wire.Get,
		Kind: "thing", Namespace: "ns", Name: name, Object: body(version), Callers: at(line),
	}
	if version == 0 {
		o.Error, o.Code = "not found", 404
	}
	p.add(o)
}

func (p process) list(line int) {
	p.add(record.Observation{
		Session: p.session, Point: wire.ControllerRead, Phase: wire.After, ReconcileID: p.id, Op: wire.List,
		Kind: "thing", Namespace: "ns", Callers: at(line),
	})
}

// write returns the number of the event before it.
func (p process) write(op wire.Operation, name string, version, line int, err string) int {
	o := record.Observation{
		Session: p.session, Call: p.calls + 1, Point: wire.ControllerWrite, Phase: wire.Before,
		ReconcileID: p.id, Op: op, Kind: "thing", Namespace: "ns", Name: name, Callers: at(line),
	}
	p.calls++
	seq := p.add(o)
	o.Phase, o.Callers, o.Error, o.Object = wire.After, record.Callers{}, err, body(version)
	if err != "" {
		o.Failed = wire.Lost
	}
	p.add(o)
	return seq
}

func TestLead(t *testing.T) {
	for _, tt := range []struct {
		name string
		call record.CallKind
		act  func(s *scene) (event int)
		want string
	}{
		{"an object that was out of date", "", func(s *scene) int {
			p := process{s, 1, "r1"}
			s.stored("a", record.Created, "user", 5)
			s.received(1, wire.Create, "a", 5)
			s.stored("a", record.Updated, "user", 6)
			s.stored("a", record.Updated, "other", 7)
			p.reconcile(wire.Before, "")
			p.read("a", 5, 10)
			return p.write(wire.Delete, "b", 0, 20, "")
		}, `op receives the creation of thing/ns/a (version 5)
! it reads thing/ns/a (version 5), which is not the newest main.go:10 f
! it deletes thing/ns/b main.go:20 f
= It should have seen thing/ns/a (version 7), written by other 1.0 s before: 2 versions behind.`},
		{"an event that is held", "", func(s *scene) int {
			p := process{s, 1, "r1"}
			delivery := record.Observation{
				Session: 1, Call: 100, Point: wire.ControllerRecv, Phase: wire.Before, Op: wire.Update, Kind: "thing",
				Namespace: "ns", Name: "c", Object: body(8),
			}
			s.add(delivery)
			for _, ignored := range []record.Observation{
				{Session: 2, Kind: "thing", Name: "of another process"},
				{Session: 1, Kind: "other", Name: "unreported"},
			} {
				ignored.Point, ignored.Phase, ignored.Op = wire.ControllerRecv, wire.Before, wire.Update
				s.add(ignored)
			}
			s.received(1, wire.Create, "a", 5)
			p.reconcile(wire.Before, "")
			p.read("a", 5, 10)
			seq := p.write(wire.Delete, "b", 0, 20, "")
			delivery.Phase = wire.After
			s.add(delivery)
			return seq
		}, `op receives the creation of thing/ns/a (version 5)
it reads thing/ns/a (version 5) main.go:10 f
! it deletes thing/ns/b main.go:20 f
= op had not received the update of thing/ns/c (version 8): that event was held, for 6.0 s by then.`},
		{"an event that is held before an API server", "", func(s *scene) int {
			p := process{s, 1, "r1"}
			late := func(kind, name string, call uint64, phase wire.Phase) {
				s.add(record.Observation{
					By: "apiserver-1", Session: 9, Call: call, Point: wire.APIServerRecv, Phase: phase, Op: wire.Update,
					Kind: kind, Namespace: "ns", Name: name, Object: body(8),
				})
			}
			late("thing", "early", 1, wire.Before)
			late("thing", "early", 1, wire.After)
			late("thing", "c", 2, wire.Before)
			late("other", "never-received", 3, wire.Before)
			s.received(1, wire.Create, "a", 5)
			p.reconcile(wire.Before, "")
			seq := p.write(wire.Delete, "b", 0, 20, "")
			late("thing", "c", 2, wire.After)
			late("other", "never-received", 3, wire.After)
			return seq
		}, `op receives the creation of thing/ns/a (version 5)
! it deletes thing/ns/b main.go:20 f
= apiserver-1 had not received the update of thing/ns/c (version 8): that event was held, for 4.0 s by then.`},
		{"a call outside of reconciles, with a cache that is behind", "", func(s *scene) int {
			p := process{s, 1, ""}
			s.stored("a", record.Existing, "user", 5)
			for version := range 4 {
				s.received(1, wire.Update, "a", version+2)
			}
			s.stored("a", record.Updated, "user", 6)
			s.received(2, wire.Update, "a", 6)
			return p.write(wire.Delete, "b", 0, 20, "")
		}, `op receives the update of thing/ns/a (version 3)
op receives the update of thing/ns/a (version 4)
op receives the update of thing/ns/a (version 5)
! it deletes thing/ns/b main.go:20 f
= Its cache should have had thing/ns/a (version 6), written by user 1.0 s before: 1 version behind.`},
		{"a call outside of reconciles that fails", record.FailedCall, func(s *scene) int {
			p := process{s, 1, ""}
			s.received(1, wire.Create, "a", 5)
			return p.write(wire.Create, "b", 0, 20, "refused")
		}, `op receives the creation of thing/ns/a (version 5)
! it creates thing/ns/b: done, but the plan makes the answer get lost main.go:20 f
= op does not make the same call again.`},
		{"a call outside of reconciles, and then a kill", record.KilledAfter, func(s *scene) int {
			p := process{s, 1, ""}
			s.received(1, wire.Create, "a", 5)
			return p.write(wire.Create, "b", 6, 20, "")
		}, `op receives the creation of thing/ns/a (version 5)
! it creates thing/ns/b (version 6) main.go:20 f
= No other process of op writes anything after that call.`},
		{"a read that is held", "", func(s *scene) int {
			p := process{s, 1, "r1"}
			s.stored("a", record.Existing, "user", 5)
			p.reconcile(wire.Before, "")
			s.add(record.Observation{
				Session: 1, Call: s.calls + 1, Point: wire.ControllerRead, Phase: wire.Before, ReconcileID: "r1",
				Op: wire.Get,
			})
			p.read("a", 5, 10)
			return p.write(wire.Delete, "b", 0, 20, "")
		}, `nothing is received before; it is the first reconcile of it by this process
it reads thing/ns/a (version 5), held for 1.0 s main.go:10 f
! it deletes thing/ns/b main.go:20 f
= Nothing that it read is known to have been out of date: the record does not show why.`},
		{"an object that is gone", "", func(s *scene) int {
			p := process{s, 1, "r1"}
			s.stored("a", record.Created, "user", 5)
			s.received(1, wire.Create, "a", 5)
			s.stored("a", record.Deleted, "", 6)
			p.reconcile(wire.Before, "")
			p.read("a", 5, 10)
			return p.write(wire.Create, "b", 8, 20, "")
		}, `op receives the creation of thing/ns/a (version 5)
! it reads thing/ns/a (version 5), which is not the newest main.go:10 f
! it creates thing/ns/b (version 8) main.go:20 f
= It should have seen that thing/ns/a was gone: it was deleted 1.0 s before.`},
		{"an object that the cache lacks", "", func(s *scene) int {
			p := process{s, 1, "r1"}
			s.stored("a", record.Existing, "user", 3)
			s.received(1, wire.Create, "a", 3)
			s.received(1, wire.Create, "b", 4)
			s.received(1, wire.Delete, "b", 4)
			s.stored("b", record.Created, "op", 5)
			s.received(2, wire.Create, "b", 5) // another process
			p.reconcile(wire.Before, "")
			p.list(10)
			return p.write(wire.Create, "b", 6, 20, "")
		}, `op receives the creation of thing/ns/a (version 3)
op receives the creation of thing/ns/b (version 4)
op receives the deletion of thing/ns/b (version 4)
! it lists things in ns, from a cache that is behind main.go:10 f
! it creates thing/ns/b (version 6) main.go:20 f
= Its cache should have had thing/ns/b (version 5), created by op 2.0 s before: there was none.`},
		{"an object that the cache has not received yet", "", func(s *scene) int {
			p := process{s, 1, "r1"}
			s.stored("b", record.Created, "op", 5)
			s.stored("other", record.Created, "op", 6) // of which the cache may never hear
			p.reconcile(wire.Before, "")
			p.list(10)
			event := p.write(wire.Create, "b", 0, 20, "")
			s.received(1, wire.Create, "b", 5)
			return event
		}, `nothing is received before; it is the first reconcile of it by this process
! it lists things in ns, from a cache that is behind main.go:10 f
! it creates thing/ns/b main.go:20 f
= Its cache should have had thing/ns/b (version 5), created by op 1.0 s before: there was none.`},
		{"nothing was out of date", "", func(s *scene) int {
			first, p := process{s, 1, "r1"}, process{s, 1, "r2"}
			s.stored("a", record.Created, "user", 5)
			s.received(1, wire.Create, "a", 5)
			first.reconcile(wire.Before, "")
			first.reconcile(wire.After, "try again")
			p.reconcile(wire.Before, "")
			p.read("a", 5, 10)
			p.read("none", 0, 11)
			s.stored("a", record.Updated, "user", 9) // later
			return p.write(wire.Update, "a", 10, 20, "")
		}, `nothing is received since the reconcile before, which failed: it comes again, or is tried again
it reads thing/ns/a (version 5) main.go:10 f
it reads thing/ns/none: there is none main.go:11 f
! it updates thing/ns/a (version 10) main.go:20 f
= Nothing that it read is known to have been out of date: the record does not show why.`},
		{"a write, and a process that does not come back to it", "", func(s *scene) int {
			p := process{s, 1, "r1"}
			p.reconcile(wire.Before, "")
			event := p.write(wire.Create, "b", 5, 20, "")
			s.add(record.Observation{
				Session: 2, Point: wire.Reconcile, Phase: wire.Before, ReconcileID: "r2", Request: "ns/other",
			})
			return event
		}, `nothing is received before; it is the first reconcile of it by this process
! it creates thing/ns/b (version 5) main.go:20 f
= It is not reconciled after that.`},
		{"a kill after a write", record.KilledAfter, func(s *scene) int {
			p, next := process{s, 1, "r1"}, process{s, 2, "r2"}
			p.reconcile(wire.Before, "")
			event := p.write(wire.Create, "b", 5, 20, "")
			next.reconcile(wire.Before, "")
			next.read("b", 5, 30)
			next.reconcile(wire.After, "")
			return event
		}, `nothing is received before; it is the first reconcile of it by this process
! it creates thing/ns/b (version 5) main.go:20 f
the next process begins to reconcile it
! it reads thing/ns/b (version 5) main.go:30 f
= The next reconcile finds what was written last before, and goes on from there.`},
		{"a kill, and an end that looks done", record.KilledAfter, func(s *scene) int {
			p, next := process{s, 1, "r1"}, process{s, 2, "r2"}
			p.reconcile(wire.Before, "")
			event := p.write(wire.Create, "b", 5, 20, "")
			next.reconcile(wire.Before, "")
			next.read("c", 4, 30)
			next.read("d", 3, 31)
			return event
		}, `nothing is received before; it is the first reconcile of it by this process
! it creates thing/ns/b (version 5) main.go:20 f
the next process begins to reconcile it
it reads thing/ns/c (version 4) main.go:30 f
! it reads thing/ns/d (version 3) main.go:31 f
= The next reconcile takes what it finds for done: it reads this last, and writes nothing.`},
		{"a kill for good", record.KilledAfter, func(s *scene) int {
			p := process{s, 1, "r1"}
			p.reconcile(wire.Before, "")
			return p.write(wire.Create, "b", 5, 20, "")
		}, `nothing is received before; it is the first reconcile of it by this process
! it creates thing/ns/b (version 5) main.go:20 f
= It is not reconciled after that.`},
		{"a call that is not made again", record.FailedCall, func(s *scene) int {
			p := process{s, 1, "r1"}
			p.reconcile(wire.Before, "")
			event := p.write(wire.Update, "a", 5, 20, "timeout")
			p.reconcile(wire.After, "")
			return event
		}, `nothing is received before; it is the first reconcile of it by this process
! it updates thing/ns/a: done (version 5), but the plan makes the answer get lost main.go:20 f
= The reconcile ends without an error. op does not make the same call again.
= It is not reconciled after that.`},
		{"a call that is made again", record.FailedCall, func(s *scene) int {
			p, next := process{s, 1, "r1"}, process{s, 1, "r2"}
			p.reconcile(wire.Before, "")
			event := p.write(wire.Update, "a", 5, 20, "timeout")
			p.reconcile(wire.After, "timeout")
			next.reconcile(wire.Before, "")
			next.write(wire.Update, "a", 6, 20, "")
			return event
		}, `nothing is received before; it is the first reconcile of it by this process
! it updates thing/ns/a: done (version 5), but the plan makes the answer get lost main.go:20 f
the next reconcile of it begins
it updates thing/ns/a (version 6) main.go:20 f
= The reconcile ends with an error. op makes the same call again 4.0 s later.
= The next reconcile writes: the record does not show why the end is wrong.`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &scene{}
			event := tt.act(s)
			lead := Of(&s.Run, record.Finding{Call: tt.call, Origin: record.Origin{Event: event}})
			which := "the reconcile of ns/a by op"
			if strings.HasPrefix(tt.name, "a call outside of reconciles") {
				which = "what op received before that call"
			}
			if lead == nil || lead.Reconcile != which || lead.Began.IsZero() != (which[0] == 'w') {
				t.Fatalf("%+v", lead)
			}
			if diff := cmp.Diff(tt.want, text(lead)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func text(l *Lead) string {
	var lines []string
	for _, s := range l.Steps {
		line := strings.TrimSpace(s.Text + " " + s.Place)
		if s.Wrong {
			line = "! " + line
		}
		lines = append(lines, line)
	}
	for _, w := range l.Why {
		lines = append(lines, "= "+w)
	}
	return strings.Join(lines, "\n")
}

// Without a trace, or a reconcile, nothing is known.
func TestNoLead(t *testing.T) {
	s := &scene{}
	event := process{s, 1, "r1"}.write(wire.Update, "a", 5, 20, "")
	for _, f := range []record.Finding{{}, {Origin: record.Origin{Event: event}}, {Origin: record.Origin{Event: 99}}} {
		if l := Of(&s.Run, f); l != nil {
			t.Errorf("%+v: %+v", f, l)
		}
	}
}

// A lead has few steps, also of a reconcile with many calls.
func TestLongReconcile(t *testing.T) {
	s := &scene{}
	p := process{s, 1, "r1"}
	for i := range 9 {
		s.received(1, wire.Create, fmt.Sprint("x", i), 10+i)
	}
	s.stored("x3", record.Updated, "user", 99)
	p.reconcile(wire.Before, "")
	for i := range 40 {
		p.read(fmt.Sprint("x", i), 10+i, i)
	}
	event := p.write(wire.Update, "a", 90, 99, "")
	l := Of(&s.Run, record.Finding{Origin: record.Origin{Event: event}})
	if len(l.Steps) != maxReceived+1+maxSteps || !strings.HasPrefix(l.Steps[0].Text, "(after 6 others) op receives") ||
		!strings.HasPrefix(l.Steps[maxReceived].Text, "it reads thing/ns/x3 (version 13), which is not the newest") ||
		!strings.HasPrefix(l.Steps[maxReceived+1].Text, "(after 26 others) it reads thing/ns/x27") {
		t.Errorf("%d steps: %s", len(l.Steps), text(l))
	}
}
