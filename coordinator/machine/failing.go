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
	pause   // its point and scope
	failure *plan.CallFailure
	left    int // how many calls; 0: no limit
}

// failures are the calls that the plan makes to fail.
type failures struct {
	active []failing
	made   []int // by action: how many calls it has made to fail
}

func failingOf(i int, f *plan.CallFailure) failing {
	at := plan.BeforeControllerWrite
	if f.Call != "" {
		at = plan.BeforeAnnotatedCall
	}
	held := pauseOf(i, &plan.Pause{By: f.By, At: at, Scope: f.Scope, Cluster: f.Cluster})
	return failing{pause: held, failure: f, left: f.Times}
}

// fail returns how a call that is released must fail; nil: it must not. A call that is repeated by its client is
// released, and counted, each time.
func (all *failures) fail(o *record.Observation) *plan.CallFailure {
	for i := range all.active {
		f := &all.active[i]
		if !f.takes(o) || f.failure.Call != o.CallName ||
			len(f.failure.Operations) > 0 && !slices.Contains(f.failure.Operations, plan.Operation(o.Op)) {
			continue
		}
		all.made[f.action]++
		what := f.failure
		if f.left--; f.left == 0 {
			all.active = slices.Delete(all.active, i, i+1)
		}
		return what
	}
	return nil
}

// restore ends failures. It reports whether there were any.
func (all *failures) restore(what *plan.Restore) bool {
	n := len(all.active)
	all.active = slices.DeleteFunc(all.active, func(f failing) bool { return what.Ends(f.failure) })
	return len(all.active) < n
}

// denied describes the calls that fail until they are restored, in one clause for each action.
func (m situation) denied() []string {
	var clauses []string
	for _, f := range m.failures.active {
		if f.failure.Times == 0 {
			end := m.endOf(func(i int) bool {
				what := plan.EffectOf[*plan.Restore](&m.plan.Actions[i])
				return what != nil && what.Ends(f.failure)
			}, onlyTheEnd)
			clauses = append(clauses, fmt.Sprintf("the plan has made %d calls of %s fail by %s, %s",
				m.failures.made[f.action], f.failure.By, m.Name(f.action), end))
		}
	}
	return clauses
}

// NoneFailed lists the actions that have fired to make calls fail and have made none fail, one line each.
func (m *Machine) NoneFailed() []string {
	var none []string
	for i := range m.next {
		if f := plan.EffectOf[*plan.CallFailure](&m.plan.Actions[i]); f != nil && m.failures.made[i] == 0 {
			none = append(none, fmt.Sprintf("%s failed no call: %s made none in its scope", m.Name(i), f.By))
		}
	}
	return none
}

// failureRules returns the rules for the calls that an action makes to fail, before and after they happen.
func failureRules(f *plan.CallFailure, resolve func(plan.ResourceKey) wire.Rule) []wire.Rule {
	rules := []wire.Rule{{AnyGroup: true}}
	if !f.Scope.Everything() {
		rule := resolve(f.Scope.Key)
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
