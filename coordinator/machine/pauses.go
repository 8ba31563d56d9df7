package machine

import (
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// pause is a point at which observations are held until a resume.
type pause struct {
	action int // the action that began it
	what   *plan.Pause
	point  wire.Point
	phase  wire.Phase
}

// pauses are in force.
type pauses []pause

// begin puts the pause of an action into force.
func (all *pauses) begin(action int, what *plan.Pause) Effect {
	*all = append(*all, pauseOf(action, what))
	return Pausing{Action: action}
}

func pauseOf(i int, p *plan.Pause) pause {
	made := pause{action: i, what: p}
	made.point, made.phase = wirePoint(p.At)
	return made
}

// takes reports whether an observation is at the pause's point and in its scope.
func (p *pause) takes(o *record.Observation) bool {
	if p.what.By != o.By || p.point != o.Point || p.phase != o.Phase || !p.in(o) {
		return false
	}
	if p.what.Scope.Everything() {
		return !isElection(o)
	}
	return p.covers(o)
}

// in reports whether an observation may be about an object in the pause's cluster. What is not about an object is in
// all.
func (p *pause) in(o *record.Observation) bool {
	return p.what.Cluster == "" || o.Cluster == p.what.Cluster || o.Cluster == record.UnknownCluster ||
		byRequest(o.Point)
}

// covers reports whether an observation at the pause's point is in its scope. A reconcile and an annotated call are
// matched by the reconciled request, which has no type.
func (p *pause) covers(o *record.Observation) bool {
	key := p.what.Scope.Key
	if byRequest(p.point) {
		return requestMatches(key, o)
	}
	return key.Matches(o.Kind, o.Group, o.GroupKnown, o.Namespace, o.Name) || scopeCovers(key, o)
}

// byRequest reports whether observations at a point are identified by a reconcile's request instead of an object.
func byRequest(p wire.Point) bool { return p == wire.Reconcile || p == wire.AnnotatedCall }

// isElection reports whether a call belongs to a leader election: the lock is read or written outside of any reconcile.
// A pause of everything excludes it, because otherwise the controller would lose its leadership and exit.
func isElection(o *record.Observation) bool {
	return o.Election || (o.Point == wire.ControllerRead || o.Point == wire.ControllerWrite) && o.ReconcileID == "" &&
		o.Group == "coordination.k8s.io" && (o.Resource == "leases" || o.Kind == "lease")
}

// scopeCovers reports whether a list or a collection, which names no object, can contain one that is in the scope.
func scopeCovers(key plan.ResourceKey, o *record.Observation) bool {
	if !isCollection(o) {
		return false
	}
	key.Name = "*"
	if o.Namespace == "" {
		key.Namespace = "*"
	}
	return key.Matches(o.Kind, o.Group, o.GroupKnown, o.Namespace, "x")
}

// by returns the action whose pause holds an observation; -1: none.
func (all pauses) by(o *record.Observation) int {
	for _, p := range all {
		if p.takes(o) {
			return p.action
		}
	}
	return -1
}
