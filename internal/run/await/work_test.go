package await

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// putOff is a queue with one item, which comes back after the delays, one after the other; the last is repeated.
type putOff struct {
	delays []time.Duration
	works  time.Duration // how long it is then in work
	others []Later       // are always there

	mu        sync.Mutex // guards the rest
	due, done time.Time
	delay     time.Duration
	ended     bool
}

// start begins. When the item comes for the nth time, what adds has for n is created.
func (q *putOff) start(g *growing, adds map[int]string) {
	go func() {
		for n := 0; len(q.delays) > 0; n++ {
			delay := q.delays[min(n, len(q.delays)-1)]
			q.mu.Lock()
			if delay == 0 || q.ended {
				q.due = time.Time{}
				q.mu.Unlock()
				return
			}
			q.delay, q.due = delay, time.Now().Add(delay)
			q.mu.Unlock()
			time.Sleep(delay)
			q.mu.Lock()
			q.done = time.Now().Add(q.works)
			q.mu.Unlock()
			if name := adds[n+1]; name != "" {
				g.add(name)
			}
			time.Sleep(q.works)
		}
	}()
}

// end ends the queue, and waits until its goroutine has ended.
func (q *putOff) end() {
	q.mu.Lock()
	q.ended = true
	q.mu.Unlock()
	time.Sleep(time.Hour)
}

func (q *putOff) look(context.Context) Work {
	q.mu.Lock()
	defer q.mu.Unlock()
	if time.Now().Before(q.done) {
		return Work{Known: true, Busy: true}
	}
	if q.due.IsZero() {
		return Work{Known: true, Later: q.others}
	}
	return Work{Known: true, Later: append(slices.Clone(q.others), Later{QueueName{"c", "q"}, q.delay, q.delay, q.due})}
}

func TestRest(t *testing.T) {
	const s = time.Second
	often := Later{QueueName{"c", "q"}, 10 * s, 11 * s, time.Time{}}
	// synctest begins with this year
	other := Later{QueueName{"c", "other"}, 320 * s, 320 * s, time.Date(2000, 1, 1, 0, 0, 15, 0, time.UTC)}
	for _, tt := range []struct {
		name  string
		queue *putOff
		adds  map[int]string // what is created when the item comes for the nth time
		want  time.Duration
	}{
		{"nothing", &putOff{}, nil, 0},
		{"comes once", &putOff{delays: []time.Duration{30 * s, 0}}, nil, 32 * s},
		{"comes again and again", &putOff{delays: []time.Duration{30 * s}}, nil, 32 * s},
		{"takes its time", &putOff{delays: []time.Duration{30 * s, 0}, works: 5 * s}, nil, 35 * s},
		{"changes something", &putOff{delays: []time.Duration{30 * s, 0}}, map[int]string{1: "a"}, 32 * s},
		{"changes something, and comes again", &putOff{delays: []time.Duration{30 * s, 20 * s, 0}},
			map[int]string{1: "a"}, 52 * s},
		{"comes sooner and sooner", &putOff{delays: []time.Duration{40 * s, 20 * s, 10 * s, 0}}, nil, 72 * s},
		{"beside what comes often", &putOff{delays: []time.Duration{300 * s, 0}, others: []Later{often, other}}, nil,
			302 * s},
		{"grows", &putOff{delays: []time.Duration{10 * s, 20 * s, 40 * s, 0}}, nil, 72 * s},
		{"grows for ever", &putOff{delays: []time.Duration{10 * s, 20 * s, 40 * s, 80 * s, 160 * s, 320 * s, 640 * s}},
			nil, 600 * s},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				g := &growing{changed: make(chan struct{})}
				q := tt.queue
				q.start(g, tt.adds)
				synctest.Wait()
				limits := plan.Timeouts{Quiet: 2 * s, Rest: 10 * time.Minute}
				began := time.Now()
				rested, growing, err := Rest(ctx, g, q.look, limits)
				if err != nil {
					t.Fatal(err)
				}
				if got := time.Since(began); got != tt.want {
					t.Errorf("waited for %s, want %s", got, tt.want)
				}
				if forever := tt.want >= limits.Rest; rested == forever || (len(growing) == 1) != forever {
					t.Errorf("rested: %t, growing: %+v", rested, growing)
				}
				q.end()
			})
		})
	}
}

// A difference is judged when nothing is to come that could end it, and not before.
func TestBaselineWaitsForWork(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name  string
		queue *putOff
		adds  map[int]string
		want  time.Duration
	}{
		{"nothing is to come", &putOff{}, nil, 10 * s},
		{"it comes in the end", &putOff{delays: []time.Duration{300 * s, 0}}, map[int]string{1: "a"}, 300 * s},
		{"something else comes", &putOff{delays: []time.Duration{300 * s, 0}}, map[int]string{1: "b"}, 302 * s},
		{"too late", &putOff{delays: []time.Duration{300 * s, 400 * s, 0}}, map[int]string{1: "b", 2: "a"}, 600 * s},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &growing{changed: make(chan struct{})}
				q := tt.queue
				q.start(g, tt.adds)
				synctest.Wait()
				ref := &baseline.Baseline{Objects: map[facts.Key]*facts.Object{"secret/default/a": {
					End: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{
						"namespace": "default", "name": "a",
					}}, Made: 1, MostMade: 1,
				}}}
				limits := plan.Timeouts{Quiet: 2 * s, Step: time.Minute, Plan: 3 * time.Minute, Rest: 10 * time.Minute}
				began := time.Now()
				_, err := Baseline(t.Context(), ref, &plan.Plan{}, g, time.Time{}, began, q.look, nil, limits)
				if err != nil {
					t.Fatal(err)
				}
				if got := time.Since(began); got != tt.want {
					t.Errorf("waited for %s, want %s", got, tt.want)
				}
				q.end()
			})
		})
	}
}

