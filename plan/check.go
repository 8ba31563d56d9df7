package plan

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/trommel-dev/trommel/expr"
	"github.com/trommel-dev/trommel/predicate"
)

// Validate checks the plan against its suite: that the names in it are names of the suite's. It fills the defaults that
// depend on the suite (the only workload, the only controller) and compiles the trigger graphs. With a nil suite it checks
// and fills what it can without one, as Parse has done already. The error is Errors: every mistake of the plan, with its
// place where the plan came from a file.
func (p *Plan) Validate(s *Suite) error {
	return p.check(s).err()
}

// check completes the plan and returns what is wrong with it, with a suite or, as far as possible, without.
func (p *Plan) check(s *Suite) Errors {
	c := &checker{plan: p, suite: s}
	c.defaults()
	if s != nil {
		c.names()
	}
	for i := range p.Actions {
		if !c.broken(place{action: i, definition: -1}) {
			c.action(i)
		}
	}
	return c.errs
}

type checker struct {
	plan  *Plan
	suite *Suite
	errs  Errors
}

// place is a value in a plan. A negative definition means the action's own fields, or its trigger's.
type place struct {
	action, definition int
	part               string // trigger, condition, observationPoint or empty
	field              string // empty: the part as a whole
}

func (c *checker) errorf(at place, format string, args ...any) {
	n := c.node(at)
	e := &Error{File: c.plan.File, Message: fmt.Sprintf(format, args...)}
	if n != nil {
		e.Line, e.Col = n.Line, n.Column
	} else {
		e.Path = at.path()
	}
	c.errs = append(c.errs, e)
}

func (at place) path() string {
	var parts []string
	if at.action >= 0 {
		parts = append(parts, fmt.Sprintf("actions[%d]", at.action))
		if at.definition >= 0 {
			parts = append(parts, fmt.Sprintf("trigger.definitions[%d]", at.definition))
		}
	}
	if at.part != "" {
		parts = append(parts, at.part)
	}
	if at.field != "" {
		parts = append(parts, at.field)
	}
	return strings.Join(parts, ".")
}

// node returns the YAML node at a place, or the nearest that there is around it; nil for a plan without a file.
func (c *checker) node(at place) *yaml.Node {
	src := c.plan.source
	if src == nil {
		return nil
	}
	if n := c.exact(at); n != nil {
		return n
	}
	switch {
	case at.field != "":
		at.field = ""
	case at.part != "":
		at.part = ""
	case at.definition >= 0:
		at.definition = -1
	default:
		return src.root
	}
	return c.node(at)
}

// exact returns the YAML node at a place, or nil where the file has none.
func (c *checker) exact(at place) *yaml.Node {
	src := c.plan.source
	if src == nil {
		return nil
	}
	if at.action < 0 {
		return pick(planSchema, src.fields, at.field)
	}
	if at.action >= len(src.actions) {
		return nil
	}
	a := &src.actions[at.action]
	if at.definition < 0 {
		switch {
		case at.part == "" && at.field == "":
			return a.node
		case at.part == "":
			return pick(actionSchema, a.fields, at.field)
		case at.field == "":
			return pick(actionSchema, a.fields, at.part)
		}
		return pick(triggerSchema, a.triggerFields, at.field)
	}
	if at.definition >= len(a.definitions) {
		return nil
	}
	d := &a.definitions[at.definition]
	switch {
	case at.part == "" && at.field == "":
		return d.node
	case at.part == "":
		return pick(definitionSchema, d.fields, at.field)
	case at.field == "":
		return pick(definitionSchema, d.fields, at.part)
	case at.part == "condition":
		return pick(conditionSchema, d.condition, at.field)
	}
	return pick(observeSchema, d.observe, at.field)
}

// given reports whether the file has something at the place: then what is still missing in the value was reported when
// it was read.
func (c *checker) given(at place) bool { return c.exact(at) != nil }

func pick(s *schema, fields []*yaml.Node, name string) *yaml.Node {
	if i := slices.Index(s.fields, name); i >= 0 && i < len(fields) {
		return fields[i]
	}
	return nil
}

// broken reports whether something stands at the place of a mapping that is none. That was reported when it was read, and
// there is nothing in it to check.
func (c *checker) broken(at place) bool {
	n := c.exact(at)
	return n != nil && deref(n).Kind != yaml.MappingNode
}

