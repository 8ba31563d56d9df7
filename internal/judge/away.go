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
		e := p.Actions[a.Index].Effects()
		for _, s := range servers {
			if e.Moves != nil && e.Moves.Controller == controller && plan.SameCluster(e.Moves.APIServer, s.name) &&
				!a.Began.After(at) {
				*s = server{name: e.Moves.APIServer}
			}
			if e.Stops == s.name && !a.Began.After(at) {
				s.killed, s.back = a.Began, time.Time{}
			}
			if e.Starts == s.name && !s.killed.IsZero() && s.back.IsZero() {
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
		var by, key string
		switch e := a.Effects(); {
		case e.Pauses != nil:
			by, key = e.Pauses.By, e.Pauses.Scope
		case e.Fails != nil:
			by, key = e.Fails.By, e.Fails.Scope
		}
		if by != c.Name {
			return false
		}
		scope, err := plan.ParseResourceKey(key)
		if err != nil {
			return false // a pause of everything, which excludes leader election
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
		if p.Actions[a.Index].Effects().Freezes != controller || a.Began.IsZero() || a.Began.After(at) {
			continue
		}
		ever = true
		end := endBefore(p, actions, a, at, func(e plan.Effects) bool { return e.Thaws == controller })
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
		fails := p.Actions[a.Index].Effects().Fails
		if fails == nil || fails.By != controller || a.Began.IsZero() || a.Began.After(at) {
			continue
		}
		end := a.Done
		if fails.Times == 0 {
			end = endBefore(p, actions, a, at, func(e plan.Effects) bool {
				r := e.Restores
				return r != nil && r.By == controller && (r.Scope == "" || r.Scope == fails.Scope)
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
		d := p.Actions[a.Index].Effects().Disconnects
		if d == nil || d.By != controller || a.Began.IsZero() || a.Began.After(at) {
			continue
		}
		end := endBefore(p, actions, a, at, func(e plan.Effects) bool { return d.SameAs(e.Connects) })
		if !at.After(end.Add(grace)) {
			return d.Cluster
		}
	}
	return ""
}

// endBefore returns when what an action began was first ended by another one, if that was before the time; otherwise
// the time.
func endBefore(
	p *plan.Plan, actions []record.Action, began record.Action, at time.Time, ends func(plan.Effects) bool,
) time.Time {
	for _, b := range actions {
		ended := !b.Done.IsZero() && b.Done.Before(at)
		if ended && ends(p.Actions[b.Index].Effects()) && !b.Began.Before(began.Began) {
			at = b.Done
		}
	}
	return at
}
