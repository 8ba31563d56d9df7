package facts

import (
	"slices"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/record"
)

// absence is a time in which a controller could not do anything: none of its processes ran, or the started one had done
// nothing yet, or the processes were those of another build than the one that the run ends with.
type absence struct {
	from time.Time
	acts time.Time // when a process first reconciles or writes
}

// starting is how long a controller may do nothing after its start, besides waiting for a lease. It only matters for a
// controller that never acts, because another one acts as soon as it can. On a busy machine a start takes many seconds:
// processes are started in real time, caches are filled from an API server that may be slow, and many controllers first
// wait for certificates or definitions. This hides a controller that ignores what it finds when it starts; that shows
// in runs in which the owner stays.
const starting = 30 * time.Second

// absences are those of the controllers in a recorded run, by name, oldest first.
func absences(r *record.Run) map[string][]absence {
	all, last := map[string][]absence{}, installed(r)
	for i := range r.Meta.Controllers {
		c := &r.Meta.Controllers[i]
		own := slices.Clone(r.Processes)
		own = slices.DeleteFunc(own, func(p record.Process) bool { return p.Controller != c.Name })
		slices.SortFunc(own, func(a, b record.Process) int { return a.Started.Compare(b.Started) })
		var until time.Time // when the last of those so far ended
		for i, p := range own {
			if i > 0 && p.Started.After(until) {
				acts := firstAct(r, c, p.Started, p.Started.Add(starting+c.LeaseLasts), nil)
				all[c.Name] = append(all[c.Name], absence{until, acts})
			}
			switch {
			case p.Running():
				until = r.Meta.Observed
			case p.Ended.After(until):
				until = p.Ended
			}
		}
		if len(own) > 0 && until.Before(r.Meta.Observed) {
			all[c.Name] = append(all[c.Name], absence{until, r.Meta.Observed})
		}
		if !last.IsZero() {
			all[c.Name] = append(all[c.Name], absence{time.Time{}, takesOver(r, c, own, last)})
		}
	}
	return all
}

// takesOver is when a controller begins to work with the build that was installed last. Its processes are given oldest
// first. In a rolling update it may have to wait until the former build ends and gives up the lease.
func takesOver(r *record.Run, c *record.Controller, own []record.Process, installed time.Time) time.Time {
	n := slices.IndexFunc(own, func(p record.Process) bool { return !p.Started.Before(installed) })
	if n < 0 {
		return r.Meta.Observed
	}
	free := own[n].Started
	for _, p := range own[:n] {
		if p.Ended.After(free) {
			free = p.Ended
		}
	}
	former := map[uint64]bool{}
	for i := range r.Events {
		if o := r.Events[i].Observation; o != nil && o.By == c.Name && r.Events[i].Time.Before(installed) {
			former[o.Session] = true
		}
	}
	return firstAct(r, c, own[n].Started, free.Add(starting+c.LeaseLasts), former)
}

// firstAct is when a controller that was started at a time begins to work, in another session than the former ones. If
// it does not, it is the latest time by which it could have.
func firstAct(r *record.Run, c *record.Controller, started, latest time.Time, former map[uint64]bool) time.Time {
	for i := range r.Events {
		e := &r.Events[i]
		o := e.Observation
		if o != nil && o.By == c.Name && !o.Election && !former[o.Session] &&
			!e.Time.Before(started) && e.Time.Before(latest) &&
			(o.Point == wire.ControllerWrite || o.Point == wire.Reconcile) {
			return e.Time
		}
	}
	return latest
}

// Away reports whether a controller could not have done, at a time, what was to be done before: it was not there, or
// had been there for less than the time that it needs when it begins to work.
func (f *Follower) Away(controller string, at time.Time, needs time.Duration) bool {
	return slices.ContainsFunc(f.absences[controller], func(a absence) bool {
		return !at.Before(a.from) && at.Before(a.acts.Add(needs))
	})
}

// Patience is how long a controller may leave what it could not do before it tries again. Some controllers rely on
// informers that deliver everything they hold again each minute, or more often.
const Patience = 65 * time.Second

// setbacks are the times at which the plan made calls of the controllers fail in a recorded run, by name.
func setbacks(r *record.Run) map[string][]time.Time {
	all := map[string][]time.Time{}
	for i := range r.Events {
		if o := r.Events[i].Observation; o != nil && o.Failed != "" {
			all[o.By] = append(all[o.By], r.Events[i].Time)
		}
	}
	return all
}

// SetBack reports whether the plan made a call of a controller fail in a life, and so late that the controller need not
// have tried again.
func (f *Follower) SetBack(controller string, life Life) bool {
	return slices.ContainsFunc(f.setbacks[controller], func(at time.Time) bool {
		return life.Has(at) && life.To.Sub(at) < Patience
	})
}

// Life is the time in which an object was there and not marked for deletion.
type Life struct {
	From, To time.Time // when that was observed; zero: it was there before, or in the end

	cluster    string
	begun, end uint64 // the resource versions; 0: as From and To
}

// Lives are the lives of the objects of a key, one after the other.
func Lives(changes []Change, key Key) []Life {
	var all []Life
	living := false
	for i := range changes {
		c := &changes[i]
		switch {
		case c.Key != key:
		case c.Event == record.Created:
			all, living = append(all, Life{From: c.Time, cluster: key.Cluster(), begun: c.Version}), true
		case len(all) == 0:
			all, living = append(all, Life{cluster: key.Cluster()}), true
			fallthrough
		default:
			if living && (c.Event == record.Deleted || c.Marked()) {
				last := &all[len(all)-1]
				last.To, last.end, living = c.Time, c.Version, false
			}
		}
	}
	return all
}

// Has reports whether a time belongs to the life.
func (l Life) Has(at time.Time) bool { return !at.Before(l.From) && (l.To.IsZero() || at.Before(l.To)) }

// HasChange reports whether an object was changed in the life. In one cluster the resource versions decide: the changes
// of different types may be observed in another order than they were made.
func (l Life) HasChange(c *Change) bool {
	if c.Key.Cluster() != l.cluster || c.Version == 0 {
		return l.Has(c.Time)
	}
	return c.Version >= l.begun && (l.To.IsZero() || c.Version < l.end)
}
