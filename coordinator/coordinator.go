// Package coordinator runs a plan: it takes the observations that the monitor collects, judges them by the pure state [Machine]
// one by one, and carries out what the machine decides.
//
// Order: one goroutine owns the machine. It judges events in the order in which they reach it, numbers them, and records
// them in that order before it acts on them; that order is the order of the run. An observation is released after every
// synchronous action that it fired is complete.
//
// Nothing is held for ever: a hold ends with its release, its session, the end of the plan, or its deadline.
package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/trommel-dev/trommel/actions"
	"github.com/trommel-dev/trommel/coordinator/monitor"
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Recorder takes the run's events and actions in order.
type Recorder interface {
	Event(record.Event) error
	Action(record.Action) error
}

// Watcher is told what happens, for people to follow. It is called from the coordinator's goroutine and must not block.
type Watcher interface {
	Fired(index int, a *plan.Action, by string)
	Completed(index int, a *plan.Action, err error)
	Held(o *record.Observation, why string)
	Info(text string)
}

// Config sets up a Coordinator.
type Config struct {
	Plan    *plan.Plan // validated against its suite
	Monitor *monitor.Monitor
	Tools   actions.Tools // Pauses is filled in by New
	// Controllers are those under test.
	Controllers []record.Controller
	// Resolve completes a resource key with what the cluster knows of its type.
	Resolve func(plan.ResourceKey) wire.Rule
	// Lookup reads an object's present state, as JSON, or nil where it does not exist. It is asked for the state before a
	// controller's write while that write waits.
	Lookup func(ctx context.Context, o *wire.Observation) ([]byte, error)
	Hold   time.Duration // longest hold of one observation
	// Watchdog is how long nothing may happen, while something is held or paused, until it is told who waits for whom. Zero: 10s, or half of
	// Hold where that is shorter.
	Watchdog time.Duration
	Recorder Recorder
	Watcher  Watcher
	Logger   *slog.Logger
}

// Coordinator carries out one plan.
type Coordinator struct {
	config   Config
	machine  *Machine
	actions  []actions.Action
	findings []record.Finding

	commands  chan func(context.Context)
	stopped   chan struct{} // closed when Run serves no longer
	enriched  chan arrival
	timeouts  chan record.Timeout
	completed chan completion
	expired   chan int

	// Owned by the goroutine of Run.
	seq       int
	began     bool // the plan has begun: events are judged and recorded
	holds     map[int]*held
	switching map[int]chan struct{} // pauses that are being put into force, by action
	before    map[call][]byte       // states before writes
	leases    map[string]map[string]bool
	own       map[string][]wire.Rule // what the plan itself has processes report, by identity
	fires     map[int]*record.Action
	connected map[string]int // live sessions by identity
	total     map[string]int // sessions ever, by identity
	wake      []chan struct{}
	last      time.Time // of the newest event of the plan
	told      string    // who waits for whom, as it was last told, without times
	done      []int     // completed actions, in order
	err       error

	running sync.WaitGroup // actions
}

type held struct {
	event monitor.Event
	timer *time.Timer
	by    string
}

type arrival struct {
	event monitor.Event
	old   []byte
	err   error
}

type completion struct {
	index int
	began time.Time
	err   error
}

