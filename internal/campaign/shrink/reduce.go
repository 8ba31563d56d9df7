package shrink

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/expr"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/internal/objects/manifests"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
)

// edit is a change of a plan.
type edit struct {
	what   string
	change func(p *plan.Plan) bool // false: there is no such plan
}

// parts are things of one kind that a plan may do without.
type parts struct {
	// list names them, for people.
	list func(p *plan.Plan) []string
	// drop removes those, by their index in list. False: that is not a plan.
	drop func(p *plan.Plan, gone func(i int) bool) bool
}

func actions() parts {
	return parts{
		list: func(p *plan.Plan) (all []string) {
			for i := range p.Actions {
				all = append(all, fmt.Sprintf("action %d (%s)", i+1, &p.Actions[i]))
			}
			return all
		},
		drop: func(p *plan.Plan, gone func(int) bool) bool {
			build := p.LastBuild()
			p.Actions = without(p.Actions, gone)
			return p.LastBuild() == build // another build ends differently
		},
	}
}

// without returns the items that are not gone.
func without[T any](all []T, gone func(i int) bool) []T {
	var left []T
	for i, item := range all {
		if !gone(i) {
			left = append(left, item)
		}
	}
	return left
}

// stepsOf returns the steps that exercise the controllers; nil if a command does.
func stepsOf(suite *plan.Suite, p *plan.Plan) []plan.Step {
	if len(p.Steps) > 0 {
		return p.Steps
	}
	all := slices.Clone(suite.Workloads[p.Workload].Steps)
	for i := range all {
		// The suite's own limit need not be said.
		if w := all[i].Wait; w != nil && w.Timeout == suite.Timeouts.Step {
			short := *w
			short.Timeout = 0
			all[i].Wait = &short
		}
		if e := all[i].Exec; e != nil && e.Timeout == suite.Timeouts.Step {
			short := *e
			short.Timeout = 0
			all[i].Exec = &short
		}
	}
	return all
}

// own gives the plan steps of its own. False: none are left.
func own(p *plan.Plan, left []plan.Step) bool {
	p.Workload, p.Steps = "", left
	return len(left) > 0
}

func stepName(i int, s *plan.Step) string {
	if s.Name != "" {
		return fmt.Sprintf("step %d %q", i+1, s.Name)
	}
	return fmt.Sprintf("step %d", i+1)
}

func steps(suite *plan.Suite) parts {
	return parts{
		list: func(p *plan.Plan) (all []string) {
			for i, s := range stepsOf(suite, p) {
				all = append(all, stepName(i, &s))
			}
			return all
		},
		drop: func(p *plan.Plan, gone func(int) bool) bool {
			all := stepsOf(suite, p)
			left := without(all, gone)
			return own(p, left) && plausible(suite, all, left)
		},
	}
}

// documentsOf returns the objects that a step applies; nil: it applies none, or they cannot be read.
func documentsOf(suite *plan.Suite, s *plan.Step) []map[string]any {
	switch {
	case s.Apply == nil:
		return nil
	case s.Apply.File == "":
		return s.Apply.Objects
	}
	list, err := manifests.Read(plan.Beside(suite.File, s.Apply.File))
	if err != nil {
		return nil // the run says so
	}
	var all []map[string]any
	for _, u := range list {
		all = append(all, u.Object)
	}
	return all
}

// documents are the objects of steps that apply several.
func documents(suite *plan.Suite) parts {
	return parts{
		list: func(p *plan.Plan) (all []string) {
			for i, s := range stepsOf(suite, p) {
				if docs := documentsOf(suite, &s); len(docs) > 1 {
					for _, d := range docs {
						all = append(all, fmt.Sprintf("%s of %s", nameOf(d), stepName(i, &s)))
					}
				}
			}
			return all
		},
		drop: func(p *plan.Plan, gone func(int) bool) bool {
			all := stepsOf(suite, p)
			var left []plan.Step
			n := 0
			for _, s := range all {
				if docs := documentsOf(suite, &s); len(docs) > 1 {
					docs = without(docs, func(int) bool { n++; return gone(n - 1) })
					if len(docs) == 0 {
						continue
					}
					s.Apply = &plan.ApplyStep{Objects: docs}
				}
				left = append(left, s)
			}
			return own(p, left) && plausible(suite, all, left)
		},
	}
}

