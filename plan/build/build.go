// Package build makes test plans in Go: the same plans as in YAML, with the same checks.
//
//	p, err := build.Plan("restart-after-scale-down").
//		Workload("scale").
//		Then(
//			build.RestartController("db-operator").When(
//				build.Updated("statefulset/default/db").
//					From(build.State{"spec": build.State{"replicas": 3}}).
//					To(build.State{"spec": build.State{"replicas": 2}}).
//					At(plan.AfterControllerWrite, "db-operator")),
//		).
//		Build()
//
// Every method returns its receiver, and none fails: Build returns the first mistake. The three usual patterns have
// their own constructors: [RestartAfterWrite], [StaleRead] and [SkipObservation].
//
// Package trommeltest runs such plans in Go tests. [plan.Marshal] writes one as YAML, for `trommel run`:
//
//	text, err := plan.Marshal(p)
package build

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/plan"
)

// State is a part of an object: nested States, lists, strings, numbers, booleans, [plan.Present] and [plan.Absent].
type State = map[string]any

// PlanBuilder is a plan that is being built.
type PlanBuilder struct {
	plan plan.Plan
	err  error
}

// Plan begins a plan.
func Plan(testName string) *PlanBuilder {
	return &PlanBuilder{plan: plan.Plan{TestName: testName}}
}

// Description sets the plan's description.
func (b *PlanBuilder) Description(text string) *PlanBuilder { b.plan.Description = text; return b }

// Suite sets the suite's path, relative to the file that the plan will be written to. Default: the nearest
// trommel.yaml.
func (b *PlanBuilder) Suite(path string) *PlanBuilder { b.plan.Suite = path; return b }

// Workload names a workload of the suite. Default: its only one.
func (b *PlanBuilder) Workload(name string) *PlanBuilder { b.plan.Workload = name; return b }

// Variant names a variant of the suite. Default: none.
func (b *PlanBuilder) Variant(name string) *PlanBuilder { b.plan.Variant = name; return b }

// Pace says when a step of the workload begins. Default: as the suite says, or at once.
func (b *PlanBuilder) Pace(p plan.Pace) *PlanBuilder { b.plan.Pace = p; return b }

// CheckCaches has client-go check whether a controller changes objects in its caches.
func (b *PlanBuilder) CheckCaches() *PlanBuilder { b.plan.CheckCaches = true; return b }

// Schedule sets in which order the steps of the run go on. The plan then has no actions and no pace.
func (b *PlanBuilder) Schedule(s plan.Schedule) *PlanBuilder { b.plan.Schedule = &s; return b }

// From says with which of the suite's builds the run begins; default: the suite itself.
func (b *PlanBuilder) From(build string) *PlanBuilder { b.plan.Build = build; return b }

// Steps gives the plan a workload of its own, instead of one of the suite. Their paths are relative to the suite.
func (b *PlanBuilder) Steps(steps ...plan.Step) *PlanBuilder {
	b.plan.Steps = append(b.plan.Steps, steps...)
	return b
}

// Invariants adds invariants to those of the suite.
func (b *PlanBuilder) Invariants(invariants ...plan.Invariant) *PlanBuilder {
	b.plan.Invariants = append(b.plan.Invariants, invariants...)
	return b
}

// History also records the objects of these resource keys, besides those that the suite, the actions and the invariants
// name.
func (b *PlanBuilder) History(keys ...string) *PlanBuilder {
	for _, key := range keys {
		k, err := plan.ParseResourceKey(key)
		b.fail(err, "history[%d]", len(b.plan.History))
		b.plan.History = append(b.plan.History, k)
	}
	return b
}

