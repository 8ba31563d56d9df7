package settle

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/plan"
)

// simulator has pods that are under way until a time after its start.
type simulator struct {
	start time.Time
	pods  map[types.UID]time.Duration
}

func (s simulator) PodsUnderWay(context.Context) (all []types.UID, err error) {
	for uid, until := range s.pods {
		if time.Since(s.start) < until {
			all = append(all, uid)
		}
	}
	return all, nil
}

// Regression: a pod that became ready later than two seconds after the controllers had come to rest would have been
// judged before, and the next step of a paced workload would not have waited for it.
func TestSettlingWaitsForSimulatedPods(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	for _, test := range []struct {
		name          string
		pods          map[types.UID]time.Duration
		pause, settle time.Duration // how long they take
	}{
		{"no pods", nil, s, s},
		{"ready meanwhile", map[types.UID]time.Duration{"a": s}, s, s},
		{"ready later", map[types.UID]time.Duration{"a": 2500 * ms, "b": 1500 * ms}, 3600 * ms, 3600 * ms},
		{"never ready", map[types.UID]time.Duration{"a": time.Hour}, 6600 * ms, 6600 * ms},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pods := Pods{longest: 4500 * ms}
				settling := func() *Controllers {
					pods.clusters = []cluster.PodSimulator{simulator{time.Now(), test.pods}}
					return &Controllers{
						Plan: settler{after: s}, Pods: pods,
						Timeouts: plan.Timeouts{Settle: 3 * s, Quiet: s, Step: time.Minute},
						Busy:     func(context.Context, time.Duration) bool { return false },
					}
				}
				began := time.Now()
				settling().Pause(t.Context())
				if took := time.Since(began); took != test.pause {
					t.Errorf("a step waited for %s, want %s", took, test.pause)
				}
				began = time.Now()
				if settled, err := settling().Await(t.Context()); !settled || err != nil {
					t.Errorf("settled: %t, %v", settled, err)
				}
				if took := time.Since(began); took != test.settle {
					t.Errorf("the end waited for %s, want %s", took, test.settle)
				}
			})
		})
	}
}

// Pods that are under way are something that controllers may still react to, but nothing that they have put off.
func TestLookAtSimulatedPods(t *testing.T) {
	pods := Pods{longest: 4 * time.Second, clusters: []cluster.PodSimulator{
		simulator{time.Now(), map[types.UID]time.Duration{"a": time.Hour}},
	}}
	w := &Queues{Reader: tables{}, Controllers: []string{"c"}, Pods: pods}
	ctx := clock.With(t.Context(), clock.New())
	look := w.Look(ctx)
	if len(look.Later) != 1 || look.Later[0].Longest != 4*time.Second || look.Busy {
		t.Errorf("to come: %+v", look)
	}
	if due, delay := w.Coming(ctx); !due.IsZero() || delay != 0 {
		t.Errorf("put off until %s, for %s", due, delay)
	}
}
