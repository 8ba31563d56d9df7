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
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
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
	// Busy reports whether something is in the controllers' work queues. It is called concurrently. Nil: nobody knows.
	Busy func(ctx context.Context) bool
	// Watchdog is how long nothing may happen while something is held or paused, before the Watcher is told who waits
	// for whom. Zero: 10s, or half of Hold if that is shorter.
	Watchdog time.Duration
	Recorder Recorder
	Watcher  Watcher
	Logger   *slog.Logger
}

// Coordinator carries out one plan.
type Coordinator struct {
	config   Config
	machine  *machine.Machine
	actions  []actions.Action
	findings []record.Finding

	commands  chan func(context.Context)
	stopped   chan struct{} // closed when Run returns
	enriched  chan arrival
	timeouts  chan record.Timeout
	completed chan completion
	lapsed    chan int // lasting actions whose effect has ended
	expired   chan int

	// Owned by the goroutine of Run.
	clock     *clock.Clock // of its context
	seq       int
	began     bool // the plan has begun: events are judged and recorded
	early     bool // the plan has begun before its workload: its timeouts do not run yet
	waiting   []machine.StartTimer
	holds     map[int]*held
	switching map[int]chan struct{}      // by action: closed when its pause or resume is in force
	before    map[call]Foresight         // of the writes in progress
	gone      map[*wire.Observation]bool // observations whose callers went on before they were looked up
	elections elections
	freezer   freezer
	own       map[string][]wire.Rule // what the plan itself asks processes to report, by identity
	fires     map[int]*record.Action
	sessions  map[string]*sessions // by identity
	settling  settling
	wake      []chan struct{}
	last      time.Time // of the newest event of the plan
	told      string    // the newest message about who waits for whom, without times
	shown     int       // the machine.wants that the Watcher was told last
	work      work
	err       error

	running sync.WaitGroup // actions and lookups
}

type held struct {
	event monitor.Event
	timer *clock.Timer
	by    string
	told  bool // the Watcher knows about it
}

// arrival is an observation and what was looked up for it.
type arrival struct {
	event    monitor.Event
	foreseen *Foresight // of an observation before a write
	state    []byte     // of the object after a write whose answer lacks it
	err      error
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
		commands:  make(chan func(context.Context)),
		stopped:   make(chan struct{}),
		enriched:  make(chan arrival),
		timeouts:  make(chan record.Timeout),
		completed: make(chan completion),
		lapsed:    make(chan int),
		expired:   make(chan int),
		holds:     map[int]*held{},
		switching: map[int]chan struct{}{},
		before:    map[call]Foresight{},
		gone:      map[*wire.Observation]bool{},
		elections: newElections(),
		freezer:   newFreezer(),
		settling:  settling{active: map[string]time.Time{}},
		fires:     map[int]*record.Action{},
		sessions:  map[string]*sessions{},
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
	defer c.running.Wait()
	defer close(c.stopped)
	c.clock = clock.Of(ctx)
	c.work.open(ctx)
	c.push(ctx)
	watchdog := c.clock.NewTimer(c.config.Watchdog)
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
		case action := <-c.lapsed:
			c.lapse(ctx, action)
		case seq := <-c.expired:
			c.expire(ctx, seq)
		case f := <-c.commands:
			f(ctx)
		}
	}
}

// watch reports who waits for whom if nothing has happened for the watchdog's time, once for each situation. It returns
// when to check again.
func (c *Coordinator) watch(now time.Time) time.Duration {
	if quiet := now.Sub(c.last); c.began && quiet < c.config.Watchdog {
		return c.config.Watchdog - quiet
	}
	if state := c.stuck(time.Time{}); c.began && state != "" && state != c.told {
		c.told = state
		text := c.stuck(now)
		c.config.Logger.Info("waiting", "chain", text)
		c.config.Watcher.Waiting(text)
	}
	return c.config.Watchdog
}

func (c *Coordinator) stuck(now time.Time) string {
	return c.machine.Stuck(now, func(identity string) bool { return c.of(identity).connected() })
}

// errStopped is returned after Run has ended.
var errStopped = errors.New("the coordinator has stopped")