// nameOf is the key of an object, as far as it matters here: without group, and without the default namespace.
func nameOf(object map[string]any) string {
	meta := metadata.Of(object)
	return looseKey(plan.ResourceKey{Type: strings.ToLower(metadata.Text(object, "kind")),
		Namespace: metadata.Text(meta, "namespace"), Name: metadata.Text(meta, "name")})
}

func looseKey(k plan.ResourceKey) string {
	return plan.ResourceKey{Type: k.Type, Namespace: cmp.Or(k.Namespace, "default"), Name: k.Name}.String()
}

// plausible reports whether the steps that are left can succeed, as far as that can be seen: an object that the
// workload itself applies must be there when a step changes, deletes or waits for it, and gone when one waits for that.
// Running the others would only take a step's whole timeout.
func plausible(suite *plan.Suite, all, left []plan.Step) bool {
	applied := map[string]bool{}
	for _, s := range all {
		for _, d := range documentsOf(suite, &s) {
			applied[nameOf(d)] = true
		}
	}
	there := map[string]bool{}
	for _, s := range left {
		for _, d := range documentsOf(suite, &s) {
			there[nameOf(d)] = true
		}
		var key string
		want := true
		switch {
		case s.Patch != nil:
			key = looseKey(s.Patch.ResourceKey)
		case s.Delete != nil:
			key = looseKey(s.Delete.ResourceKey)
		case s.Wait != nil:
			key, want = looseKey(s.Wait.ResourceKey), !s.Wait.Absent
		}
		if applied[key] && there[key] != want {
			return false
		}
		if s.Delete != nil {
			there[key] = false
		}
	}
	return true
}

// names are the parts of triggers' expressions.
func names() parts {
	each := func(p *plan.Plan, visit func(a *plan.Action, i int, e *expr.Expr, names []expr.Name) bool) bool {
		for i := range p.Actions {
			e, err := expr.Parse(p.Actions[i].Trigger.Expression)
			if err != nil {
				continue
			}
			if names := e.Names(); len(names) > 1 && !visit(&p.Actions[i], i, e, names) {
				return false
			}
		}
		return true
	}
	return parts{
		list: func(p *plan.Plan) (all []string) {
			each(p, func(_ *plan.Action, i int, _ *expr.Expr, names []expr.Name) bool {
				for _, n := range names {
					all = append(all, fmt.Sprintf("%q in the trigger of action %d", n.Name, i+1))
				}
				return true
			})
			return all
		},
		drop: func(p *plan.Plan, gone func(int) bool) bool {
			n := 0
			return each(p, func(a *plan.Action, _ int, e *expr.Expr, names []expr.Name) bool {
				from := n
				n += len(names)
				kept := e.Keep(func(node int) bool { return !gone(from + node) })
				if kept == nil {
					return false
				}
				left := map[string]bool{}
				for _, name := range kept.Names() {
					left[name.Name] = true
				}
				t := &a.Trigger
				t.Expression, t.Graph = kept.String(), nil
				t.Definitions = slices.DeleteFunc(t.Definitions, func(d plan.Definition) bool { return !left[d.Name] })
				return true
			})
		},
	}
}

// fields are the fields that the conditions of triggers name.
func fields() parts {
	each := func(p *plan.Plan, visit func(i int, d *plan.Definition, where string, state *any)) {
		for i := range p.Actions {
			for j := range p.Actions[i].Trigger.Definitions {
				d := &p.Actions[i].Trigger.Definitions[j]
				visit(i, d, "prevState", &d.Condition.PrevState)
				visit(i, d, "curState", &d.Condition.CurState)
			}
		}
	}
	return parts{
		list: func(p *plan.Plan) (all []string) {
			each(p, func(i int, d *plan.Definition, where string, state *any) {
				prune(*state, where, func(field string) bool {
					all = append(all, fmt.Sprintf("%s of %q in the trigger of action %d", field, d.Name, i+1))
					return false
				})
			})
			return all
		},
		drop: func(p *plan.Plan, gone func(int) bool) bool {
			n := 0
			each(p, func(_ int, _ *plan.Definition, where string, state *any) {
				*state = prune(*state, where, func(string) bool { n++; return gone(n - 1) })
			})
			return true
		},
	}
}

