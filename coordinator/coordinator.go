// Package coordinator runs a plan: it takes the observations that the monitor collects, feeds them to the state machine
// one by one, and carries out what the machine decides.
//
// Order: one goroutine owns the machine. It numbers events in the order of their arrival and records them before it
// acts on them; that order is the order of the run. An observation is released after every synchronous action that it
// fired is complete.
//
// Nothing is held forever: a hold ends with its release, its session, the end of the plan, or its deadline.
package coordinator

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/actions"
	"github.com/trommel-dev/trommel/coordinator/machine"
	"github.com/trommel-dev/trommel/coordinator/monitor"
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Recorder records the run's events and actions, in order.
type Recorder interface {
	Event(record.Event) error
	Action(record.Action) error
}

// Watcher receives progress messages for the user. It is called from the coordinator's goroutine and must not block.
type Watcher interface {
	Fired(index int, a *plan.Action, by string)
	Completed(index int, a *plan.Action, err error)
	// Held is called again when something else holds the same observation.
	Held(seq int, o *record.Observation, why string)
	Released(seq int)
	// Next says which action's trigger the plan waits for, and what is still missing; -1: all actions have fired.
	Next(index int, text string)
	// Waiting says who waits for whom, when nothing has happened for a while.
	Waiting(text string)
	Info(text string)
}

// Monitor delivers the events of processes.
type Monitor interface {
	Events() <-chan monitor.Event
	// SetRules returns when every connected process reports by the new rules or is cut off, except those of the frozen
	// sessions.
	SetRules(ctx context.Context, rules map[string][]wire.Rule, frozen ...uint64)
	// Sessions lists the connected sessions.
	Sessions() []*monitor.Session
}

// Config sets up a Coordinator.
type Config struct {
	Plan    *plan.Plan // validated against the suite
	Monitor Monitor    // in a run: a monitor.Monitor
	Tools   actions.Tools
	// Controllers are the controllers under test.
	Controllers []record.Controller
	// APIServers are the names of those that the run uses. An ordered run orders the events that reach them.
	APIServers []string
	// Trace is what processes report in addition to what the plan needs, by identity, while the plan runs. These
	// observations are recorded and marked as aside; they satisfy no trigger and are not held. Nil: nothing.
	Trace map[string][]wire.Rule
	// Resolve completes a resource key with what the cluster knows about its type.
	Resolve func(plan.ResourceKey) wire.Rule
	// ClusterOf says in which of several clusters the object of an observation is, see record.Observation. It does not
	// block. Nil: there is only one.
	ClusterOf func(identity string, o *wire.Observation) string
	// Lookup finds out what an observation of a write does not contain. It is called while the write waits.
	Lookup Lookup
	Hold   time.Duration // longest hold of one observation
	// Busy reports whether something is in the controllers' work queues. It is called concurrently. Nil: unknown.
	Busy func(ctx context.Context) bool
	// Watchdog is how long nothing may happen while something is held or paused. After that the Watcher is called with
	// who waits for whom. Zero: 10s, or half of Hold if that is shorter.
	Watchdog time.Duration
	Recorder Recorder
	Watcher  Watcher
	Logger   *slog.Logger
}

// Coordinator carries out one plan.
type Coordinator struct {
	config  Config
	machine *machine.Machine
	actions []actions.Action
	loop    loop

	// Owned by the goroutine of Run.
	clock     *clock.Clock // of its context
	began     bool         // the plan has begun: events are judged and recorded
	own       ownRules     // what the plan itself asks processes to report, by identity
	recording recording
	findings  findings
	holds     holds
	lookups   lookups
	timeouts  timeouts
	ordering  Ordering
	sessions  sessions
	elections elections
	freezer   freezer
	settling  settling
	work      work
	progress  progress
}

// New returns a coordinator; Run starts it.
func New(config Config) (*Coordinator, error) {
	m, err := machine.New(config.Plan, config.Controllers)
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
		machine:   m,
		loop:      newLoop(),
		recording: recording{recorder: config.Recorder},
		holds:     newHolds(config.Watcher, config.Hold),
		lookups:   newLookups(),
		timeouts:  timeouts{elapsed: make(chan record.Timeout)},
		sessions:  sessions{},
		elections: newElections(),
		freezer:   newFreezer(),
		settling:  settling{controllers: config.Controllers, active: map[string]time.Time{}},
		work:      newWork(),
	}
	if err := c.ordering.use(c, config.Plan.Schedule); err != nil {
		return nil, err
	}
	for i := range config.Plan.Actions {
		a, err := actions.New(&config.Plan.Actions[i], config.Tools)
		if err != nil {
			return nil, fmt.Errorf("action %d: %w", i+1, err)
		}
		c.actions = append(c.actions, a)
	}
	return c, nil
}

