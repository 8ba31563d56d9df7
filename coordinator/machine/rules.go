package machine

import (
	"slices"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
)

// Rules returns what the plan itself asks processes to report now, by identity: everything that its triggers name, from
// the start, so that enabling a trigger needs no round trip and near misses are known; reads, if a pause must wait for
// them; and what is currently paused. Resolve completes a key's type (plural, group) as the cluster knows it.
func (m *Machine) Rules(resolve func(plan.ResourceKey) wire.Rule) map[string][]wire.Rule {
	rules := map[string][]wire.Rule{}
	add := func(by string, r wire.Rule) { rules[by] = append(rules[by], r) }
	if m.ended {
		return rules
	}
	for i, nodes := range m.watches {
		for _, w := range nodes {
			if w.point == "" {
				continue
			}
			by := w.definition.Observe.ObserveBy
			rule := wire.Rule{Call: w.definition.Condition.Call, AnyGroup: true}
			if w.definition.Condition.ResourceKey.Type != "" && w.point != wire.Reconcile {
				rule = resolve(w.definition.Condition.ResourceKey)
			}
			rule.Point, rule.Phase = w.point, w.phase
			add(by, rule)
			collected := w.point == wire.ControllerRead ||
				w.point == wire.ControllerWrite && w.definition.Condition.Type == plan.OnObjectDeletion
			if collected {
				add(by, collections(rule))
			}
			if w.point == wire.ControllerWrite && w.phase == wire.After {
				// The state before the write is looked up while its caller waits.
				rule.Phase = wire.Before
				add(by, rule)
				if collected {
					add(by, collections(rule))
				}
			}
		}
		if p := plan.EffectOf[*plan.Pause](&m.plan.Actions[i]); p != nil && p.AvoidOngoingRead {
			for _, phase := range []wire.Phase{wire.Before, wire.After} {
				add(p.By, wire.Rule{Point: wire.ControllerRead, Phase: phase, AnyGroup: true})
			}
		}
	}
	for _, p := range m.pauses {
		by, scope := p.what.By, p.what.Scope
		rule := wire.Rule{AnyGroup: true}
		switch {
		case scope.Everything():
		case byRequest(p.point):
			rule.Namespace, rule.Name = scope.Key.Namespace, scope.Key.Name
		default:
			rule = resolve(scope.Key)
			if p.point == wire.ControllerRead || p.point == wire.ControllerWrite {
				// Lists and collections name no object.
				all := collections(rule)
				all.Point, all.Phase = p.point, p.phase
				add(by, all)
			}
		}
		rule.Point, rule.Phase = p.point, p.phase
		add(by, rule)
	}
	return rules
}

// collections returns the rule for lists and collections that may contain an object of the given rule; the object is
// reported with the list. They name no object and may span all namespaces.
func collections(r wire.Rule) wire.Rule {
	r.Items, r.ItemNamespace, r.ItemName = true, r.Namespace, r.Name
	r.Namespace, r.Name = "", ""
	r.Operations = []wire.Operation{wire.List, wire.DeleteCollection}
	return r
}

// SideRules returns what processes must report in addition to [Machine.Rules], by identity: for Stale, what controllers
// are shown of the objects that the plan withholds from an API server; for Stuck, what the paused controllers do.
// Deliveries and reconciles are reported from the start, reads and writes while the pause is in force, and writes that
// the plan makes to fail from the start, so that a failure is in force at once.
func (m *Machine) SideRules(resolve func(plan.ResourceKey) wire.Rule) map[string][]wire.Rule {
	rules := map[string][]wire.Rule{}
	if m.ended {
		return rules
	}
	for i := range m.plan.Actions {
		if f := plan.EffectOf[*plan.CallFailure](&m.plan.Actions[i]); f != nil {
			rules[f.By] = append(rules[f.By], failureRules(f, resolve)...)
		}
		what := plan.EffectOf[*plan.Pause](&m.plan.Actions[i])
		if what == nil {
			continue
		}
		inForce := slices.ContainsFunc(m.pauses, func(p pause) bool { return p.action == i })
		if !what.OfAPIServer() {
			points := []wire.Rule{{Point: wire.Reconcile, Phase: wire.Before},
				{Point: wire.Reconcile, Phase: wire.After}}
			if inForce {
				points = append(points, wire.Rule{Point: wire.ControllerRead, Phase: wire.Before},
					wire.Rule{Point: wire.ControllerWrite, Phase: wire.Before})
			}
			for _, rule := range points {
				rule.AnyGroup = true
				same := func(r wire.Rule) bool { return r.Point == rule.Point && r.Phase == rule.Phase }
				if !slices.ContainsFunc(rules[what.By], same) {
					rules[what.By] = append(rules[what.By], rule)
				}
			}
			continue
		}
		rule := wire.Rule{AnyGroup: true}
		if !what.Scope.Everything() {
			rule = resolve(what.Scope.Key)
		}
		rule.Phase = wire.After
		for _, c := range m.controllers {
			if !c.Hooks {
				continue
			}
			received := rule
			received.Point = wire.ControllerRecv
			rules[c.Name] = append(rules[c.Name], received)
			if !inForce {
				continue
			}
			read := rule
			read.Point = wire.ControllerRead
			rules[c.Name] = append(rules[c.Name], read)
			if !what.Scope.Everything() {
				rules[c.Name] = append(rules[c.Name], collections(read))
			}
		}
	}
	return rules
}
