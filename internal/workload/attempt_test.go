package workload

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Regression: an API server that the plan had restarted used up most of a step's timeout while it came up, and the step
// failed although the controller was fast.
func TestStepHasItsTimeFromThePlansLastAction(t *testing.T) {
	for _, test := range []struct {
		name           string
		actions        []time.Duration // when they are complete
		ready          time.Duration
		goesOn         bool
		timedOut       bool
		took           time.Duration
		withoutThePlan bool
	}{
		{name: "in time", actions: []time.Duration{9 * time.Second}, ready: 8 * time.Second, took: 8 * time.Second},
		{name: "late, as the plan was", actions: []time.Duration{9 * time.Second}, ready: 15 * time.Second,
			took: 15 * time.Second},
		{
			name: "late, as two actions were", actions: []time.Duration{9 * time.Second, 18 * time.Second},
			ready: 25 * time.Second, took: 25 * time.Second,
		},
		{
			name: "too late all the same", actions: []time.Duration{9 * time.Second}, ready: time.Hour,
			timedOut: true, took: 19 * time.Second,
		},
		{name: "the plan did nothing", ready: 15 * time.Second, timedOut: true, took: 10 * time.Second},
		{name: "there is no plan", ready: 15 * time.Second, timedOut: true, took: 10 * time.Second,
			withoutThePlan: true},
		{
			name: "the workload goes on", actions: []time.Duration{9 * time.Second}, ready: 15 * time.Second,
			goesOn: true, timedOut: true, took: 10 * time.Second,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				r := &runner{Config: Config{Progress: func(string) {}}}
				if !test.withoutThePlan {
					r.Disturbed = func() (last time.Time) {
						for _, a := range test.actions {
							if time.Since(start) >= a {
								last = start.Add(a)
							}
						}
						return last
					}
				}
				timedOut, _, err := r.attempt(t.Context(),
					step{timeout: 10 * time.Second, goesOn: test.goesOn, do: func(ctx context.Context) error {
						select {
						case <-time.After(time.Until(start.Add(test.ready))):
							return nil
						case <-ctx.Done():
							return context.Cause(ctx)
						}
					}})
				if timedOut != test.timedOut || (err != nil) != test.timedOut ||
					err != nil && !errors.Is(err, errStepTimeout) {
					t.Errorf("timed out: %t, error %v", timedOut, err)
				}
				if took := time.Since(start); took != test.took {
					t.Errorf("took %s, want %s", took, test.took)
				}
			})
		})
	}
}

// The run's clock may move ahead of the machine's: the time of steps is of that clock.
func TestStepHasItsTimeByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, began := clock.New(), time.Now()
		r := &runner{Config: Config{Progress: func(string) {}, Suite: &plan.Suite{}}}
		sleep, err := r.prepare(&plan.Step{Sleep: 10 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		never := step{title: "step 2", what: "wait", timeout: time.Hour, do: func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}}
		var failed *facts.StepFailure
		done := make(chan error)
		go func() {
			var err error
			failed, err = r.run(clock.With(t.Context(), c), []step{sleep, never})
			done <- err
		}()
		for _, passes := range []time.Duration{10 * time.Hour, time.Hour} {
			synctest.Wait()
			if c.Held() {
				t.Error("a step that waits holds the clock")
			}
			c.Advance(passes)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		check(t, failed, "workload bug: step 2: wait: not within 1h0m0s")
		if at := failed.Time; !at.Equal(began.Add(11 * time.Hour)) {
			t.Errorf("found after %s", at.Sub(began))
		}
	})
}

