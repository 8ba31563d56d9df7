// Package record defines the run record: the plain files from which a run's reports are made and from which the run can
// be replayed.
package record

import (
	"cmp"
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
	ManifestsDir     = "manifests" // for the plan's apply actions
)

// Verdict is the outcome of a run.
type Verdict string

// The verdicts.
const (
	Pass         Verdict = "pass"
	Bug          Verdict = "bug"
	Inconclusive Verdict = "inconclusive"
	Error        Verdict = "error"
	// NotRun is only in reports of several plans: the plan was not begun, and there is no record.
	NotRun Verdict = "not run"
)

// States of a run's cluster at its start.
const (
	ClusterFresh  = "fresh"  // started for this run
	ClusterReset  = "reset"  // another run had used it, and it was reset to its snapshot
	ClusterShared = "shared" // it existed before the run and is reset after it
)

// Meta describes a run.
type Meta struct {
	Plan       string  `json:"plan"`
	PlanFile   string  `json:"planFile,omitempty"`
	Suite      string  `json:"suite,omitempty"`
	Variant    string  `json:"variant,omitempty"`
	Build      string  `json:"build,omitempty"` // of the suite, with which the run began; empty: the suite itself
	Verdict    Verdict `json:"verdict"`
	Reason     string  `json:"reason,omitempty"` // of an inconclusive or error verdict
	Trommel    string  `json:"trommel"`
	Kubernetes string  `json:"kubernetes,omitempty"`
	Cluster    string  `json:"cluster,omitempty"` // see the Cluster constants
	// NotReset says why the cluster of the run before could not be reset, so that this one has a fresh one. Empty: it
	// could, or there was none.
	NotReset string    `json:"notReset,omitempty"`
	Seed     int64     `json:"seed"`
	Started  time.Time `json:"started"`
	Ended    time.Time `json:"ended"`
	Clock    *Clock    `json:"clock,omitempty"` // nil: the times are the machine's
	// RealTime says why, in a clause, if the times are the machine's; empty in older records.
	RealTime      string    `json:"realTime,omitempty"`
	WorkloadStart time.Time `json:"workloadStart"`
	// Shift is for how long the controllers ran before that, in addition to their start. Runs without faults vary it,
	// so that they show what depends on the phase of a loop or on the second of the minute.
	Shift time.Duration `json:"shift,omitempty"`
	// Startup is how long after that the controllers took to come to rest, before the first step of the workload. Zero
	// if they did not, and in older records.
	Startup     time.Duration `json:"startup,omitempty"`
	WorkloadEnd time.Time     `json:"workloadEnd"`
	// CaughtUp is from when on the history has all that the workload did; zero if no invariant says "eventually", and
	// in older records.
	CaughtUp  time.Time `json:"caughtUp,omitzero"`
	GivenBack time.Time `json:"givenBack,omitzero"` // when all holds, pauses and kills were undone
	// Polls is what the controllers look at again and again, when everything was at rest.
	Polls []Poll `json:"polls,omitempty"`
	// Rested: nothing was in work or to come in the end, but for Polls. False in older records.
	Rested bool `json:"rested,omitempty"`
	// Unrest is which work queues did not come to rest, except for what is Polls without faults.
	Unrest []Unrest `json:"unrest,omitempty"`
	// Calm is when nothing disturbed the controllers any more: the workload was finished, and nothing that the plan did
	// lasted. Zero if the workload failed.
	Calm time.Time `json:"calm,omitzero"`
	// Observed is until when the run has recorded what the controllers did.
	Observed time.Time `json:"observed,omitzero"`
	Phases   []Phase   `json:"phases"` // build, cluster, manifests, controllers, workload, …
	// Steps are those of the workload that began, in their order.
	Steps []Step `json:"steps,omitempty"`

	ActionsFired int `json:"actionsFired"`
	ActionsTotal int `json:"actionsTotal"`
	// Unfinished says how many actions fired, why no more did, and what each trigger still waited for, one line each.
	// Empty if all actions were carried out or if the run has no verdict.
	Unfinished string `json:"unfinished,omitempty"`
	// Awaited is what the next action still waited for; nil: all actions fired, or the run has no verdict.
	Awaited *Awaited `json:"awaited,omitempty"`

	// Recorded are resource keys such as secret/*/*: of these the history has every state.
	Recorded []string `json:"recorded,omitempty"`
	// Unrecorded are those of types that controllers wrote unexpectedly.
	Unrecorded []string `json:"unrecorded,omitempty"`
	// Unlisted are those that could not be listed when the workload began, in a run that records all types.
	Unlisted []string `json:"unlisted,omitempty"`

	Controllers []Controller `json:"controllers,omitempty"`
	StaleReads  []StaleRead  `json:"staleReads,omitempty"` // the first one of each controller
	Notes       []string     `json:"notes,omitempty"`      // about the run as a whole
}

