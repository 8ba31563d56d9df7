package machine

import (
	"fmt"
	"slices"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// failing makes writes, or annotated calls, fail from the moment at which they would be released.
type failing struct {
	pause // its point and scope
	what  *plan.CallFailure
	left  int // how many calls; 0: no limit
}

func failingOf(i int, f *plan.CallFailure) failing {
	at := plan.BeforeControllerWrite
	if f.Call != "" {
		at = plan.BeforeAnnotatedCall
	}
	held := pauseOf(i, &plan.Pause{By: f.By, At: at, Scope: f.Scope, Cluster: f.Cluster})
	return failing{pause: held, what: f, left: f.Times}
}

// fail returns how a call that is released must fail; nil: it must not. A call that is repeated by its client is
// released, and counted, each time.
func (m *Machine) fail(o *record.Observation) *plan.CallFailure {
	for i := range m.failing {
		f := &m.failing[i]
		if !f.takes(o) || f.what.Call != o.CallName ||
			len(f.what.Operations) > 0 && !slices.Contains(f.what.Operations, plan.Operation(o.Op)) {
			continue
		}
		m.failed[f.action]++
		what := f.what
		if f.left--; f.left == 0 {
			m.failing = slices.Delete(m.failing, i, i+1)
		}
		return what
	}
	return nil
}

// restore ends the failures of the controller, those of exactly that scope if one is given.
func (m *Machine) restore(i int, what *plan.CallFailure) []Effect {
	n := len(m.failing)
	m.failing = slices.DeleteFunc(m.failing, func(f failing) bool { return restores(what, f.what, f.pause) })
	if len(m.failing) == n {
		return []Effect{Note{Action: i, Text: "ended nothing: no call was made to fail any longer"}}
	}
	return nil
}

// restores reports whether the action ends a failure of calls.
func restores(what, failing *plan.CallFailure, f pause) bool {
	return what.Call == failing.Call && resumes(&plan.Pause{By: what.By, Scope: what.Scope, Cluster: what.Cluster}, f)
}

// denied describes the calls that fail until they are restored, in one clause for each action.
func (m *Machine) denied() []string {
	var clauses []string
	for _, f := range m.failing {
		if f.what.Times == 0 {
			clauses = append(clauses, fmt.Sprintf("the plan has made %d calls of %s fail by %s, %s", m.failed[f.action],
				f.by, m.Name(f.action), m.endOf(f.pause, func(i int, p pause) bool {
					what := m.plan.Actions[i].Effects().Restores
					return what != nil && restores(what, f.what, p)
				})))
		}
	}
	return clauses
}

// NoneFailed lists the actions that have fired to make calls fail and have made none fail, one line each.
func (m *Machine) NoneFailed() []string {
	var none []string
	for i := range m.next {
		if f := m.plan.Actions[i].Effects().Fails; f != nil && m.failed[i] == 0 {
			none = append(none, fmt.Sprintf("%s failed no call: %s made none in its scope", m.Name(i), f.By))
		}
	}
	return none
}

// failureRules returns the rules for the calls that an action makes to fail, before and after they happen.
func failureRules(f *plan.CallFailure, resolve func(plan.ResourceKey) wire.Rule) []wire.Rule {
	rules := []wire.Rule{{AnyGroup: true}}
	if scope := failingOf(0, f).scope; scope != nil {
		rule := resolve(*scope)
		rules = []wire.Rule{rule, collections(rule)} // a deletion of a collection names no object
	}
	point := wire.ControllerWrite
	if f.Call != "" {
		// A rule names no function, and the request that a call belongs to has no type.
		rules, point = []wire.Rule{{AnyGroup: true}}, wire.AnnotatedCall
	}
	var all []wire.Rule
	for _, rule := range rules {
		rule.Point = point
		for _, rule.Phase = range []wire.Phase{wire.Before, wire.After} {
			all = append(all, rule)
		}
	}
	return all
}
