// Package record holds the run record: the plain files from which every report of a run is drawn and from which
// it can be replayed.
package record

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
)

// Files of a run record.
const (
	PlanFile         = "plan.yaml"
	SuiteFile        = "trommel.yaml"
	ObservationsFile = "observations.jsonl"
	ActionsFile      = "actions.jsonl"
	HistoryFile      = "history.jsonl"
	FindingsFile     = "findings.json"
	ProcessesFile    = "processes.json"
	MetaFile         = "meta.json"
	LogsDir          = "logs"
	ManifestsDir     = "manifests" // of the plan's apply actions
)

// Verdict is the outcome of a run.
type Verdict string

// The verdicts.
const (
	Pass         Verdict = "pass"
	Bug          Verdict = "bug"
	Inconclusive Verdict = "inconclusive"
	Error        Verdict = "error"
)

// What a run's cluster was.
const (
	ClusterFresh  = "fresh"  // started for this run
	ClusterReset  = "reset"  // another run had used it, and it had been taken back to what it was
	ClusterShared = "shared" // it was there before, and is put back after the run
)

// Meta describes a run.
type Meta struct {
	Plan          string    `json:"plan"`
	PlanFile      string    `json:"planFile,omitempty"`
	Suite         string    `json:"suite,omitempty"`
	Variant       string    `json:"variant,omitempty"`
	Verdict       Verdict   `json:"verdict"`
	Reason        string    `json:"reason,omitempty"` // of an inconclusive or error verdict
	Trommel       string    `json:"trommel"`
	Kubernetes    string    `json:"kubernetes,omitempty"`
	Cluster       string    `json:"cluster,omitempty"` // see the Cluster constants
	Seed          int64     `json:"seed"`
	Started       time.Time `json:"started"`
	Ended         time.Time `json:"ended"`
	WorkloadStart time.Time `json:"workloadStart"`
	WorkloadEnd   time.Time `json:"workloadEnd"`
	GivenBack     time.Time `json:"givenBack,omitzero"` // when all that the plan had taken away was given back
	Phases        []Phase   `json:"phases"`             // build, cluster, manifests, controllers, workload, oracles, teardown

	ActionsFired int `json:"actionsFired"`
	ActionsTotal int `json:"actionsTotal"`
	// Unfinished says how many actions fired, why no more did, and what each trigger still waited for, a line each. Empty
	// where all actions were carried out, or where the run did not come to its verdict.
	Unfinished string `json:"unfinished,omitempty"`

	Controllers []Controller `json:"controllers,omitempty"`
	StaleReads  []StaleRead  `json:"staleReads,omitempty"` // the first of each controller
	Notes       []string     `json:"notes,omitempty"`      // about the run as a whole, for people
}

// NotHappened says of a run with a bug that its plan was not carried out, or not to its end: then the bug is none of
// what the plan is about. Its first line is a sentence by itself. It is empty for other verdicts, whose reason says the
// same.
func (m Meta) NotHappened() string {
	switch {
	case m.Verdict != Bug || m.Unfinished == "":
		return ""
	case m.ActionsFired == 0:
		return "the plan did not happen: " + m.Unfinished
	}
	return "the plan did not happen to its end: " + m.Unfinished
}

// Controller is a controller under test as it was run.
type Controller struct {
	Name      string `json:"name"`
	Hooks     bool   `json:"hooks"`     // it was built with hooks
	APIServer string `json:"apiServer"` // where its connections led at first
	// Locks are the objects that it wrote to be elected leader, as resource keys.
	Locks             []string `json:"locks,omitempty"`
	ClientGo          string   `json:"clientGo,omitempty"`
	ControllerRuntime string   `json:"controllerRuntime,omitempty"`
	// WatchList: its caches are filled with a streaming list, as far as its version, environment and arguments tell.
	WatchList       bool `json:"watchList"`
	FeatureGateArgs bool `json:"featureGateArgs,omitempty"` // it takes client-go's features as arguments, not from the environment
}

// WatchListSwitch is how the suite turns the controller's streaming list off.
func (c Controller) WatchListSwitch() string {
	if c.FeatureGateArgs {
		return "--feature-gates=WatchListClient=false in its args"
	}
	return "`watchList: false` for this controller"
}

// Process is one start of a controller's container.
type Process struct {
	Controller string    `json:"controller"`
	Namespace  string    `json:"namespace"`
	Pod        string    `json:"pod"`
	Container  string    `json:"container"`
	Started    time.Time `json:"started"`
	Ended      time.Time `json:"ended,omitzero"` // zero while it runs
	ExitCode   int       `json:"exitCode"`       // 128+n for a signal n
	Planned    bool      `json:"planned"`        // the plan killed it, or its pod was deleted
	LogFile    string    `json:"logFile"`        // stdout and stderr, relative to the record; may hold further starts
	LogStart   int64     `json:"logStart"`       // where this start begins in LogFile, in bytes
	// MetMachine tells, of a process that ended by itself, what it looked for in its pod and met on this machine
	// instead, as far as its log says so, and the way out. With few exceptions it is one without hooks.
	MetMachine string `json:"metMachine,omitempty"`
}

