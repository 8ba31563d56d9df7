package judge

import (
	"slices"
	"time"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// ServerAway returns one of the API servers that the controller was connected to at that time if the plan had killed it
// by then, otherwise "". A controller that exits without its API server has no bug: Kubernetes' own controllers do so
// too, and the kubelet restarts them. It may also exit during the grace period after the API server is back. The
// actions are those carried out so far, in any order.
func ServerAway(
	p *plan.Plan, controllers []record.Controller, actions []record.Action, grace time.Duration, controller string,
	at time.Time,
) string {
	type server struct {
		name         string
		killed, back time.Time
	}
	var servers []*server // one of each cluster
	for _, c := range controllers {
		if c.Name == controller {
			for _, name := range c.APIServers() {
				servers = append(servers, &server{name: name})
			}
		}
	}
	actions = slices.SortedFunc(slices.Values(actions), func(a, b record.Action) int {
		return a.Began.Compare(b.Began)
	})
	for _, a := range actions {
		if a.Began.IsZero() {
			continue // the plan ended before it began
		}
		does := &p.Actions[a.Index]
		move := plan.EffectOf[*plan.Move](does)
		for _, s := range servers {
			if move != nil && move.Controller == controller && plan.SameCluster(move.APIServer, s.name) &&
				!a.Began.After(at) {
				*s = server{name: move.APIServer}
			}
			if does.Stops(s.name) && !a.Began.After(at) {
				s.killed, s.back = a.Began, time.Time{}
			}
			if does.Starts(s.name) && !s.killed.IsZero() && s.back.IsZero() {
				s.back = a.Done
			}
		}
	}
	for _, s := range servers {
		if !s.killed.IsZero() && (s.back.IsZero() || !at.After(s.back.Add(grace))) {
			return s.name
		}
	}
	return ""
}

// pausesLocks reports whether the plan itself pauses the controller's access to its leader election lock, or makes it
// fail: then the plan is meant to make it lose its leadership.
func pausesLocks(p *plan.Plan, c record.Controller) bool {
	return slices.ContainsFunc(p.Actions, func(a plan.Action) bool {
		var by string
		var scope plan.ResourceKey
		for _, e := range a.Effects() {
			switch e := e.(type) {
			case *plan.Pause:
				by, scope = e.By, e.Scope.Key
			case *plan.CallFailure:
				by, scope = e.By, e.Scope.Key
			}
		}
		if by != c.Name || scope.IsZero() {
			return false // a pause of everything excludes leader election
		}
		return scope.Type == "lease" || slices.ContainsFunc(c.Locks, func(lock string) bool {
			l, err := plan.ParseResourceKey(lock)
			return err == nil && scope.Matches(l.Type, l.Group, true, l.Namespace, l.Name)
		})
	})
}

// frozen reports whether the plan had frozen a process of the controller by then, and whether it was frozen at that
// time or less than grace before it. A process that was frozen finds its lease taken and its timeouts expired, and may
// exit because of that; the kubelet restarts it.
func frozen(
	p *plan.Plan, actions []record.Action, grace time.Duration, controller string, at time.Time,
) (ever, lately bool) {
	for _, a := range actions {
		freeze := plan.EffectOf[*plan.Freeze](&p.Actions[a.Index])
		if freeze == nil || freeze.Controller != controller || a.Began.IsZero() || a.Began.After(at) {
			continue
		}
		ever = true
		end := endBefore(p, actions, a, at, func(a *plan.Action) bool {
			thaw := plan.EffectOf[*plan.Thaw](a)
			return thaw != nil && thaw.Controller == controller
		})
		lately = lately || !at.After(end.Add(grace))
	}
	return ever, lately
}

// callsFailed reports whether the plan made the controller's calls fail at that time, or less than grace before it. A
// controller that exits because the API server refuses its calls has no bug: the kubelet restarts it.
func callsFailed(
	p *plan.Plan, actions []record.Action, grace time.Duration, controller string, at time.Time,
) bool {
	for _, a := range actions {
		fails := plan.EffectOf[*plan.CallFailure](&p.Actions[a.Index])
		if fails == nil || fails.By != controller || a.Began.IsZero() || a.Began.After(at) {
			continue
		}
		end := a.Done
		if fails.Times == 0 {
			end = endBefore(p, actions, a, at, func(a *plan.Action) bool {
				r := plan.EffectOf[*plan.Restore](a)
				return r != nil && r.By == controller && (r.Scope.IsZero() || r.Scope == fails.Scope)
			})
		}
		if !at.After(end.Add(grace)) {
			return true
		}
	}
	return false
}

// disconnected returns the cluster to which the plan disturbed the controller's connection at that time, or less than
// grace before it; empty: none. A controller that exits because it does not reach a cluster has no bug.
func disconnected(
	p *plan.Plan, actions []record.Action, grace time.Duration, controller string, at time.Time,
) (cluster string) {
	for _, a := range actions {
		d := plan.EffectOf[*plan.Disconnection](&p.Actions[a.Index])
		if d == nil || d.By != controller || a.Began.IsZero() || a.Began.After(at) {
			continue
		}
		end := endBefore(p, actions, a, at, func(a *plan.Action) bool {
			c := plan.EffectOf[*plan.Connection](a)
			return c != nil && d.EndedBy(c)
		})
		if !at.After(end.Add(grace)) {
			return d.Cluster
		}
	}
	return ""
}

// endBefore returns when what an action began was first ended by another one, if that was before the time; otherwise
// the time.
func endBefore(
	p *plan.Plan, actions []record.Action, began record.Action, at time.Time, ends func(*plan.Action) bool,
) time.Time {
	for _, b := range actions {
		ended := !b.Done.IsZero() && b.Done.Before(at)
		if ended && ends(&p.Actions[b.Index]) && !b.Began.Before(began.Began) {
			at = b.Done
		}
	}
	return at
}
