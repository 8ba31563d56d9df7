package settle

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/run/await"
	"github.com/trommel-dev/trommel/internal/run/clusters"
	"github.com/trommel-dev/trommel/internal/run/site"
	"github.com/trommel-dev/trommel/plan"
)

// podsQueue stands for simulated pods among what controllers have put off.
var podsQueue = await.QueueName{Queue: "simulated pods"}

// Pods are the pods of a run that take time to become ready and to end. The zero value has none.
type Pods struct {
	clusters []cluster.PodSimulator
	longest  time.Duration // no pod takes longer
	logger   *slog.Logger
}

// NewPods returns the simulated pods of all clusters of a run.
func NewPods(suite *plan.Suite, at *site.Site, logger *slog.Logger) Pods {
	all := Pods{logger: logger}
	for _, m := range at.All() {
		spec := suite.Cluster
		if m.Name != "" {
			spec = suite.Clusters[m.Name]
		}
		if c := cluster.CapabilitiesOf(at.ClusterOf(m.Name)).Pods; c != nil {
			all.clusters = append(all.clusters, c)
			all.longest = max(all.longest, clusters.PodTimes(spec.SimulatedPods).Longest())
		}
	}
	return all
}

// underWay lists the pods that have still to become ready or to end.
func (s Pods) underWay(ctx context.Context) (all []types.UID) {
	for _, c := range s.clusters {
		pods, err := c.PodsUnderWay(ctx)
		if err != nil {
			s.logger.Debug("list the simulated pods that are under way", "error", err)
		}
		all = append(all, pods...)
	}
	return all
}

// wait begins to wait for pods, for at most that long altogether.
func (s Pods) wait(ctx context.Context, most time.Duration) *podWait {
	return &podWait{pods: s, until: clock.Now(ctx).Add(most), seen: map[types.UID]time.Time{}}
}

// podWait waits for each pod for at most as long as a pod takes: on a node that has failed, a pod stays as it is.
type podWait struct {
	pods  Pods
	until time.Time
	seen  map[types.UID]time.Time // since when
}

// await waits until no pod is under way any more, and reports whether it had to wait.
func (w *podWait) await(ctx context.Context) (waited bool) {
	const look = 200 * time.Millisecond
	for {
		now := clock.Now(ctx)
		under := false
		for _, pod := range w.pods.underWay(ctx) {
			since, known := w.seen[pod]
			if !known {
				since, w.seen[pod] = now, now
			}
			under = under || now.Sub(since) < w.pods.longest
		}
		if !under || !now.Before(w.until) || clock.Sleep(ctx, look) != nil {
			return waited
		}
		waited = true
	}
}