// Awaited is what an action that did not fire waited for.
type Awaited struct {
	Action int `json:"action"` // its index in the plan
	// Triggers says what each of its triggers waited for, and what came nearest.
	Triggers []string `json:"triggers"`
}

// Lines says what was awaited, a line for each trigger. Name is that of the action.
func (a *Awaited) Lines(name string) []string {
	if a == nil {
		return nil
	}
	lines := make([]string, len(a.Triggers))
	for i, text := range a.Triggers {
		lines[i] = ActionName(a.Action, name) + ": " + text
	}
	return lines
}

// NotHappened says that a run with a bug did not carry out its plan, or only a part of it: then the bug is not what the
// plan is about. Its first line is a complete sentence. It is empty for other verdicts, whose reason says the same.
func (m Meta) NotHappened() string {
	switch {
	case m.Verdict != Bug || m.Unfinished == "":
		return ""
	case m.ActionsFired == 0:
		return "the plan was not carried out: " + m.Unfinished
	}
	return "the plan was carried out only in part: " + m.Unfinished
}

// Took is how long the run took by the machine's clock; 0 if it was killed.
func (m Meta) Took() time.Duration {
	if m.Clock != nil {
		return m.Clock.Took
	}
	return m.Lasted()
}

// Began is when the run began by the machine's clock, as far as that is known.
func (m Meta) Began() time.Time {
	if m.Clock != nil && !m.Clock.Began.IsZero() {
		return m.Clock.Began
	}
	return m.Started
}

// Lasted is how long the run lasted by its own clock, in which all its times are; 0 if it was killed.
func (m Meta) Lasted() time.Duration {
	if m.Ended.IsZero() {
		return 0
	}
	return m.Ended.Sub(m.Started)
}

// Controller describes a controller under test.
type Controller struct {
	Name      string `json:"name"`
	Hooks     bool   `json:"hooks"`             // it was built with hooks
	APIServer string `json:"apiServer"`         // that it was connected to at first
	Cluster   string `json:"cluster,omitempty"` // in which it runs; empty: the suite has only one
	// Remotes are the API servers of other clusters to which it was connected at first.
	Remotes  []string `json:"remotes,omitempty"`
	Replicas int      `json:"replicas"` // of its Deployment; 0 in older records
	// Locks are the resource keys of the objects that it wrote for its leader election.
	Locks []string `json:"locks,omitempty"`
	// LeaseLasts is how long its Lease lasts without being renewed; 0: it wrote none, or in older records.
	LeaseLasts        time.Duration `json:"leaseLasts,omitempty"`
	ClientGo          string        `json:"clientGo,omitempty"`
	ControllerRuntime string        `json:"controllerRuntime,omitempty"`
	// WatchList: it fills its caches by a streaming list, as far as its version, environment and arguments show.
	WatchList       bool `json:"watchList"`
	FeatureGateArgs bool `json:"featureGateArgs,omitempty"` // features are set by arguments, not by the environment
	// Source is the root of the module that it was built from, on the machine of the run; empty: unknown.
	Source string `json:"source,omitempty"`
	Module string `json:"module,omitempty"` // its path; empty: unknown, also in older records
	// FailingCalls names its annotated calls that return an error, so that a plan can make them fail.
	FailingCalls []string `json:"failingCalls,omitempty"`
}

// APIServers are those to which it was connected at first: one of its own cluster, and one of each other cluster.
func (c *Controller) APIServers() []string { return append([]string{c.APIServer}, c.Remotes...) }

