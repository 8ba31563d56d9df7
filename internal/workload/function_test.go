package workload

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	goruntime "runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/judge"
	"github.com/trommel-dev/trommel/plan"
)

// until returns a function that does something after a time, or returns when its context ends.
func until(d time.Duration, do func() error) Function {
	return func(ctx context.Context, _ *rest.Config) error {
		select {
		case <-time.After(d):
			return do()
		case <-ctx.Done():
			return fmt.Errorf("it is not ready: %w", ctx.Err())
		}
	}
}

// How a function that fails is judged. Nothing that the plan or the test did may be a bug of the controllers.
func TestFunction(t *testing.T) {
	nothing := func() error { return nil }
	fails := func(err error) func() error { return func() error { return err } }
	configMaps := schema.GroupResource{Resource: "configmaps"}
	for _, tt := range []struct {
		name    string
		call    Function
		actions []time.Duration // of the plan: when they are complete
		blocked string          // what the plan blocks until it is undone
		want    string          // judge and severity of the finding, and what its text contains; empty: none
		err     string          // that the workload could not be run
		took    time.Duration
	}{
		{name: "succeeds", call: until(time.Second, nothing), took: time.Second},
		{name: "fails", call: until(time.Second, fails(errors.New("two are ready"))),
			want: "workload bug: step 1: call f: two are ready", took: time.Second},
		{name: "times out", call: until(time.Hour, nothing),
			want: "workload bug: step 1: call f: not within 10s: it is not ready: context canceled",
			took: 10 * time.Second},
		{name: "succeeds late, as the plan was", call: until(15*time.Second, nothing),
			actions: []time.Duration{9 * time.Second}, took: 15 * time.Second},
		{name: "too late all the same", call: until(time.Hour, nothing), actions: []time.Duration{9 * time.Second},
			want: "workload bug: not within 10s", took: 19 * time.Second},
		{name: "its own limit", call: until(5*time.Second, fails(context.DeadlineExceeded)),
			actions: []time.Duration{3 * time.Second},
			want:    "workload bug: it gave up by itself, 2s after the plan's last action", took: 5 * time.Second},
		{name: "the plan was the cause", call: until(15*time.Second, nothing), blocked: "it is paused",
			want: "hold inconclusive: the plan was the cause", took: 15 * time.Second},
		{name: "the plan was not the cause", call: until(time.Hour, nothing), blocked: "it is paused",
			want: "workload bug: the plan's holds, pauses and kills were undone: it is paused", took: 20 * time.Second},
		{name: "gives up while the plan blocks something", call: until(time.Second, fails(errors.New("not ready"))),
			blocked: "it is paused", want: "run inconclusive: did not wait until its context ended: it is paused",
			took: time.Second},
		{name: "conflict", call: until(time.Second, fails(apierrors.NewConflict(configMaps, "a", nil))),
			want: "run inconclusive: retry.RetryOnConflict", took: time.Second},
		{name: "no API server", call: until(time.Second, fails(apierrors.NewServiceUnavailable("etcd"))),
			want: "run inconclusive: could not serve the function's last request", took: time.Second},
		{name: "no API server, and nobody says so", call: func(_ context.Context, c *rest.Config) error {
			request, err := http.NewRequest(http.MethodGet, "http://x", nil)
			if err != nil {
				return err
			}
			_, _ = c.WrapTransport(roundTripper(func(*http.Request) (*http.Response, error) {
				return nil, errors.New("broken")
			})).RoundTrip(request)
			return errors.New("the list is empty")
		}, want: "run inconclusive: could not serve the function's last request"},
		{name: "webhook", call: until(time.Second, fails(apierrors.NewInternalError(
			errors.New(`failed calling webhook "a": no`)))),
			want: "webhook inconclusive: the plan has killed it", took: time.Second},
		{name: "panics", call: until(time.Second, func() error { panic("oops") }), err: "f panicked: oops\n",
			took: time.Second},
		{name: "ends its goroutine", call: until(0, func() error { goruntime.Goexit(); return nil }),
			err: "f has ended its goroutine: it must return an error"},
		{name: "does not return", call: func(context.Context, *rest.Config) error {
			time.Sleep(time.Minute)
			return nil
		}, err: "f did not return within 10s after its context had ended", took: 20 * time.Second},
		{name: "a type that is not registered", call: until(time.Second,
			fails(runtime.NewNotRegisteredErrForType("scheme", nil))), err: "f uses a type that is not there",
			took: time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, blocked := time.Now(), tt.blocked
				r := &runner{Config: Config{
					REST: &rest.Config{}, Functions: map[string]Function{"f": tt.call}, Suite: &plan.Suite{},
					Progress: func(string) {},
					Disturbed: func() (last time.Time) {
						for _, a := range tt.actions {
							if time.Since(start) >= a {
								last = start.Add(a)
							}
						}
						return last
					},
					Blocked: func(context.Context) string { return blocked },
					LetGo:   func(context.Context) error { blocked = ""; return nil },
					Outage: func(context.Context, time.Time, error) Outage {
						return Outage{Reason: "the plan has killed it"}
					},
				}}
				s, err := r.prepare(&plan.Step{Go: "f"})
				if err != nil {
					t.Fatal(err)
				}
				s.title, s.timeout = "step 1", 10*time.Second
				failed, err := r.run(t.Context(), []step{s})
				if took := time.Since(start); took != tt.took {
					t.Errorf("took %s, want %s", took, tt.took)
				}
				misused := new(FunctionError)
				if (tt.err != "") != errors.As(err, &misused) || err != nil && !strings.HasPrefix(err.Error(), tt.err) {
					t.Errorf("error %v, want %s", err, tt.err)
				}
				check(t, failed, tt.want)
				time.Sleep(time.Hour) // a function that is left behind ends
			})
		})
	}
}

func check(t *testing.T, failed *facts.StepFailure, want string) {
	t.Helper()
	if want == "" {
		if failed != nil {
			t.Errorf("found %+v", failed)
		}
		return
	}
	kind, text, _ := strings.Cut(want, ": ")
	if failed == nil {
		t.Fatalf("no finding, want %s", want)
	}
	f := judge.Step(failed)
	if got := f.Judge + " " + string(f.Severity); got != kind || !strings.Contains(f.Title+"\n"+f.Detail, text) {
		t.Errorf("found %s: %s\n%s\nwant %s", got, f.Title, f.Detail, want)
	}
}

// Requests that a function has left behind cannot disturb the next run.
func TestRequestsAfterTheFunctionsEnd(t *testing.T) {
	var kept *rest.Config
	r := &runner{Config: Config{REST: &rest.Config{}, Suite: &plan.Suite{}, Progress: func(string) {},
		Functions: map[string]Function{"f": func(_ context.Context, c *rest.Config) error { kept = c; return nil }}}}
	s, err := r.prepare(&plan.Step{Go: "f"})
	if err != nil {
		t.Fatal(err)
	}
	if failed, err := r.run(t.Context(), []step{s}); err != nil || failed != nil {
		t.Fatal(failed, err)
	}
	_, err = kept.WrapTransport(roundTripper(func(*http.Request) (*http.Response, error) {
		return nil, errors.New("sent")
	})).RoundTrip(nil)
	if err == nil || err.Error() != "the workload that this client belongs to is over" {
		t.Errorf("got %v", err)
	}
}

func TestMissingFunction(t *testing.T) {
	_, err := (&runner{}).prepare(&plan.Step{Go: "f"})
	if err == nil || err.Error() != "the workload calls the Go function f, which only its own test has: "+
		"run it with go test" {
		t.Errorf("got %v", err)
	}
}