// New prepares a coordinator; Run starts it.
func New(config Config) (*Coordinator, error) {
	machine, err := NewMachine(config.Plan, config.Controllers)
	if err != nil {
		return nil, err
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.Watchdog == 0 {
		config.Watchdog = 10 * time.Second
		if config.Hold > 0 {
			config.Watchdog = min(config.Watchdog, config.Hold/2)
		}
	}
	c := &Coordinator{
		config:    config,
		machine:   machine,
		commands:  make(chan func(context.Context)),
		stopped:   make(chan struct{}),
		enriched:  make(chan arrival),
		timeouts:  make(chan record.Timeout),
		completed: make(chan completion),
		expired:   make(chan int),
		holds:     map[int]*held{},
		switching: map[int]chan struct{}{},
		before:    map[call][]byte{},
		leases:    map[string]map[string]bool{},
		fires:     map[int]*record.Action{},
		connected: map[string]int{},
		total:     map[string]int{},
	}
	tools := config.Tools
	tools.Pauses = c
	for i := range config.Plan.Actions {
		a, err := actions.New(&config.Plan.Actions[i], i, tools)
		if err != nil {
			return nil, fmt.Errorf("action %d: %w", i+1, err)
		}
		c.actions = append(c.actions, a)
	}
	return c, nil
}

// Run serves processes and the plan until ctx ends; then it releases everything and waits for the actions under way, whose
// context is ctx too. It returns an error only where the run record could not be written.
func (c *Coordinator) Run(ctx context.Context) error {
	defer c.running.Wait()
	defer close(c.stopped)
	c.push(ctx)
	watchdog := time.NewTimer(c.config.Watchdog)
	defer watchdog.Stop()
	for {
		select {
		case <-ctx.Done():
			c.finish()
			return c.err
		case now := <-watchdog.C:
			watchdog.Reset(c.watch(now))
		case e := <-c.config.Monitor.Events():
			c.monitored(ctx, e)
		case a := <-c.enriched:
			c.arrived(ctx, a)
		case t := <-c.timeouts:
			c.step(ctx, record.Event{Timeout: &t})
		case done := <-c.completed:
			c.complete(ctx, done)
		case seq := <-c.expired:
			c.expire(ctx, seq)
		case f := <-c.commands:
			f(ctx)
		}
	}
}

// watch tells who waits for whom if nothing has happened for long enough, once for each state of things. It returns when to look again.
func (c *Coordinator) watch(now time.Time) time.Duration {
	if quiet := now.Sub(c.last); c.began && quiet < c.config.Watchdog {
		return c.config.Watchdog - quiet
	}
	if state := c.stuck(time.Time{}); c.began && state != "" && state != c.told {
		c.told = state
		text := c.stuck(now)
		c.config.Logger.Info("waiting", "chain", text)
		c.config.Watcher.Info("waiting: " + text)
	}
	return c.config.Watchdog
}

func (c *Coordinator) stuck(now time.Time) string {
	return c.machine.Stuck(now, func(identity string) bool { return c.connected[identity] > 0 })
}

// errStopped is what a coordinator says whose Run has ended.
var errStopped = errors.New("the coordinator has stopped")

// do runs f in the owner's goroutine and waits for it. What f sets going lives in the context of Run, which f is given, and not in
// the caller's.
func (c *Coordinator) do(ctx context.Context, f func(run context.Context)) error {
	done := make(chan struct{})
	select {
	case c.commands <- func(run context.Context) { f(run); close(done) }:
		<-done
		return nil
	case <-c.stopped:
		return errStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Begin starts the plan: the first action's trigger is enabled. Actions that are to be carried out at once (trigger type none) are
// complete when it returns, unless they are asynchronous or have to wait first: a plan that begins with a pause begins paused.
func (c *Coordinator) Begin(ctx context.Context) error {
	if err := c.do(ctx, func(ctx context.Context) {
		c.began = true
		c.last = time.Now()
		c.carryOut(ctx, c.machine.Start())
	}); err != nil {
		return err
	}
	for {
		changed, err := c.Changed(ctx)
		if err != nil {
			return err
		}
		var atOnce bool
		if err := c.do(ctx, func(context.Context) { atOnce = c.machine.AtOnce() }); err != nil || !atOnce {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// End ends the plan: every pause ends, everything is released, no further action is fired. Processes report nothing more.
func (c *Coordinator) End(ctx context.Context) error {
	return c.do(ctx, func(ctx context.Context) {
		if c.began {
			c.step(ctx, record.Event{End: true})
		}
		c.push(ctx)
	})
}

// Undo takes back, in reverse order, what the completed actions did.
func (c *Coordinator) Undo(ctx context.Context) error {
	var done []int
	if err := c.do(ctx, func(context.Context) { done = append(done, c.done...) }); err != nil {
		return err
	}
	var errs []error
	for i := len(done) - 1; i >= 0; i-- {
		if err := c.actions[done[i]].Undo(ctx); err != nil {
			errs = append(errs, fmt.Errorf("undo action %d: %w", done[i]+1, err))
		}
	}
	return errors.Join(errs...)
}

// Status is how far a plan has come.
type Status struct {
	Fired, Completed, Total int
	Waiting                 []string  // see Machine.Waiting
	OnItsWay                bool      // see Machine.WaitsForTimer
	LastEvent               time.Time // of the newest event that the plan looks at
	Findings                []record.Finding
	StaleReads              []record.StaleRead
	NoneStale               []string // see Machine.NoneStale
	Stuck                   string   // see Machine.Stuck
}

// Status tells how far the plan has come.
func (c *Coordinator) Status(ctx context.Context) (Status, error) {
	var s Status
	err := c.do(ctx, func(context.Context) {
		s = Status{
			Fired: c.machine.Fired(), Completed: len(c.done), Total: len(c.config.Plan.Actions),
			Waiting: c.machine.Waiting(), OnItsWay: c.machine.WaitsForTimer(), LastEvent: c.last,
			Findings:   append([]record.Finding(nil), c.findings...),
			StaleReads: c.machine.StaleReads(), NoneStale: c.machine.NoneStale(), Stuck: c.stuck(time.Now()),
		}
	})
	return s, err
}

// Changed returns a channel that is closed at the next event after the call: a session begins or ends, an action fires or completes.
func (c *Coordinator) Changed(ctx context.Context) (<-chan struct{}, error) {
	ch := make(chan struct{})
	err := c.do(ctx, func(context.Context) { c.wake = append(c.wake, ch) })
	return ch, err
}

func (c *Coordinator) changed() {
	for _, ch := range c.wake {
		close(ch)
	}
	c.wake = nil
}

// Connections is the number of sessions that the identity has had so far, and how many of them are live.
func (c *Coordinator) Connections(ctx context.Context, identity string) (total, live int, err error) {
	err = c.do(ctx, func(context.Context) { total, live = c.total[identity], c.connected[identity] })
	return total, live, err
}

// WaitConnected returns when the identity has a live session beyond its first `after` ones.
func (c *Coordinator) WaitConnected(ctx context.Context, identity string, after int) error {
	for {
		changed, err := c.Changed(ctx)
		if err != nil {
			return err
		}
		total, live, err := c.Connections(ctx, identity)
		if err != nil {
			return err
		}
		if total > after && live > 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Leases lists the leases (namespace/name) that the controller has written so far.
func (c *Coordinator) Leases(ctx context.Context, controller string) ([]string, error) {
	var list []string
	err := c.do(ctx, func(context.Context) {
		for l := range c.leases[controller] {
			list = append(list, l)
		}
	})
	return list, err
}

// Switch implements actions.Pauses: the action has begun, and what it pauses or resumes is put into force.
func (c *Coordinator) Switch(ctx context.Context, action int) error {
	ready := make(chan struct{})
	if err := c.do(ctx, func(ctx context.Context) {
		c.switching[action] = ready
		c.step(ctx, record.Event{Began: &action})
	}); err != nil {
		return err
	}
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// push tells the processes what to report.
func (c *Coordinator) push(ctx context.Context) {
	c.own = c.machine.Rules(c.config.Resolve)
	rules := c.machine.SideRules(c.config.Resolve)
	for _, controller := range c.config.Controllers {
		if controller.Hooks {
			// Leases are noted so that those of a killed controller can be taken away.
			rules[controller.Name] = append(rules[controller.Name], leaseRule)
		}
	}
	for name, list := range c.own {
		// The plan's come first: a hook completes what it does not know of an object's type by the first rule that knows.
		rules[name] = slices.Concat(list, rules[name])
	}
	c.config.Monitor.SetRules(ctx, rules)
}

// aside reports whether the plan itself does not ask for the observation.
func (c *Coordinator) aside(s *monitor.Session, o *wire.Observation) bool {
	return !slices.ContainsFunc(c.own[s.Identity], func(r wire.Rule) bool { return takes(r, o) })
}

var leaseRule = wire.Rule{
	Point: wire.ControllerWrite, Phase: wire.After, Group: "coordination.k8s.io", Resource: "leases", Kind: "lease",
}

func (c *Coordinator) monitored(ctx context.Context, e monitor.Event) {
	switch {
	case e.Started:
		c.connected[e.Session.Identity]++
		c.total[e.Session.Identity]++
		c.changed()
	case e.Ended:
		c.connected[e.Session.Identity]--
		for seq, h := range c.holds {
			if h.event.Session == e.Session {
				h.timer.Stop()
				delete(c.holds, seq)
			}
		}
		if c.began {
			c.step(ctx, record.Event{SessionEnd: &record.SessionEnd{By: e.Session.Identity, Session: e.Session.ID}})
		}
		c.changed()
	case isLease(e.Observation):
		if c.leases[e.Session.Identity] == nil {
			c.leases[e.Session.Identity] = map[string]bool{}
		}
		c.leases[e.Session.Identity][e.Observation.Namespace+"/"+e.Observation.Name] = true
		// The plan may look at leases too, so it goes on like any other.
		c.arrived(ctx, arrival{event: e})
	case c.began && e.Observation.Point == wire.ControllerWrite && e.Observation.Phase == wire.Before && e.Observation.Name != "" &&
		e.Observation.Operation != wire.Create && !c.aside(e.Session, e.Observation):
		// The lookup does not hold up other observations: until it is done, this one has not arrived.
		c.running.Go(func() {
			old, err := c.config.Lookup(ctx, e.Observation)
			select {
			case c.enriched <- arrival{event: e, old: old, err: err}:
			case <-ctx.Done():
				e.Release()
			}
		})
	default:
		c.arrived(ctx, arrival{event: e})
	}
}

func isLease(o *wire.Observation) bool {
	return o.Point == wire.ControllerWrite && o.Phase == wire.After && (o.Resource == "leases" || o.Kind == "lease") && o.Error == ""
}

func (c *Coordinator) arrived(ctx context.Context, a arrival) {
	o := a.event.Observation
	if !c.began {
		a.event.Release()
		return
	}
	if a.err != nil {
		c.config.Logger.Warn("state before a write is not known", "object", o.Namespace+"/"+o.Name, "error", a.err)
	}
	id := call{a.event.Session.ID, o.Call}
	if o.Point == wire.ControllerWrite {
		if o.Phase == wire.Before {
			if a.old != nil {
				o.OldObject = a.old
				c.before[id] = a.old
			}
		} else {
			if len(o.OldObject) == 0 {
				o.OldObject = c.before[id]
			}
			delete(c.before, id)
			if o.Operation == wire.Delete {
				// The API server's answer to a deletion may be a mere status.
				o.Object = o.OldObject
			}
		}
	}
	r := recordObservation(a.event.Session, o)
	r.Aside = c.aside(a.event.Session, o)
	seq := c.seq + 1
	c.holds[seq] = &held{event: a.event, by: a.event.Session.Identity, timer: time.AfterFunc(c.config.Hold, func() {
		select {
		case c.expired <- seq:
		case <-ctx.Done():
		}
	})}
	c.step(ctx, record.Event{Observation: r})
}

func recordObservation(s *monitor.Session, o *wire.Observation) *record.Observation {
	return &record.Observation{
		By: s.Identity, Session: s.ID, Call: o.Call, Point: o.Point, Phase: o.Phase, Op: o.Operation,
		Group: o.Group, GroupKnown: o.GroupKnown, Resource: o.Resource, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name,
		Subresource: o.Subresource, Object: validJSON(o.Object), OldObject: validJSON(o.OldObject), Live: o.Live,
		Reconciler: o.Reconciler, ReconcilerType: o.ReconcilerType, ReconcileID: o.ReconcileID, Request: o.Request, CallName: o.CallName,
		Error: o.Error, Code: o.Code,
	}
}

// validJSON drops what is no JSON (a process may send anything), so that the record can be written.
func validJSON(data []byte) json.RawMessage {
	if len(data) == 0 || !json.Valid(data) {
		return nil
	}
	return data
}

// step numbers and records an event, lets the machine judge it and carries out what it decides.
func (c *Coordinator) step(ctx context.Context, e record.Event) {
	c.seq++
	e.Seq = c.seq
	e.Time = time.Now()
	// A controller that crashes over and over brings no plan forward, nor does what the plan does not look at.
	if e.SessionEnd == nil && (e.Observation == nil || !e.Observation.Aside) {
		c.last = e.Time
	}
	if err := c.config.Recorder.Event(e); err != nil && c.err == nil {
		c.err = err
	}
	c.carryOut(ctx, c.machine.Step(e))
}

func (c *Coordinator) carryOut(ctx context.Context, effects []Effect) {
	for _, effect := range effects {
		switch effect := effect.(type) {
		case StartTimer:
			d := c.machine.watches[effect.Action][effect.Node].definition.Condition.Timeout
			time.AfterFunc(d, func() {
				select {
				case c.timeouts <- record.Timeout{Action: effect.Action, Node: effect.Node}:
				case <-ctx.Done():
				}
			})
		case Fire:
			c.fire(ctx, effect)
		case Release:
			if h := c.holds[effect.Seq]; h != nil {
				h.timer.Stop()
				h.event.Release()
				delete(c.holds, effect.Seq)
			}
		case Hold:
			if h := c.holds[effect.Seq]; h != nil {
				c.config.Watcher.Held(recordObservation(h.event.Session, h.event.Observation), effect.Why)
			}
		case Stale:
			c.config.Watcher.Info("stale read: " + effect.Read.String())
		case Pausing:
			// Synchronous, in the owner's goroutine: nothing is judged between the decision and its coming into force.
			c.push(ctx)
			if ready := c.switching[effect.Action]; ready != nil {
				close(ready)
				delete(c.switching, effect.Action)
			}
		}
	}
}

// fire carries an action out in a goroutine of its own.
func (c *Coordinator) fire(ctx context.Context, f Fire) {
	a := &c.config.Plan.Actions[f.Action]
	by := "the start of the plan"
	if h := c.holds[f.FiredBy]; h != nil {
		by = describe(recordObservation(h.event.Session, h.event.Observation))
	} else if f.FiredBy > 0 {
		by = "a timeout"
	}
	c.fires[f.Action] = &record.Action{
		Index: f.Action, Type: string(a.Type), Target: a.Target, FiredBy: f.FiredBy, Fired: time.Now(),
	}
	c.config.Watcher.Fired(f.Action, a, by)
	c.changed()
	c.running.Go(func() {
		err := sleep(ctx, a.WaitBefore)
		began := time.Now()
		if err == nil && !switches(a) {
			err = c.do(ctx, func(ctx context.Context) { c.step(ctx, record.Event{Began: &f.Action}) })
		}
		if err == nil {
			err = c.actions[f.Action].Do(ctx)
		}
		if err == nil {
			err = sleep(ctx, a.WaitAfter)
		}
		select {
		case c.completed <- completion{index: f.Action, began: began, err: err}:
		case <-ctx.Done():
		}
	})
}

// switches reports whether the action begins with Switch.
func switches(a *plan.Action) bool {
	switch a.Type {
	case plan.PauseController, plan.PauseAPIServer, plan.ResumeController, plan.ResumeAPIServer:
		return true
	}
	return false
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Coordinator) complete(ctx context.Context, done completion) {
	a := &c.config.Plan.Actions[done.index]
	r := c.fires[done.index]
	r.Began, r.Done = done.began, time.Now()
	if done.err != nil {
		r.Error = done.err.Error()
		c.findings = append(c.findings, record.Finding{
			Oracle: record.OracleAction, Subject: a.Target, Time: r.Done,
			Title: fmt.Sprintf("action %d (%s %s) failed: %v", done.index+1, a.Type, a.Target, done.err),
		})
	}
	if err := c.config.Recorder.Action(*r); err != nil && c.err == nil {
		c.err = err
	}
	c.done = append(c.done, done.index)
	c.config.Watcher.Completed(done.index, a, done.err)
	c.step(ctx, record.Event{Completed: &done.index})
	c.changed()
}

func (c *Coordinator) expire(ctx context.Context, seq int) {
	h := c.holds[seq]
	if h == nil {
		return
	}
	o := recordObservation(h.event.Session, h.event.Observation)
	stuck := c.stuck(time.Now())
	if stuck != "" {
		stuck += "\n"
	}
	c.findings = append(c.findings, record.Finding{
		Oracle: record.OracleHold, Subject: h.by, Time: time.Now(),
		Title: fmt.Sprintf("%s was held for %s and then let go: %s", h.by, c.config.Hold, describe(o)),
		Detail: stuck + "A pause outlasted the suite's timeouts.hold, or an action did not complete. From here on the run is not what " +
			"the plan describes.",
	})
	c.step(ctx, record.Event{Expired: &seq})
}

// finish releases everything at the end of Run, whatever the machine thinks.
func (c *Coordinator) finish() {
	for seq, h := range c.holds {
		h.timer.Stop()
		h.event.Release()
		delete(c.holds, seq)
	}
}
