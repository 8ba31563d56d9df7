package workload

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/plan"
)

// Function exercises the controllers from Go. It talks to an API server that the plan does not disturb, if there is
// one. It returns when ctx ends: its requests fail after that. An error means that the controllers failed.
type Function func(ctx context.Context, config *rest.Config) error

// FunctionError says that a [Function] did something that is the fault of neither the controllers nor the plan.
type FunctionError struct {
	Function string // as in the step
	Reason   string
}

func (e *FunctionError) Error() string { return e.Function + " " + e.Reason }

// functionGrace is how long a function may take to return after its context has ended.
const functionGrace = 10 * time.Second

// function prepares the call of a function.
func (r *runner) function(name string) (step, error) {
	f, ok := r.Functions[name]
	if !ok {
		return step{}, Missing(name)
	}
	timeout := first(r.Suite.Timeouts.Workload, defaultWorkloadTimeout)
	return step{what: "call " + name, timeout: timeout, function: name, call: f}, nil
}

// Missing is the error for a step that calls a Go function which this program does not have.
func Missing(name string) error {
	return fmt.Errorf("the workload calls the Go function %s, which only its own test has: run it with go test", name)
}

// FunctionsOf lists the Go functions that the workload's steps call.
func FunctionsOf(s *plan.Suite, name string) ([]string, error) {
	w, err := find(s, name)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, step := range w.Steps {
		if step.Go != "" {
			all = append(all, step.Go)
		}
	}
	return all, nil
}

// outcome is how a call of a function ended.
type outcome struct {
	err      error
	timedOut bool
	why      string // the plan had blocked this before it was undone for the function's sake; empty: it was not
}

// callOnce calls a step's function. Unlike other steps it is not tried again, since it may not be able to: it gets more
// time instead. Its time counts from the plan's last action if that is later than the call. When it is over and the
// plan blocks something, all of that is undone, and the function gets its time again.
func (r *runner) callOnce(ctx context.Context, s step) (*facts.StepFailure, error) {
	door := &door{}
	defer door.close()
	config := rest.CopyConfig(r.REST)
	config.QPS, config.Burst = -1, 0
	config.UserAgent = FieldManager // it names the field manager of writes that name none
	config.Wrap(door.wrap)
	start := clock.Now(ctx)
	o, err := r.await(ctx, s, config)
	if err != nil {
		return nil, err
	}
	if misused := new(FunctionError); errors.As(o.err, &misused) {
		return nil, misused
	}
	switch {
	case o.err == nil && o.why == "":
		return nil, nil
	case o.err == nil:
		return &facts.StepFailure{
			Step: s.title, Detail: o.why, Time: clock.Now(ctx), Excuse: facts.ExcusedByHolds,
			Title: fmt.Sprintf("%s: %s: not within %s, but it succeeded after the plan's holds, pauses and kills were "+
				"undone: the plan was the cause", s.title, s.what, s.timeout),
		}, nil
	case objects.NotServedYet(o.err) || meta.IsNoMatchError(o.err) || runtime.IsNotRegisteredError(o.err):
		return nil, &FunctionError{s.function, "uses a type that is not there: " + o.err.Error()}
	}
	if o.timedOut && o.err == context.Canceled { //nolint:errorlint // what wraps it says more
		o.err = errStepTimeout
	}
	f := failureOf(ctx, s, o.err, o.timedOut)
	if last := r.disturbed(); !o.timedOut && last.After(start) {
		f.Detail = lines(fmt.Sprintf("it gave up by itself, %s after the plan's last action",
			clock.Since(ctx, last).Round(100*time.Millisecond)), f.Detail)
	}
	if o.why != "" {
		f.Detail = lines("the plan's holds, pauses and kills were undone: "+o.why, f.Detail)
	}
	if reason := r.excuse(ctx, o.err, start, door); reason != "" {
		f.Excuse, f.Detail = facts.ExcusedByFunction, lines(reason, f.Detail)
		if objects.WebhookFailed(o.err) {
			f.Excuse = facts.ExcusedByWebhook
		}
	}
	return f, nil
}

