package judge

import (
	"net/http"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// locate names the source of the call that the plan has disturbed, in bugs that name no write of which the source is
// known: what is wrong then usually is that something was not done again.
func (e Evidence) locate(all []record.Finding) {
	from, call := e.struck()
	if call == "" {
		return
	}
	for i := range all {
		if f := &all[i]; f.IsBug() && !f.Callers.Known() {
			f.Origin, f.Call = from, call
		}
	}
}

// struck is where the first call comes from that the plan or a disruption made to fail or, if there is none, the last
// write of a controller before the plan killed it for the first time, also by an upgrade. Call is empty if there is
// neither, or if the place is unknown.
func (e Evidence) struck() (from record.Origin, call record.CallKind) {
	made := map[[2]uint64]record.Origin{}
	last := map[string]record.Origin{} // by controller; empty: of all
	killed, disrupted := e.firstKill(), e.firstDisruption()
	for i := range e.Events {
		o := e.Events[i].Observation
		if o == nil || o.Election {
			continue
		}
		id := [2]uint64{o.Session, o.Call}
		if o.Callers.Known() {
			made[id] = record.Origin{Callers: o.Callers, Event: e.Events[i].Seq}
		}
		switch {
		case made[id].Callers.Known() && (o.Failed != "" || failedBy(disrupted, o, e.Events[i].Time)):
			return made[id], record.FailedCall
		case o.Point == wire.ControllerWrite && killed != nil && !e.Events[i].Time.After(killed.At()):
			last[o.By], last[""] = made[id], made[id]
		}
	}
	if killed != nil && last[killed.Target].Callers.Known() {
		return last[killed.Target], record.KilledAfter
	}
	return record.Origin{}, ""
}

// failedBy reports whether a write got no answer of an API server while a disruption may have been the reason.
func failedBy(disruption *record.Action, o *record.Observation, at time.Time) bool {
	return disruption != nil && !at.Before(disruption.Began) && o.Point == wire.ControllerWrite &&
		o.Phase == wire.After && o.Error != "" && (o.Code == 0 || o.Code >= http.StatusInternalServerError)
}

// firstDisruption is the first action that began a disruption; nil: there is none.
func (e Evidence) firstDisruption() *record.Action {
	return e.firstAction(func(a *record.Action, p *plan.Action) bool { return plan.Has[*plan.Begin](p) })
}

// firstAction is the first action of that kind which began; nil: there is none.
func (e Evidence) firstAction(kind func(*record.Action, *plan.Action) bool) *record.Action {
	if e.Plan == nil {
		return nil
	}
	for i := range e.Actions {
		if a := &e.Actions[i]; !a.Began.IsZero() && kind(a, &e.Plan.Actions[a.Index]) {
			return a
		}
	}
	return nil
}

// firstKill is the first action that killed a controller, or all of them, and then has no target; nil: there is none.
func (e Evidence) firstKill() *record.Action {
	return e.firstAction(func(a *record.Action, p *plan.Action) bool {
		stop := plan.EffectOf[*plan.Stop](p)
		return plan.Has[*plan.Upgrading](p) || stop != nil && stop.Process == a.Target &&
			slices.ContainsFunc(e.Meta.Controllers, func(c record.Controller) bool { return c.Name == a.Target })
	})
}