// prune returns a state without the fields that are gone, nil if none is left. A list is one field. The fields come in
// a fixed order.
func prune(state any, where string, gone func(field string) bool) any {
	m, ok := state.(map[string]any)
	switch {
	case state == nil:
		return nil
	case !ok || len(m) == 0:
		if gone(where) {
			return nil
		}
		return state
	}
	left := map[string]any{}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		field := where + "." + k
		if m[k] == nil { // none, like $absent
			if !gone(field) {
				left[k] = nil
			}
			continue
		}
		if v := prune(m[k], field, gone); v != nil {
			left[k] = v
		}
	}
	if len(left) == 0 {
		return nil
	}
	return left
}

// shortest is the time below which waits are not shortened: whether a shorter one is enough depends on the machine.
const shortest = time.Second

// shorter lists the shorter waits to try. From is what none stands for.
func shorter(d time.Duration, none bool) []time.Duration {
	var all []time.Duration
	if d > 0 && none {
		all = append(all, 0)
	}
	if d > shortest {
		all = append(all, shortest)
	}
	if d > 2*shortest {
		all = append(all, (d / 2).Round(100*time.Millisecond))
	}
	return all
}

// simplifications lists the single changes that make a plan simpler without taking a part away.
func simplifications(p *plan.Plan, scopes []plan.ResourceKey) []edit {
	var all []edit
	add := func(what string, change func(p *plan.Plan)) {
		all = append(all, edit{what, func(p *plan.Plan) bool { change(p); return true }})
	}
	for i := range p.Actions {
		a := &p.Actions[i]
		here := fmt.Sprintf("action %d (%s)", i+1, a)
		simplerAction(p, i, here, add)
		for _, d := range shorter(a.WaitBefore, true) {
			add(fmt.Sprintf("%s before %s", plan.FormatDuration(d), here),
				func(p *plan.Plan) { p.Actions[i].WaitBefore = d })
		}
		for _, d := range shorter(a.WaitAfter, true) {
			add(fmt.Sprintf("%s after %s", plan.FormatDuration(d), here),
				func(p *plan.Plan) { p.Actions[i].WaitAfter = d })
		}
		if advance := plan.EffectOf[*plan.Advance](a); advance != nil {
			for _, d := range shorter(advance.By, false) {
				add(fmt.Sprintf("%s by %s", here, plan.FormatDuration(d)),
					func(p *plan.Plan) { p.Actions[i].Own = &plan.Clocking{By: plan.Offset(d)} })
			}
		}
		if a.Async {
			add(here+" not async", func(p *plan.Plan) { p.Actions[i].Async = false })
		}
		if a.AvoidOngoingRead {
			add(here+" without avoidOngoingRead", func(p *plan.Plan) { p.Actions[i].AvoidOngoingRead = false })
		}
		if a.OneByOne {
			add(here+" without oneByOne", func(p *plan.Plan) { p.Actions[i].OneByOne = false })
		}
		if plan.Has[*plan.Pause](a) {
			for _, scope := range narrower(a.PauseScope, scopes) {
				add(fmt.Sprintf("%s only for %s", here, scope), func(p *plan.Plan) { narrow(p, i, scope) })
			}
		}
		if len(a.Trigger.Definitions) != 1 || a.Trigger.Definitions[0].Condition.Type != plan.OnNone {
			add(here+" at once", func(p *plan.Plan) {
				p.Actions[i].Trigger = plan.Trigger{
					Definitions: []plan.Definition{{Name: "now", Condition: plan.Condition{Type: plan.OnNone}}},
					Expression:  "now",
				}
			})
		}
		for j := range a.Trigger.Definitions {
			simplerDefinition(&a.Trigger.Definitions[j], here, func(what string, change func(d *plan.Definition)) {
				add(what, func(p *plan.Plan) { change(&p.Actions[i].Trigger.Definitions[j]) })
			})
		}
	}
	for i := range p.Steps {
		for _, d := range shorter(p.Steps[i].Sleep, false) {
			add(fmt.Sprintf("%s in %s", plan.FormatDuration(d), stepName(i, &p.Steps[i])),
				func(p *plan.Plan) { p.Steps[i].Sleep = d })
		}
		for _, d := range shorter(p.Steps[i].AdvanceTime, false) {
			add(fmt.Sprintf("a jump of %s in %s", plan.FormatDuration(d), stepName(i, &p.Steps[i])),
				func(p *plan.Plan) { p.Steps[i].AdvanceTime = d })
		}
	}
	return all
}

