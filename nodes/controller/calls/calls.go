// Package calls limits and measures the calls of a provider. It repeats nothing: that is done by the queues of
// controllers, which first look at what is so by then.
package calls

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/trommel-dev/trommel/nodes/provider"
)

// Options of the limits. The zero value works.
type Options struct {
	// QPS is the largest number of calls per second, and Burst how many may be made at once; default: 10 and 20. A call
	// that comes too soon waits.
	QPS   float64
	Burst int
	// Timeout limits a call together with its waiting; default: 1 minute.
	Timeout time.Duration
	// Registerer of the metrics; default: none.
	//
	//	trommel_node_provider_calls_total{provider,call,result}   calls, by result
	//	trommel_node_provider_call_seconds{provider,call}         how long calls took, without waiting
	//
	// The results are ok, throttled, held (not made because of an earlier throttled one), no_capacity, not_found,
	// conflict, ended (the context) and error.
	Registerer prometheus.Registerer
}

const (
	firstPause   = time.Second
	longestPause = time.Minute
)

// Wrap limits and measures a provider's calls.
//
// After a throttled call, no other of the same name is made until the provider wants to be called again, or, if it does
// not say when, for a pause that doubles each time, from a second to a minute. Calls in between return ErrThrottled at
// once, with the time that is left.
func Wrap(p provider.Provider, o Options) (provider.Provider, error) {
	w := &wrapped{
		Provider: p, timeout: cmp.Or(o.Timeout, time.Minute), pauses: map[string]pause{},
		limiter: rate.NewLimiter(rate.Limit(cmp.Or(o.QPS, 10)), cmp.Or(o.Burst, 20)),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "trommel_node_provider_calls_total", Help: "Calls of the provider of nodes, by result.",
		}, []string{"provider", "call", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "trommel_node_provider_call_seconds", Help: "How long calls of the provider of nodes took.",
			Buckets: []float64{.005, .025, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"provider", "call"}),
	}
	if o.Registerer == nil {
		return w, nil
	}
	var err error
	if w.calls, err = register(o.Registerer, w.calls); err != nil {
		return nil, err
	}
	if w.seconds, err = register(o.Registerer, w.seconds); err != nil {
		return nil, err
	}
	return w, nil
}

// register registers a metric, or finds the one that another provider of this process has registered.
func register[T prometheus.Collector](r prometheus.Registerer, c T) (T, error) {
	err := r.Register(c)
	if again := (prometheus.AlreadyRegisteredError{}); errors.As(err, &again) {
		if existing, ok := again.ExistingCollector.(T); ok {
			return existing, nil
		}
	}
	return c, err
}

type wrapped struct {
	provider.Provider
	timeout time.Duration
	limiter *rate.Limiter
	calls   *prometheus.CounterVec
	seconds *prometheus.HistogramVec

	mu     sync.Mutex
	pauses map[string]pause // by name of the call
}

type pause struct {
	until  time.Time
	length time.Duration // of the last one whose length the provider has not said
}

func (w *wrapped) call(ctx context.Context, name, object string, do func(context.Context) error) error {
	if err := w.held(name, object); err != nil {
		w.count(name, "held")
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	if err := w.limiter.Wait(ctx); err != nil {
		w.count(name, "ended")
		// The limiter does not wait if it would be longer than the context lasts.
		ended := cmp.Or(context.Cause(ctx), context.DeadlineExceeded)
		err = fmt.Errorf("%w before the call was made: %w", ended, err)
		return &provider.Error{Call: name, Object: object, Err: err}
	}
	began := time.Now()
	err := do(ctx)
	w.seconds.WithLabelValues(w.Name(), name).Observe(time.Since(began).Seconds())
	w.count(name, result(err))
	return w.noted(name, object, err)
}

func (w *wrapped) count(call, result string) { w.calls.WithLabelValues(w.Name(), call, result).Inc() }

var errHeld = errors.New("an earlier call was throttled")

// held is the error of a call that is made too early.
func (w *wrapped) held(name, object string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := time.Until(w.pauses[name].until)
	if left <= 0 {
		return nil
	}
	return &provider.Error{Call: name, Object: object, Kind: provider.ErrThrottled, RetryAfter: left, Err: errHeld}
}

// noted takes note of how a call ended. A throttled one says when the next may be made.
func (w *wrapped) noted(name, object string, err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !errors.Is(err, provider.ErrThrottled) {
		// A call that was made at the same time as a throttled one does not end the pause.
		if p := w.pauses[name]; err == nil && !time.Now().Before(p.until) {
			delete(w.pauses, name)
		}
		return err
	}
	told := provider.Error{Call: name, Object: object, Kind: provider.ErrThrottled, Err: err}
	if failed := (*provider.Error)(nil); errors.As(err, &failed) {
		told = *failed
	}
	p, now := w.pauses[name], time.Now()
	if told.RetryAfter == 0 {
		if p.until.After(now) { // of calls at the same time, only the first begins a pause
			told.RetryAfter = p.until.Sub(now)
		} else {
			p.length = min(max(2*p.length, firstPause), longestPause)
			told.RetryAfter = p.length
		}
	}
	if until := now.Add(told.RetryAfter); until.After(p.until) {
		p.until = until
	}
	w.pauses[name] = p
	return &told
}

// result names how a call ended.
func result(err error) string {
	if err == nil {
		return "ok"
	}
	for _, r := range []struct {
		err  error
		name string
	}{
		{provider.ErrThrottled, "throttled"}, {provider.ErrNoCapacity, "no_capacity"},
		{provider.ErrNotFound, "not_found"}, {provider.ErrConflict, "conflict"}, {context.Canceled, "ended"},
		{context.DeadlineExceeded, "ended"},
	} {
		if errors.Is(err, r.err) {
			return r.name
		}
	}
	return "error"
}

func (w *wrapped) Group(ctx context.Context, name string) (*provider.Group, error) {
	var g *provider.Group
	err := w.call(ctx, "Group", name, func(ctx context.Context) (err error) {
		g, err = w.Provider.Group(ctx, name)
		return err
	})
	return g, err
}

func (w *wrapped) Instances(ctx context.Context, providerIDs ...string) ([]provider.Instance, error) {
	object := "of none"
	if len(providerIDs) > 0 {
		object = strings.Join(providerIDs[:min(3, len(providerIDs))], ", ")
	}
	var list []provider.Instance
	err := w.call(ctx, "Instances", object, func(ctx context.Context) (err error) {
		list, err = w.Provider.Instances(ctx, providerIDs...)
		return err
	})
	return list, err
}

func (w *wrapped) Detach(ctx context.Context, group, providerID string) error {
	return w.call(ctx, "Detach", providerID, func(ctx context.Context) error {
		return w.Provider.Detach(ctx, group, providerID)
	})
}

func (w *wrapped) Remove(ctx context.Context, group, providerID string) error {
	return w.call(ctx, "Remove", providerID, func(ctx context.Context) error {
		return w.Provider.Remove(ctx, group, providerID)
	})
}

func (w *wrapped) Attach(ctx context.Context, group, providerID string) error {
	return w.call(ctx, "Attach", providerID, func(ctx context.Context) error {
		return w.Provider.Attach(ctx, group, providerID)
	})
}

func (w *wrapped) Terminate(ctx context.Context, providerID string) error {
	return w.call(ctx, "Terminate", providerID, func(ctx context.Context) error {
		return w.Provider.Terminate(ctx, providerID)
	})
}