// Then appends actions. Each waits for its trigger once the one before it is complete.
func (b *PlanBuilder) Then(actions ...*Action) *PlanBuilder {
	for _, a := range actions {
		i := len(b.plan.Actions)
		if a == nil {
			b.fail(errors.New("the action is nil"), "actions[%d]", i)
			continue
		}
		b.plan.Actions = append(b.plan.Actions, a.action)
		b.fail(a.err, "actions[%d]", i)
		if a.trigger == nil {
			b.fail(errors.New("the action has no trigger; When(build.AtOnce()) makes it act at once"),
				"actions[%d].trigger", i)
			continue
		}
		t := &b.plan.Actions[i].Trigger
		w := &triggerWriter{taken: map[string]bool{}}
		w.take(a.trigger)
		t.Expression = w.write(a.trigger, 0)
		t.Definitions = w.definitions
		b.fail(w.err, "actions[%d].trigger", i)
	}
	return b
}

func (b *PlanBuilder) fail(err error, at string, i int) {
	if b.err == nil && err != nil {
		b.err = fmt.Errorf("plan %q: "+at+": %w", b.plan.TestName, i, err)
	}
}

// Build returns the plan, checked as far as possible without its suite, or the first mistake. The builder may be used
// again; the plan shares nothing with it.
func (b *PlanBuilder) Build() (*plan.Plan, error) {
	if b.err != nil {
		return nil, b.err
	}
	p := b.plan
	p.Actions = append([]plan.Action(nil), p.Actions...)
	p.Steps = slices.Clone(p.Steps)
	p.Invariants, p.History = slices.Clone(p.Invariants), slices.Clone(p.History)
	for i := range p.Actions {
		p.Actions[i].Trigger.Definitions = append([]plan.Definition(nil), p.Actions[i].Trigger.Definitions...)
	}
	p.Complete(nil)
	if err := p.Validate(nil); err != nil {
		return nil, fmt.Errorf("plan %q: %w", p.TestName, err)
	}
	return &p, nil
}

// MustBuild is Build for plans that are constants in a program; it panics on a mistake.
func (b *PlanBuilder) MustBuild() *plan.Plan {
	p, err := b.Build()
	if err != nil {
		panic(err)
	}
	return p
}

// Action is an action that is being built.
type Action struct {
	action  plan.Action
	trigger Trigger
	err     error
}

func action(typ plan.ActionType, target string) *Action {
	return &Action{action: plan.Action{Type: typ, Target: target}}
}

// Of makes an action of any kind, also of one without a function here: its type, its target, and the fields that only
// this kind has in Own, as plan.OwnFields returns them.
func Of(a plan.Action) *Action { return &Action{action: a} }

// RestartController kills the controller (SIGKILL) and starts it again.
func RestartController(name string) *Action { return action(plan.RestartController, name) }

// KillController kills the controller (SIGKILL); it stays down until StartController.
func KillController(name string) *Action { return action(plan.KillController, name) }

// StartController starts a killed controller.
func StartController(name string) *Action { return action(plan.StartController, name) }

// PauseController stops the controller at the timing, in the scope, until ResumeController.
func PauseController(name string, at plan.Timing) *Action {
	a := action(plan.PauseController, name)
	a.action.PauseAt = at
	return a
}

// ResumeController releases what PauseController holds.
func ResumeController(name string, at plan.Timing) *Action {
	a := action(plan.ResumeController, name)
	a.action.PauseAt = at
	return a
}

// ReconnectController moves the controller to another API server by restarting it; see [Action.ByCutting].
func ReconnectController(name, apiServer string) *Action {
	a := action(plan.ReconnectController, name)
	a.action.ReconnectAPIServer = apiServer
	return a
}

// PauseAPIServer keeps the API server from seeing changes, in the scope, until ResumeAPIServer.
func PauseAPIServer(name string) *Action { return action(plan.PauseAPIServer, name) }

// ResumeAPIServer releases what PauseAPIServer holds.
func ResumeAPIServer(name string) *Action { return action(plan.ResumeAPIServer, name) }

// FailCall makes the controller's next write fail; see [Action.Times], [Action.UntilRestored], [Action.Scope] and
// [Action.Operations]. Refused writes do not reach the API server, lost ones take effect. The status is that of the
// error; 0: 500 for a refused write, and for a lost one no answer within the client's timeout.
func FailCall(name string, answer plan.CallAnswer, status int) *Action {
	a := action(plan.FailCall, name)
	a.action.Answer, a.action.Status = answer, status
	return a
}

