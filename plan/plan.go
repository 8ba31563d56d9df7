package plan

import (
	"strings"
	"time"

	"github.com/trommel-dev/trommel/expr"
	"github.com/trommel-dev/trommel/plan/internal/yamlfile"
)

// APIVersion is the version of the plan and suite format that this package reads and writes.
const APIVersion = "trommel.dev/v1alpha1"

// Plan is a test plan: actions that are carried out one after the other, each when its trigger is satisfied.
type Plan struct {
	APIVersion  string `yaml:"apiVersion" default:"trommel.dev/v1alpha1"`
	Kind        string `yaml:"kind" default:"TestPlan"`
	TestName    string `yaml:"testName"`
	Description string `yaml:"description"`
	Suite       string `yaml:"suite"`    // its path, relative to the plan; empty: see FindSuite
	Workload    string `yaml:"workload"` // a workload of the suite; empty: the suite's only one, unless there are Steps
	// Steps are the plan's own workload, instead of one of the suite. Their paths are relative to the suite.
	Steps   []Step   `yaml:"steps" item:"a step"`
	Variant string   `yaml:"variant"` // a variant of the suite; empty: none
	Actions []Action `yaml:"actions" item:"an action"`
	// Invariants hold besides those of the suite.
	Invariants []Invariant `yaml:"invariants" item:"an invariant"`
	// History is recorded besides the objects that the suite, the actions and the invariants name.
	History []ResourceKey `yaml:"history" item:"history"`

	File string // where it was read from; empty for built plans

	source *yamlfile.File // positions of values that were read from a file
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
	FailCall            ActionType = "failCall" // by default with status 500, a lost call with the client's time-out
	RestoreCalls        ActionType = "restoreCalls"
	FreezeController    ActionType = "freezeController"
	ThawController      ActionType = "thawController"
	KillAPIServer       ActionType = "killAPIServer"
	StartAPIServer      ActionType = "startAPIServer"
	ApplyObject         ActionType = "apply"
	PatchObject         ActionType = "patch"
	DeleteObject        ActionType = "delete"
)

// Action is one step of a plan. Its Type decides which fields it has; Validate rejects the others.
type Action struct {
	Type   ActionType `yaml:"actionType"`
	Target string     `yaml:"actionTarget"` // a controller (empty: the suite's only one) or an API server

	PauseAt          Timing `yaml:"pauseAt"`          // pauseController, resumeController: where it stops
	PauseScope       string `yaml:"pauseScope"`       // pause…, resume…: a resource key; "*" or empty: everything
	AvoidOngoingRead bool   `yaml:"avoidOngoingRead"` // pauseController: wait until no read is in progress

	CallScope      string      `yaml:"callScope"`                      // failCall, restoreCalls: as pauseScope
	CallOperations []Operation `yaml:"callOperations"`                 // failCall; empty: all writes
	Answer         CallAnswer  `yaml:"answer" default:"refused"`       // failCall
	Status         int         `yaml:"status"`                         // failCall: HTTP status; 0: see FailCall
	RetryAfter     int         `yaml:"retryAfterSeconds" range:"0 60"` // failCall: for the client of a refused call
	Times          int         `yaml:"times" range:"0 1000"`           // failCall: how many calls; 0: one
	UntilRestored  bool        `yaml:"untilRestored"`                  // failCall: all calls until restoreCalls

	Kill bool `yaml:"kill"` // thawController: kill what is frozen instead

	ReconnectAPIServer string    `yaml:"reconnectAPIServer"`            // reconnectController: where to
	ReconnectBy        Reconnect `yaml:"reconnectBy" default:"restart"` // reconnectController

	ResourceKey  ResourceKey    `yaml:"resourceKey"`                                            // patch, delete
	Manifest     map[string]any `yaml:"manifest"`                                               // apply: inline object
	ManifestFile string         `yaml:"manifestFile"`                                           // apply: its file
	PatchType    string         `yaml:"patchType" words:"merge json strategic" default:"merge"` // patch
	Subresource  string         `yaml:"subresource"`                                            // patch: e.g. status
	Patch        any            `yaml:"patch"`                                                  // mapping or json list

	Disruption      any  `yaml:"disruption"`      // disrupt: see Begins; endDisruption: a name
	AcceptPartial   bool `yaml:"acceptPartial"`   // disrupt: it is enough that some targets are disrupted
	AcceptNoTargets bool `yaml:"acceptNoTargets"` // disrupt: it need not have targets

	Cycle         any        `yaml:"cycle"`         // cycleNodes: see Cycles; endCycle: a name
	WaitFor       CyclePhase `yaml:"waitFor"`       // cycleNodes; empty: until the request is accepted
	AcceptFailure bool       `yaml:"acceptFailure"` // cycleNodes: the cycle may fail

	WaitBefore time.Duration `yaml:"waitBefore"` // between the trigger and the action
	WaitAfter  time.Duration `yaml:"waitAfter"`  // between the action and its completion
	Async      bool          `yaml:"async"`      // the next action's trigger is enabled when this action begins
	Trigger    Trigger       `yaml:"trigger" called:"a trigger"`

	Own any `part:""` // a pointer to the fields that only this type has, see ActionKind; nil: none
}

