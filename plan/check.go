package plan

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/trommel-dev/trommel/expr"
	"github.com/trommel-dev/trommel/internal/cel"
)

// Validate checks the plan against its suite, after Complete has filled it in: for instance that the suite has what the
// plan names. With a nil suite it checks what it can without one, as Parse does. It does not change the plan. The error
// is Errors: every mistake in the plan, with its position if the plan came from a file.
func (p *Plan) Validate(s *Suite) error {
	q := *p
	q.Actions = slices.Clone(p.Actions)
	for i := range q.Actions {
		q.Actions[i].Trigger.Definitions = slices.Clone(q.Actions[i].Trigger.Definitions)
	}
	q.Steps, q.Invariants = cloneSteps(p.Steps), slices.Clone(p.Invariants)
	q.Complete(s)
	src := q.whole().in
	q.check(s, src)
	return src.errs.err()
}

// check reports the mistakes in a complete plan. The suite may be nil; then it checks what it can without one.
func (p *Plan) check(s *Suite, src *source) {
	c := &checker{plan: p, suite: s}
	at := src.whole()
	checkHeader(at, p.APIVersion, p.Kind, "TestPlan")
	c.names(at)
	c.own(at)
	for i := range p.Actions {
		if at := at.field("actions").item(i); !at.failed() {
			c.action(&p.Actions[i], at)
		}
	}
}

// checkHeader checks the first two fields of a plan or suite.
func checkHeader(at *place, version, kind, want string) {
	if version != "" && version != APIVersion {
		at.field("apiVersion").errorf("unknown apiVersion %q; this Trommel reads %s", version, APIVersion)
	}
	if kind != "" && kind != want {
		at.field("kind").errorf("kind must be %s, not %q", want, kind)
	}
}

type checker struct {
	plan  *Plan
	suite *Suite // nil: checked without a suite
}

// names checks the plan's own names.
func (c *checker) names(at *place) {
	p, s := c.plan, c.suite
	if name := at.field("testName"); p.TestName != "" {
		what := "testName"
		if (!name.given() || isEmpty(name.node)) && p.TestName == nameOfFile(p.File) {
			what = "the plan has no testName, and its file name cannot be used:"
		}
		if message := nameMistake(p.TestName); message != "" {
			name.errorf("%s %q %s", what, p.TestName, message)
		}
	} else if p.File != "" && !name.failed() {
		name.errorf("the plan has no testName, and its file name cannot be used: %q %s", p.TestName, nameMistake(""))
	}
	if s == nil {
		return
	}
	workloads := sortedKeys(s.Workloads)
	switch {
	case len(p.Steps) > 0:
	case p.Workload == "" && len(workloads) > 1:
		at.field("workload").missing("the plan names no workload, and the suite has several, "+
			"none with the plan's testName: "+
			"%s", strings.Join(workloads, ", "))
	case p.Workload != "" && !slices.Contains(workloads, p.Workload):
		at.field("workload").errorf("unknown workload %q (%s)", p.Workload, suiteHas(workloads))
	}
	if variants := sortedKeys(s.Variants); p.Variant != "" && !slices.Contains(variants, p.Variant) {
		at.field("variant").errorf("unknown variant %q (%s)", p.Variant, suiteHas(variants))
	}
}

// maxNameLength is the limit, in bytes, of a name that becomes part of a directory name. Two such names and a time fit
// into a file name.
const maxNameLength = 100