// RestoreCalls ends what FailCall has begun.
func RestoreCalls(name string) *Action { return action(plan.RestoreCalls, name) }

// FreezeController stops the process of the controller whose call or event satisfied the trigger (SIGSTOP), until
// ThawController. Other processes of the controller go on.
func FreezeController(name string) *Action { return action(plan.FreezeController, name) }

// ThawController lets the frozen processes of the controller go on; see [Action.Killing].
func ThawController(name string) *Action { return action(plan.ThawController, name) }

// Killing makes ThawController kill the frozen processes instead. They are started again.
func (a *Action) Killing() *Action { a.action.Kill = true; return a }

// Call makes FailCall and RestoreCalls be about one of the suite's annotated calls instead of writes to the API server.
// A refused call does not run and returns an error; a lost one runs and returns a timeout. There is no HTTP status.
func (a *Action) Call(name string) *Action { a.action.Call = name; return a }

// Times is how many calls FailCall makes to fail. Default: one.
func (a *Action) Times(n int) *Action { a.action.Times = n; return a }

// UntilRestored makes all calls fail until RestoreCalls.
func (a *Action) UntilRestored() *Action { a.action.UntilRestored = true; return a }

// Operations limits FailCall to some kinds of writes. Default: all.
func (a *Action) Operations(all ...plan.Operation) *Action { a.action.CallOperations = all; return a }

// RetryAfter makes a refused call ask the client to repeat it, after that many seconds.
func (a *Action) RetryAfter(seconds int) *Action { a.action.RetryAfter = seconds; return a }

// KillAPIServer kills the API server (SIGKILL); it stays down until StartAPIServer.
func KillAPIServer(name string) *Action { return action(plan.KillAPIServer, name) }

// StartAPIServer starts a killed API server.
func StartAPIServer(name string) *Action { return action(plan.StartAPIServer, name) }

// RestartAPIServer kills the API server (SIGKILL) and starts it again.
func RestartAPIServer(name string) *Action { return action(plan.RestartAPIServer, name) }

// Disrupt begins a disruption, a fault that lasts: its name, what it does, and a controller or a selector. It lasts
// until EndDisruption, or for its duration.
func Disrupt(disruption State) *Action {
	a := action(plan.Disrupt, "")
	m, err := plan.StateOf(disruption)
	if m != nil {
		a.action.Disruption = m
	}
	return a.fail(err)
}

// EndDisruption ends the disruption of that name.
func EndDisruption(name string) *Action {
	a := action(plan.EndDisruption, "")
	a.action.Disruption = name
	return a
}

// AcceptPartial completes Disrupt when some of the targets are disrupted.
func (a *Action) AcceptPartial() *Action { a.action.AcceptPartial = true; return a }

// AcceptNoTargets completes Disrupt although nothing is selected.
func (a *Action) AcceptNoTargets() *Action { a.action.AcceptNoTargets = true; return a }

// CycleNodes begins to replace the nodes of a group: its name and what is in the spec of a CycleNodeRequest; a node
// group that does not exist yet is described by simulatedGroup. The cycle goes on until it has ended by itself or by
// EndCycle.
func CycleNodes(cycle State) *Action {
	a := action(plan.CycleNodes, "")
	m, err := plan.StateOf(cycle)
	if m != nil {
		a.action.Cycle = m
	}
	return a.fail(err)
}

// EndCycle ends the cycle of that name.
func EndCycle(name string) *Action {
	a := action(plan.EndCycle, "")
	a.action.Cycle = name
	return a
}

// AdvanceTime lets the cluster's clock jump ahead; what is due in the time that is skipped comes all at once.
func AdvanceTime(by time.Duration) *Action {
	a := action(plan.AdvanceTime, "")
	a.action.Own = &plan.Clocking{By: plan.Offset(by)}
	return a
}

