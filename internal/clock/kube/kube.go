// Package kube is a run's clock for controllers that are built with Kubernetes' libraries.
package kube

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	kubeclock "k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trommel-dev/trommel/internal/clock"
)

// Clock is a run's clock as Kubernetes' libraries want it; nil is the machine's.
func Clock(c *clock.Clock) kubeclock.WithTicker {
	if c == nil {
		return kubeclock.RealClock{}
	}
	return runClock{c}
}

// runClock has what a *clock.Clock calls differently.
type runClock struct{ *clock.Clock }

func (c runClock) Sleep(d time.Duration)                    { <-c.After(d) }
func (c runClock) Tick(d time.Duration) <-chan time.Time    { return c.Clock.NewTicker(d).C }
func (c runClock) NewTimer(d time.Duration) kubeclock.Timer { return timer{c.Clock.NewTimer(d)} }
func (c runClock) NewTicker(d time.Duration) kubeclock.Ticker {
	return ticker{c.Clock.NewTicker(d)}
}

type timer struct{ *clock.Timer }

func (t timer) C() <-chan time.Time { return t.Timer.C }

type ticker struct{ *clock.Ticker }

func (t ticker) C() <-chan time.Time { return t.Ticker.C }

// NewQueue makes the queue of a controller.
type NewQueue = func(
	name string, limiter workqueue.TypedRateLimiter[reconcile.Request],
) workqueue.TypedRateLimitingInterface[reconcile.Request]

// Queue returns what makes the queue of a controller whose work is put off by that clock.
func Queue(by kubeclock.WithTicker) NewQueue {
	return func(
		name string, limiter workqueue.TypedRateLimiter[reconcile.Request],
	) workqueue.TypedRateLimitingInterface[reconcile.Request] {
		return workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
			workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Name: name, Clock: by})
	}
}
