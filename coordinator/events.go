package coordinator

import (
	"context"
	"encoding/json"
	"fmt"
	"path"

	"github.com/trommel-dev/trommel/coordinator/machine"
	"github.com/trommel-dev/trommel/coordinator/monitor"
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/record"
)

// monitored handles an event of the monitor.
func (c *Coordinator) monitored(ctx context.Context, e monitor.Event) {
	c.unobserved(e)
	if e.Observation != nil && e.Abandoned == nil {
		election := c.elections.about(e.Session.Identity, e.Observation)
		if election {
			c.elections.note(e.Session, e.Observation)
		}
		c.settling.note(e.Session.Identity, election || c.elections.delivers(e.Observation), c.clock.Now())
	}
	switch {
	case e.Started:
		c.settling.active[e.Session.Identity] = c.clock.Now()
		c.sessions.of(e.Session.Identity).begin(e.Session.ID)
		c.loop.changed()
	case e.Abandoned != nil:
		c.abandoned(ctx, e)
	case e.Trouble != nil:
		c.findings.addOnce(hookFailed(e, c.clock.Now()))
	case e.Missed != nil, e.Silent > 0:
	case e.Ended:
		c.exited(ctx, e.Session)
	case c.began && needsForesight(e.Observation) && c.own.take(e.Session, e.Observation):
		c.lookups.begin(ctx, func() arrival {
			foreseen, err := c.config.Lookup.Foresee(ctx, e.Session.Identity, e.Observation)
			return arrival{event: e, foreseen: &foreseen, err: err}
		})
	case c.began && needsState(e.Observation) && c.own.take(e.Session, e.Observation):
		c.lookups.begin(ctx, func() arrival {
			state, err := c.config.Lookup.State(ctx, e.Session.Identity, e.Observation)
			return arrival{event: e, state: state, err: err}
		})
	default:
		c.arrived(ctx, arrival{event: e})
	}
}

// exited handles the end of a session, with which its holds end.
func (c *Coordinator) exited(ctx context.Context, s *monitor.Session) {
	c.sessions.of(s.Identity).end(s.ID)
	c.elections.forget(s)
	c.lookups.forget(s.ID)
	if o, count := c.holds.drop(s); count > 0 && c.began && !c.machine.Down(s.Identity) {
		what := machine.DescribeHeld(c.observation(s, o))
		if count > 1 {
			what += fmt.Sprintf(" (and %d more)", count-1)
		}
		c.config.Watcher.Info(what + " is no longer held: its process has exited")
	}
	if c.began {
		c.step(ctx, record.Event{SessionEnd: &record.SessionEnd{By: s.Identity, Session: s.ID}})
		// A process that was frozen has been killed.
		if action, frozen := c.freezer.end(s.ID); frozen && !c.machine.Ended() {
			c.lapse(ctx, action)
		}
	}
	c.loop.changed()
}

// abandoned handles that the caller of a held observation has gone on because its context ended.
func (c *Coordinator) abandoned(ctx context.Context, e monitor.Event) {
	seq, ok := c.holds.find(e.Observation)
	if !ok {
		// Its lookup is still running; it will be released as soon as it arrives.
		if c.began {
			c.lookups.abandon(e.Observation)
		}
		return
	}
	who := "its caller gave up"
	if e.Abandoned.LetGo {
		who = "its hook released it"
	}
	c.config.Watcher.Info(fmt.Sprintf("%s is no longer held: %s (%s)",
		machine.DescribeHeld(c.observation(e.Session, e.Observation)), who, e.Abandoned.Error))
	c.step(ctx, record.Event{Abandoned: &seq})
}

// arrived judges an observation for which nothing remains to be looked up.
func (c *Coordinator) arrived(ctx context.Context, a arrival) {
	o := a.event.Observation
	if !c.began {
		a.event.Release()
		return
	}
	if a.err != nil {
		c.config.Logger.Warn("lookup for a write failed", "object", o.Namespace+"/"+o.Name, "operation", o.Operation,
			"error", a.err)
	}
	live := !c.sessions.of(a.event.Session.Identity).hasEnded(a.event.Session.ID)
	if o.Point == wire.ControllerWrite {
		c.lookups.fillIn(a, live)
	}
	r := c.observation(a.event.Session, o)
	r.Aside = !c.own.take(a.event.Session, o)
	r.Election = c.elections.about(r.By, o)
	seq := c.recording.seq + 1
	c.holds.add(ctx, seq, a.event)
	c.step(ctx, record.Event{Observation: r})
	// During the lookup its caller may have gone on, or its process died: there is nothing to hold.
	abandoned := c.lookups.abandoned(o) || !live
	if _, held := c.holds.event(seq); abandoned && held {
		c.step(ctx, record.Event{Abandoned: &seq})
	}
}

// observation is recordObservation, with the cluster.
func (c *Coordinator) observation(s *monitor.Session, o *wire.Observation) *record.Observation {
	r := recordObservation(s, o)
	if c.config.ClusterOf != nil {
		r.Cluster = c.config.ClusterOf(s.Identity, o)
	}
	return r
}

func recordObservation(s *monitor.Session, o *wire.Observation) *record.Observation {
	return &record.Observation{
		By: s.Identity, Session: s.ID, Call: o.Call, Point: o.Point, Phase: o.Phase, Op: o.Operation,
		Group: o.Group, GroupKnown: o.GroupKnown, Resource: o.Resource, Kind: o.Kind, Namespace: o.Namespace,
		Name: o.Name, Subresource: o.Subresource, Object: validJSON(o.Object), OldObject: validJSON(o.OldObject),
		Live: o.Live, Reconciler: o.Reconciler, ReconcilerType: o.ReconcilerType, ReconcileID: o.ReconcileID,
		Request: o.Request, CallName: o.CallName, Error: o.Error, Code: o.Code, Failed: o.Failed,
		Version: o.Version, Query: o.Query, PatchType: o.PatchType, Patch: validJSON(o.Patch),
		Objects: validList(o.Objects), Partial: o.Partial, Callers: callersOf(o),
	}
}

func callersOf(o *wire.Observation) (c record.Callers) {
	for i := range min(len(c), len(o.Callers)) {
		c[i] = record.Frame(o.Callers[i])
		if c[i].Function != "" && path.IsAbs(c[i].File) { // of a module that Trommel has put somewhere
			c[i].File = path.Join(c[i].Package(), path.Base(c[i].File))
		}
	}
	return c
}

func validList(list [][]byte) []json.RawMessage {
	var valid []json.RawMessage
	for _, data := range list {
		if v := validJSON(data); v != nil {
			valid = append(valid, v)
		}
	}
	return valid
}

// validJSON drops invalid JSON (a process may send anything), so that the record can be written.
func validJSON(data []byte) json.RawMessage {
	if len(data) == 0 || !json.Valid(data) {
		return nil
	}
	return data
}
