package plan

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/trommel-dev/trommel/expr"
	"github.com/trommel-dev/trommel/internal/cel"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan/internal/match"
	"github.com/trommel-dev/trommel/plan/internal/yamlfile"
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
	src := q.whole().File()
	q.check(s, src)
	return mistakes(src)
}

// check reports the mistakes in a complete plan. The suite may be nil; then it checks what it can without one.
func (p *Plan) check(s *Suite, src *yamlfile.File) {
	c := &checker{plan: p, suite: s}
	at := src.Whole()
	checkHeader(at, p.APIVersion, p.Kind, "TestPlan")
	c.names(at)
	c.own(at)
	if p.Schedule != nil && !at.Field("schedule").Failed() {
		p.Schedule.check(p, at.Field("schedule"))
	}
	for i := range p.Actions {
		if at := at.Field("actions").Item(i); !at.Failed() {
			c.action(&p.Actions[i], at)
		}
	}
}

// checkHeader checks the first two fields of a plan or suite.
func checkHeader(at *yamlfile.Place, version, kind, want string) {
	if version != "" && version != APIVersion {
		at.Field("apiVersion").Errorf("unknown apiVersion %q; this Trommel reads %s", version, APIVersion)
	}
	if kind != "" && kind != want {
		at.Field("kind").Errorf("kind must be %s, not %q", want, kind)
	}
}

type checker struct {
	plan  *Plan
	suite *Suite // nil: checked without a suite
}

// names checks the plan's own names.
func (c *checker) names(at *yamlfile.Place) {
	p, s := c.plan, c.suite
	if name := at.Field("testName"); p.TestName != "" {
		what := "testName"
		if (!name.Given() || name.Empty()) && p.TestName == nameOfFile(p.File) {
			what = "the plan has no testName, and its file name cannot be used:"
		}
		if message := nameMistake(p.TestName); message != "" {
			name.Errorf("%s %q %s", what, p.TestName, message)
		}
	} else if p.File != "" && !name.Failed() {
		name.Errorf("the plan has no testName, and its file name cannot be used: %q %s", p.TestName, nameMistake(""))
	}
	if s == nil {
		return
	}
	workloads := sortedKeys(s.Workloads)
	switch {
	case len(p.Steps) > 0:
	case p.Workload == "" && len(workloads) > 1:
		at.Field("workload").Missing("the plan names no workload, and the suite has several, "+
			"none with the plan's testName: "+
			"%s", strings.Join(workloads, ", "))
	case p.Workload != "" && !slices.Contains(workloads, p.Workload):
		at.Field("workload").Errorf("unknown workload %q (%s)", p.Workload, suiteHas(workloads))
	}
	if variants := sortedKeys(s.Variants); p.Variant != "" && !slices.Contains(variants, p.Variant) {
		at.Field("variant").Errorf("unknown variant %q (%s)", p.Variant, suiteHas(variants))
	}
	checkBuildName(at.Field("build"), s, p.Build)
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

// APIServerNames returns the names of the suite's API servers, those of the first cluster first.
func (s *Suite) APIServerNames() []string {
	clusters := s.ClusterNames()
	if clusters == nil {
		clusters = []string{""}
	}
	var names []string
	for _, cluster := range clusters {
		for i := range s.ClusterSpecOf(cluster).APIServers {
			names = append(names, ServerIn(cluster, fmt.Sprintf("apiserver-%d", i+1)))
		}
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
		paused := EffectOf[*Pause](&a)
		return paused != nil && paused.OfAPIServer()
	})
}

// IsAPIServer reports whether a name is that of an API server: apiserver-1 and so on, or west/apiserver-1 if it is that
// of a named cluster. Controllers must not have such names.
func IsAPIServer(name string) bool {
	_, server := SplitServer(name)
	number, ok := strings.CutPrefix(server, "apiserver-")
	return ok && number != "" && strings.Trim(number, "0123456789") == ""
}

// apiServer checks the name of an API server. In messages, what is the thing that needs it.
func (c *checker) apiServer(at *yamlfile.Place, name, what string) {
	if c.suite == nil {
		if name == "" {
			at.Missing("%s needs the name of an API server such as apiserver-1", what)
		} else if !IsAPIServer(name) {
			at.Errorf("%s needs an API server such as apiserver-1, not %q", what, name)
		}
		return
	}
	names := c.suite.APIServerNames()
	switch {
	case name == "":
		at.Missing("%s needs the name of an API server (%s)", what, suiteHas(names))
	case !slices.Contains(names, name):
		at.Errorf("unknown API server %q (%s)", name, suiteHas(names))
	}
}