// SkewClock puts the wall clock of the controller's processes ahead, or behind if by is negative, until EndSkew. Timers
// are not concerned.
func SkewClock(name string, by time.Duration) *Action {
	a := action(plan.SkewClock, name)
	a.action.Own = &plan.Clocking{By: plan.Offset(by)}
	return a
}

// DisturbConnection lets nothing pass between the controller and another cluster of the suite until RestoreConnection,
// or lets it pass late by delay, in each direction, if that is not 0.
func DisturbConnection(name, cluster string, delay time.Duration) *Action {
	a := action(plan.DisturbConnection, name)
	a.action.Cluster, a.action.Own = cluster, &plan.Disturbing{Delay: delay}
	return a
}

// RestoreConnection lets everything pass again between the controller and another cluster.
func RestoreConnection(name, cluster string) *Action {
	a := action(plan.RestoreConnection, name)
	a.action.Cluster = cluster
	return a
}

// Upgrade installs another of the suite's builds, "" for the suite's own, and waits until only its controllers run.
func Upgrade(to string, how plan.UpgradeHow) *Action {
	a := action(plan.Upgrade, "")
	a.action.Own = &plan.Upgrading{To: to, How: how}
	return a
}

// EndSkew lets the controller's wall clock be right again.
func EndSkew(name string) *Action { return action(plan.EndSkew, name) }

// WaitFor completes CycleNodes when the cycle is in that phase. Default: when it is accepted.
func (a *Action) WaitFor(phase plan.CyclePhase) *Action { a.action.WaitFor = phase; return a }

// AcceptFailure allows the cycle of CycleNodes to fail.
func (a *Action) AcceptFailure() *Action { a.action.AcceptFailure = true; return a }

// Apply applies an object as another client.
func Apply(object State) *Action {
	a := action(plan.ApplyObject, "")
	a.action.Manifest, a.err = plan.StateOf(object)
	return a
}

// ApplyFile applies the objects of a file beside the plan.
func ApplyFile(path string) *Action {
	a := action(plan.ApplyObject, "")
	a.action.ManifestFile = path
	return a
}

// Patch patches an object with a merge patch, as another client.
func Patch(key string, patch State) *Action { return patchAs("", key, patch) }

// PatchStrategic patches an object of a built-in type with a strategic merge patch, as another client.
func PatchStrategic(key string, patch State) *Action { return patchAs("strategic", key, patch) }

func patchAs(typ, key string, patch State) *Action {
	a := action(plan.PatchObject, "").key(key)
	a.action.PatchType = typ
	m, err := plan.StateOf(patch)
	if m != nil {
		a.action.Patch = m
	}
	return a.fail(err)
}

// PatchJSON patches an object with a JSON patch, as another client.
func PatchJSON(key string, operations ...State) *Action {
	a := action(plan.PatchObject, "").key(key)
	a.action.PatchType = "json"
	var list []any
	for _, o := range operations {
		m, err := plan.StateOf(o)
		list = append(list, m)
		a.fail(err)
	}
	if list != nil {
		a.action.Patch = list
	}
	return a
}

// Delete deletes an object as another client.
func Delete(key string) *Action { return action(plan.DeleteObject, "").key(key) }

func (a *Action) key(key string) *Action {
	k, err := plan.ParseResourceKey(key)
	a.action.ResourceKey = k
	return a.fail(err)
}

func (a *Action) fail(err error) *Action {
	if a.err == nil {
		a.err = err
	}
	return a
}

// When sets the trigger of the action.
func (a *Action) When(t Trigger) *Action { a.trigger = t; return a }

// Scope limits a pause, or a failure of calls, to the objects of a resource key. Default: everything.
func (a *Action) Scope(key string) *Action {
	scope, err := plan.ParseScope(key)
	if plan.Has[*plan.CallFailure](&a.action) || plan.Has[*plan.Restore](&a.action) {
		a.action.CallScope = scope
	} else {
		a.action.PauseScope = scope
	}
	return a.fail(err)
}

// InCluster names the cluster of an API server, of what is written, of nodes, or of a pause's scope, in a suite with
// several. Default: the first one.
func (a *Action) InCluster(name string) *Action { a.action.Cluster = name; return a }

