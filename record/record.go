// Package record holds the run record: the plain files from which every report of a run is drawn and from which
// it can be replayed.
package record

import (
	"encoding/json"
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
	MetaFile         = "meta.json"
	LogsDir          = "logs"
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
	Seed          int64     `json:"seed"`
	Started       time.Time `json:"started"`
	Ended         time.Time `json:"ended"`
	WorkloadStart time.Time `json:"workloadStart"`
	WorkloadEnd   time.Time `json:"workloadEnd"`
	Phases        []Phase   `json:"phases"` // build, cluster, manifests, controllers, workload, oracles, teardown
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
	SessionEnd  *SessionEnd  `json:"sessionEnd,omitempty"` // a process is gone or has lost the coordinator
	Expired     *int         `json:"expired,omitempty"`    // Seq of an observation whose hold deadline passed
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
	Target  string    `json:"target,omitempty"`
	FiredBy int       `json:"firedBy"` // Event.Seq that satisfied the trigger
	Fired   time.Time `json:"fired"`
	Began   time.Time `json:"began"`
	Done    time.Time `json:"done"`
	Error   string    `json:"error,omitempty"`
}

// HistoryEntry is one line of history.jsonl: one state of one recorded object.
type HistoryEntry struct {
	Time            time.Time       `json:"time"`
	ResourceVersion uint64          `json:"resourceVersion"`
	Event           string          `json:"event"` // created, updated, deleted; existing: it was there when the recording began
	Type            string          `json:"type"`  // singular lower case
	Group           string          `json:"group,omitempty"`
	Namespace       string          `json:"namespace,omitempty"`
	Name            string          `json:"name"`
	Object          json.RawMessage `json:"object"`
}

// Events of a history.
const (
	Existing = "existing" // the object was there when the recording began
	Created  = "created"
	Updated  = "updated"
	Deleted  = "deleted"
)

// Finding is something an oracle objects to.
type Finding struct {
	Oracle  string    `json:"oracle"` // see the Oracle constants
	Title   string    `json:"title"`  // one line
	Detail  string    `json:"detail,omitempty"`
	Subject string    `json:"subject,omitempty"` // controller, object key or step
	Time    time.Time `json:"time,omitzero"`
}

// Names of oracles whose findings are bugs.
const (
	OracleWorkload  = "workload"
	OracleInvariant = "invariant"
	OracleCrash     = "crash"
	OraclePanic     = "panic"
)

// Names of oracles whose findings say that the run was not what its plan describes, not that the controller has a bug.
const (
	OracleAction         = "action"
	OracleHold           = "hold"
	OracleInvariantError = "invariant error" // an invariant that could not be evaluated even once
	OracleLeadership     = "leadership"      // a controller that lost its leader election and therefore ended
	OracleHistory        = "history"         // states that the recorder missed
)

// IsBug reports whether the finding speaks of the controller, rather than of the run.
func (f Finding) IsBug() bool {
	switch f.Oracle {
	case OracleAction, OracleHold, OracleInvariantError, OracleLeadership, OracleHistory:
		return false
	}
	return true
}