// controller checks the name of a controller.
func (c *checker) controller(at *yamlfile.Place, name, what string) {
	if IsAPIServer(name) {
		at.Errorf("%s needs a controller, and %s is an API server", what, name)
		return
	}
	if c.suite == nil {
		return
	}
	names := c.suite.ControllerNames()
	switch {
	case name == "":
		at.Missing("%s needs the name of a controller (%s)", what, suiteHas(names))
	case !slices.Contains(names, name):
		at.Errorf("unknown controller %q (%s)", name, suiteHas(names))
	}
}

// inSuite returns the suite's controller with that name, or nil.
func (c *checker) inSuite(name string) *Controller {
	if c.suite == nil {
		return nil
	}
	return c.suite.controller(name)
}

// hooked reports a controller that the plan needs hooks in but that is given as an executable, which has none. What
// says what follows from that.
func (c *checker) hooked(at *yamlfile.Place, name, what string) {
	if controller := c.inSuite(name); controller != nil && controller.Build == nil {
		at.Errorf("controller %q is given by binary: %s, which has no hooks, %s, or give its source with build:",
			name, controller.Binary, what)
	}
}

// fit reports the fields of a struct that are set, or given in the file, but do not belong to its kind.
func fit(v reflect.Value, at *yamlfile.Place, kind string, common, own []string) {
	sh := layout.ShapeOf(v.Type())
	for _, name := range sh.Names {
		if slices.Contains(common, name) || slices.Contains(own, name) {
			continue
		}
		field := at.Field(name)
		if v.FieldByIndex(sh.Field(name).Index).IsZero() && !field.Given() {
			continue
		}
		has := "it has no other field"
		if len(own) > 0 {
			has = "it has: " + strings.Join(own, ", ")
		}
		field.Errorf("%s has no %s; %s", kind, name, has)
	}
}

func (c *checker) action(a *Action, at *yamlfile.Place) {
	if a.WaitBefore < 0 || a.WaitAfter < 0 {
		at.Errorf("a wait must not be negative")
	}
	c.trigger(&a.Trigger, at.Field("trigger"))
	c.checkCluster(a, at)
	if a.Type == "" {
		at.Field("actionType").Missing("the action has no actionType (known: %s)", strings.Join(actionTypes(), ", "))
		return
	}
	kind := kindOfAction(a.Type)
	if kind == nil {
		at.Field("actionType").Errorf("unknown actionType %q%s", a.Type, wording.Suggest(string(a.Type), actionTypes()))
		return
	}
	if own := OwnFields(a.Type); a.Own != nil && reflect.TypeOf(a.Own) != reflect.TypeOf(own) { // it was built in Go
		at.Errorf("%s takes %T in its field Own, not %T", a.Type, own, a.Own)
		return
	}
	fit(reflect.ValueOf(a).Elem(), at, string(a.Type), commonFields, kind.fields())
	target := at.Field("actionTarget")
	switch kind.Target {
	case TargetAPIServer:
		c.apiServer(target, a.Target, string(a.Type))
	case TargetController:
		c.controller(target, a.Target, string(a.Type))
	}
	if kind.Check != nil {
		kind.Check(&ActionCheck{Action: a, Suite: c.suite, checker: c, at: at})
	}
	c.capabilities(a, at.Field("actionType"))
}

