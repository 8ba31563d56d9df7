package hook

import (
	"strconv"

	"github.com/trommel-dev/trommel/instrumentation/wire"
)

// The points, in the order of interests.rules.
const (
	apiServerRecv = iota
	controllerRecv
	controllerRead
	controllerWrite
	reconcile
	annotatedCall
	numPoints
)

func index(p wire.Point) int {
	switch p {
	case wire.APIServerRecv:
		return apiServerRecv
	case wire.ControllerRecv:
		return controllerRecv
	case wire.ControllerRead:
		return controllerRead
	case wire.ControllerWrite:
		return controllerWrite
	case wire.Reconcile:
		return reconcile
	case wire.AnnotatedCall:
		return annotatedCall
	}
	return -1
}

// interests is one generation of what the coordinator asks for. It is immutable.
type interests struct {
	session    *session
	generation uint64
	from       wire.Interests
	letGo      <-chan struct{}           // closed when the coordinator has fallen silent: all callers go on
	rules      [numPoints][2][]wire.Rule // by point and phase, 0 for before
}

func newInterests(s *session, from wire.Interests, letGo <-chan struct{}) *interests {
	i := &interests{session: s, generation: from.Generation, from: from, letGo: letGo}
	for _, r := range from.Rules {
		if n := index(r.Point); n >= 0 {
			i.rules[n][phaseIndex(r.Phase)] = append(i.rules[n][phaseIndex(r.Phase)], r)
		}
	}
	return i
}

func phaseIndex(p wire.Phase) int {
	if p == wire.Before {
		return 0
	}
	return 1
}

func (i *interests) listening(p wire.Point) bool {
	n := index(p)
	return n >= 0 && len(i.rules[n][0])+len(i.rules[n][1]) > 0
}

// wants reports whether a rule takes the call, whose phase is not set, before or after it.
func (i *interests) wants(o *wire.Observation) bool {
	n := index(o.Point)
	if n < 0 {
		return false
	}
	for phase := range i.rules[n] {
		for r := range i.rules[n][phase] {
			if i.rules[n][phase][r].Takes(o) {
				return true
			}
		}
	}
	return false
}

// complete reports whether a rule takes the observation, which of those rules ask for the objects of a list, and
// whether one asks for the callers. If the process does not know its object's whole type, the rest is taken from the
// rule: the coordinator knows the types of its cluster.
func (i *interests) complete(o *wire.Observation) (found bool, items []*wire.Rule, from bool) {
	n := index(o.Point)
	if n < 0 {
		return false, nil, false
	}
	rules := i.rules[n][phaseIndex(o.Phase)]
	for r := range rules {
		rule := &rules[r]
		if !rule.Takes(o) {
			continue
		}
		found, from = true, from || rule.Callers
		if rule.Items {
			items = append(items, rule)
		}
		// The kind is that of the resource, even if the request is for a subresource.
		if o.Kind == "" && o.Resource != "" && rule.Resource != "" {
			o.Kind = rule.Kind
		}
		if o.Resource == "" && o.Kind != "" && rule.Kind != "" && o.GroupKnown {
			o.Resource = rule.Resource
		}
	}
	return found, items, from
}

func formatID(n uint64) string { return "trommel-" + strconv.FormatUint(n, 10) }
