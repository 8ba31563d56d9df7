package plan

import (
	"fmt"
	"reflect"
	"slices"
)

// ActionKind is all that is to know of a type of action without carrying it out. Each type is declared once, with
// [RegisterKind]; who wants to know something about an action asks its kind, and nobody else looks at names of types.
// How an action is carried out and taken back says package actions, for which a plan needs no cluster to be read.
type ActionKind struct {
	Type   ActionType
	Target ActionTarget
	// Fields names the fields of [Action] that this type has, beside its target and those that all have.
	Fields []string
	// Own returns a pointer to a struct with the fields that this type has and Action has not; nil: there are none.
	// Their YAML is described by the struct's tags. An action that was read has it in its field Own.
	Own func() any
	// Check reports mistakes; nil: there are none but what the types of the fields tell.
	Check func(c *ActionCheck)
	// Explain says what the action does, as the end of a sentence that begins with the moment: "kill db".
	Explain func(a *Action) string
	// Object names what the action acts on; nil: its target.
	Object func(a *Action) string
	// Effects says what an action of this type does to the processes of a run; nil: nothing.
	Effects func(a *Action) Effects
}

// ActionTarget says what the actionTarget of an action names.
type ActionTarget int

// What there is to act on.
const (
	TargetNone       ActionTarget = iota // it has none
	TargetController                     // a controller under test; empty: the suite's only one
	TargetAPIServer
)

// commonFields are the fields that actions of all types have.
var commonFields = []string{"actionType", "waitBefore", "waitAfter", "async", "trigger"}

// fields are those that actions of other types have not.
func (k *ActionKind) fields() []string {
	var all []string
	if k.Target != TargetNone {
		all = append(all, "actionTarget")
	}
	all = append(all, k.Fields...)
	if k.Own != nil {
		all = append(all, shapeOf(reflect.TypeOf(k.Own()).Elem()).names...)
	}
	return all
}

// kinds holds the types of actions in the order in which messages name them.
var kinds []*ActionKind

// RegisterKind adds a type of action. It panics if there is one of that name. It is meant for initialization: plans
// must not be read at the same time.
func RegisterKind(k ActionKind) {
	if kindOfAction(k.Type) != nil {
		panic(fmt.Sprintf("plan: there are two kinds of action %q", k.Type))
	}
	kinds = append(kinds, &k)
	vocabulary[reflect.TypeFor[ActionType]()] = actionTypes()
	shapes.Clear() // they hold the words
}

// actionTypes are the names of all types.
func actionTypes() []string {
	var names []string
	for _, k := range kinds {
		names = append(names, string(k.Type))
	}
	return names
}

// kindOfAction is the kind of that type; nil: there is none.
func kindOfAction(t ActionType) *ActionKind {
	i := slices.IndexFunc(kinds, func(k *ActionKind) bool { return k.Type == t })
	if i < 0 {
		return nil
	}
	return kinds[i]
}

// kind is what is to know of the action; of an unknown type nothing.
func (a *Action) kind() *ActionKind {
	if k := kindOfAction(a.Type); k != nil {
		return k
	}
	return &ActionKind{Type: a.Type}
}

// has reports whether actions of this type have the field.
func (a *Action) has(field string) bool {
	return slices.Contains(commonFields, field) || slices.Contains(a.kind().fields(), field)
}

// Object names what the action acts on: a controller, an API server, or the object that it writes; for a manifest in a
// file the file. It is empty where the suite's only controller is meant and the plan was not validated against a suite.
func (a *Action) Object() string {
	if object := a.kind().Object; object != nil {
		return object(a)
	}
	return a.Target
}

// Effects is what the action does to the processes of a run.
func (a *Action) Effects() Effects {
	if effects := a.kind().Effects; effects != nil {
		return effects(a)
	}
	return Effects{}
}

// ActionCheck is an action that is checked.
type ActionCheck struct {
	Action *Action
	Suite  *Suite // nil: the plan is checked without one

	checker *checker
	at      *place
}

// Errorf reports a mistake in a field, which may be left out in the file.
func (c *ActionCheck) Errorf(field, format string, args ...any) {
	c.at.field(field).errorf(format, args...)
}

// Missing reports a field that must be there, unless the file has something there that could not be read.
func (c *ActionCheck) Missing(field, format string, args ...any) {
	c.at.field(field).missing(format, args...)
}

// APIServer checks a field that names an API server.
func (c *ActionCheck) APIServer(field, name string) {
	c.checker.apiServer(c.at.field(field), name, field)
}

// controller is the suite's controller that is the action's target, or nil.
func (c *ActionCheck) controller() *Controller { return c.checker.inSuite(c.Action.Target) }

func init() {
	for _, k := range []ActionKind{
		restartController, killController, startController, pauseController, resumeController, reconnectController,
		pauseAPIServer, resumeAPIServer, killAPIServer, startAPIServer, applyObject, patchObject, deleteObject,
	} {
		RegisterKind(k)
	}
}