func (c *checker) trigger(t *Trigger, at *yamlfile.Place) {
	if at.Failed() {
		return
	}
	if len(t.Definitions) == 0 && t.Expression == "" {
		if at.Given() {
			at.Field("definitions").Missing("the trigger has no definitions")
		} else {
			at.Errorf("the action has no trigger; to act at once use a definition with triggerType: none")
		}
		return
	}
	var names []string
	for j := range t.Definitions {
		at := at.Field("definitions").Item(j)
		if at.Failed() {
			continue
		}
		d := &t.Definitions[j]
		switch name := at.Field("triggerName"); {
		case d.Name == "":
			name.Missing("the trigger definition has no triggerName")
		case !expr.ValidName(d.Name):
			name.Errorf(`triggerName %q: a name consists of letters, digits, "_", "-" and "."`, d.Name)
		case slices.Contains(names, d.Name):
			name.Errorf("duplicate triggerName %q in this trigger", d.Name)
		}
		names = append(names, d.Name)
		if !at.Field("condition").Failed() {
			c.definition(d, at)
		}
	}
	text := at.Field("expression")
	switch {
	case t.Graph != nil:
	case t.Expression == "" && text.Empty():
		text.Errorf("the expression is empty")
	case t.Expression == "":
		if len(t.Definitions) > 1 {
			text.Missing("the trigger has several definitions and no expression")
		}
	default:
		if e := expression(text, t.Expression); e != nil {
			for _, n := range t.unknown(e) {
				message := fmt.Sprintf("unknown trigger %q (defined: %s)", n.Name, orNone(names))
				text.TextError(t.Expression, n.Offset, message)
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
func (c *checker) definition(d *Definition, whole *yamlfile.Place) {
	cond, at := &d.Condition, whole.Field("condition")
	checkCEL(at.Field("where"), cond.Where, cel.Transition)
	if cond.Repeat < 1 {
		at.Field("repeat").Errorf("repeat is %d; it must be at least 1", cond.Repeat)
	}
	kind := at.Field("triggerType")
	if cond.Type == "" {
		kind.Missing("the condition has no triggerType (known: %s)", strings.Join(stringsOf(triggerTypes), ", "))
		return
	}
	own, ok := conditionFields[cond.Type]
	if !ok {
		kind.Errorf("unknown triggerType %q%s", cond.Type, wording.Suggest(string(cond.Type), stringsOf(triggerTypes)))
		return
	}
	common := []string{"triggerType"}
	if cond.Repeat == 1 {
		common = append(common, "repeat") // its default is always set
	}
	fit(reflect.ValueOf(cond).Elem(), at, string(cond.Type), common, own)
	switch cond.Type {
	case OnTimeout:
		if timeout := at.Field("timeout"); cond.Timeout <= 0 && !timeout.Given() {
			timeout.Errorf("onTimeout has no timeout such as 20s")
		} else if cond.Timeout < 0 {
			timeout.Errorf("timeout: a duration must not be negative")
		}
		if cond.Extend < 0 {
			at.Field("extend").Errorf("extend: a duration must not be negative")
		}
	case OnAnnotatedCall:
		c.call(cond, at.Field("call"))
	case OnReconcile, OnNone:
	default:
		if cond.ResourceKey.IsZero() {
			at.Field("resourceKey").Missing("%s has no resourceKey such as pod/default/web-0", cond.Type)
		}
		c.states(cond, at)
	}
	c.observe(d, whole.Field("observationPoint"))
	c.meaning(d, whole)
}

func (c *checker) call(cond *Condition, at *yamlfile.Place) {
	if cond.Call == "" {
		at.Missing("onAnnotatedCall has no call: the name of one of the suite's annotatedCalls")
		return
	}
	c.annotated(cond.Call, at)
}

// annotated checks the name of an annotated call.
func (c *checker) annotated(name string, at *yamlfile.Place) {
	if c.suite == nil || c.suite.annotatedCall(name) != nil {
		return
	}
	var names []string
	for _, controller := range c.suite.Controllers {
		for _, call := range controller.AnnotatedCalls {
			names = append(names, call.Name)
		}
	}
	at.Errorf("unknown annotated call %q (%s)", name, suiteHas(names))
}

func (c *checker) states(cond *Condition, at *yamlfile.Place) {
	if cond.Type == OnAnyFieldModified || cond.Type == OnAllFieldsModified {
		if cond.PrevState == nil {
			at.Field("prevState").Missing("%s has no prevState: it names the fields to watch for modification",
				cond.Type)
		} else if m, ok := cond.PrevState.(map[string]any); ok && len(m) == 0 {
			at.Field("prevState").Errorf("prevState of %s names no field", cond.Type)
		}
	}
	for name, state := range map[string]any{"prevState": cond.PrevState, "curState": cond.CurState} {
		if state == nil || c.plan.source != nil {
			continue // values that were read from a file always have a JSON form
		}
		if err := match.CheckState(state); err != nil {
			at.Field(name).Errorf("%s: %v", name, err)
		}
	}
}

// observe checks an observation point.
func (c *checker) observe(d *Definition, at *yamlfile.Place) {
	if at.Failed() {
		return
	}
	cond, o := &d.Condition, &d.Observe
	known, observed := points[cond.Type]
	if !observed {
		if *o != (ObservationPoint{}) || at.Given() {
			at.Errorf("%s is not observed anywhere; it takes no observationPoint", cond.Type)
		}
		return
	}
	timing, by, reconciler := at.Field("timing"), at.Field("observeBy"), at.Field("reconciler")
	switch {
	case *o == ObservationPoint{} && !at.Given():
		at.Errorf("%s has no observationPoint: where and when it is observed", cond.Type)
		return
	case o.Timing == "":
		timing.Missing("the observation point has no timing (known: %s)", strings.Join(stringsOf(timings), ", "))
		return
	case !slices.Contains(timings, o.Timing):
		timing.Errorf("unknown timing %q%s", o.Timing, wording.Suggest(string(o.Timing), stringsOf(timings)))
		return
	case !slices.Contains(known, o.Timing.point()):
		var words []string
		for _, p := range known {
			words = append(words, "before"+p, "after"+p)
		}
		timing.Errorf("%s is not observed at %s (but at: %s)", cond.Type, o.Timing, strings.Join(words, ", "))
		return
	}
	if o.Timing.ofAPIServer() {
		if o.ObserveBy != "" && !IsAPIServer(o.ObserveBy) {
			some := "such as apiserver-1"
			if c.suite != nil {
				some = suiteHas(c.suite.APIServerNames())
			}
			by.Errorf("a controller cannot observe %s; observeBy names an API server (%s)", o.Timing, some)
		} else {
			c.apiServer(by, o.ObserveBy, "observeBy")
		}
		c.needs(timing, ObserveAPIServers, string(o.Timing))
		if o.Reconciler != "" {
			reconciler.Errorf("an API server has no reconciler")
		}
		return
	}
	if IsAPIServer(o.ObserveBy) {
		some := ""
		if c.suite != nil {
			some = " (" + suiteHas(c.suite.ControllerNames()) + ")"
		}
		by.Errorf("an API server cannot observe %s; observeBy names a controller%s", o.Timing, some)
		return
	}
	c.controller(by, o.ObserveBy, "observeBy")
	c.hooked(by, o.ObserveBy, "so nothing is observed in it: observe an API server (timing: afterAPIServerRecv)")
	if o.Reconciler != "" && o.Timing.point() == "ControllerRecv" {
		reconciler.Errorf("%s happens in an informer, before any reconciler", o.Timing)
	}
}

// CheckResources calls resolve for every resource key of the plan. It returns the errors as Errors, each with the
// position of its key.
func (p *Plan) CheckResources(resolve func(ResourceKey) error) error {
	at := p.whole()
	checkKeys(reflect.ValueOf(p), at, resolve)
	return mistakes(at.File())
}

// CheckResources calls resolve for every resource key of a suite that was read from a file: those of the workloads'
// steps, of invariants and of history. It returns the errors as Errors, each with the position of its key.
func (s *Suite) CheckResources(resolve func(ResourceKey) error) error {
	if s.source == nil {
		return nil
	}
	src := *s.source
	checkKeys(reflect.ValueOf(s), src.Whole(), resolve)
	return mistakes(&src)
}

// CheckSkips calls check for each kind of plans that the suite leaves out. It returns the errors as Errors, each with
// the position of the field that check names.
func (s *Suite) CheckSkips(check func(Skip) (field string, err error)) error {
	src := s.errorsOf()
	for i, skip := range s.Generate.Skip {
		if field, err := check(skip); err != nil {
			src.Whole().Field("generate").Field("skip").Item(i).Field(field).Errorf("%v", err)
		}
	}
	return mistakes(src)
}

// SkipAt says where the i-th kind of plans is that the suite leaves out, as file:line.
func (s *Suite) SkipAt(i int) string {
	if s.source == nil {
		return fmt.Sprintf("generate.skip[%d]", i)
	}
	at := s.source.Whole().Field("generate").Field("skip").Item(i)
	return fmt.Sprintf("%s:%d", s.File, at.Line())
}

// checkKeys reports the resource keys in a struct, and in the structs within it, that cannot be resolved.
func checkKeys(v reflect.Value, at *yamlfile.Place, resolve func(ResourceKey) error) {
	check := func(k ResourceKey, at *yamlfile.Place) {
		if k.IsZero() {
			return
		}
		if err := resolve(k); err != nil {
			at.Errorf("%v", err)
		}
	}
	layout.Each(v, at, func(_ reflect.Value, at *yamlfile.Place, f *yamlfile.Field, v reflect.Value) {
		switch value := v.Interface().(type) {
		case ResourceKey:
			if f.As == "" {
				check(value, at.Field(f.Name))
			}
		case *ResourceKey:
			if value != nil {
				check(*value, at.Field(f.Name))
			}
		case Scope:
			check(value.Key, at.Field(f.Name))
		case []ResourceKey:
			for i, k := range value {
				check(k, at.Field(f.Name).Item(i))
			}
		}
	})
}

// checkCEL reports the mistakes in a CEL expression; the empty text has none.
func checkCEL(at *yamlfile.Place, text string, scope cel.Scope) {
	var bad *cel.SyntaxError
	if text != "" && errors.As(scope.Check(text), &bad) {
		at.TextError(text, bad.Offset, at.Step()+": CEL: "+bad.Message)
	}
}

// expression parses a trigger expression and reports its mistakes.
func expression(at *yamlfile.Place, text string) *expr.Expr {
	e, err := expr.Parse(text)
	var bad *expr.Error
	if errors.As(err, &bad) {
		at.TextError(text, bad.Offset, "expression: "+bad.Message)
		return nil
	}
	return e
}
