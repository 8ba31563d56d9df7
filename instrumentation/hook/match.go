package hook

import (
	"strconv"
	"strings"

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

// wants reports whether a rule takes the call, before or after it.
func (i *interests) wants(o *wire.Observation) bool {
	n := index(o.Point)
	if n < 0 {
		return false
	}
	for phase := range i.rules[n] {
		for r := range i.rules[n][phase] {
			if matches(&i.rules[n][phase][r], o) {
				return true
			}
		}
	}
	return false
}

// complete reports whether a rule takes the observation, and which of those rules ask for the objects of a list. If the
// process does not know its object's whole type, the rest is taken from the rule: the coordinator knows the types of
// its cluster.
func (i *interests) complete(o *wire.Observation) (found bool, items []*wire.Rule) {
	n := index(o.Point)
	if n < 0 {
		return false, nil
	}
	rules := i.rules[n][phaseIndex(o.Phase)]
	for r := range rules {
		rule := &rules[r]
		if !matches(rule, o) {
			continue
		}
		found = true
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
	return found, items
}

func matches(r *wire.Rule, o *wire.Observation) bool {
	switch {
	case r.Resource != "" && o.Resource != "":
		// If the resource is known, it decides: the body of pods/eviction is of another kind.
		if r.Resource != o.Resource {
			return false
		}
	case r.Kind != "" && o.Kind != "":
		if r.Kind != o.Kind {
			return false
		}
	case r.Kind != "" || r.Resource != "":
		return false
	}
	if (r.Kind != "" || r.Resource != "") && !r.AnyGroup && o.GroupKnown && r.Group != o.Group {
		return false
	}
	if r.Namespace != "" && !glob(r.Namespace, o.Namespace) || r.Name != "" && !glob(r.Name, o.Name) {
		return false
	}
	if r.Call != "" && r.Call != o.CallName {
		return false
	}
	if r.Reconciler != "" && !fromReconciler(r.Reconciler, o) {
		return false
	}
	if len(r.Operations) == 0 {
		return true
	}
	for _, op := range r.Operations {
		if op == o.Operation {
			return true
		}
	}
	return false
}

// fromReconciler compares a rule's reconciler with the controller's name and with the reconciler's type; Sieve writes
// the full name of the method, package.(*Type).Reconcile.
func fromReconciler(want string, o *wire.Observation) bool {
	if o.Reconciler != "" && strings.HasSuffix(o.Reconciler, want) {
		return true
	}
	return o.ReconcilerType != "" && strings.HasSuffix(o.ReconcilerType, strings.TrimSuffix(want, ".Reconcile"))
}

// glob matches s against a pattern in which '*' stands for any run of characters.
func glob(pattern, s string) bool {
	star := strings.IndexByte(pattern, '*')
	if star < 0 {
		return pattern == s
	}
	if !strings.HasPrefix(s, pattern[:star]) {
		return false
	}
	s, pattern = s[star:], pattern[star+1:]
	for {
		star = strings.IndexByte(pattern, '*')
		if star < 0 {
			return strings.HasSuffix(s, pattern)
		}
		at := strings.Index(s, pattern[:star])
		if at < 0 {
			return false
		}
		s, pattern = s[at+star:], pattern[star+1:]
	}
}

func formatID(n uint64) string { return "trommel-" + strconv.FormatUint(n, 10) }