// simplerAction replaces an action that contains a restart with the restart.
func simplerAction(p *plan.Plan, i int, here string, add func(what string, change func(p *plan.Plan))) {
	restart := func(controller string) func(p *plan.Plan) {
		a := build.Plan("restart").Then(build.RestartController(controller).
			When(build.Timeout(shortest))).MustBuild().Actions[0]
		return func(p *plan.Plan) {
			old := p.Actions[i]
			a.Trigger, a.WaitBefore, a.WaitAfter, a.Async = old.Trigger, old.WaitBefore, old.WaitAfter, old.Async
			p.Actions[i] = a
		}
	}
	stop := plan.EffectOf[*plan.Stop](&p.Actions[i])
	if move := plan.EffectOf[*plan.Move](&p.Actions[i]); move != nil {
		add(here+" as a restart without moving it", restart(move.Controller))
		if move.By != plan.ReconnectRestart {
			add(here+" by a restart", func(p *plan.Plan) { p.Actions[i].ReconnectBy = plan.ReconnectRestart })
		}
	}
	if i+1 == len(p.Actions) || stop == nil || plan.IsAPIServer(stop.Process) || plan.Has[*plan.Start](&p.Actions[i]) {
		return
	}
	next := &p.Actions[i+1]
	if start := plan.EffectOf[*plan.Start](next); start != nil && start.Process == stop.Process &&
		!plan.Has[*plan.Stop](next) {
		add(fmt.Sprintf("%s and action %d as one restart", here, i+2), func(p *plan.Plan) {
			restart(stop.Process)(p)
			p.Actions = slices.Delete(p.Actions, i+1, i+2)
		})
	}
}

func simplerDefinition(d *plan.Definition, here string, add func(what string, change func(d *plan.Definition))) {
	in := fmt.Sprintf(" of %q in the trigger of %s", d.Name, here)
	if d.Condition.Where != "" {
		add("no where"+in, func(d *plan.Definition) { d.Condition.Where = "" })
	}
	if d.Observe.Reconciler != "" {
		add("no reconciler"+in, func(d *plan.Definition) { d.Observe.Reconciler = "" })
	}
	for _, n := range slices.Compact([]int{1, d.Condition.Repeat / 2, d.Condition.Repeat - 1}) {
		if n >= 1 && n < d.Condition.Repeat {
			add(fmt.Sprintf("repeat: %d%s", n, in), func(d *plan.Definition) { d.Condition.Repeat = n })
		}
	}
	if d.Condition.Type == plan.OnTimeout {
		for _, t := range shorter(d.Condition.Timeout, false) {
			add(fmt.Sprintf("timeout: %s%s", plan.FormatDuration(t), in),
				func(d *plan.Definition) { d.Condition.Timeout = t })
		}
		if d.Condition.Extend > 0 {
			add("no extend"+in, func(d *plan.Definition) { d.Condition.Extend = 0 })
		}
	}
}

// narrower lists narrower scopes for a pause: the types of the objects if it is of everything, else single objects.
func narrower(scope plan.Scope, known []plan.ResourceKey) []plan.Scope {
	var all []plan.Scope
	add := func(k plan.ResourceKey) {
		s := plan.Scope{Key: k}
		if !slices.Contains(all, s) && s != scope {
			all = append(all, s)
		}
	}
	if scope.Everything() {
		for _, k := range known {
			add(plan.ResourceKey{Type: k.Type, Group: k.Group, Namespace: k.Namespace, Name: "*"})
		}
		return all
	}
	if !scope.Key.HasWildcard() {
		return nil
	}
	for _, k := range known {
		if scope.Key.Matches(k.Type, k.Group, true, k.Namespace, k.Name) {
			add(k)
		}
	}
	return all
}

// narrow changes the scope of a pause, and of the later resumes that name the same scope.
func narrow(p *plan.Plan, i int, scope plan.Scope) {
	paused := plan.EffectOf[*plan.Pause](&p.Actions[i])
	for k := i + 1; k < len(p.Actions); k++ {
		if r := plan.EffectOf[*plan.Resume](&p.Actions[k]); r != nil && r.By == paused.By && r.Scope == paused.Scope &&
			!r.Scope.IsZero() &&
			(r.At == "" || r.At == paused.At) {
			p.Actions[k].PauseScope = scope
		}
	}
	p.Actions[i].PauseScope = scope
}