// A program that is not a process of the cluster holds the clock.
func TestFunctionsAndCommandsHoldTheClock(t *testing.T) {
	c := clock.New()
	ctx := clock.With(t.Context(), c)
	called := false
	r := &runner{Config: Config{
		REST: &rest.Config{}, Suite: &plan.Suite{File: t.TempDir() + "/suite.yaml"}, Log: io.Discard,
		Progress: func(string) {},
		Functions: map[string]Function{"f": func(context.Context, *rest.Config) error {
			called = c.Held()
			return nil
		}},
	}}
	s, err := r.prepare(&plan.Step{Go: "f"})
	if err != nil {
		t.Fatal(err)
	}
	if failed, err := r.run(ctx, []step{s}); failed != nil || err != nil || !called || c.Held() {
		t.Errorf("a function: %+v, %v; held: %t, then %t", failed, err, called, c.Held())
	}
	pipe := filepath.Join(r.dir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- r.command([]string{"sh", "-c", "echo > pipe; read line < pipe"})(ctx) }()
	if _, err := os.ReadFile(pipe); err != nil || !c.Held() {
		t.Errorf("a command: %v; held: %t", err, c.Held())
	}
	if err := os.WriteFile(pipe, []byte("go on\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || c.Held() {
		t.Errorf("a command: %v; then held: %t", err, c.Held())
	}
	for _, why := range []string{"a Go function of the workload ran", "a command of the workload ran"} {
		if d, ok := c.Kept()[why]; !ok || d <= 0 {
			t.Errorf("%s: the clock was kept for %s", why, d)
		}
	}
}

// Regression: a step ended after its default timeout while the controller's next try was due a little later.
func TestStepWaitsForWhatIsPutOff(t *testing.T) {
	for _, test := range []struct {
		name     string
		tries    []time.Duration // when the controller tries again
		ready    time.Duration
		own      bool // the step has a timeout of its own
		timedOut bool
		took     time.Duration
	}{
		{name: "the next try", tries: []time.Duration{8, 30}, ready: 30, took: 30},
		{name: "later tries", tries: []time.Duration{8, 30, 70, 150}, ready: 150, took: 150},
		{name: "never", tries: []time.Duration{8, 30, 70, 150}, ready: 1000, timedOut: true, took: 152},
		{name: "not without end", tries: []time.Duration{8, 30, 70, 150, 310, 630, 1270}, ready: 1270, timedOut: true,
			took: 600},
		{name: "again and again", tries: []time.Duration{5, 10, 15, 20, 25, 30, 35}, ready: 35, timedOut: true,
			took: 17},
		{name: "nothing is to come", ready: 30, timedOut: true, took: 10},
		{name: "a timeout of its own", tries: []time.Duration{8, 30}, ready: 30, own: true, timedOut: true, took: 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				at := func(s time.Duration) time.Time { return start.Add(s * time.Second) }
				r := &runner{Config: Config{
					Progress: func(string) {}, Suite: &plan.Suite{Timeouts: plan.Timeouts{Rest: 10 * time.Minute}},
					Coming: func(context.Context) (due time.Time, delay time.Duration) {
						last := start
						for _, s := range test.tries {
							if at(s).After(time.Now()) {
								return at(s), at(s).Sub(last)
							}
							last = at(s)
						}
						return time.Time{}, 0
					},
				}}
				timedOut, _, err := r.attempt(t.Context(),
					step{timeout: 10 * time.Second, patient: !test.own, do: func(ctx context.Context) error {
						select {
						case <-time.After(time.Until(at(test.ready))):
							return nil
						case <-ctx.Done():
							return context.Cause(ctx)
						}
					}})
				if timedOut != test.timedOut || (err != nil) != test.timedOut {
					t.Errorf("timed out: %t, error %v", timedOut, err)
				}
				if took := time.Since(start); took != test.took*time.Second {
					t.Errorf("took %s, want %s", took, test.took*time.Second)
				}
			})
		})
	}
}

// Regression: a step that waits had the usual timeout for its own, so that it did not wait for a retry that came later.
func TestStepsThatArePatient(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trommel.yaml")
	if err := os.WriteFile(file, []byte(`workloads: {w: {steps: [
		{delete: {resourceKey: pod/default/a}},
		{wait: {resourceKey: pod/default/a, absent: true}},
		{wait: {resourceKey: pod/default/a, absent: true, timeout: 5s}},
		{exec: {command: [check]}}, # it may do something, and is not run again
		{sleep: 1s},
	]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	suite, err := plan.LoadSuite(file)
	if err != nil {
		t.Fatal(err)
	}
	var got []bool
	r := &runner{Config: Config{Suite: suite}}
	for i := range suite.Workloads["w"].Steps {
		got = append(got, r.isPatient(&suite.Workloads["w"].Steps[i]))
	}
	if want := []bool{true, true, false, false, false}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestStepLetsTheClockJump(t *testing.T) {
	p := plan.Step{AdvanceTime: 48 * time.Hour}
	var passed time.Duration
	r := &runner{Config: Config{Suite: &plan.Suite{}, Advance: func(_ context.Context, by time.Duration) error {
		passed += by
		return nil
	}}}
	s, err := r.prepare(&p)
	if err == nil {
		err = s.do(t.Context())
	}
	if err != nil || passed != 48*time.Hour {
		t.Errorf("%s passed, %v", passed, err)
	}
	r.Advance = nil
	if s, err = r.prepare(&p); err == nil {
		err = s.do(t.Context())
	}
	if !errors.Is(err, ErrRealTime) {
		t.Errorf("without a clock: %v", err)
	}
}

func TestStepThatUpgradesSaysSo(t *testing.T) {
	var got []record.Step
	r := &runner{Config: Config{
		Suite: &plan.Suite{}, Progress: func(string) {},
		Upgrade: func(context.Context, string) error { return nil },
		Step:    func(_, _ int, s record.Step) { got = append(got, s) },
	}}
	upgrades, err := r.prepare(&plan.Step{Upgrade: &plan.UpgradeStep{To: "v2"}})
	if err != nil {
		t.Fatal(err)
	}
	upgrades.title, upgrades.timeout = "step 2", time.Minute
	named := step{title: "step 1", name: "upgrade to db:2", what: "sleep 0s", timeout: time.Minute,
		do: func(context.Context) error { return nil }}
	if failed, err := r.run(t.Context(), []step{named, upgrades}); err != nil || failed != nil {
		t.Fatal(failed, err)
	}
	if want := []record.Step{
		{Text: "upgrade to db:2: sleep 0s"}, {Text: "upgrade to the build v2", Upgrade: "the build v2"},
	}; !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
