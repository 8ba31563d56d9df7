package plan

import (
	"fmt"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/expr"
)

// APIVersion is the version of the plan and suite format that this package reads and writes.
const APIVersion = "trommel.dev/v1alpha1"

// Plan is one test plan: actions that are carried out one after the other, each when its trigger is satisfied.
type Plan struct {
	APIVersion  string
	Kind        string // TestPlan
	TestName    string
	Description string
	Suite       string // path of the suite relative to the plan; empty: the nearest trommel.yaml upwards
	Workload    string // a workload of the suite; empty: the suite's only one
	Variant     string // a variant of the suite; empty: none
	Actions     []Action

	File string // where it was read from; empty for built plans

	source *source // of what was read from a file: where in it
}

// ActionType names what an action does.
type ActionType string

// The action types.
const (
	RestartController   ActionType = "restartController"
	KillController      ActionType = "killController"
	StartController     ActionType = "startController"
	PauseController     ActionType = "pauseController"
	ResumeController    ActionType = "resumeController"
	ReconnectController ActionType = "reconnectController"
	PauseAPIServer      ActionType = "pauseAPIServer"
	ResumeAPIServer     ActionType = "resumeAPIServer"
	KillAPIServer       ActionType = "killAPIServer"
	StartAPIServer      ActionType = "startAPIServer"
	ApplyObject         ActionType = "apply"
	PatchObject         ActionType = "patch"
	DeleteObject        ActionType = "delete"
)

// Action is one step of a plan. Which fields mean anything depends on Type; Validate refuses the others.
type Action struct {
	Type    ActionType // actionType
	Target  string     // actionTarget: a controller or an API server; empty: the suite's only controller. Unused by writes.
	Trigger Trigger

	WaitBefore time.Duration // between the trigger and the action
	WaitAfter  time.Duration // between the action and its completion
	Async      bool          // the next action's trigger is enabled when this action begins, not when it is complete

	PauseAt          Timing // pauseController, resumeController: which point stops
	PauseScope       string // pause…, resume…: a resource key, "*" or empty for everything
	AvoidOngoingRead bool   // pauseController at a read: the pause takes hold when no read of the controller is between its begin and its end

	ReconnectAPIServer string    // reconnectController: where to
	ReconnectBy        Reconnect // reconnectController: default Restart

	ResourceKey  ResourceKey    // patch, delete
	Manifest     map[string]any // apply: inline object
	ManifestFile string         // apply: a file beside the plan
	PatchType    string         // patch: merge (default), json, strategic
	Patch        any            // patch: mapping or, for json, list
	Subresource  string         // patch: e.g. status
}

// Object names what the action acts on: a controller, an API server, or the object that it writes; for a manifest in a
// file the file. It is empty where the suite's only controller is meant and the plan was not validated against a suite.
func (a *Action) Object() string {
	switch a.Type {
	case PatchObject, DeleteObject:
		if a.Subresource != "" {
			return fmt.Sprintf("%s (%s)", a.ResourceKey, a.Subresource)
		}
		return a.ResourceKey.String()
	case ApplyObject:
		if a.Manifest == nil {
			return a.ManifestFile
		}
		kind, _ := a.Manifest["kind"].(string)
		meta, _ := a.Manifest["metadata"].(map[string]any)
		namespace, _ := meta["namespace"].(string)
		name, _ := meta["name"].(string)
		return ResourceKey{Type: strings.ToLower(kind), Namespace: namespace, Name: name}.String()
	}
	return a.Target
}

// String names the action for people: its type and what it acts on.
func (a *Action) String() string {
	if object := a.Object(); object != "" {
		return string(a.Type) + " " + object
	}
	return string(a.Type)
}

// Reconnect is a way to move a controller to another API server.
type Reconnect string

// The ways to reconnect.
const (
	ReconnectRestart Reconnect = "restart" // SIGKILL, start again at the other API server
	ReconnectCut     Reconnect = "cut"     // the process lives; its connections are cut and lead to the other API server
)

// Trigger says when an action is carried out.
type Trigger struct {
	Definitions []Definition
	Expression  string
	Graph       *expr.Graph // compiled from Expression by Validate; node names are definition names
}

// Definition is a named observation to wait for.
type Definition struct {
	Name      string // triggerName
	Condition Condition
	Observe   ObservationPoint // observationPoint; zero for onTimeout and none
}

// TriggerType names what must happen.
type TriggerType string

// The trigger types.
const (
	OnObjectCreation    TriggerType = "onObjectCreation"
	OnObjectUpdate      TriggerType = "onObjectUpdate"
	OnObjectDeletion    TriggerType = "onObjectDeletion"
	OnAnyFieldModified  TriggerType = "onAnyFieldModified"
	OnAllFieldsModified TriggerType = "onAllFieldsModified"
	OnAnnotatedCall     TriggerType = "onAnnotatedCall"
	OnReconcile         TriggerType = "onReconcile" // implied by timing before/afterReconcile
	OnTimeout           TriggerType = "onTimeout"
	OnNone              TriggerType = "none"
)

// Condition is what must happen, to which object.
type Condition struct {
	Type        TriggerType // triggerType
	ResourceKey ResourceKey
	PrevState   any    // decoded YAML; nil: not given
	CurState    any    // decoded YAML; nil: not given
	Where       string // CEL over object and oldObject
	Repeat      int    // the n-th match satisfies; default 1
	Timeout     time.Duration
	Call        string // onAnnotatedCall: an annotated call of the suite
}

// Timing is a side of a point.
type Timing string

// The timings.
const (
	BeforeAPIServerRecv   Timing = "beforeAPIServerRecv"
	AfterAPIServerRecv    Timing = "afterAPIServerRecv"
	BeforeControllerRecv  Timing = "beforeControllerRecv"
	AfterControllerRecv   Timing = "afterControllerRecv"
	BeforeControllerRead  Timing = "beforeControllerRead"
	AfterControllerRead   Timing = "afterControllerRead"
	BeforeControllerWrite Timing = "beforeControllerWrite"
	AfterControllerWrite  Timing = "afterControllerWrite"
	BeforeReconcile       Timing = "beforeReconcile"
	AfterReconcile        Timing = "afterReconcile"
	BeforeAnnotatedCall   Timing = "beforeAnnotatedCall"
	AfterAnnotatedCall    Timing = "afterAnnotatedCall"
)

// ObservationPoint is where and when, and by whom, something is observed.
type ObservationPoint struct {
	Timing     Timing
	ObserveBy  string // an API server or a controller; empty: the suite's only controller
	Reconciler string // narrows to one reconciler, see wire.Observation.Reconciler
}

// ResourceKey is type[.group]/namespace/name. The namespace is empty for cluster scope.
type ResourceKey struct {
	Type      string // singular, lower case
	Group     string // empty: whichever group serves the type
	Namespace string
	Name      string // may hold '*'
}

// String gives the form used in plans, e.g. pod/default/web-0 or node//n1.
func (k ResourceKey) String() string {
	s := k.Type
	if k.Group != "" {
		s += "." + k.Group
	}
	return s + "/" + k.Namespace + "/" + k.Name
}