// String names the action in messages: its type and its object.
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
	ReconnectCut     Reconnect = "cut"     // the process keeps running; its connections are redirected
)

// Operation is a write to the API server.
type Operation string

// operations are the writes that can be made to fail.
var operations = []Operation{"create", "update", "patch", "apply", "delete", "deleteCollection"}

// CallAnswer is what becomes of a call to the API server that is made to fail.
type CallAnswer string

// The answers.
const (
	Lost    CallAnswer = "lost"    // the call takes effect, and its caller gets an error
	Refused CallAnswer = "refused" // the call does not reach the API server
)

// Trigger says when an action is carried out.
type Trigger struct {
	Definitions []Definition `yaml:"definitions" item:"a trigger definition"`
	Expression  string       `yaml:"expression"` // over the definitions' names; default: the name of the only one
	Graph       *expr.Graph  // compiled from Expression by Complete; node names are definition names
}

// Definition is a named observation to wait for.
type Definition struct {
	Name      string    `yaml:"triggerName" also:"conditionName"`
	Condition Condition `yaml:"condition" called:"a condition"`
	// Observe is zero for onTimeout and none.
	Observe ObservationPoint `yaml:"observationPoint" also:"observePoint" called:"an observation point"`
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

var triggerTypes = []TriggerType{
	OnObjectCreation, OnObjectUpdate, OnObjectDeletion, OnAnyFieldModified, OnAllFieldsModified,
	OnAnnotatedCall, OnReconcile, OnTimeout, OnNone,
}

// Condition says what must happen, to which object.
type Condition struct {
	Type        TriggerType   `yaml:"triggerType"`
	ResourceKey ResourceKey   `yaml:"resourceKey"`
	PrevState   any           `yaml:"prevState" as:"state"` // nil: not given
	CurState    any           `yaml:"curState" as:"state"`  // nil: not given
	Where       string        `yaml:"where"`                // CEL over object and oldObject
	Repeat      int           `yaml:"repeat" default:"1"`   // the n-th match satisfies
	Timeout     time.Duration `yaml:"timeout"`
	Call        string        `yaml:"call"` // onAnnotatedCall: an annotated call of the suite
}

// conditionFields lists the fields that each trigger type has.
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

// Timing is a point with a side: before or after.
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

var timings = []Timing{
	BeforeAPIServerRecv, AfterAPIServerRecv, BeforeControllerRecv, AfterControllerRecv, BeforeControllerRead,
	AfterControllerRead,
	BeforeControllerWrite, AfterControllerWrite, BeforeReconcile, AfterReconcile, BeforeAnnotatedCall,
	AfterAnnotatedCall,
}

func (t Timing) point() string {
	return strings.TrimPrefix(strings.TrimPrefix(string(t), "before"), "after")
}

// ofAPIServer reports whether API servers, rather than controllers, are observed there.
func (t Timing) ofAPIServer() bool { return t == BeforeAPIServerRecv || t == AfterAPIServerRecv }

// ObservationPoint says when something is observed, and in which process.
type ObservationPoint struct {
	Timing     Timing `yaml:"timing"`
	ObserveBy  string `yaml:"observeBy"`  // an API server or a controller; empty: the suite's only controller
	Reconciler string `yaml:"reconciler"` // narrows to one reconciler, see wire.Observation.Reconciler
}

var objectPoints = []string{"APIServerRecv", "ControllerRecv", "ControllerRead", "ControllerWrite"}

// points lists the points at which a trigger type can be observed.
var points = map[TriggerType][]string{
	OnObjectCreation:    objectPoints,
	OnObjectUpdate:      objectPoints,
	OnObjectDeletion:    objectPoints,
	OnAnyFieldModified:  objectPoints,
	OnAllFieldsModified: objectPoints,
	OnAnnotatedCall:     {"AnnotatedCall"},
	OnReconcile:         {"Reconcile"},
}

// ResourceKey is type[.group]/namespace/name. The namespace is empty for cluster scope.
type ResourceKey struct {
	Type      string // singular, lower case
	Group     string // empty: the group that serves the type
	Namespace string
	Name      string // may contain '*'
}

// String gives the form used in plans, e.g. pod/default/web-0 or node//n1.
func (k ResourceKey) String() string {
	s := k.Type
	if k.Group != "" {
		s += "." + k.Group
	}
	return s + "/" + k.Namespace + "/" + k.Name
}