// Running reports whether the process has not ended.
func (p Process) Running() bool { return p.Ended.IsZero() }

// StaleRead is a state that a controller was shown by a paused API server while that held back a newer one.
type StaleRead struct {
	Controller  string         `json:"controller"`
	APIServer   string         `json:"apiServer"`
	Event       int            `json:"event"` // Seq of the observation
	Time        time.Time      `json:"time"`
	Received    bool           `json:"received"` // by an informer; otherwise it was read
	Op          wire.Operation `json:"op"`
	Live        bool           `json:"live,omitempty"`
	Object      string         `json:"object"`            // type/namespace/name
	Version     uint64         `json:"version,omitempty"` // resource version; 0: the object was not there
	HeldEvent   int            `json:"heldEvent"`         // Seq of what was held back
	HeldOp      wire.Operation `json:"heldOp"`
	HeldVersion uint64         `json:"heldVersion"`
}

// String says it in one line.
func (s StaleRead) String() string {
	did, at := "read", "at version "+strconv.FormatUint(s.Version, 10)
	switch {
	case s.Received:
		did = "received"
	case s.Op == wire.List:
		did = "listed"
	}
	if s.Version == 0 {
		at = "as not there"
	}
	return fmt.Sprintf("%s %s %s %s, while %s held back its %s at version %d", s.Controller, did, s.Object, at, s.APIServer, Noun(s.HeldOp), s.HeldVersion)
}

// Noun names an operation: the creation, the update, the deletion of an object.
func Noun(op wire.Operation) string {
	switch op {
	case wire.Create:
		return "creation"
	case wire.Delete:
		return "deletion"
	}
	return string(op)
}

// Phase is a timed part of a run.
type Phase struct {
	Name     string        `json:"name"`
	Duration time.Duration `json:"duration"` // nanoseconds
}

// Event is one line of observations.jsonl: everything that the state machine was given, in the order in which it was.
type Event struct {
	Seq  int       `json:"seq"`
	Time time.Time `json:"time"`
	// Exactly one of the following is set.
	Observation *Observation `json:"observation,omitempty"`
	Timeout     *Timeout     `json:"timeout,omitempty"`
	Began       *int         `json:"began,omitempty"`      // index of the action that was fired and has waited out its waitBefore
	Completed   *int         `json:"completed,omitempty"`  // index of the action that completed
	Lapsed      *int         `json:"lapsed,omitempty"`     // index of an action whose effect lasted and has ended by itself
	SessionEnd  *SessionEnd  `json:"sessionEnd,omitempty"` // a process is gone or has lost the coordinator
	Expired     *int         `json:"expired,omitempty"`    // Seq of an observation whose hold deadline passed
	Abandoned   *int         `json:"abandoned,omitempty"`  // Seq of a held observation whose caller's context ended: it has gone on
	End         bool         `json:"end,omitempty"`        // the plan is over: everything is released
}

// SessionEnd names the session that ended.
type SessionEnd struct {
	By      string `json:"by"`
	Session uint64 `json:"session"`
}

// Observation is a wire observation with its origin. Objects are kept as JSON.
type Observation struct {
	By             string          `json:"by"` // identity of the process
	Session        uint64          `json:"session"`
	Call           uint64          `json:"call"`
	Point          wire.Point      `json:"point"`
	Phase          wire.Phase      `json:"phase"`
	Op             wire.Operation  `json:"op"`
	Group          string          `json:"group,omitempty"`
	GroupKnown     bool            `json:"groupKnown,omitempty"`
	Resource       string          `json:"resource,omitempty"`
	Kind           string          `json:"kind,omitempty"`
	Namespace      string          `json:"namespace,omitempty"`
	Name           string          `json:"name,omitempty"`
	Subresource    string          `json:"subresource,omitempty"`
	Object         json.RawMessage `json:"object,omitempty"`
	OldObject      json.RawMessage `json:"oldObject,omitempty"`
	Live           bool            `json:"live,omitempty"`
	Reconciler     string          `json:"reconciler,omitempty"`
	ReconcilerType string          `json:"reconcilerType,omitempty"`
	ReconcileID    string          `json:"reconcileID,omitempty"`
	Request        string          `json:"request,omitempty"`
	CallName       string          `json:"callName,omitempty"`
	Error          string          `json:"error,omitempty"`
	Code           int             `json:"code,omitempty"`
	Version        string          `json:"version,omitempty"`
	Query          string          `json:"query,omitempty"`
	PatchType      wire.PatchType  `json:"patchType,omitempty"`
	Patch          json.RawMessage `json:"patch,omitempty"`
	// Objects are those that a list has found, as far as the plan asks for them, or the last states of those that the
	// deletion of a collection deletes. Partial: there may be others.
	Objects []json.RawMessage `json:"objects,omitempty"`
	Partial bool              `json:"partial,omitempty"`
	// Aside: neither a trigger nor a pause of the plan asks for it. It satisfies nothing.
	Aside bool `json:"aside,omitempty"`
	// Election: a read or write of the lock of the controller's leader election.
	Election bool `json:"election,omitempty"`
}