// missing reports a field that has to be there, unless something unreadable is.
func (c *checker) missing(at place, format string, args ...any) {
	if !c.given(at) {
		c.errorf(at, format, args...)
	}
}

// defaults fills what does not depend on the suite.
func (c *checker) defaults() {
	p := c.plan
	if p.APIVersion == "" {
		p.APIVersion = APIVersion
	}
	if p.Kind == "" {
		p.Kind = "TestPlan"
	}
	c.testName()
	for i := range p.Actions {
		a := &p.Actions[i]
		switch {
		case a.Type == ReconnectController && a.ReconnectBy == "" && !c.given(place{action: i, definition: -1, field: "reconnectBy"}):
			a.ReconnectBy = ReconnectRestart
		case a.Type == PatchObject && a.PatchType == "" && !c.given(place{action: i, definition: -1, field: "patchType"}):
			a.PatchType = "merge"
		}
		if a.Trigger.Expression == "" && len(a.Trigger.Definitions) == 1 && expr.ValidName(a.Trigger.Definitions[0].Name) &&
			!c.given(place{action: i, definition: -1, part: "trigger", field: "expression"}) {
			a.Trigger.Expression = a.Trigger.Definitions[0].Name
		}
		for j := range a.Trigger.Definitions {
			d := &a.Trigger.Definitions[j]
			if d.Condition.Repeat == 0 {
				d.Condition.Repeat = 1
			}
			if d.Condition.Type == "" && !c.given(place{i, j, "condition", "triggerType"}) {
				switch d.Observe.Timing {
				case BeforeReconcile, AfterReconcile:
					d.Condition.Type = OnReconcile
				case BeforeAnnotatedCall, AfterAnnotatedCall:
					d.Condition.Type = OnAnnotatedCall
				}
			}
		}
	}
}

// testName checks the plan's name, for which the file's stands in.
func (c *checker) testName() {
	p := c.plan
	at := place{action: -1, definition: -1, field: "testName"}
	what := "testName"
	if p.TestName == "" {
		if p.File == "" || c.given(at) && deref(c.exact(at)).Value != "" {
			return
		}
		p.TestName = strings.TrimSuffix(filepath.Base(p.File), filepath.Ext(p.File))
		what = "the plan has no testName, and its file's name cannot stand in:"
	}
	if message := nameMistake(p.TestName); message != "" {
		c.errorf(at, "%s %q %s", what, p.TestName, message)
	}
}

// maxNameLength is of a name that becomes a part of a folder's, in bytes. Two of them and a time fit into a file name.
const maxNameLength = 100

