package calls

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/trommel-dev/trommel/nodes/provider"
)

// answers is a provider whose Detach and Terminate return the next of its errors, or wait for the context.
type answers struct {
	provider.Provider // nil: nothing else is called
	errs              []error
	made              int
	hang              bool
}

func (a *answers) Name() string { return "test" }

func (a *answers) Detach(ctx context.Context, _, _ string) error { return a.next(ctx) }

func (a *answers) Terminate(ctx context.Context, _ string) error { return a.next(ctx) }

func (a *answers) Group(ctx context.Context, name string) (*provider.Group, error) {
	return &provider.Group{Name: name}, a.next(ctx)
}

func (a *answers) Instances(ctx context.Context, _ ...string) ([]provider.Instance, error) {
	return []provider.Instance{{ProviderID: "x"}}, a.next(ctx)
}

func (a *answers) next(ctx context.Context) error {
	a.made++
	if a.hang {
		<-ctx.Done()
		return ctx.Err()
	}
	if len(a.errs) == 0 {
		return nil
	}
	err := a.errs[0]
	a.errs = a.errs[1:]
	return err
}

func throttled(after time.Duration) error {
	return &provider.Error{Call: "Detach", Object: "i", Kind: provider.ErrThrottled, RetryAfter: after}
}

func wrap(t *testing.T, p provider.Provider, o Options) provider.Provider {
	t.Helper()
	w, err := Wrap(p, o)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// pauseOf is the pause that an error asks for.
func pauseOf(t *testing.T, err error) time.Duration {
	t.Helper()
	var failed *provider.Error
	if !errors.Is(err, provider.ErrThrottled) || !errors.As(err, &failed) {
		t.Fatalf("%v, want throttled", err)
	}
	return failed.RetryAfter
}

func TestThrottledCallsAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answers{errs: []error{throttled(5 * time.Second)}}
		w := wrap(t, a, Options{})
		if d := pauseOf(t, w.Detach(t.Context(), "g", "i")); d != 5*time.Second {
			t.Errorf("the provider's pause is %v", d)
		}
		time.Sleep(2 * time.Second)
		if d := pauseOf(t, w.Detach(t.Context(), "g", "other")); d != 3*time.Second || a.made != 1 {
			t.Errorf("held for %v after 2s, %d calls were made", d, a.made)
		}
		if err := w.Terminate(t.Context(), "i"); err != nil {
			t.Errorf("another call: %v", err)
		}
		time.Sleep(3 * time.Second)
		if err := w.Detach(t.Context(), "g", "i"); err != nil || a.made != 3 {
			t.Errorf("after the pause: %v, %d calls were made", err, a.made)
		}
	})
}

func TestPausesGrowUntilACallSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answers{}
		w := wrap(t, a, Options{})
		for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
			a.errs = []error{throttled(0)}
			d := pauseOf(t, w.Detach(t.Context(), "g", "i"))
			if d != want*time.Second {
				t.Errorf("the pause is %v, want %v", d, want*time.Second)
			}
			time.Sleep(d)
		}
		a.errs = []error{errors.New("broken"), throttled(0)}
		if err := w.Detach(t.Context(), "g", "i"); err == nil || errors.Is(err, provider.ErrThrottled) {
			t.Errorf("another error: %v", err)
		}
		if d := pauseOf(t, w.Detach(t.Context(), "g", "i")); d != time.Minute {
			t.Errorf("the pause after another error is %v", d)
		}
		time.Sleep(time.Minute)
		a.errs = []error{nil, throttled(0)}
		if err := w.Detach(t.Context(), "g", "i"); err != nil {
			t.Error(err)
		}
		if d := pauseOf(t, w.Detach(t.Context(), "g", "i")); d != time.Second {
			t.Errorf("the pause after a success is %v", d)
		}
	})
}

func TestCallsWaitForTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := wrap(t, &answers{}, Options{QPS: 2, Burst: 3})
		began := time.Now()
		for range 7 {
			if _, err := w.Group(t.Context(), "g"); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(began); d != 2*time.Second {
			t.Errorf("7 calls took %v, want 2s: 3 at once, then 2 each second", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := w.Instances(ctx, "i"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a call that cannot be made in time: %v", err)
		}
	})
}

func TestCallsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := wrap(t, &answers{hang: true}, Options{Timeout: 3 * time.Second})
		began := time.Now()
		err := w.Terminate(t.Context(), "i")
		if d := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || d != 3*time.Second {
			t.Errorf("a call without answer: %v after %v", err, d)
		}
	})
}

func TestMetrics(t *testing.T) {
	r := prometheus.NewRegistry()
	a := &answers{errs: []error{
		nil, &provider.Error{Call: "Detach", Object: "i", Kind: provider.ErrConflict}, errors.New("broken"),
		throttled(time.Hour),
	}}
	w := wrap(t, a, Options{Registerer: r})
	for range 5 {
		_ = w.Detach(t.Context(), "g", "i")
	}
	if err := wrap(t, a, Options{Registerer: r}).Terminate(t.Context(), "i"); err != nil {
		t.Error(err)
	}
	want := `
# HELP trommel_node_provider_calls_total Calls of the provider of nodes, by result.
# TYPE trommel_node_provider_calls_total counter
trommel_node_provider_calls_total{call="Detach",provider="test",result="conflict"} 1
trommel_node_provider_calls_total{call="Detach",provider="test",result="error"} 1
trommel_node_provider_calls_total{call="Detach",provider="test",result="held"} 1
trommel_node_provider_calls_total{call="Detach",provider="test",result="ok"} 1
trommel_node_provider_calls_total{call="Detach",provider="test",result="throttled"} 1
trommel_node_provider_calls_total{call="Terminate",provider="test",result="ok"} 1
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), "trommel_node_provider_calls_total"); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(r, "trommel_node_provider_call_seconds"); n != 2 {
		t.Errorf("%d histograms, want those of Detach and Terminate", n)
	}
}