// await calls the function and waits for its end. The error is that of ctx, or why the plan could not be undone.
func (r *runner) await(ctx context.Context, s step, config *rest.Config) (outcome, error) {
	callCtx, end := context.WithCancelCause(ctx)
	defer end(nil)
	// The function is not a process of the cluster, and may wait by the machine's clock.
	release := clock.Of(ctx).HoldFor("a Go function of the workload ran")
	defer release(true)
	done := make(chan error, 1)
	go func() {
		err := error(&FunctionError{s.function,
			"has ended its goroutine: it must return an error instead of calling t.Fatal or t.FailNow"})
		defer func() {
			if v := recover(); v != nil {
				err = &FunctionError{s.function, fmt.Sprintf("panicked: %v\n%s", v, debug.Stack())}
			}
			done <- err
		}()
		err = s.call(callCtx, config)
	}()
	var o outcome
	from := clock.Now(ctx)
	timer := clock.NewTimer(ctx, s.timeout)
	defer timer.Stop()
	over := callCtx.Done()
	for {
		select {
		case o.err = <-done:
			if ctx.Err() != nil && o.err != nil {
				return o, context.Cause(ctx)
			}
			return o, nil
		case <-over:
			if o.timedOut {
				over = nil
				continue
			}
			return o, context.Cause(ctx)
		case <-timer.C:
		}
		if o.timedOut {
			o.err = &FunctionError{s.function,
				fmt.Sprintf("did not return within %s after its context had ended", functionGrace)}
			return o, nil
		}
		if last := r.disturbed(); last.After(from) {
			from = last
			r.Progress(s.title + " has more time: its timeout counts from the plan's last action")
			timer.Reset(clock.Until(ctx, from.Add(s.timeout)))
			continue
		}
		if o.why == "" && r.Blocked != nil {
			if o.why = r.Blocked(ctx); o.why != "" {
				r.Progress(s.title + " goes on with the plan's holds, pauses and kills undone: " + o.why)
				if err := r.LetGo(ctx); err != nil {
					return o, err
				}
				from = clock.Now(ctx)
				timer.Reset(s.timeout)
				continue
			}
		}
		o.timedOut = true
		end(errStepTimeout)
		timer.Reset(functionGrace)
	}
}

// disturbed is when the plan's last action was complete; zero if there was none.
func (r *runner) disturbed() time.Time {
	if r.Disturbed == nil {
		return time.Time{}
	}
	return r.Disturbed()
}

// excuse says why a failure of a function may not be the controllers' fault; empty: it is.
func (r *runner) excuse(ctx context.Context, err error, since time.Time, d *door) string {
	if objects.WebhookFailed(err) {
		if r.Outage == nil {
			return ""
		}
		switch o := r.Outage(ctx, since, err); {
		case o.Reason != "":
			return o.Reason
		case o.Over:
			return "a webhook could not be called for a time, because of the plan"
		}
		return ""
	}
	// A time limit of the function itself is not a failed request.
	limit := errors.Is(err, context.DeadlineExceeded) || wait.Interrupted(err)
	switch {
	case apierrors.IsConflict(err):
		return "another client wrote at the same time: the function must try again (retry.RetryOnConflict of client-go)"
	case d.lastFailed(), !limit && objects.Transient(err):
		return "an API server could not serve the function's last request: the function must try again"
	}
	if r.Blocked != nil {
		if why := r.Blocked(ctx); why != "" {
			return "the plan may be the cause, and the function did not wait until its context ended: " + why
		}
	}
	return ""
}

func lines(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "\n" + b
}

// door lets the requests of a function through, until the function is over: one that is left behind must not disturb
// the next run on the cluster.
type door struct {
	mu     sync.Mutex
	closed bool
	failed bool // the API server could not serve the newest request that is complete
}

func (d *door) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		d.mu.Lock()
		closed := d.closed
		d.mu.Unlock()
		if closed {
			return nil, errors.New("the workload that this client belongs to is over")
		}
		response, err := next.RoundTrip(request)
		d.mu.Lock()
		defer d.mu.Unlock()
		switch {
		case err == nil:
			d.failed = response.StatusCode == http.StatusBadGateway ||
				response.StatusCode == http.StatusServiceUnavailable || response.StatusCode == http.StatusGatewayTimeout
		case request.Context().Err() == nil:
			d.failed = true
		}
		return response, err
	})
}

func (d *door) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
}

func (d *door) lastFailed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