// WatchListSwitch says how the controller's streaming list is turned off.
func (Controller) WatchListSwitch() string {
	return "`watchList: false` in the action that starts it there, or for it in the suite"
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
	LogFile    string    `json:"logFile"`        // stdout and stderr; relative to the record; may have several starts
	LogStart   int64     `json:"logStart"`       // offset of this start in LogFile, in bytes
	// LogCalm is the length of LogFile at Meta.Calm, in bytes; 0: it had nothing then, or there was no calm.
	LogCalm int64 `json:"logCalm,omitempty"`
	// MetMachine explains why a process exited that expected to run in its pod: what it found on this machine instead,
	// as far as its log says so, and what would help. With few exceptions, such as the machine's limits and files of
	// the image, such processes have no hooks.
	MetMachine string `json:"metMachine,omitempty"`
}

// Running reports whether the process is still running.
func (p Process) Running() bool { return p.Ended.IsZero() }

// StaleRead is a state that a paused API server showed to a controller while it held back a newer one.
type StaleRead struct {
	Controller  string         `json:"controller"`
	APIServer   string         `json:"apiServer"`
	Event       int            `json:"event"` // Seq of the observation
	Time        time.Time      `json:"time"`
	Received    bool           `json:"received"` // by an informer; otherwise it was read
	Op          wire.Operation `json:"op"`
	Live        bool           `json:"live,omitempty"`
	Object      string         `json:"object"`            // type/namespace/name
	Version     uint64         `json:"version,omitempty"` // resource version; 0: the object did not exist
	HeldEvent   int            `json:"heldEvent"`         // Seq of the event that was held back
	HeldOp      wire.Operation `json:"heldOp"`
	HeldVersion uint64         `json:"heldVersion"`
}

// String describes the stale read in one line.
func (s StaleRead) String() string {
	did, at := "read", "at version "+strconv.FormatUint(s.Version, 10)
	switch {
	case s.Received:
		did = "received"
	case s.Op == wire.List:
		did = "listed"
	}
	if s.Version == 0 {
		at = "as absent"
	}
	return fmt.Sprintf("%s %s %s %s, while %s held back its %s at version %d", s.Controller, did, s.Object, at,
		s.APIServer, Noun(s.HeldOp), s.HeldVersion)
}

// Noun returns the noun for an operation: creation, update, deletion.
func Noun(op wire.Operation) string {
	switch op {
	case wire.Create:
		return "creation"
	case wire.Delete:
		return "deletion"
	}
	return string(op)
}

// Step is a step of the workload. It ends when the next one begins, or with the workload.
type Step struct {
	Text    string    `json:"text"` // its name and what it does
	Started time.Time `json:"started"`
	// Upgrade names the build that the step installs, in words; empty: it installs none.
	Upgrade string `json:"upgrade,omitempty"`
}

// Poll is a work queue of a controller that puts items off although nothing is to be done.
type Poll struct {
	Controller string        `json:"controller"`
	Queue      string        `json:"queue"` // its name in the controller
	Delay      time.Duration `json:"delay"` // the shortest
	// Longest is the longest of about that length, or of all that are longer; 0 in older records.
	Longest time.Duration `json:"longest,omitempty"`
}

// Unrest is a work queue of a controller that did not come to rest although nothing disturbed it any more.
type Unrest struct {
	Controller string        `json:"controller"`
	Queue      string        `json:"queue"` // its name in the controller
	Taken      int           `json:"taken"` // how often the controller took an item in the span
	Span       time.Duration `json:"span"`
	// Delay is for how long items were put off, at least; 0: there was always something to take.
	Delay   time.Duration `json:"delay,omitempty"`
	Growing bool          `json:"growing,omitempty"` // each time for longer, until the run waited no longer
	Changes bool          `json:"changes,omitempty"` // objects changed in the span
}

// Clock says that a run did not go by the machine's clock, but by one that moved ahead while nothing happened.
type Clock struct {
	Virtual bool          `json:"virtual"`
	Took    time.Duration `json:"took"` // from the run's begin to its end, by the machine's clock; nanoseconds
	// Began is when the run began by the machine's clock. Zero in older records.
	Began time.Time `json:"began,omitzero"`
}

