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
	Steps   []Step `yaml:"steps" item:"a step"`
	Variant string `yaml:"variant"` // a variant of the suite; empty: none
	Build   string `yaml:"build"`   // the build of the suite with which the run begins; empty: the suite itself
	// Pace says when a step of the workload begins; empty: as the suite says.
	Pace Pace `yaml:"pace" called:"pace" words:"rest none"`
	// CheckCaches has client-go check, each second, whether a controller has changed an object in its cache.
	CheckCaches bool `yaml:"checkCaches"`
	// Schedule says in which order steps go on; nil: the run is not ordered.
	Schedule *Schedule `yaml:"schedule" called:"a schedule"`
	Actions  []Action  `yaml:"actions" item:"an action"`
	// Invariants hold besides those of the suite.
	Invariants []Invariant `yaml:"invariants" item:"an invariant"`
	// History is recorded besides the objects that the suite, the actions and the invariants name.
	History []ResourceKey `yaml:"history" item:"history"`

	File string // where it was read from; empty for built plans

	source *yamlfile.File // positions of values that were read from a file
}

// ActionType names what an action does. The types are declared beside their kinds.
type ActionType string

// Action is one step of a plan. Its Type decides which fields it has; Validate rejects the others.
type Action struct {
	Type   ActionType `yaml:"actionType"`
	Target string     `yaml:"actionTarget"` // a controller (empty: the suite's only one) or an API server
	// Cluster is that of the API server, or of the objects that the action is about. Empty: the suite's first one, or
	// all, if the action is about calls of a controller and has no scope.
	Cluster string `yaml:"cluster"`

	// Fields of the first kinds, each struct declared beside its kinds. Several kinds share a struct and take only some
	// of its fields, see ActionKind.Fields; programs that read plans use them. A new kind has its fields in Own.
	Pausing
	Failing
	Thawing
	Reconnecting
	Writing
	Disrupting
	Cycling

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
	Extend      time.Duration `yaml:"extend"` // by how much at most, until the controllers are idle
	Call        string        `yaml:"call"`   // onAnnotatedCall: an annotated call of the suite
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
	OnTimeout:           {"timeout", "extend"},
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
	Cluster    string `yaml:"cluster"`    // of the object, and of the API server; empty: the suite's first one
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