// Run serves processes and the plan until ctx ends; then it releases everything and waits for the running actions,
// which use ctx too. Time is that of the clock in ctx. It returns an error only if the run record could not be written.
func (c *Coordinator) Run(ctx context.Context) error {
	defer c.lookups.running.Wait()
	defer c.work.running.Wait()
	defer close(c.loop.stopped)
	c.clock = clock.Of(ctx)
	c.work.open(ctx)
	c.push(ctx)
	watchdog := c.clock.NewTimer(c.config.Watchdog)
	defer watchdog.Stop()
	defer c.clock.Order(nil)
	for {
		select {
		case <-ctx.Done():
			c.holds.releaseAll()
			return c.recording.err
		case now := <-watchdog.C:
			watchdog.Reset(c.watch(now))
		case e := <-c.config.Monitor.Events():
			c.monitored(ctx, e)
		case a := <-c.lookups.done:
			c.arrived(ctx, a)
		case t := <-c.timeouts.elapsed:
			c.step(ctx, record.Event{Timeout: &t})
		case done := <-c.work.done:
			c.complete(ctx, done)
		case action := <-c.work.lapsed:
			c.lapse(ctx, action)
		case seq := <-c.holds.expired:
			c.expire(ctx, seq)
		case f := <-c.loop.commands:
			f(ctx)
		case <-c.ordering.rests:
			c.ordering.choose(ctx)
		case <-c.ordering.passed():
			c.ordering.stopTime()
		}
	}
}

// Begin starts the plan: it enables the first action's trigger. Actions with trigger type none are complete when it
// returns, unless they are asynchronous or have a waitBefore: a plan that begins with a pause begins paused.
func (c *Coordinator) Begin(ctx context.Context) error {
	if err := c.loop.do(ctx, func(ctx context.Context) {
		c.began = true
		c.progress.last = c.clock.Now()
		// The record says who leads when the plan begins.
		for _, id := range slices.Sorted(maps.Keys(c.elections.newest)) {
			o := c.elections.newest[id]
			o.Aside, o.Election = true, true
			c.step(ctx, record.Event{Observation: o})
		}
		c.carryOut(ctx, c.machine.Start(), "the start of the plan")
	}); err != nil {
		return err
	}
	return c.loop.until(ctx, func() bool { return !c.machine.AtOnce() })
}

// BeginEarly is Begin for a workload that begins later, with the function that it returns: only from then on the plan's
// timeouts run.
func (c *Coordinator) BeginEarly(ctx context.Context) (workload func(ctx context.Context) error, err error) {
	if err := c.loop.do(ctx, func(context.Context) { c.timeouts.early = true }); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		return c.loop.do(ctx, func(ctx context.Context) {
			for _, timer := range c.timeouts.begin() {
				c.startTimer(ctx, timer)
			}
		})
	}, c.Begin(ctx)
}

// Status is the progress of a plan.
type Status struct {
	Fired, Completed, Total int
	Waiting                 []string        // see machine.Machine.Waiting
	Awaited                 *record.Awaited // see machine.Machine.Awaited
	OnItsWay                bool            // without any observation; see machine.Machine.WaitsForTimer
	LastEvent, Now          time.Time       // time of the newest event that the plan looks at; that of this status
	Findings                []record.Finding
	StaleReads              []record.StaleRead
	NoneStale               []string // see machine.Machine.NoneStale
	NoneFailed              []string // see machine.Machine.NoneFailed
	Stuck                   string   // see machine.Machine.Stuck
	Down                    []string // controllers and API servers that the plan has killed and not started again
	Electing                []string // sentences: controllers that were leader before and wait to be elected again
	Lasting                 []string // sentences: actions whose effect still lasts, and its status
	Diverged                string   // why the run could not follow its schedule; empty: it did
}

// Status returns the progress of the plan.
func (c *Coordinator) Status(ctx context.Context) (Status, error) {
	var s Status
	err := c.loop.do(ctx, func(context.Context) {
		s = Status{
			Fired: c.machine.Fired(), Completed: c.work.completed, Total: len(c.config.Plan.Actions),
			Waiting: c.machine.Waiting(), Awaited: c.machine.Awaited(),
			OnItsWay: c.machine.WaitsForTimer() || c.work.jumps() ||
				c.freezer.takingOver(c.clock.Now(), &c.elections, c.config.Monitor.Sessions()),
			LastEvent: c.progress.last, Now: c.clock.Now(),
			Findings:   slices.Clone(c.findings),
			StaleReads: c.machine.StaleReads(), NoneStale: c.machine.NoneStale(), Stuck: c.stuck(c.clock.Now()),
			NoneFailed: c.machine.NoneFailed(),
			Down:       c.machine.AllDown(), Electing: c.allElecting(), Lasting: c.lasting(),
			Diverged: c.ordering.diverged,
		}
	})
	return s, err
}

