// Package lead finds in the record of a traced run what led to a finding: the reconcile that made the call which the
// finding names, what it had received and read, and what it should have seen. It says only what the record proves.
package lead

import (
	"fmt"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/record"
)

// Lead is what led to a finding.
type Lead struct {
	// Reconcile says which one it was: "the reconcile of default/db by db-operator". Began is zero if the call was made
	// outside of controller-runtime's reconciles; then it says: "what op received before that call".
	Reconcile string    `json:"reconcile"`
	Began     time.Time `json:"began"`
	Steps     []Step    `json:"steps"` // what was received before it, and what it did, in order
	Why       []string  `json:"why"`   // what follows from that, in sentences; at least one
}

// Step is something that a controller received, read or wrote.
type Step struct {
	At    time.Time `json:"at"`
	Text  string    `json:"text"`
	Place string    `json:"place,omitempty"` // of the call in the controller's source; empty: unknown, or no call
	// Wrong: what was read was not the newest, or the call is the one that the finding names.
	Wrong bool `json:"wrong,omitempty"`

	write bool
	read  string // the nameOf an object that was read and there; empty: it is something else
}

// Limits of a lead, so that it can be read.
const (
	maxReceived = 3
	maxSteps    = 14 // of a reconcile; the last ones are shown
	maxObjects  = 3  // of a list, that were not the newest
	maxStale    = 5  // things that it should have seen

	long = 100 * time.Millisecond // a read takes that long only if the plan holds it
	late = 100 * time.Millisecond // a cache is behind by less at any time, for one object or another
)

// Of returns what led to a finding. Nil: the finding names no call that made something wrong, or the run was not
// traced.
func Of(r *record.Run, f record.Finding) *Lead {
	at := slices.IndexFunc(r.Events, func(e record.Event) bool { return f.Event != 0 && e.Seq == f.Event })
	if at < 0 || r.Events[at].Observation == nil || f.Call == record.WroteIt {
		return nil
	}
	t := newTracks(r)
	c := t.reconcileOf(r.Events[at].Observation)
	if c == nil {
		return t.outside(at, f.Call)
	}
	lead := &Lead{
		Reconcile: fmt.Sprintf("the reconcile of %s by %s", c.request, c.by), Began: r.Events[c.from].Time,
		Steps: t.received(c),
	}
	steps, stale := t.steps(c, at)
	lead.Steps = append(lead.Steps, steps...)
	switch {
	case f.Call == record.FailedCall:
		more, why := t.then(t.next(c, false), "the next reconcile of it begins", at)
		lead.Steps, lead.Why = append(lead.Steps, more...), append(t.again(c, at), why...)
	case f.Call == record.KilledAfter, len(stale) == 0 && t.restarted(c):
		more, why := t.then(t.next(c, true), "the next process begins to reconcile it", at)
		lead.Steps, lead.Why = append(lead.Steps, more...), why
	case len(stale) > 0:
		lead.Why = stale
	default:
		if lead.Why = t.unseen(c.by, c.session, at); len(lead.Why) == 0 {
			lead.Why = []string{"Nothing that it read is known to have been out of date: the record does not show why."}
		}
	}
	return lead
}

// outside is the lead of a call that no reconcile of controller-runtime made: which of the process's reads belong to it
// is unknown, but not what the process had received. Nil: what it received was not recorded.
func (t *tracks) outside(at int, how record.CallKind) *Lead {
	o := t.events[at].Observation
	if o.Point != wire.ControllerWrite || o.Phase != wire.Before {
		return nil
	}
	lead := &Lead{Reconcile: fmt.Sprintf("what %s received before that call", o.By)}
	for i := at - 1; i >= 0 && len(lead.Steps) < maxReceived; i-- {
		if e := t.events[i].Observation; isDelivery(e, wire.After, o.Session) && !e.Election {
			lead.Steps = append(lead.Steps, t.receipt(i))
		}
	}
	if len(lead.Steps) == 0 {
		return nil
	}
	slices.Reverse(lead.Steps)
	lead.Steps = append(lead.Steps, t.wrote(at, true))
	switch how {
	case record.FailedCall:
		lead.Why = t.again(nil, at)
	case record.KilledAfter:
		lead.Why = []string{t.afterwards(o, at)}
	default:
		lead.Why = t.unseen(o.By, o.Session, at)
	}
	if len(lead.Why) == 0 {
		lead.Why = []string{"It is not known to have been behind: the record does not show why."}
	}
	return lead
}

// afterwards says whether another process of the controller wrote anything after the last call of one.
func (t *tracks) afterwards(last *record.Observation, at int) string {
	for _, e := range t.events[at:] {
		o := e.Observation
		if o != nil && o.Point == wire.ControllerWrite && !o.Election && o.By == last.By && o.Session != last.Session {
			return "The next process writes: the record does not show why the end is wrong."
		}
	}
	return fmt.Sprintf("No other process of %s writes anything after that call.", last.By)
}

// again says whether a call that failed was made again. The reconcile that made it is nil if it is unknown.
func (t *tracks) again(c *reconcile, at int) []string {
	failed := t.events[at].Observation
	begin := ""
	if c != nil {
		end := "goes on"
		if c.to < len(t.events) {
			end = "ends without an error"
			if t.events[c.to].Observation.Error != "" {
				end = "ends with an error"
			}
		}
		begin = fmt.Sprintf("The reconcile %s. ", end)
	}
	for i := at + 1; i < len(t.events); i++ {
		o := t.events[i].Observation
		if o != nil && o.Point == wire.ControllerWrite && o.Phase == wire.Before && !o.Election && o.By == failed.By &&
			o.Op == failed.Op && o.Subresource == failed.Subresource && o.Subject() == failed.Subject() {
			return []string{fmt.Sprintf("%s%s makes the same call again %s later.", begin, o.By,
				roughly(t.events[i].Time.Sub(t.events[at].Time)))}
		}
	}
	return []string{fmt.Sprintf("%s%s does not make the same call again.", begin, failed.By)}
}

// then shows the next reconcile of the same request, which had to take up the work after a write that was disturbed.
func (t *tracks) then(next *reconcile, begins string, write int) (steps []Step, why []string) {
	if next == nil {
		return nil, []string{"It is not reconciled after that."}
	}
	steps = append(steps, Step{At: t.events[next.from].Time, Text: begins})
	did, stale := t.steps(next, -1)
	last := t.events[write].Observation
	found := slices.IndexFunc(did, func(s Step) bool { return s.read == nameOf(last) })
	switch {
	case len(stale) > 0:
		why = stale
	case found >= 0:
		did[found].Wrong = true
		why = []string{"The next reconcile finds what was written last before, and goes on from there."}
	case len(did) == 0:
		why = []string{"The next reconcile reads and writes nothing."}
	case !slices.ContainsFunc(did, func(s Step) bool { return s.write }):
		did[len(did)-1].Wrong = true
		why = []string{"The next reconcile takes what it finds for done: it reads this last, and writes nothing."}
	default:
		why = []string{"The next reconcile writes: the record does not show why the end is wrong."}
	}
	return append(steps, did...), why
}

// nameOf is what reads and writes of the same object have in common.
func nameOf(o *record.Observation) string {
	return o.Cluster + " " + o.Kind + " " + o.Namespace + "/" + o.Name
}
