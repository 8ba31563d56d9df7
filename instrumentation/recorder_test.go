package instrumentation_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/coordinator/monitor"
	"github.com/trommel-dev/trommel/instrumentation/wire"
)

// recorder releases every observation except those that a test holds.
type recorder struct {
	t       *testing.T // see during
	monitor *monitor.Monitor
	changed chan struct{}
	rules   map[string][]wire.Rule

	mu       sync.Mutex
	all      []monitor.Event
	sessions map[string]*monitor.Session
	hold     func(*wire.Observation) bool
	holdBy   string // the process whose observations are held; empty: all
	held     []monitor.Event
}

func record(t *testing.T, address, token string) *recorder {
	m, err := monitor.Listen(monitor.Config{Address: address, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{t: t, monitor: m, sessions: map[string]*monitor.Session{}, changed: make(chan struct{}, 1)}
	t.Cleanup(hear(m, r.take))
	return r
}

// hear calls take with the monitor's events, one after the other, until end is called, which closes the monitor.
func hear(m *monitor.Monitor, take func(monitor.Event)) (end func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case e := <-m.Events():
				take(e)
			case <-stop:
				return
			}
		}
	}()
	return func() {
		_ = m.Close()
		close(stop)
		<-done
	}
}

// during makes a subtest the one that fails, until it ends.
func (r *recorder) during(t *testing.T) {
	before := r.t
	set := func(t *testing.T) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.t = t
	}
	set(t)
	t.Cleanup(func() { set(before) })
}

func (r *recorder) setRules(ctx context.Context, rules map[string][]wire.Rule) {
	r.rules = rules
	r.monitor.SetRules(ctx, rules)
}

// chance gives all processes that are not held the time to go on and to be observed, before a test concludes that none
// did. It is measured in answers of the processes, so that a loaded machine, which is slow to run them, gives them
// longer.
func (r *recorder) chance(ctx context.Context) {
	for range 5 {
		time.Sleep(20 * time.Millisecond)
		r.monitor.SetRules(ctx, r.rules) // returns when they have answered
	}
}

func (r *recorder) take(e monitor.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case e.Started:
		r.sessions[e.Session.Identity] = e.Session
	case e.Ended:
		delete(r.sessions, e.Session.Identity)
	case e.Trouble != nil:
		r.t.Errorf("a hook in %s failed: %s\n%s", e.Session.Identity, e.Trouble.Text, e.Trouble.Stack)
	case e.Abandoned != nil:
	default:
		r.all = append(r.all, e)
		if o := e.Observation; (o.Point == wire.ControllerWrite || o.Live) && o.Server == "" {
			r.t.Errorf("%s: %s of %s %s/%s does not tell the server", e.Session.Identity, o.Operation, o.Resource,
				o.Namespace, o.Name)
		}
		if r.hold != nil && (r.holdBy == "" || r.holdBy == e.Session.Identity) && r.hold(e.Observation) {
			r.held = append(r.held, e)
		} else {
			e.Release()
		}
	}
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// wait returns when the condition is true. The condition is called under the lock.
func (r *recorder) wait(what string, condition func() bool) {
	r.t.Helper()
	timeout := time.After(2 * time.Minute)
	for {
		r.mu.Lock()
		ok := condition()
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-r.changed:
		case <-time.After(20 * time.Millisecond):
		case <-timeout:
			r.mu.Lock()
			for _, e := range r.all {
				r.t.Log(describe(e))
			}
			r.mu.Unlock()
			r.t.Fatalf("not within two minutes: %s", what)
		}
	}
}

func (r *recorder) holding(f func(*wire.Observation) bool) { r.holdingOf("", f) }

// holdingOf holds observations of one process only.
func (r *recorder) holdingOf(by string, f func(*wire.Observation) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hold, r.holdBy = f, by
}

// release releases all held observations and holds no more.
func (r *recorder) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hold = nil
	for _, e := range r.held {
		e.Release()
	}
	r.held = nil
}

// length returns the number of observations so far.
func (r *recorder) length() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}

// observed returns the first observation that matches; nil: there was none.
func (r *recorder) observed(by string, match func(*wire.Observation) bool) *wire.Observation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.find(by, match)
}

// find is called under the lock.
func (r *recorder) find(by string, match func(*wire.Observation) bool) *wire.Observation {
	for _, e := range r.all {
		if e.Session.Identity == by && match(e.Observation) {
			return e.Observation
		}
	}
	return nil
}

func describe(e monitor.Event) string {
	o := e.Observation
	return fmt.Sprintf("%s #%d %s %s %s kind=%s resource=%s group=%q/%t %s/%s sub=%s live=%t reconciler=%s (%s) "+
		"request=%s id=%s call=%s err=%s code=%d object=%.60s old=%.60s",
		e.Session.Identity, o.Call, o.Phase, o.Point, o.Operation, o.Kind, o.Resource, o.Group, o.GroupKnown,
		o.Namespace, o.Name, o.Subresource, o.Live,
		o.Reconciler, o.ReconcilerType, o.Request, o.ReconcileID, o.CallName, o.Error, o.Code, o.Object, o.OldObject)
}

func bothPhases(r wire.Rule) []wire.Rule {
	before, after := r, r
	before.Phase, after.Phase = wire.Before, wire.After
	return []wire.Rule{before, after}
}

type syncBuffer struct {
	mu sync.Mutex
	b  []byte
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.b = append(s.b, p...)
	return len(p), nil
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.b)
}