// nameMistake says what is wrong with a name that becomes part of a directory name; empty: nothing is.
func nameMistake(name string) string {
	bad := func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }
	switch {
	case name == "":
		return "is empty"
	case len(name) > maxNameLength:
		return fmt.Sprintf("has %d bytes, at most %d are allowed: it becomes part of a directory name",
			len(name), maxNameLength)
	case strings.ContainsAny(name, `/\`):
		return "contains a slash; a name becomes part of a directory name"
	case strings.HasPrefix(name, "."):
		return "begins with a dot; a directory name would begin with it"
	case strings.ContainsFunc(name, bad):
		return "contains a character that cannot be printed"
	case strings.TrimSpace(name) != name:
		return "begins or ends with a blank"
	}
	return ""
}

func suiteHas(names []string) string {
	if len(names) == 0 {
		return "the suite has none"
	}
	return "the suite has: " + strings.Join(names, ", ")
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// APIServerNames returns the names of the suite's API servers.
func (s *Suite) APIServerNames() []string {
	names := make([]string, 0, s.Cluster.APIServers)
	for i := range s.Cluster.APIServers {
		names = append(names, fmt.Sprintf("apiserver-%d", i+1))
	}
	return names
}

// ControllerNames returns the names of the controllers under test, in the suite's order.
func (s *Suite) ControllerNames() []string {
	names := make([]string, 0, len(s.Controllers))
	for _, c := range s.Controllers {
		names = append(names, c.Name)
	}
	return names
}

// PausesAPIServer reports whether the plan ever pauses an API server: such a plan is about stale state.
func (p *Plan) PausesAPIServer() bool {
	return slices.ContainsFunc(p.Actions, func(a Action) bool {
		paused := a.Effects().Pauses
		return paused != nil && paused.OfAPIServer()
	})
}

// IsAPIServer reports whether a name is that of an API server: apiserver-1 and so on. Controllers must not have such
// names.
func IsAPIServer(name string) bool {
	number, ok := strings.CutPrefix(name, "apiserver-")
	return ok && number != "" && strings.Trim(number, "0123456789") == ""
}

// apiServer checks the name of an API server. In messages, what is the thing that needs it.
func (c *checker) apiServer(at *place, name, what string) {
	if c.suite == nil {
		if name == "" {
			at.missing("%s needs the name of an API server such as apiserver-1", what)
		} else if !IsAPIServer(name) {
			at.errorf("%s needs an API server such as apiserver-1, not %q", what, name)
		}
		return
	}
	names := c.suite.APIServerNames()
	switch {
	case name == "":
		at.missing("%s needs the name of an API server (%s)", what, suiteHas(names))
	case !slices.Contains(names, name):
		at.errorf("unknown API server %q (%s)", name, suiteHas(names))
	}
}

// controller checks the name of a controller.
func (c *checker) controller(at *place, name, what string) {
	if IsAPIServer(name) {
		at.errorf("%s needs a controller, and %s is an API server", what, name)
		return
	}
	if c.suite == nil {
		return
	}
	names := c.suite.ControllerNames()
	switch {
	case name == "":
		at.missing("%s needs the name of a controller (%s)", what, suiteHas(names))
	case !slices.Contains(names, name):
		at.errorf("unknown controller %q (%s)", name, suiteHas(names))
	}
}

// inSuite returns the suite's controller with that name, or nil.
func (c *checker) inSuite(name string) *Controller {
	if c.suite != nil {
		for i := range c.suite.Controllers {
			if c.suite.Controllers[i].Name == name {
				return &c.suite.Controllers[i]
			}
		}
	}
	return nil
}

// hooked reports a controller that the plan needs hooks in but that is given as an executable, which has none. What
// says what follows from that.
func (c *checker) hooked(at *place, name, what string) {
	if controller := c.inSuite(name); controller != nil && controller.Build == nil {
		at.errorf("controller %q is given by binary: %s, which has no hooks, %s, or give its source with build:",
			name, controller.Binary, what)
	}
}

// fit reports the fields of a struct that are set, or given in the file, but do not belong to its kind.
func fit(v reflect.Value, at *place, kind string, common, own []string) {
	sh := shapeOf(v.Type())
	for _, name := range sh.names {
		if slices.Contains(common, name) || slices.Contains(own, name) {
			continue
		}
		field := at.field(name)
		if v.FieldByIndex(sh.field(name).index).IsZero() && !field.given() {
			continue
		}
		has := "it has no other field"
		if len(own) > 0 {
			has = "it has: " + strings.Join(own, ", ")
		}
		field.errorf("%s has no %s; %s", kind, name, has)
	}
}

func (c *checker) action(a *Action, at *place) {
	if a.WaitBefore < 0 || a.WaitAfter < 0 {
		at.errorf("a wait must not be negative")
	}
	c.trigger(&a.Trigger, at.field("trigger"))
	if a.Type == "" {
		at.field("actionType").missing("the action has no actionType (known: %s)", strings.Join(actionTypes(), ", "))
		return
	}
	kind := kindOfAction(a.Type)
	if kind == nil {
		at.field("actionType").errorf("unknown actionType %q%s", a.Type, didYouMean(string(a.Type), actionTypes()))
		return
	}
	fit(reflect.ValueOf(a).Elem(), at, string(a.Type), commonFields, kind.fields())
	target := at.field("actionTarget")
	switch kind.Target {
	case TargetAPIServer:
		c.apiServer(target, a.Target, string(a.Type))
	case TargetController:
		c.controller(target, a.Target, string(a.Type))
	}
	if kind.Check != nil {
		kind.Check(&ActionCheck{Action: a, Suite: c.suite, checker: c, at: at})
	}
	c.capabilities(a, at.field("actionType"))
}

func (c *checker) trigger(t *Trigger, at *place) {
	if at.failed() {
		return
	}
	if len(t.Definitions) == 0 && t.Expression == "" {
		if at.given() {
			at.field("definitions").missing("the trigger has no definitions")
		} else {
			at.errorf("the action has no trigger; to act at once use a definition with triggerType: none")
		}
		return
	}
	var names []string
	for j := range t.Definitions {
		at := at.field("definitions").item(j)
		if at.failed() {
			continue
		}
		d := &t.Definitions[j]
		switch name := at.field("triggerName"); {
		case d.Name == "":
			name.missing("the trigger definition has no triggerName")
		case !expr.ValidName(d.Name):
			name.errorf(`triggerName %q: a name consists of letters, digits, "_", "-" and "."`, d.Name)
		case slices.Contains(names, d.Name):
			name.errorf("duplicate triggerName %q in this trigger", d.Name)
		}
		names = append(names, d.Name)
		if !at.field("condition").failed() {
			c.definition(d, at)
		}
	}
	text := at.field("expression")
	switch {
	case t.Graph != nil:
	case t.Expression == "" && isEmpty(text.node):
		text.errorf("the expression is empty")
	case t.Expression == "":
		if len(t.Definitions) > 1 {
			text.missing("the trigger has several definitions and no expression")
		}
	default:
		if e := text.expression(t.Expression); e != nil {
			for _, n := range t.unknown(e) {
				message := fmt.Sprintf("unknown trigger %q (defined: %s)", n.Name, orNone(names))
				text.textError(t.Expression, n.Offset, message)
			}
		}
	}
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// definition checks a condition and its observation point.
func (c *checker) definition(d *Definition, whole *place) {
	cond, at := &d.Condition, whole.field("condition")
	at.field("where").cel(cond.Where, cel.Transition)
	if cond.Repeat < 1 {
		at.field("repeat").errorf("repeat is %d; it must be at least 1", cond.Repeat)
	}
	kind := at.field("triggerType")
	if cond.Type == "" {
		kind.missing("the condition has no triggerType (known: %s)", strings.Join(stringsOf(triggerTypes), ", "))
		return
	}
	own, ok := conditionFields[cond.Type]
	if !ok {
		kind.errorf("unknown triggerType %q%s", cond.Type, didYouMean(string(cond.Type), stringsOf(triggerTypes)))
		return
	}
	common := []string{"triggerType"}
	if cond.Repeat == 1 {
		common = append(common, "repeat") // its default is always set
	}
	fit(reflect.ValueOf(cond).Elem(), at, string(cond.Type), common, own)
	switch cond.Type {
	case OnTimeout:
		if timeout := at.field("timeout"); cond.Timeout <= 0 && !timeout.given() {
			timeout.errorf("onTimeout has no timeout such as 20s")
		} else if cond.Timeout < 0 {
			timeout.errorf("timeout: a duration must not be negative")
		}
	case OnAnnotatedCall:
		c.call(cond, at.field("call"))
	case OnReconcile, OnNone:
	default:
		if cond.ResourceKey.IsZero() {
			at.field("resourceKey").missing("%s has no resourceKey such as pod/default/web-0", cond.Type)
		}
		c.states(cond, at)
	}
	c.observe(d, whole.field("observationPoint"))
	c.meaning(d, whole)
}

func (c *checker) call(cond *Condition, at *place) {
	if cond.Call == "" {
		at.missing("onAnnotatedCall has no call: the name of one of the suite's annotatedCalls")
		return
	}
	if c.suite == nil || c.suite.annotatedCall(cond.Call) != nil {
		return
	}
	var names []string
	for _, controller := range c.suite.Controllers {
		for _, call := range controller.AnnotatedCalls {
			names = append(names, call.Name)
		}
	}
	at.errorf("unknown annotated call %q (%s)", cond.Call, suiteHas(names))
}

func (c *checker) states(cond *Condition, at *place) {
	if cond.Type == OnAnyFieldModified || cond.Type == OnAllFieldsModified {
		if cond.PrevState == nil {
			at.field("prevState").missing("%s has no prevState: it names the fields to watch for modification",
				cond.Type)
		} else if m, ok := cond.PrevState.(map[string]any); ok && len(m) == 0 {
			at.field("prevState").errorf("prevState of %s names no field", cond.Type)
		}
	}
	for name, state := range map[string]any{"prevState": cond.PrevState, "curState": cond.CurState} {
		if state == nil || c.plan.source != nil {
			continue // values that were read from a file always have a JSON form
		}
		if _, err := compileState(state); err != nil {
			at.field(name).errorf("%s: %v", name, err)
		}
	}
}

// observe checks an observation point.
func (c *checker) observe(d *Definition, at *place) {
	if at.failed() {
		return
	}
	cond, o := &d.Condition, &d.Observe
	known, observed := points[cond.Type]
	if !observed {
		if *o != (ObservationPoint{}) || at.given() {
			at.errorf("%s is not observed anywhere; it takes no observationPoint", cond.Type)
		}
		return
	}
	timing, by, reconciler := at.field("timing"), at.field("observeBy"), at.field("reconciler")
	switch {
	case *o == ObservationPoint{} && !at.given():
		at.errorf("%s has no observationPoint: where and when it is observed", cond.Type)
		return
	case o.Timing == "":
		timing.missing("the observation point has no timing (known: %s)", strings.Join(stringsOf(timings), ", "))
		return
	case !slices.Contains(timings, o.Timing):
		timing.errorf("unknown timing %q%s", o.Timing, didYouMean(string(o.Timing), stringsOf(timings)))
		return
	case !slices.Contains(known, o.Timing.point()):
		var words []string
		for _, p := range known {
			words = append(words, "before"+p, "after"+p)
		}
		timing.errorf("%s is not observed at %s (but at: %s)", cond.Type, o.Timing, strings.Join(words, ", "))
		return
	}
	if o.Timing.ofAPIServer() {
		if o.ObserveBy != "" && !IsAPIServer(o.ObserveBy) {
			some := "such as apiserver-1"
			if c.suite != nil {
				some = suiteHas(c.suite.APIServerNames())
			}
			by.errorf("a controller cannot observe %s; observeBy names an API server (%s)", o.Timing, some)
		} else {
			c.apiServer(by, o.ObserveBy, "observeBy")
		}
		c.needs(timing, ObserveAPIServers, string(o.Timing))
		if o.Reconciler != "" {
			reconciler.errorf("an API server has no reconciler")
		}
		return
	}
	if IsAPIServer(o.ObserveBy) {
		some := ""
		if c.suite != nil {
			some = " (" + suiteHas(c.suite.ControllerNames()) + ")"
		}
		by.errorf("an API server cannot observe %s; observeBy names a controller%s", o.Timing, some)
		return
	}
	c.controller(by, o.ObserveBy, "observeBy")
	c.hooked(by, o.ObserveBy, "so nothing is observed in it: observe an API server (timing: afterAPIServerRecv)")
	if o.Reconciler != "" && o.Timing.point() == "ControllerRecv" {
		reconciler.errorf("%s happens in an informer, before any reconciler", o.Timing)
	}
}

// CheckResources calls resolve for every resource key of the plan. It returns the errors as Errors, each with the
// position of its key.
func (p *Plan) CheckResources(resolve func(ResourceKey) error) error {
	at := p.whole()
	checkKeys(reflect.ValueOf(p), at, resolve)
	for i := range p.Actions {
		for field, scope := range map[string]string{
			"pauseScope": p.Actions[i].PauseScope, "callScope": p.Actions[i].CallScope,
		} {
			if k, err := ParseResourceKey(scope); err == nil {
				if err := resolve(k); err != nil {
					at.field("actions").item(i).field(field).errorf("%v", err)
				}
			}
		}
	}
	return at.in.errs.err()
}

// CheckResources calls resolve for every resource key of a suite that was read from a file: those of the workloads'
// steps, of invariants and of history. It returns the errors as Errors, each with the position of its key.
func (s *Suite) CheckResources(resolve func(ResourceKey) error) error {
	if s.source == nil {
		return nil
	}
	src := *s.source
	checkKeys(reflect.ValueOf(s), src.whole(), resolve)
	return src.errs.err()
}

// checkKeys reports the resource keys in a struct, and in the structs within it, that cannot be resolved.
func checkKeys(v reflect.Value, at *place, resolve func(ResourceKey) error) {
	check := func(k ResourceKey, at *place) {
		if k.IsZero() {
			return
		}
		if err := resolve(k); err != nil {
			at.errorf("%v", err)
		}
	}
	each(v, at, func(_ reflect.Value, at *place, f *shapeField, v reflect.Value) {
		switch value := v.Interface().(type) {
		case ResourceKey:
			if f.as == "" {
				check(value, at.field(f.name))
			}
		case *ResourceKey:
			if value != nil {
				check(*value, at.field(f.name))
			}
		case []ResourceKey:
			for i, k := range value {
				check(k, at.field(f.name).item(i))
			}
		}
	})
}
