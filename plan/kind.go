package plan

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/trommel-dev/trommel/plan/internal/yamlfile"
)

// ActionKind describes a type of action, except how it is carried out. Each type is declared once, with [RegisterKind];
// code that needs to know something about an action asks its kind instead of comparing type names. Package actions
// carries actions out and undoes them; it is separate so that reading a plan does not need a cluster.
//
// A new kind is one file here, whose function init registers it, and one in package actions. The JSON Schema of plans
// and the table of actions in docs/plan-format.md are generated from it, by go test ./plan -update.
type ActionKind struct {
	Type   ActionType
	Target ActionTarget
	// Summary says in one sentence what the action does, for editors; Doc says it in Markdown, for the documentation.
	Summary, Doc string
	// Fields names the fields of [Action] that this type has, besides its target and those that all types have.
	Fields []string
	// Own returns a pointer to a new struct with the fields that this type has and Action does not; nil: there are
	// none. The struct's tags describe their YAML: yaml, doc (a sentence for editors), and where they apply default,
	// words (the allowed ones) and range (the least and the greatest number). Reading an action stores the struct in
	// its field Own.
	Own func() any
	// Check reports mistakes that the types of the fields do not rule out; nil: there are none.
	Check func(c *ActionCheck)
	// Explain says what the action does, as the end of a sentence that begins with its moment: "kill db".
	Explain func(a *Action) string
	// Object names the object of the action; nil: its target.
	Object func(a *Action) string
	// Needs lists what an action of this type needs of a cluster. That a type of cluster cannot run controllers is
	// reported in the suite.
	Needs []Capability
	// Complete fills in the cluster that the action is about if the suite has several and the plan leaves it out; nil:
	// it is the one of the action's objects or of its API server.
	Complete func(a *Action, s *Suite)
	// Effects lists what an action of this type does; nil: nothing.
	Effects func(a *Action) []Effect
}

// ActionTarget says what the actionTarget of an action names.
type ActionTarget int

// The possible targets.
const (
	TargetNone       ActionTarget = iota // no target
	TargetController                     // a controller under test; empty: the suite's only one
	TargetAPIServer
)

// commonFields lists the fields that actions of all types have.
var commonFields = []string{"actionType", "waitBefore", "waitAfter", "async", "trigger"}

// fields returns the fields that not all types have.
func (k *ActionKind) fields() []string {
	var all []string
	if k.Target != TargetNone {
		all = append(all, "actionTarget")
	}
	all = append(all, k.Fields...)
	if k.Own != nil {
		all = append(all, layout.ShapeOf(reflect.TypeOf(k.Own()).Elem()).Names...)
	}
	return all
}

// kinds lists the types of actions in the order in which messages name them.
var kinds []*ActionKind

// RegisterKind adds a type of action. It panics if the name is already registered. It is meant for initialization:
// plans must not be read at the same time.
func RegisterKind(k ActionKind) {
	if kindOfAction(k.Type) != nil {
		panic(fmt.Sprintf("plan: there are two kinds of action %q", k.Type))
	}
	kinds = append(kinds, &k)
	layout.SetWords(reflect.TypeFor[ActionType](), actionTypes())
}

// actionTypes returns the names of all types.
func actionTypes() []string {
	var names []string
	for _, k := range kinds {
		names = append(names, string(k.Type))
	}
	return names
}

// OwnFields returns a pointer to a new struct with the fields that only actions of this type have, for their field Own;
// nil: they have none.
func OwnFields(t ActionType) any {
	if k := kindOfAction(t); k != nil && k.Own != nil {
		return k.Own()
	}
	return nil
}

// ActionTypes lists the types of all actions.
func ActionTypes() []ActionType {
	var all []ActionType
	for _, k := range kinds {
		all = append(all, k.Type)
	}
	return all
}

// kindOfAction returns the kind of that type, or nil.
func kindOfAction(t ActionType) *ActionKind {
	i := slices.IndexFunc(kinds, func(k *ActionKind) bool { return k.Type == t })
	if i < 0 {
		return nil
	}
	return kinds[i]
}

// kind returns the kind of the action; an empty one if its type is unknown.
func (a *Action) kind() *ActionKind {
	if k := kindOfAction(a.Type); k != nil {
		return k
	}
	return &ActionKind{Type: a.Type}
}

// ownFields returns the fields that only actions of this type have; zero values if the action has none of that Go type.
func ownFields[T any](a *Action) *T {
	if own, ok := a.Own.(*T); ok {
		return own
	}
	return new(T)
}

// has reports whether actions of this type have the field.
func (a *Action) has(field string) bool {
	return slices.Contains(commonFields, field) || slices.Contains(a.kind().fields(), field)
}

// Object names what the action acts on: a controller, an API server, the object that it writes, or the file of its
// manifest. It is empty if the target is the suite's only controller and the plan was not validated against a suite.
func (a *Action) Object() string {
	if object := a.kind().Object; object != nil {
		return object(a)
	}
	return a.Target
}

// Effects lists what the action does, see [Effect].
func (a *Action) Effects() []Effect {
	if effects := a.kind().Effects; effects != nil {
		return effects(a)
	}
	return nil
}

// Needs reports whether the action needs a capability of the cluster.
func (a *Action) Needs(c Capability) bool { return slices.Contains(a.kind().Needs, c) }

// ActionCheck is an action that is being checked.
type ActionCheck struct {
	Action *Action
	Suite  *Suite // nil: the plan is checked without one

	checker *checker
	at      *yamlfile.Place
}

// Errorf reports a mistake in a field. The file may leave the field out.
func (c *ActionCheck) Errorf(field, format string, args ...any) {
	c.at.Field(field).Errorf(format, args...)
}

// Missing reports a required field that is missing, unless the file has a value there that could not be read.
func (c *ActionCheck) Missing(field, format string, args ...any) {
	c.at.Field(field).Missing(format, args...)
}

// APIServer checks a field that names an API server.
func (c *ActionCheck) APIServer(field, name string) {
	c.checker.apiServer(c.at.Field(field), name, field)
}

// before returns the names that actions before this one have; an empty name is none.
func (c *ActionCheck) before(name func(*Action) string) (all []string) {
	for i := range c.checker.plan.Actions {
		a := &c.checker.plan.Actions[i]
		if a == c.Action {
			break
		}
		if name := name(a); name != "" {
			all = append(all, name)
		}
	}
	return all
}

// controller returns the suite's controller that is the action's target, or nil.
func (c *ActionCheck) controller() *Controller { return c.checker.inSuite(c.Action.Target) }

// The first kinds, in the order in which messages name them. Other kinds follow: each registers itself.
func init() {
	for _, k := range []ActionKind{
		restartController, killController, startController, pauseController, resumeController, reconnectController,
		failCall, restoreCalls, freezeController, thawController, pauseAPIServer, resumeAPIServer, killAPIServer,
		startAPIServer, applyObject, patchObject, deleteObject, disrupt, endDisruption,
		cycleNodes, endCycle, advanceTime, skewClock, endSkew, upgrade, disturbConnection, restoreConnection,
	} {
		RegisterKind(k)
	}
}