// Changed returns a channel that is closed at the next event after the call: a session begins or ends, an action fires
// or completes.
func (c *Coordinator) Changed(ctx context.Context) (<-chan struct{}, error) {
	return c.loop.nextChange(ctx)
}

// ownRules are the rules of the plan itself, by identity.
type ownRules map[string][]wire.Rule

// take reports whether the plan has asked for an observation.
func (r ownRules) take(s *monitor.Session, o *wire.Observation) bool {
	return slices.ContainsFunc(r[s.Identity], func(rule wire.Rule) bool { return rule.Takes(o) })
}

// push sends the processes the rules by which they report.
func (c *Coordinator) push(ctx context.Context) {
	c.own = c.machine.Rules(c.config.Resolve)
	rules := c.machine.SideRules(c.config.Resolve)
	for _, controller := range c.config.Controllers {
		if controller.Hooks {
			rules[controller.Name] = append(rules[controller.Name], lockRules(controller)...)
			if c.settling.on {
				rules[controller.Name] = append(rules[controller.Name], settleRules...)
			}
		}
	}
	if c.ordering.on {
		for _, controller := range c.config.Controllers {
			if controller.Hooks {
				rules[controller.Name] = append(rules[controller.Name], machine.OrderRules...)
			}
		}
		for _, name := range c.config.APIServers {
			rules[name] = append(rules[name], machine.ServerOrderRules...)
		}
	}
	if !c.machine.Ended() {
		for name, list := range c.config.Trace {
			rules[name] = append(rules[name], list...)
		}
	}
	for name, list := range c.own {
		// The plan's rules come first: if a hook does not know an object's whole type, it takes the rest from the first
		// rule that has it.
		rules[name] = slices.Concat(list, rules[name])
	}
	c.config.Monitor.SetRules(ctx, rules, c.freezer.now()...)
}

// step numbers and records an event, feeds it to the machine and carries out the effects.
func (c *Coordinator) step(ctx context.Context, e record.Event) {
	e = c.recording.event(e, c.clock.Now())
	// A crash-looping controller is not progress of the plan, nor is an observation that the plan has not asked for.
	if e.SessionEnd == nil && (e.Observation == nil || !e.Observation.Aside) {
		c.progress.last = e.Time
	}
	c.carryOut(ctx, c.machine.Step(e), cause(e))
	c.ordering.look()
}

// carryOut carries effects out; cause describes for the user what led to them.
func (c *Coordinator) carryOut(ctx context.Context, effects []machine.Effect, cause string) {
	for _, effect := range effects {
		switch effect := effect.(type) {
		case machine.StartTimer:
			c.startTimer(ctx, effect)
		case machine.Fire:
			c.fire(ctx, effect, cause)
		case machine.Release:
			c.release(effect)
		case machine.Hold:
			if e, ok := c.holds.event(effect.Seq); ok && !c.ordering.on {
				c.holds.show(effect.Seq, c.observation(e.Session, e.Observation), effect.Why)
			}
		case machine.Stale:
			c.config.Watcher.Info("stale read: " + effect.Read.String())
		case machine.Note:
			c.work.note(effect.Action, effect.Text)
		case machine.Pausing:
			// Synchronous, in the owner's goroutine: no event is judged before the new rules are in force.
			c.push(ctx)
			c.work.inForce(effect.Action)
		}
	}
	c.progress.showNext(c.machine, c.config.Watcher)
}

// release lets the caller of a held observation go on, or makes its call fail.
func (c *Coordinator) release(effect machine.Release) {
	e, ok := c.holds.event(effect.Seq)
	if !ok {
		return
	}
	if effect.Fail == nil {
		c.holds.release(effect.Seq, nil)
	} else {
		c.holds.release(effect.Seq, failure(effect.Fail, e.Observation))
		c.config.Watcher.Info(fmt.Sprintf("%s is made to fail: %s",
			machine.Describe(c.observation(e.Session, e.Observation)), effect.Fail))
	}
	c.holds.forget(effect.Seq)
}