// WaitBefore sets the time between the trigger and the action.
func (a *Action) WaitBefore(d time.Duration) *Action { a.action.WaitBefore = d; return a }

// WaitAfter sets the time between the action and its completion.
func (a *Action) WaitAfter(d time.Duration) *Action { a.action.WaitAfter = d; return a }

// Async enables the next action's trigger when this action begins, not when it is complete.
func (a *Action) Async() *Action { a.action.Async = true; return a }

// AvoidOngoingRead makes a pause at a read wait until no reconcile is between its first read and its end.
func (a *Action) AvoidOngoingRead() *Action { a.action.AvoidOngoingRead = true; return a }

// OneByOne makes ResumeAPIServer let one event after the other go on, each when the controllers are idle again.
func (a *Action) OneByOne() *Action { a.action.OneByOne = true; return a }

// ByCutting reconnects without a restart: the connections are cut and redirected to the other API server.
func (a *Action) ByCutting() *Action { a.action.ReconnectBy = plan.ReconnectCut; return a }

// WithoutStreamingLists lets the controller that is started or reconnected fill its caches without streaming lists, in
// the whole run: only then can a paused API server show it the past, if its client-go is 0.35 or newer.
func (a *Action) WithoutStreamingLists() *Action { a.action.WatchList = new(bool); return a }

// Subresource sets the subresource to patch.
func (a *Action) Subresource(name string) *Action { a.action.Subresource = name; return a }

// Trigger is what an action waits for: a condition, or several joined by [Sequence], [Either] and [Both].
type Trigger interface{ trigger() }

type joined struct {
	operator string
	strength int
	parts    []Trigger
}

func (*joined) trigger() {}

// Sequence is satisfied when its parts are satisfied one after the other.
func Sequence(parts ...Trigger) Trigger { return &joined{";", 1, parts} }

// Either is satisfied when one of its parts is satisfied.
func Either(parts ...Trigger) Trigger { return &joined{"|", 2, parts} }

// Both is satisfied when all of its parts are satisfied, in any order.
func Both(parts ...Trigger) Trigger { return &joined{"&", 3, parts} }

// Condition is a condition that is being built, with its observation point.
type Condition struct {
	definition plan.Definition
	err        error
}

func (*Condition) trigger() {}

func condition(typ plan.TriggerType, key string) *Condition {
	c := &Condition{definition: plan.Definition{Condition: plan.Condition{Type: typ}}}
	if key != "" {
		c.definition.Condition.ResourceKey, c.err = plan.ParseResourceKey(key)
	}
	return c
}

// Created waits for the creation of an object.
func Created(key string) *Condition { return condition(plan.OnObjectCreation, key) }

// Updated waits for an update of an object: any, or a transition From one state To another.
func Updated(key string) *Condition { return condition(plan.OnObjectUpdate, key) }

// Deleted waits for the deletion of an object.
func Deleted(key string) *Condition { return condition(plan.OnObjectDeletion, key) }

// AnyFieldModified waits for an update in which any of the state's fields loses the given value.
func AnyFieldModified(key string, state State) *Condition {
	return condition(plan.OnAnyFieldModified, key).From(state)
}

// AllFieldsModified waits for an update in which all of the state's fields lose the given values.
func AllFieldsModified(key string, state State) *Condition {
	return condition(plan.OnAllFieldsModified, key).From(state)
}

// Called waits for a call of one of the suite's annotated calls.
func Called(name string) *Condition {
	c := condition(plan.OnAnnotatedCall, "")
	c.definition.Condition.Call = name
	return c
}

// Reconciled waits for a reconcile; key is that of its request and may be empty.
func Reconciled(key string) *Condition { return condition(plan.OnReconcile, key) }

// Timeout is satisfied when it has been enabled for the given time.
func Timeout(d time.Duration) *Condition {
	c := condition(plan.OnTimeout, "")
	c.definition.Condition.Timeout = d
	return c
}

