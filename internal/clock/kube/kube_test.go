package kube

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trommel-dev/trommel/internal/clock"
)

// What a controller of a run has put off comes when the run's clock says so.
func TestQueueGoesByTheRunsClock(t *testing.T) {
	for _, tt := range []struct {
		name  string
		clock *clock.Clock
	}{{"a run's clock", clock.New()}, {"the machine's", nil}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := Clock(tt.clock)
				q := Queue(c)("", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
				item := reconcile.Request{NamespacedName: types.NamespacedName{Name: "a"}}
				began, machine := c.Now(), time.Now()
				q.AddAfter(item, time.Hour)
				synctest.Wait()
				want := time.Hour // of the machine's time
				if tt.clock != nil {
					want = 0
					tt.clock.Advance(time.Hour)
				}
				if got, _ := q.Get(); got != item {
					t.Errorf("got %v", got)
				}
				if passed := c.Since(began); passed != time.Hour {
					t.Errorf("it came after %s", passed)
				}
				if passed := time.Since(machine); passed != want {
					t.Errorf("it took %s of the machine's time, want %s", passed, want)
				}
				q.ShutDown()
			})
		})
	}
}