// Timeout is a timer of an enabled onTimeout trigger that went off.
type Timeout struct {
	Action int `json:"action"`
	Node   int `json:"node"` // of the trigger's graph
}

// Action is one line of actions.jsonl.
type Action struct {
	Index   int       `json:"index"`
	Type    string    `json:"type"`
	Target  string    `json:"target,omitempty"` // what it acted on: a controller, an API server, the object that it wrote
	FiredBy int       `json:"firedBy"`          // Event.Seq that satisfied the trigger; 0: no event was needed
	Cause   string    `json:"cause,omitempty"`  // the same for people
	Fired   time.Time `json:"fired"`
	Began   time.Time `json:"began"`
	Done    time.Time `json:"done"`
	Error   string    `json:"error,omitempty"`
	Note    string    `json:"note,omitempty"` // worth knowing and no mistake: above all that it changed nothing
}

// String names the action for people.
func (a Action) String() string { return ActionName(a.Index, strings.TrimSpace(a.Type+" "+a.Target)) }

// ActionName names an action for people by its index, from 0, and what it does.
func ActionName(index int, what string) string { return fmt.Sprintf("action %d (%s)", index+1, what) }

// HistoryEntry is one line of history.jsonl: one state of one recorded object.
type HistoryEntry struct {
	Time            time.Time `json:"time"`
	ResourceVersion uint64    `json:"resourceVersion"`
	Event           string    `json:"event"` // created, updated, deleted; existing: it was there when the recording began
	Type            string    `json:"type"`  // singular lower case
	Group           string    `json:"group,omitempty"`
	Namespace       string    `json:"namespace,omitempty"`
	Name            string    `json:"name"`
	// Writers are those who wrote this state, as far as the object's managed fields tell; the managed fields themselves
	// are left out. Of an object that was there when the recording began: all who manage it.
	Writers []FieldManager  `json:"writers,omitempty"`
	Object  json.RawMessage `json:"object"`
}

// FieldManager is a client that writes an object, as managed fields name it.
type FieldManager struct {
	Manager     string `json:"manager"`
	Operation   string `json:"operation"` // Apply or Update
	Subresource string `json:"subresource,omitempty"`
}

// String names the client for people.
func (m FieldManager) String() string {
	if m.Subresource != "" {
		return fmt.Sprintf("%s (%s of %s)", m.Manager, m.Operation, m.Subresource)
	}
	return fmt.Sprintf("%s (%s)", m.Manager, m.Operation)
}

// Events of a history.
const (
	Existing = "existing" // the object was there when the recording began
	Created  = "created"
	Updated  = "updated"
	Deleted  = "deleted"
)

// Finding is something that a judge, or the run itself, objects to.
type Finding struct {
	Severity Severity  `json:"severity"`
	Oracle   string    `json:"oracle"` // see the Oracle constants
	Title    string    `json:"title"`  // one line
	Detail   string    `json:"detail,omitempty"`
	Subject  string    `json:"subject,omitempty"` // controller, object key or step
	Time     time.Time `json:"time,omitzero"`
}

// Severity is what a finding means for the verdict.
type Severity string

// The severities.
const (
	// SeverityBug speaks of the controller.
	SeverityBug Severity = "bug"
	// SeverityInconclusive speaks of the run: it was not what its plan describes, or was not seen whole.
	SeverityInconclusive Severity = "inconclusive"
	// SeverityNote is worth knowing and changes no verdict.
	SeverityNote Severity = "note"
)

// Names of oracles. Findings of the first four are bugs as a rule.
const (
	OracleWorkload       = "workload"
	OracleInvariant      = "invariant"
	OracleCrash          = "crash"
	OraclePanic          = "panic"
	OracleRun            = "run" // something of the run itself failed when there was already something to judge
	OracleAction         = "action"
	OracleHold           = "hold"
	OracleInvariantError = "invariant error" // an invariant that could not be evaluated even once
	OracleLeadership     = "leadership"      // a controller that lost its leader election and therefore ended
	OracleHistory        = "history"         // states that the recorder missed
	OracleHook           = "hook"            // a hook of ours that failed inside a process
	OracleSession        = "session"         // a process that was not observed, or did not answer, for a time
	OracleEnvironment    = "environment"     // a controller without hooks met this machine instead of its pod, and ended
	OracleWebhook        = "webhook"         // a write that failed since a webhook was out of reach, by no fault of the controller's
	OracleTimeout        = "timeout"         // the workload was not over in time
	OracleReference      = "reference"       // the run ends otherwise than its workload does without faults
	OracleStaleness      = "staleness"       // a plan that pauses an API server, and no controller was shown anything stale
)

// IsBug reports whether the finding speaks of the controller, rather than of the run.
func (f Finding) IsBug() bool { return f.Severity == SeverityBug }