// do runs f in the owner's goroutine and waits for it. Work that f starts must use the context of Run, which f
// receives, and not the caller's.
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

// Begin starts the plan: it enables the first action's trigger. Actions with trigger type none are complete when it
// returns, unless they are asynchronous or have a waitBefore: a plan that begins with a pause begins paused.
func (c *Coordinator) Begin(ctx context.Context) error {
	if err := c.do(ctx, func(ctx context.Context) {
		c.began = true
		c.last = c.clock.Now()
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
	return c.until(ctx, func() bool { return !c.machine.AtOnce() })
}

// BeginEarly is Begin for a workload that begins later, with the function that it returns: only from then on the plan's
// timeouts run.
func (c *Coordinator) BeginEarly(ctx context.Context) (workload func(ctx context.Context) error, err error) {
	if err := c.do(ctx, func(context.Context) { c.early = true }); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		return c.do(ctx, func(ctx context.Context) {
			c.early = false
			for _, timer := range c.waiting {
				c.startTimer(ctx, timer)
			}
			c.waiting = nil
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
}

// Status returns the progress of the plan.
func (c *Coordinator) Status(ctx context.Context) (Status, error) {
	var s Status
	err := c.do(ctx, func(context.Context) {
		s = Status{
			Fired: c.machine.Fired(), Completed: c.work.completed, Total: len(c.config.Plan.Actions),
			Waiting: c.machine.Waiting(), Awaited: c.machine.Awaited(),
			OnItsWay:  c.machine.WaitsForTimer() || c.takingOver(c.clock.Now()) || c.work.jumps(),
			LastEvent: c.last, Now: c.clock.Now(),
			Findings:   append([]record.Finding(nil), c.findings...),
			StaleReads: c.machine.StaleReads(), NoneStale: c.machine.NoneStale(), Stuck: c.stuck(c.clock.Now()),
			NoneFailed: c.machine.NoneFailed(),
			Down:       c.machine.AllDown(), Electing: c.allElecting(), Lasting: c.lasting(),
		}
	})
	return s, err
}

// Changed returns a channel that is closed at the next event after the call: a session begins or ends, an action fires
// or completes.
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

// push tells the processes what to report.
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

// aside reports whether the plan itself has not asked for the observation.
func (c *Coordinator) aside(s *monitor.Session, o *wire.Observation) bool {
	return !slices.ContainsFunc(c.own[s.Identity], func(r wire.Rule) bool { return r.Takes(o) })
}

func (c *Coordinator) monitored(ctx context.Context, e monitor.Event) {
	c.unobserved(e)
	if e.Observation != nil && e.Abandoned == nil {
		election := c.elections.about(e.Session.Identity, e.Observation)
		if election {
			c.elections.note(e.Session, e.Observation)
		}
		c.settling.note(e.Session.Identity, election || c.elections.delivers(e.Observation), c.clock.Now())
	}
	switch {
	case e.Started:
		c.settling.active[e.Session.Identity] = c.clock.Now()
		c.of(e.Session.Identity).begin(e.Session.ID)
		c.changed()
	case e.Abandoned != nil:
		c.abandoned(ctx, e)
	case e.Trouble != nil:
		c.troubled(e)
	case e.Missed != nil, e.Silent > 0:
	case e.Ended:
		c.of(e.Session.Identity).end(e.Session.ID)
		c.elections.forget(e.Session)
		for id := range c.before {
			if id.session == e.Session.ID {
				delete(c.before, id)
			}
		}
		c.drop(e.Session)
		if c.began {
			c.step(ctx, record.Event{SessionEnd: &record.SessionEnd{By: e.Session.Identity, Session: e.Session.ID}})
			c.iced(ctx, e.Session)
		}
		c.changed()
	case c.began && needsForesight(e.Observation) && !c.aside(e.Session, e.Observation):
		c.enrich(ctx, func() arrival {
			foreseen, err := c.config.Lookup.Foresee(ctx, e.Session.Identity, e.Observation)
			return arrival{event: e, foreseen: &foreseen, err: err}
		})
	case c.began && needsState(e.Observation) && !c.aside(e.Session, e.Observation):
		c.enrich(ctx, func() arrival {
			state, err := c.config.Lookup.State(ctx, e.Session.Identity, e.Observation)
			return arrival{event: e, state: state, err: err}
		})
	default:
		c.arrived(ctx, arrival{event: e})
	}
}

// troubled adds a finding about a hook that has failed, one for each kind of failure in each process.
func (c *Coordinator) troubled(e monitor.Event) {
	f := record.Finding{
		Severity: record.SeverityInconclusive, Judge: record.JudgeHook, Subject: e.Session.Identity,
		Time: c.clock.Now(), Title: fmt.Sprintf("a hook in %s failed: %s", e.Session.Identity, e.Trouble.Text),
		Detail: "This is a bug in Trommel, not in the controller; please report it. The process went on, and what " +
			"the hook should have reported was not observed.\n" + e.Trouble.Stack,
	}
	if !slices.ContainsFunc(c.findings, func(have record.Finding) bool { return have.Title == f.Title }) {
		c.findings = append(c.findings, f)
	}
}

// drop ends the holds of a session that has ended and reports the oldest.
func (c *Coordinator) drop(s *monitor.Session) {
	var dropped []int
	for seq, h := range c.holds {
		if h.event.Session == s {
			h.timer.Stop()
			dropped = append(dropped, seq)
		}
	}
	if len(dropped) == 0 {
		return
	}
	o := c.holds[slices.Min(dropped)].event.Observation
	for _, seq := range dropped {
		c.forget(seq)
	}
	if !c.began || c.machine.Down(s.Identity) {
		return
	}
	what := machine.DescribeHeld(c.observation(s, o))
	if more := len(dropped) - 1; more > 0 {
		what += fmt.Sprintf(" (and %d more)", more)
	}
	c.config.Watcher.Info(what + " is no longer held: its process has exited")
}

// unobserved adds a finding if an event shows that the run is not what its plan describes: the monitor has cut a
// process off, a process did not answer, or its hook stopped waiting for the coordinator. There is one for each cause
// in each process.
func (c *Coordinator) unobserved(e monitor.Event) {
	if !c.began {
		return
	}
	var title, detail string
	switch name := e.Session.Identity; {
	case e.Lost != "":
		title = fmt.Sprintf("%s was cut off: %s", name, e.Lost)
		detail = "All its holds were released, and what it did until it reconnected was not observed."
	case e.Silent > 0 && c.freezer.explains(e, time.Now()):
		return
	case e.Silent > 0:
		title = fmt.Sprintf("%s did not answer for %s", name, e.Silent)
		detail = "The process was running but did nothing, as if it were stopped: what it should have done cannot " +
			"be judged."
	case e.Missed != nil:
		title = fmt.Sprintf("%s was not observed for a time: %s", name, e.Missed.Why)
		detail = "The hook let the process go on, so that a hung coordinator does not block it."
	case e.Abandoned != nil && e.Abandoned.LetGo:
		title = fmt.Sprintf("%s was released by its hook: %s", name, e.Abandoned.Error)
		detail = "It was held at " + machine.Describe(c.observation(e.Session, e.Observation)) + "."
	default:
		return
	}
	if !slices.ContainsFunc(c.findings, func(have record.Finding) bool { return have.Title == title }) {
		c.findings = append(c.findings, record.Finding{
			Severity: record.SeverityInconclusive, Judge: record.JudgeSession, Subject: e.Session.Identity,
			Time: c.clock.Now(), Title: title,
			Detail: detail + " From here on the run is not what the plan describes.",
		})
	}
}

// abandoned handles that the caller of a held observation has gone on because its context ended.
func (c *Coordinator) abandoned(ctx context.Context, e monitor.Event) {
	for seq, h := range c.holds {
		if h.event.Observation != e.Observation {
			continue
		}
		o := c.observation(h.event.Session, h.event.Observation)
		who := "its caller gave up"
		if e.Abandoned.LetGo {
			who = "its hook released it"
		}
		c.config.Watcher.Info(fmt.Sprintf("%s is no longer held: %s (%s)", machine.DescribeHeld(o), who,
			e.Abandoned.Error))
		c.step(ctx, record.Event{Abandoned: &seq})
		return
	}
	// Its lookup is still running; it will be released as soon as it arrives.
	if c.began {
		c.gone[e.Observation] = true
	}
}

func (c *Coordinator) arrived(ctx context.Context, a arrival) {
	o := a.event.Observation
	if !c.began {
		a.event.Release()
		return
	}
	if a.err != nil {
		c.config.Logger.Warn("lookup for a write failed", "object", o.Namespace+"/"+o.Name, "operation", o.Operation,
			"error", a.err)
	}
	live := !c.of(a.event.Session.Identity).hasEnded(a.event.Session.ID)
	if o.Point == wire.ControllerWrite {
		c.fillIn(a, live)
	}
	r := c.observation(a.event.Session, o)
	r.Aside = c.aside(a.event.Session, o)
	r.Election = c.elections.about(r.By, o)
	seq := c.seq + 1
	c.holds[seq] = &held{event: a.event, by: a.event.Session.Identity, timer: c.clock.AfterFunc(c.config.Hold, func() {
		select {
		case c.expired <- seq:
		case <-ctx.Done():
		}
	})}
	c.step(ctx, record.Event{Observation: r})
	// During the lookup its caller may have gone on, or its process died: there is nothing to hold.
	abandoned := c.gone[o] || !live
	delete(c.gone, o)
	if abandoned && c.holds[seq] != nil {
		c.step(ctx, record.Event{Abandoned: &seq})
	}
}

// observation is recordObservation, with the cluster.
func (c *Coordinator) observation(s *monitor.Session, o *wire.Observation) *record.Observation {
	r := recordObservation(s, o)
	if c.config.ClusterOf != nil {
		r.Cluster = c.config.ClusterOf(s.Identity, o)
	}
	return r
}

func recordObservation(s *monitor.Session, o *wire.Observation) *record.Observation {
	return &record.Observation{
		By: s.Identity, Session: s.ID, Call: o.Call, Point: o.Point, Phase: o.Phase, Op: o.Operation,
		Group: o.Group, GroupKnown: o.GroupKnown, Resource: o.Resource, Kind: o.Kind, Namespace: o.Namespace,
		Name: o.Name, Subresource: o.Subresource, Object: validJSON(o.Object), OldObject: validJSON(o.OldObject),
		Live: o.Live, Reconciler: o.Reconciler, ReconcilerType: o.ReconcilerType, ReconcileID: o.ReconcileID,
		Request: o.Request, CallName: o.CallName, Error: o.Error, Code: o.Code, Failed: o.Failed,
		Version: o.Version, Query: o.Query, PatchType: o.PatchType, Patch: validJSON(o.Patch),
		Objects: validList(o.Objects), Partial: o.Partial,
	}
}

func validList(list [][]byte) []json.RawMessage {
	var valid []json.RawMessage
	for _, data := range list {
		if v := validJSON(data); v != nil {
			valid = append(valid, v)
		}
	}
	return valid
}

// validJSON drops invalid JSON (a process may send anything), so that the record can be written.
func validJSON(data []byte) json.RawMessage {
	if len(data) == 0 || !json.Valid(data) {
		return nil
	}
	return data
}

// step numbers and records an event, feeds it to the machine and carries out the effects.
func (c *Coordinator) step(ctx context.Context, e record.Event) {
	c.seq++
	e.Seq = c.seq
	e.Time = c.clock.Now()
	// A crash-looping controller is not progress of the plan, nor is an observation that the plan has not asked for.
	if e.SessionEnd == nil && (e.Observation == nil || !e.Observation.Aside) {
		c.last = e.Time
	}
	if err := c.config.Recorder.Event(e); err != nil && c.err == nil {
		c.err = err
	}
	c.carryOut(ctx, c.machine.Step(e), cause(e))
}

// cause describes the event, as the cause of an action that it fired.
func cause(e record.Event) string {
	switch {
	case e.Observation != nil:
		return machine.Describe(e.Observation)
	case e.Timeout != nil:
		return "a timeout"
	case e.Began != nil:
		return fmt.Sprintf("the beginning of action %d", *e.Began+1)
	case e.Completed != nil:
		return fmt.Sprintf("the completion of action %d", *e.Completed+1)
	}
	return fmt.Sprintf("event %d", e.Seq)
}

// note adds a remark about an action that is not an error, such as that it changed nothing. The action has fired and is
// not complete.
func (c *Coordinator) note(action int, text string) {
	r := c.fires[action]
	if r.Note != "" {
		text = r.Note + "; " + text
	}
	r.Note = text
}

func (c *Coordinator) startTimer(ctx context.Context, t machine.StartTimer) {
	if c.early {
		c.waiting = append(c.waiting, t)
		return
	}
	condition := c.machine.Condition(t.Action, t.Node)
	c.clock.AfterFunc(condition.Timeout, func() {
		c.awaitIdle(ctx, condition.Extend)
		select {
		case c.timeouts <- record.Timeout{Action: t.Action, Node: t.Node}:
		case <-ctx.Done():
		}
	})
}

// carryOut carries effects out; cause tells the user what led to them.
func (c *Coordinator) carryOut(ctx context.Context, effects []machine.Effect, cause string) {
	for _, effect := range effects {
		switch effect := effect.(type) {
		case machine.StartTimer:
			c.startTimer(ctx, effect)
		case machine.Fire:
			c.fire(ctx, effect, cause)
		case machine.Release:
			if h := c.holds[effect.Seq]; h != nil {
				h.timer.Stop()
				if effect.Fail == nil {
					h.event.Release()
				} else {
					h.event.ReleaseToFail(failure(effect.Fail, h.event.Observation))
					c.config.Watcher.Info(fmt.Sprintf("%s is made to fail: %s",
						machine.Describe(c.observation(h.event.Session, h.event.Observation)), effect.Fail))
				}
				c.forget(effect.Seq)
			}
		case machine.Hold:
			if h := c.holds[effect.Seq]; h != nil {
				h.told = true
				c.config.Watcher.Held(effect.Seq, c.observation(h.event.Session, h.event.Observation), effect.Why)
			}
		case machine.Stale:
			c.config.Watcher.Info("stale read: " + effect.Read.String())
		case machine.Note:
			c.note(effect.Action, effect.Text)
		case machine.Pausing:
			// Synchronous, in the owner's goroutine: no event is judged before the new rules are in force.
			c.push(ctx)
			if ready := c.switching[effect.Action]; ready != nil {
				close(ready)
				delete(c.switching, effect.Action)
			}
		}
	}
	c.showNext()
}

func (c *Coordinator) expire(ctx context.Context, seq int) {
	h := c.holds[seq]
	if h == nil {
		return
	}
	o := c.observation(h.event.Session, h.event.Observation)
	stuck := c.stuck(c.clock.Now())
	if stuck != "" {
		stuck += "\n"
	}
	c.findings = append(c.findings, record.Finding{
		Severity: record.SeverityInconclusive, Judge: record.JudgeHold, Subject: h.by, Time: c.clock.Now(),
		Title: fmt.Sprintf("%s was held for %s and then released: %s", h.by, c.config.Hold, machine.Describe(o)),
		Detail: stuck +
			"A pause outlasted the suite's timeouts.hold, or an action did not complete. From here on the run is " +
			"not what the plan describes.",
	})
	c.step(ctx, record.Event{Expired: &seq})
}

// finish releases everything at the end of Run, whatever the machine's state.
func (c *Coordinator) finish() {
	for seq, h := range c.holds {
		h.timer.Stop()
		h.event.Release()
		c.forget(seq)
	}
}

// forget ends a hold of the coordinator, whose process goes on or has exited.
func (c *Coordinator) forget(seq int) {
	if h := c.holds[seq]; h != nil && h.told {
		c.config.Watcher.Released(seq)
	}
	delete(c.holds, seq)
}

// showNext tells the Watcher what the plan waits for, if that has changed.
func (c *Coordinator) showNext() {
	if n := c.machine.Wants(); n != c.shown {
		c.shown = n
		c.config.Watcher.Next(c.machine.Next())
	}
}