// Phase is a timed part of a run.
type Phase struct {
	Name     string        `json:"name"`
	Duration time.Duration `json:"duration"` // nanoseconds
}

// UnmarshalJSON reads a phase. The phase "judges" had another name before.
func (p *Phase) UnmarshalJSON(data []byte) error {
	type plain Phase // without this method
	if err := json.Unmarshal(data, (*plain)(p)); err != nil {
		return err
	}
	if p.Name == "oracles" {
		p.Name = "judges"
	}
	return nil
}

// Event is one line of observations.jsonl, which holds all inputs of the state machine, in order.
type Event struct {
	Seq  int       `json:"seq"`
	Time time.Time `json:"time"`
	// Exactly one of the following is set.
	Observation *Observation `json:"observation,omitempty"`
	Timeout     *Timeout     `json:"timeout,omitempty"`
	Began       *int         `json:"began,omitempty"`      // index of an action whose waitBefore is over
	Completed   *int         `json:"completed,omitempty"`  // index of an action that has completed
	Resumed     *Resumed     `json:"resumed,omitempty"`    // an action goes on to end its pauses
	Lapsed      *int         `json:"lapsed,omitempty"`     // index of an action whose lasting effect has ended
	SessionEnd  *SessionEnd  `json:"sessionEnd,omitempty"` // a process has exited or lost its connection
	Expired     *int         `json:"expired,omitempty"`    // Seq of an observation whose hold has timed out
	Abandoned   *int         `json:"abandoned,omitempty"`  // Seq of a held observation whose caller gave up
	Ordered     bool         `json:"ordered,omitempty"`    // from here on, what the plan's schedule orders is held
	Choice      *Choice      `json:"choice,omitempty"`     // a step goes on that the schedule has held
	End         bool         `json:"end,omitempty"`        // the plan is over: everything is released
}

// Resumed says what an action lets go on of what its pauses hold: all, or what has been held for longest. If nothing is
// held, the pauses end. See plan.Effects.OneByOne.
type Resumed struct {
	Action int  `json:"action"` // its index
	All    bool `json:"all,omitempty"`
}

// SessionEnd names the session that ended.
type SessionEnd struct {
	By      string `json:"by"`
	Session uint64 `json:"session"`
	// Unanswered are the writes whose answer was not observed, by call, with the whole objects, if the record has only
	// the metadata of what writes send.
	Unanswered []Observation `json:"unanswered,omitempty"`
}

// Observation is a wire observation with its origin. Objects are JSON.
type Observation struct {
	By string `json:"by"` // identity of the process
	// Cluster is that of the object; empty: the suite has only one, or there is no object. UnknownCluster: it may be
	// any.
	Cluster        string          `json:"cluster,omitempty"`
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
	Failed         wire.Answer     `json:"failed,omitempty"` // the plan made the call fail, see wire.Observation
	Version        string          `json:"version,omitempty"`
	Query          string          `json:"query,omitempty"`
	PatchType      wire.PatchType  `json:"patchType,omitempty"`
	Patch          json.RawMessage `json:"patch,omitempty"`
	// Objects are the results of a list that the plan asks for, or the last states of the objects that the deletion of
	// a collection deletes. Partial: there may be more.
	Objects []json.RawMessage `json:"objects,omitempty"`
	Partial bool              `json:"partial,omitempty"`
	// Aside: no trigger or pause of the plan asks for it. It satisfies no trigger.
	Aside bool `json:"aside,omitempty"`
	// Election: a read or write of the controller's leader election lock.
	Election bool `json:"election,omitempty"`
	// Callers are the places in the controller's own source that made the call; zero: unknown.
	Callers Callers `json:"callers,omitzero"`
}

// Place says where the observed call is, such as "after apiServerRecv".
func (o *Observation) Place() string { return fmt.Sprintf("%s %s", o.Phase, o.Point) }

// KindOrResource is the object's type for messages: its kind or, if that is unknown, its resource; empty: both are.
func (o *Observation) KindOrResource() string { return cmp.Or(o.Kind, o.Resource) }