// Extend lets a [Timeout] wait until the controllers under test are idle, for that much longer at most.
func (c *Condition) Extend(most time.Duration) *Condition {
	c.definition.Condition.Extend = most
	return c
}

// AtOnce is satisfied when it becomes enabled.
func AtOnce() *Condition { return condition(plan.OnNone, "") }

// Named gives the condition a name in the plan. Default: trigger1, trigger2 and so on. A trigger may contain the same
// Condition more than once.
func (c *Condition) Named(name string) *Condition { c.definition.Name = name; return c }

// From sets the state before.
func (c *Condition) From(state State) *Condition {
	m, err := plan.StateOf(state)
	if c.definition.Condition.PrevState = nil; m != nil {
		c.definition.Condition.PrevState = m
	}
	return c.fail(err)
}

// To sets the state after.
func (c *Condition) To(state State) *Condition {
	m, err := plan.StateOf(state)
	if c.definition.Condition.CurState = nil; m != nil {
		c.definition.Condition.CurState = m
	}
	return c.fail(err)
}

func (c *Condition) fail(err error) *Condition {
	if c.err == nil {
		c.err = err
	}
	return c
}

// Where sets a CEL predicate over object and oldObject.
func (c *Condition) Where(cel string) *Condition { c.definition.Condition.Where = cel; return c }

// Repeat makes the n-th match satisfy the condition.
func (c *Condition) Repeat(n int) *Condition {
	if c.definition.Condition.Repeat = n; n < 1 {
		return c.fail(fmt.Errorf("repeat is %d; it must be at least 1", n))
	}
	return c
}

// At sets when it is observed, and by which API server or controller.
func (c *Condition) At(timing plan.Timing, by string) *Condition {
	c.definition.Observe.Timing, c.definition.Observe.ObserveBy = timing, by
	return c
}

// InCluster names the cluster of the object, in a suite with several. Default: the first one.
func (c *Condition) InCluster(name string) *Condition { c.definition.Observe.Cluster = name; return c }

// InReconciler narrows a controller's observation to one reconciler.
func (c *Condition) InReconciler(name string) *Condition {
	c.definition.Observe.Reconciler = name
	return c
}

// triggerWriter turns a trigger into definitions and an expression over their names.
type triggerWriter struct {
	definitions []plan.Definition
	conditions  []*Condition
	taken       map[string]bool // names that the caller has given
	err         error
}

// take notes the names that the caller has given to the conditions of a trigger.
func (w *triggerWriter) take(t Trigger) {
	switch t := t.(type) {
	case *joined:
		for _, p := range t.parts {
			w.take(p)
		}
	case *Condition:
		if t != nil {
			w.taken[t.definition.Name] = true
		}
	}
}

// name makes a name for the next condition.
func (w *triggerWriter) name() string {
	for n := len(w.definitions) + 1; ; n++ {
		if name := fmt.Sprintf("trigger%d", n); !w.taken[name] {
			w.taken[name] = true
			return name
		}
	}
}

func (w *triggerWriter) write(t Trigger, strength int) string {
	switch t := t.(type) {
	case *joined:
		parts := make([]string, len(t.parts))
		for i, p := range t.parts {
			parts[i] = w.write(p, t.strength)
		}
		if len(parts) == 0 && w.err == nil {
			w.err = fmt.Errorf("%q has no operands", t.operator)
		}
		s := strings.Join(parts, t.operator)
		if t.strength < strength && len(parts) > 1 {
			s = "(" + s + ")"
		}
		return s
	case *Condition:
		if t == nil {
			break
		}
		for i, c := range w.conditions {
			if c == t {
				return w.definitions[i].Name
			}
		}
		d := t.definition
		if d.Name == "" {
			d.Name = w.name()
		}
		if w.err == nil && t.err != nil {
			w.err = fmt.Errorf("%s: %w", d.Name, t.err)
		}
		w.conditions, w.definitions = append(w.conditions, t), append(w.definitions, d)
		return d.Name
	}
	if w.err == nil {
		w.err = fmt.Errorf("the trigger is nil")
	}
	return ""
}