// nameMistake says what is wrong with a name that becomes a part of a folder's; it is empty for a good one.
func nameMistake(name string) string {
	bad := func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }
	switch {
	case name == "":
		return "is empty"
	case len(name) > maxNameLength:
		return fmt.Sprintf("has %d bytes; a name has at most %d, as it is a part of a folder's name",
			len(name), maxNameLength)
	case strings.ContainsAny(name, `/\`):
		return "has a slash; a name is a part of a folder's name"
	case strings.HasPrefix(name, "."):
		return "begins with a dot; it is the beginning of a folder's name"
	case strings.ContainsFunc(name, bad):
		return "has a character that cannot be printed"
	case strings.TrimSpace(name) != name:
		return "begins or ends with a blank"
	}
	return ""
}

// names checks the plan's own names against the suite.
func (c *checker) names() {
	p, s := c.plan, c.suite
	workloads := sortedKeys(s.Workloads)
	at := place{action: -1, definition: -1, field: "workload"}
	if p.Workload == "" {
		switch {
		case slices.Contains(workloads, p.TestName):
			// A test case is known by one name: what the plan disturbs and what exercises the controller.
			p.Workload = p.TestName
		case len(workloads) == 0:
		case len(workloads) == 1:
			p.Workload = workloads[0]
		default:
			c.missing(at, "the plan names no workload, and the suite has several, none with the plan's testName: %s",
				strings.Join(workloads, ", "))
		}
	} else if !slices.Contains(workloads, p.Workload) {
		c.errorf(at, "unknown workload %q (%s)", p.Workload, suiteHas(workloads))
	}
	if p.Variant != "" {
		if variants := sortedKeys(s.Variants); !slices.Contains(variants, p.Variant) {
			c.errorf(place{action: -1, definition: -1, field: "variant"}, "unknown variant %q (%s)", p.Variant, suiteHas(variants))
		}
	}
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

// APIServerNames are the names of the suite's API servers.
func (s *Suite) APIServerNames() []string {
	names := make([]string, 0, s.Cluster.APIServers)
	for i := range s.Cluster.APIServers {
		names = append(names, fmt.Sprintf("apiserver-%d", i+1))
	}
	return names
}

// ControllerNames are the names of the controllers under test, in the suite's order.
func (s *Suite) ControllerNames() []string {
	names := make([]string, 0, len(s.Controllers))
	for _, c := range s.Controllers {
		names = append(names, c.Name)
	}
	return names
}

// PausesAPIServer reports whether the plan pauses an API server at some time: then it is about stale state.
func (p *Plan) PausesAPIServer() bool {
	return slices.ContainsFunc(p.Actions, func(a Action) bool {
		paused := a.Effects().Pauses
		return paused != nil && paused.OfAPIServer()
	})
}

// IsAPIServer reports whether a name is one of an API server: apiserver-1 and so on. No controller may have such a name.
func IsAPIServer(name string) bool {
	number, ok := strings.CutPrefix(name, "apiserver-")
	return ok && number != "" && strings.Trim(number, "0123456789") == ""
}

// apiServer checks the name of an API server. What says what it is for.
func (c *checker) apiServer(at place, name, what string) {
	if c.suite == nil {
		if name == "" {
			c.missing(at, "%s names no API server such as apiserver-1", what)
		} else if !IsAPIServer(name) {
			c.errorf(at, "%s names an API server such as apiserver-1, not %q", what, name)
		}
		return
	}
	names := c.suite.APIServerNames()
	switch {
	case name == "":
		c.missing(at, "%s names no API server (%s)", what, suiteHas(names))
	case !slices.Contains(names, name):
		c.errorf(at, "unknown API server %q (%s)", name, suiteHas(names))
	}
}

// controller checks the name of a controller; an empty one becomes the suite's only.
func (c *checker) controller(at place, name *string, what string) {
	if IsAPIServer(*name) {
		c.errorf(at, "%s names a controller, and %s is an API server", what, *name)
		return
	}
	if c.suite == nil {
		return
	}
	names := c.suite.ControllerNames()
	switch {
	case *name == "" && len(names) == 1:
		*name = names[0]
	case *name == "":
		c.missing(at, "%s names no controller (%s)", what, suiteHas(names))
	case !slices.Contains(names, *name):
		c.errorf(at, "unknown controller %q (%s)", *name, suiteHas(names))
	}
}

// hooked reports a controller that a plan needs hooks in and that is an executable as it is. What says what that means.
func (c *checker) hooked(at place, name, what string) {
	if c.suite == nil {
		return
	}
	i := slices.IndexFunc(c.suite.Controllers, func(ctl Controller) bool { return ctl.Name == name })
	if i < 0 || c.suite.Controllers[i].Build != nil {
		return
	}
	c.errorf(at, "controller %q is given by binary: %s, which has no hooks, %s, or give its source with build:", name, c.suite.Controllers[i].Binary, what)
}

// fits are the fields that an action type has besides those that all have.
var fits = map[ActionType][]string{
	RestartController:   {"actionTarget"},
	KillController:      {"actionTarget"},
	StartController:     {"actionTarget"},
	PauseController:     {"actionTarget", "pauseAt", "pauseScope", "avoidOngoingRead"},
	ResumeController:    {"actionTarget", "pauseAt", "pauseScope"},
	ReconnectController: {"actionTarget", "reconnectAPIServer", "reconnectBy"},
	PauseAPIServer:      {"actionTarget", "pauseScope"},
	ResumeAPIServer:     {"actionTarget", "pauseScope"},
	KillAPIServer:       {"actionTarget"},
	StartAPIServer:      {"actionTarget"},
	ApplyObject:         {"manifest", "manifestFile"},
	PatchObject:         {"resourceKey", "patchType", "patch", "subresource"},
	DeleteObject:        {"resourceKey"},
}

func (c *checker) action(i int) {
	a := &c.plan.Actions[i]
	at := func(field string) place { return place{action: i, definition: -1, field: field} }
	if a.WaitBefore < 0 || a.WaitAfter < 0 {
		c.errorf(at(""), "a wait is negative")
	}
	c.trigger(i)
	if a.Type == "" {
		c.missing(at("actionType"), "the action has no actionType (known: %s)", strings.Join(stringsOf(actionTypes), ", "))
		return
	}
	allowed, ok := fits[a.Type]
	if !ok {
		c.errorf(at("actionType"), "unknown actionType %q%s", a.Type, didYouMean(string(a.Type), stringsOf(actionTypes)))
		return
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"actionTarget", a.Target != ""},
		{"pauseAt", a.PauseAt != ""},
		{"pauseScope", a.PauseScope != ""},
		{"avoidOngoingRead", a.AvoidOngoingRead},
		{"reconnectAPIServer", a.ReconnectAPIServer != ""},
		{"reconnectBy", a.ReconnectBy != ""},
		{"resourceKey", !a.ResourceKey.IsZero()},
		{"manifest", a.Manifest != nil},
		{"manifestFile", a.ManifestFile != ""},
		{"patchType", a.PatchType != ""},
		{"patch", a.Patch != nil},
		{"subresource", a.Subresource != ""},
	} {
		if (f.set || c.given(at(f.name))) && !slices.Contains(allowed, f.name) {
			c.errorf(at(f.name), "%s has no %s; it has: %s", a.Type, f.name, strings.Join(allowed, ", "))
		}
	}
	switch a.Type {
	case PauseAPIServer, ResumeAPIServer, KillAPIServer, StartAPIServer:
		c.apiServer(at("actionTarget"), a.Target, string(a.Type))
	case ApplyObject:
		c.manifest(i)
	case PatchObject, DeleteObject:
		c.write(i)
	default:
		c.controller(at("actionTarget"), &a.Target, string(a.Type))
	}
	if a.Type == PauseController || a.Type == ResumeController {
		c.hooked(at("actionTarget"), a.Target, "so that it cannot be paused: pause its API server (pauseAPIServer)")
	}
	switch a.Type {
	case ReconnectController:
		c.apiServer(at("reconnectAPIServer"), a.ReconnectAPIServer, "reconnectAPIServer")
		if a.ReconnectBy != "" && !slices.Contains(reconnects, a.ReconnectBy) {
			c.errorf(at("reconnectBy"), "unknown reconnectBy %q%s", a.ReconnectBy, didYouMean(string(a.ReconnectBy), stringsOf(reconnects)))
		}
	case PauseController, ResumeController, PauseAPIServer, ResumeAPIServer:
		c.pause(i)
	}
}

func (c *checker) pause(i int) {
	a := &c.plan.Actions[i]
	at := func(field string) place { return place{action: i, definition: -1, field: field} }
	if a.PauseScope != "" && a.PauseScope != "*" {
		if _, err := ParseResourceKey(a.PauseScope); err != nil {
			c.errorf(at("pauseScope"), "pauseScope %v", err)
		}
	}
	if a.Type == PauseAPIServer || a.Type == ResumeAPIServer {
		return
	}
	var known []string
	for _, t := range timings {
		if !t.ofAPIServer() {
			known = append(known, string(t))
		}
	}
	switch {
	case a.PauseAt == "" && a.Type == PauseController:
		c.missing(at("pauseAt"), "pauseController has no pauseAt (known: %s)", strings.Join(known, ", "))
	case a.PauseAt.ofAPIServer():
		c.errorf(at("pauseAt"), "a controller has no %s; to pause an API server use pauseAPIServer", a.PauseAt)
	case a.PauseAt != "" && !slices.Contains(timings, a.PauseAt):
		c.errorf(at("pauseAt"), "unknown pauseAt %q%s", a.PauseAt, didYouMean(string(a.PauseAt), known))
	}
	if a.Type == PauseController && a.PauseAt.point() == "AnnotatedCall" {
		c.annotates(at("pauseAt"), a)
	}
	if a.AvoidOngoingRead && a.PauseAt != "" && a.PauseAt.point() != "ControllerRead" {
		c.errorf(at("avoidOngoingRead"), "avoidOngoingRead is for a pause at beforeControllerRead or afterControllerRead, not %s", a.PauseAt)
	}
}

// annotates refuses a pause at the annotated calls of a controller that has none.
func (c *checker) annotates(at place, a *Action) {
	if c.suite == nil {
		return
	}
	i := slices.IndexFunc(c.suite.Controllers, func(ctl Controller) bool { return ctl.Name == a.Target })
	if i >= 0 && len(c.suite.Controllers[i].AnnotatedCalls) == 0 {
		c.errorf(at, "controller %q has no annotatedCalls in the suite, so that nothing is held at %s", a.Target, a.PauseAt)
	}
}

func (c *checker) manifest(i int) {
	a := &c.plan.Actions[i]
	at := func(field string) place { return place{action: i, definition: -1, field: field} }
	switch hasFile := a.ManifestFile != ""; {
	case hasFile && a.Manifest != nil:
		c.errorf(at("manifestFile"), "apply has both manifest and manifestFile; it takes one")
	case hasFile:
		if c.plan.File == "" {
			return
		}
		if _, err := os.Stat(Beside(c.plan.File, a.ManifestFile)); err != nil {
			c.errorf(at("manifestFile"), "manifestFile: %s: no such file beside the plan", a.ManifestFile)
		}
	case a.Manifest != nil:
		if message := objectMistake(a.Manifest); message != "" {
			c.errorf(at("manifest"), "manifest %s", message)
		}
	default:
		c.missing(at("manifest"), "apply has neither manifest nor manifestFile")
	}
}

// objectMistake says what an object to be applied lacks.
func objectMistake(object map[string]any) string {
	for _, f := range []string{"apiVersion", "kind"} {
		if s, _ := object[f].(string); s == "" {
			return "has no " + f
		}
	}
	meta, _ := object["metadata"].(map[string]any)
	if s, _ := meta["name"].(string); s == "" {
		return "has no metadata.name"
	}
	return ""
}

func (c *checker) write(i int) {
	a := &c.plan.Actions[i]
	at := func(field string) place { return place{action: i, definition: -1, field: field} }
	if a.ResourceKey.IsZero() {
		c.missing(at("resourceKey"), "%s has no resourceKey", a.Type)
	} else if a.ResourceKey.HasWildcard() {
		c.errorf(at("resourceKey"), "%s is for one object; %q may be several", a.Type, a.ResourceKey)
	}
	if a.Type != PatchObject {
		return
	}
	if message := patchMistake(a.PatchType, a.Patch); message != "" {
		c.errorf(at("patch"), "%s", message)
	}
}

// patchMistake says what is wrong with a patch.
func patchMistake(typ string, patch any) string {
	if typ != "" && !slices.Contains(patchTypes, typ) {
		return fmt.Sprintf("unknown patchType %q%s", typ, didYouMean(typ, patchTypes))
	}
	_, isMap := patch.(map[string]any)
	_, isList := patch.([]any)
	switch {
	case patch == nil:
		return "there is no patch"
	case typ == "json" && !isList:
		return "a json patch is a list of operations"
	case typ != "json" && !isMap:
		return "a merge or strategic patch is a mapping; for a list of operations use patchType: json"
	}
	return ""
}

func (c *checker) trigger(i int) {
	t := &c.plan.Actions[i].Trigger
	at := func(field string) place { return place{action: i, definition: -1, part: "trigger", field: field} }
	if c.broken(at("")) {
		return
	}
	if len(t.Definitions) == 0 && t.Expression == "" {
		if c.given(at("")) {
			c.missing(at("definitions"), "the trigger has no definitions")
		} else {
			c.errorf(at(""), "the action has no trigger; to act at once use a definition with triggerType: none")
		}
		return
	}
	var names []string
	for j := range t.Definitions {
		if c.broken(place{action: i, definition: j}) {
			continue
		}
		d := &t.Definitions[j]
		name := place{i, j, "", "triggerName"}
		switch {
		case d.Name == "":
			c.missing(name, "the trigger definition has no triggerName")
		case !expr.ValidName(d.Name):
			c.errorf(name, `triggerName %q: a name consists of letters, digits, "_", "-" and "."`, d.Name)
		case slices.Contains(names, d.Name):
			c.errorf(name, "triggerName %q stands twice in this trigger", d.Name)
		}
		names = append(names, d.Name)
		if !c.broken(place{i, j, "condition", ""}) {
			c.definition(i, j)
		}
	}
	if t.Expression == "" {
		if n := c.exact(at("expression")); n != nil && deref(n).Kind == yaml.ScalarNode && deref(n).Value == "" {
			c.errorf(at("expression"), "the expression is empty")
		} else if len(t.Definitions) > 1 {
			c.missing(at("expression"), "the trigger has several definitions and no expression")
		}
		return
	}
	e, err := expr.Parse(t.Expression)
	var bad *expr.Error
	if errors.As(err, &bad) {
		c.scalarError(at("expression"), t.Expression, bad.Offset, "expression: "+bad.Message)
		return
	}
	known := true
	for _, n := range e.Names() {
		if !slices.Contains(names, n.Name) {
			c.scalarError(at("expression"), t.Expression, n.Offset, fmt.Sprintf("unknown trigger %q (defined: %s)", n.Name, orNone(names)))
			known = false
		}
	}
	if known {
		t.Expression, t.Graph = e.String(), e.Graph()
	}
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// scalarError reports a mistake at a byte of a text's value.
func (c *checker) scalarError(at place, text string, offset int, message string) {
	n := c.node(at)
	if n == nil {
		c.errs = append(c.errs, &Error{File: c.plan.File, Path: at.path(), Message: fmt.Sprintf("at %d of %q: %s", offset, shorten(text), message)})
		return
	}
	e := &Error{File: c.plan.File, Line: n.Line, Col: n.Column, Message: message}
	if r := deref(n); c.plan.source != nil && r.Kind == yaml.ScalarNode && r.Value == text {
		e.Line, e.Col = scalarPosition(c.plan.source.text, r, offset)
	}
	c.errs = append(c.errs, e)
}

func (t Timing) point() string {
	return strings.TrimPrefix(strings.TrimPrefix(string(t), "before"), "after")
}

// ofAPIServer reports whether it is API servers that stop there.
func (t Timing) ofAPIServer() bool { return t == BeforeAPIServerRecv || t == AfterAPIServerRecv }

// conditionFields are the fields that a trigger type has.
var conditionFields = map[TriggerType][]string{
	OnObjectCreation:    {"resourceKey", "curState", "where", "repeat"},
	OnObjectUpdate:      {"resourceKey", "prevState", "curState", "where", "repeat"},
	OnObjectDeletion:    {"resourceKey", "prevState", "where", "repeat"},
	OnAnyFieldModified:  {"resourceKey", "prevState", "where", "repeat"},
	OnAllFieldsModified: {"resourceKey", "prevState", "where", "repeat"},
	OnAnnotatedCall:     {"call", "repeat"},
	OnReconcile:         {"resourceKey", "repeat"},
	OnTimeout:           {"timeout"},
	OnNone:              {},
}

// points are the points at which a trigger type can be observed.
var points = map[TriggerType][]string{
	OnObjectCreation:    {"APIServerRecv", "ControllerRecv", "ControllerRead", "ControllerWrite"},
	OnObjectUpdate:      {"APIServerRecv", "ControllerRecv", "ControllerRead", "ControllerWrite"},
	OnObjectDeletion:    {"APIServerRecv", "ControllerRecv", "ControllerRead", "ControllerWrite"},
	OnAnyFieldModified:  {"APIServerRecv", "ControllerRecv", "ControllerRead", "ControllerWrite"},
	OnAllFieldsModified: {"APIServerRecv", "ControllerRecv", "ControllerRead", "ControllerWrite"},
	OnAnnotatedCall:     {"AnnotatedCall"},
	OnReconcile:         {"Reconcile"},
}

func (c *checker) definition(i, j int) {
	d := &c.plan.Actions[i].Trigger.Definitions[j]
	cond := &d.Condition
	at := func(field string) place { return place{i, j, "condition", field} }
	c.where(i, j)
	if cond.Type == "" {
		c.missing(at("triggerType"), "the condition has no triggerType (known: %s)", strings.Join(stringsOf(triggerTypes), ", "))
		return
	}
	allowed, ok := conditionFields[cond.Type]
	if !ok {
		c.errorf(at("triggerType"), "unknown triggerType %q%s", cond.Type, didYouMean(string(cond.Type), stringsOf(triggerTypes)))
		return
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"resourceKey", !cond.ResourceKey.IsZero()},
		{"prevState", cond.PrevState != nil},
		{"curState", cond.CurState != nil},
		{"where", cond.Where != ""},
		{"repeat", cond.Repeat > 1},
		{"timeout", cond.Timeout != 0},
		{"call", cond.Call != ""},
	} {
		if !f.set && !c.given(at(f.name)) || slices.Contains(allowed, f.name) || f.name == "repeat" && cond.Repeat == 1 {
			continue
		}
		has := "it has no other field"
		if len(allowed) > 0 {
			has = "it has: " + strings.Join(allowed, ", ")
		}
		c.errorf(at(f.name), "%s has no %s; %s", cond.Type, f.name, has)
	}
	if cond.Repeat < 1 {
		c.errorf(at("repeat"), "repeat is %d; the first match is 1", cond.Repeat)
	}
	switch cond.Type {
	case OnTimeout:
		if cond.Timeout <= 0 && !c.given(at("timeout")) {
			c.errorf(at("timeout"), "onTimeout has no timeout such as 20s")
		} else if cond.Timeout < 0 {
			c.errorf(at("timeout"), "timeout: a duration is not negative")
		}
	case OnAnnotatedCall:
		c.call(i, j)
	case OnReconcile, OnNone:
	default:
		if cond.ResourceKey.IsZero() {
			c.missing(at("resourceKey"), "%s has no resourceKey such as pod/default/web-0", cond.Type)
		}
		c.states(i, j)
	}
	c.observe(i, j)
}

// call checks an annotated call and turns its full name (package.(*Type).Function) into the suite's own for it.
func (c *checker) call(i, j int) {
	cond := &c.plan.Actions[i].Trigger.Definitions[j].Condition
	at := place{i, j, "condition", "call"}
	if cond.Call == "" {
		c.missing(at, "onAnnotatedCall has no call: the name of one of the suite's annotatedCalls")
		return
	}
	if c.suite == nil {
		return
	}
	var names []string
	for _, ctl := range c.suite.Controllers {
		for _, call := range ctl.AnnotatedCalls {
			if cond.Call == call.Name || cond.Call == call.Symbol() {
				cond.Call = call.Name
				return
			}
			names = append(names, call.Name)
		}
	}
	c.errorf(at, "unknown annotated call %q (%s)", cond.Call, suiteHas(names))
}

// Symbol is the function's full name as Go prints it: package.(*Type).Function.
func (a AnnotatedCall) Symbol() string {
	if a.Receiver == "" {
		return a.Package + "." + a.Function
	}
	if strings.HasPrefix(a.Receiver, "*") {
		return a.Package + ".(" + a.Receiver + ")." + a.Function
	}
	return a.Package + "." + a.Receiver + "." + a.Function
}

func (c *checker) states(i, j int) {
	cond := &c.plan.Actions[i].Trigger.Definitions[j].Condition
	at := func(field string) place { return place{i, j, "condition", field} }
	if cond.Type == OnAnyFieldModified || cond.Type == OnAllFieldsModified {
		if cond.PrevState == nil {
			c.missing(at("prevState"), "%s has no prevState: the fields that are to be modified", cond.Type)
		} else if m, ok := cond.PrevState.(map[string]any); ok && len(m) == 0 {
			c.errorf(at("prevState"), "%s has no field in prevState", cond.Type)
		}
	}
	for _, s := range []struct {
		name  string
		state any
	}{{"prevState", cond.PrevState}, {"curState", cond.CurState}} {
		// What was read from a file has only values that JSON has.
		if s.state == nil || c.plan.source != nil {
			continue
		}
		if _, err := compileState(s.state); err != nil {
			c.errorf(at(s.name), "%s: %v", s.name, err)
		}
	}
}

// where checks a predicate.
func (c *checker) where(i, j int) {
	where := c.plan.Actions[i].Trigger.Definitions[j].Condition.Where
	if where == "" {
		return
	}
	var bad *predicate.SyntaxError
	if errors.As(predicate.Transition.Check(where), &bad) {
		c.scalarError(place{i, j, "condition", "where"}, where, bad.Offset, "where: CEL: "+bad.Message)
	}
}

func (c *checker) observe(i, j int) {
	d := &c.plan.Actions[i].Trigger.Definitions[j]
	cond, o := &d.Condition, &d.Observe
	at := func(field string) place { return place{i, j, "observationPoint", field} }
	if c.broken(at("")) {
		return
	}
	known, observed := points[cond.Type]
	if !observed {
		if *o != (ObservationPoint{}) || c.given(place{i, j, "observationPoint", ""}) {
			c.errorf(at(""), "%s is not observed anywhere; it has no observationPoint", cond.Type)
		}
		return
	}
	if o.Timing == "" {
		if *o == (ObservationPoint{}) && !c.given(at("")) {
			c.errorf(at(""), "%s has no observationPoint: when and by whom it is observed", cond.Type)
		} else {
			c.missing(at("timing"), "the observation point has no timing (known: %s)", strings.Join(stringsOf(timings), ", "))
		}
		return
	}
	if !slices.Contains(timings, o.Timing) {
		c.errorf(at("timing"), "unknown timing %q%s", o.Timing, didYouMean(string(o.Timing), stringsOf(timings)))
		return
	}
	if !slices.Contains(known, o.Timing.point()) {
		var words []string
		for _, p := range known {
			words = append(words, "before"+p, "after"+p)
		}
		c.errorf(at("timing"), "%s is not observed at %s (but at: %s)", cond.Type, o.Timing, strings.Join(words, ", "))
		return
	}
	c.checkMeaning(i, j)
	if o.Timing.ofAPIServer() {
		if o.ObserveBy != "" && !IsAPIServer(o.ObserveBy) {
			c.errorf(at("observeBy"), "a controller cannot observe %s; observeBy names an API server (%s)", o.Timing, c.someAPIServers())
		} else {
			c.apiServer(at("observeBy"), o.ObserveBy, "observeBy")
		}
		if o.Reconciler != "" {
			c.errorf(at("reconciler"), "an API server has no reconciler")
		}
		return
	}
	if IsAPIServer(o.ObserveBy) {
		c.errorf(at("observeBy"), "an API server cannot observe %s; observeBy names a controller%s", o.Timing, c.someControllers())
		return
	}
	c.controller(at("observeBy"), &o.ObserveBy, "observeBy")
	c.hooked(at("observeBy"), o.ObserveBy, "so that nothing is observed in it: observe an API server (timing: afterAPIServerRecv)")
	if o.Reconciler != "" && o.Timing.point() == "ControllerRecv" {
		c.errorf(at("reconciler"), "%s happens in an informer, before any reconciler", o.Timing)
	}
}

func (c *checker) someAPIServers() string {
	if c.suite == nil {
		return "such as apiserver-1"
	}
	return suiteHas(c.suite.APIServerNames())
}

func (c *checker) someControllers() string {
	if c.suite == nil {
		return ""
	}
	return " (" + suiteHas(c.suite.ControllerNames()) + ")"
}

// CheckResources calls resolve for every resource key of the plan and returns its errors as Errors, each at the key's
// place.
func (p *Plan) CheckResources(resolve func(ResourceKey) error) error {
	c := &checker{plan: p}
	check := func(at place, k ResourceKey) {
		if k.IsZero() {
			return
		}
		if err := resolve(k); err != nil {
			c.errorf(at, "%v", err)
		}
	}
	for i := range p.Actions {
		a := &p.Actions[i]
		check(place{action: i, definition: -1, field: "resourceKey"}, a.ResourceKey)
		if k, err := ParseResourceKey(a.PauseScope); err == nil {
			check(place{action: i, definition: -1, field: "pauseScope"}, k)
		}
		for j := range a.Trigger.Definitions {
			check(place{i, j, "condition", "resourceKey"}, a.Trigger.Definitions[j].Condition.ResourceKey)
		}
	}
	return c.errs.err()
}

// CheckResources calls resolve for every resource key of a suite that was read from a file: those of the workloads' steps, of
// invariants and of history. It returns its errors as Errors, each at the key's place.
func (s *Suite) CheckResources(resolve func(ResourceKey) error) error {
	var errs Errors
	for _, k := range s.keys {
		if err := resolve(k.key); err != nil {
			errs = append(errs, &Error{File: s.File, Line: k.line, Col: k.col, Message: err.Error()})
		}
	}
	return errs.err()
}