// Subject says what the observed call does, such as "update pod/default/a".
func (o *Observation) Subject() string {
	kind := o.KindOrResource()
	switch {
	case o.CallName != "":
		return o.CallName
	case kind == "" && o.Request != "":
		return o.Request
	case kind == "":
		return string(o.Op)
	}
	return fmt.Sprintf("%s %s/%s/%s", o.Op, kind, o.Namespace, o.Name)
}

// Done reports whether a call that has returned did what it was made for. That is also true if its caller got an error
// because the plan made the API server's answer get lost.
func (o *Observation) Done() bool {
	return o.Error == "" || o.Failed == wire.Lost && o.Code >= 200 && o.Code < 300
}

// Timeout says that the timer of an enabled onTimeout trigger has expired.
type Timeout struct {
	Action int `json:"action"`
	Node   int `json:"node"` // of the trigger's graph
}

// Action is one line of actions.jsonl.
type Action struct {
	Index   int       `json:"index"`
	Type    string    `json:"type"`
	Target  string    `json:"target,omitempty"` // controller, API server or object that it acted on
	FiredBy int       `json:"firedBy"`          // Event.Seq that satisfied the trigger; 0: no event was needed
	Cause   string    `json:"cause,omitempty"`  // FiredBy in words
	Fired   time.Time `json:"fired"`
	Began   time.Time `json:"began"`
	Done    time.Time `json:"done"`
	Error   string    `json:"error,omitempty"`
	Upgrade string    `json:"upgrade,omitempty"` // the build that it installs, in words; empty: none
	Note    string    `json:"note,omitempty"`    // a remark that is not an error, such as that it changed nothing
}

// At is when the action began. If it did not, it is when its trigger was satisfied.
func (a Action) At() time.Time {
	if a.Began.IsZero() {
		return a.Fired
	}
	return a.Began
}

// String names the action for messages.
func (a Action) String() string { return ActionName(a.Index, strings.TrimSpace(a.Type+" "+a.Target)) }

// ActionName names an action for messages, by its index, from 0, and what it does.
func ActionName(index int, what string) string { return fmt.Sprintf("action %d (%s)", index+1, what) }

// UnknownCluster is the cluster of an observation whose object has an unknown cluster, in a suite that has
// several: what was read from a cache and was not there, or is about to be.
const UnknownCluster = "?"

// In names an object, by its key or its type, and its cluster for reports: west: pod/default/a. Without a cluster, or
// with UnknownCluster, it is the name alone.
func In(cluster, object string) string {
	if cluster == "" || cluster == UnknownCluster {
		return object
	}
	return cluster + ": " + object
}

// HistoryEntry is one line of history.jsonl: one state of one recorded object.
type HistoryEntry struct {
	Time            time.Time `json:"time"`
	ResourceVersion uint64    `json:"resourceVersion"`
	Event           string    `json:"event"`             // created, updated, deleted or existing
	Cluster         string    `json:"cluster,omitempty"` // empty: the suite has only one
	Type            string    `json:"type"`              // singular lower case
	Group           string    `json:"group,omitempty"`
	Namespace       string    `json:"namespace,omitempty"`
	Name            string    `json:"name"`
	// Writers are the clients that wrote this state, as far as the object's managed fields show it; the managed fields
	// themselves are left out. For an existing object: all its managers.
	Writers []FieldManager  `json:"writers,omitempty"`
	Object  json.RawMessage `json:"object"`
}

// FieldManager is a client that writes an object, as named in managed fields.
type FieldManager struct {
	Manager     string `json:"manager"`
	Operation   string `json:"operation"` // Apply or Update
	Subresource string `json:"subresource,omitempty"`
}

// PlanManager is the manager of what a plan itself writes, as another client.
const PlanManager = "trommel"

// String names the client for messages.
func (m FieldManager) String() string {
	if m.Subresource != "" {
		return fmt.Sprintf("%s (%s of %s)", m.Manager, m.Operation, m.Subresource)
	}
	return fmt.Sprintf("%s (%s)", m.Manager, m.Operation)
}

// Events of a history.
const (
	Existing = "existing" // the object existed when the recording began
	Created  = "created"
	Updated  = "updated"
	Deleted  = "deleted"
)