// A controller that always works does not hold up a run whose clock it keeps from moving ahead.
func TestRestOfABusyController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := clock.With(t.Context(), clock.New())
		g := &growing{changed: make(chan struct{})}
		limits := plan.Timeouts{Quiet: 2 * time.Second, Rest: 10 * time.Minute}
		began := time.Now()
		busy := func(context.Context) Work { return Work{Known: true, Busy: true} }
		if rested, growing, err := Rest(ctx, g, busy, limits); err != nil || rested || growing != nil {
			t.Fatalf("%t, %v, %v", rested, growing, err)
		}
		if took := time.Since(began); took < mostReal || took > mostReal+time.Second {
			t.Errorf("waited for %s", took)
		}
	})
}

// A controller that takes items without end is not waited for as long, unless there is enough to look at.
func TestRestOfASpinningController(t *testing.T) {
	for objects, want := range map[int]time.Duration{1: watched, 200: 43 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			ctx := clock.With(t.Context(), clock.New())
			g := &growing{changed: make(chan struct{})}
			for range objects {
				g.add("a")
			}
			limits := plan.Timeouts{Quiet: 2 * time.Second, Rest: 10 * time.Minute}
			began := time.Now()
			busy := func(context.Context) Work {
				return Work{Known: true, Busy: true, Queues: []Queue{
					{QueueName{"c", "q"}, true, uint64(time.Since(began) / (10 * time.Millisecond))},
				}}
			}
			if rested, _, err := Rest(ctx, g, busy, limits); err != nil || rested {
				t.Fatalf("%t, %v", rested, err)
			}
			if took := time.Since(began); took < want-time.Second || took > want+time.Second {
				t.Errorf("%d objects: waited for %s, want %s", objects, took, want)
			}
		})
	}
}

// Queues are restless only if they go on and on.
func TestWatch(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	name := QueueName{"c", "q"}
	for _, tt := range []struct {
		what string
		look func(after time.Duration) Work
		took time.Duration
		want []record.Unrest
	}{
		{"nobody can tell", func(time.Duration) Work { return Work{Queues: []Queue{{name, true, 1}}} }, 0, nil},
		{"idle", func(time.Duration) Work { return Work{Known: true, Queues: []Queue{{name, false, 1}}} }, 0, nil},
		{"always busy", func(after time.Duration) Work {
			return Work{Known: true, Queues: []Queue{{name, false, 7}, {name, true, 5 + uint64(after/ms)}}}
		}, 10 * s, []record.Unrest{{Controller: "c", Queue: "q", Taken: 10000, Span: 10 * s}}},
		{"put off", func(after time.Duration) Work {
			return Work{Known: true, Queues: []Queue{{name, false, uint64(after / (10 * ms))}},
				Later: []Later{{Queue: name, Shortest: 10 * ms}, {Queue: name, Shortest: 20 * ms}}}
		}, 10 * s, []record.Unrest{{Controller: "c", Queue: "q", Taken: 1000, Span: 10 * s, Delay: 10 * ms}}},
		{"put off for longer and longer", func(after time.Duration) Work {
			return Work{Known: true, Queues: []Queue{{name, false, uint64(after / (10 * ms))}},
				Later: []Later{{Queue: name, Shortest: max(after/2, ms)}}}
		}, 2500 * ms, nil},
		{"takes its time", func(time.Duration) Work {
			return Work{Known: true, Queues: []Queue{{name, true, 5}}}
		}, 1250 * ms, nil},
		{"comes to an end", func(after time.Duration) Work {
			return Work{Known: true, Queues: []Queue{{name, after < 9*s, uint64(after / ms)}}}
		}, 10 * s, nil},
	} {
		t.Run(tt.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &growing{changed: make(chan struct{})}
				began := time.Now()
				look := func(context.Context) Work { return tt.look(time.Since(began)) }
				got, err := Watch(t.Context(), g, look)
				if err != nil || !slices.Equal(got, tt.want) {
					t.Errorf("%+v, %v, want %+v", got, err, tt.want)
				}
				if took := time.Since(began); took != tt.took {
					t.Errorf("took %s, want %s", took, tt.took)
				}
			})
		})
	}
}

// What differs and always changes is judged in the end, too.
func TestBaselineOfWhatAlwaysChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &growing{changed: make(chan struct{})}
		for at, name := range often("b", 20*time.Minute) {
			time.AfterFunc(at, func() { g.add(name) })
		}
		ref := &baseline.Baseline{Objects: map[facts.Key]*facts.Object{"secret/default/a": {
			End: map[string]any{"kind": "Secret"}, Made: 1, MostMade: 1,
		}}}
		limits := plan.Timeouts{Quiet: 2 * time.Second, Step: time.Minute, Plan: 3 * time.Minute,
			Rest: 10 * time.Minute}
		idle := func(context.Context) Work { return Work{Known: true} }
		began := time.Now()
		if _, err := Baseline(t.Context(), ref, &plan.Plan{}, g, time.Time{}, began, idle, nil, limits); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < limits.Rest || took > limits.Rest+time.Minute {
			t.Errorf("waited for %s", took)
		}
	})
}
