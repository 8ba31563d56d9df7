package manager

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s.io/apimachinery/pkg/watch"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/cluster/clustertest"
)

// BenchmarkBeginAndEnd takes the time from the creation of a disruption of one target until it is injected, and from its
// deletion until nothing is left.
func BenchmarkBeginAndEnd(b *testing.B) {
	to := must(shared.RESTConfig(""))
	to.QPS = -1
	start(b, to, options())
	f := newFixture(b)
	f.processes(1)
	w, err := client.NewWithWatch(must(shared.RESTConfig("")), client.Options{Scheme: must(Scheme())})
	if err != nil {
		b.Fatal(err)
	}
	events, err := w.Watch(b.Context(), &chaos.DisruptionList{}, client.InNamespace(f.namespace))
	if err != nil {
		b.Fatal(err)
	}
	defer events.Stop()
	var begin, end time.Duration
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		d := f.disrupt(fmt.Sprintf("d-%d", i), hangs(nil))
		for e := range events.ResultChan() {
			o, ok := e.Object.(*chaos.Disruption)
			if !ok || o.UID != d.UID {
				continue
			}
			if o.Status.Phase == chaos.Injected && o.DeletionTimestamp == nil {
				begin += time.Since(began)
				began = time.Now()
				if err := f.Delete(b.Context(), d); err != nil {
					b.Fatal(err)
				}
			}
			if e.Type == watch.Deleted {
				end += time.Since(began)
				break
			}
		}
	}
	b.ReportMetric(float64(begin.Milliseconds())/float64(b.N), "ms/begin")
	b.ReportMetric(float64(end.Milliseconds())/float64(b.N), "ms/end")
	b.ReportMetric(0, "ns/op")
}

// counting counts the requests that are not watches or lists.
type counting struct {
	base    http.RoundTripper
	reads   *atomic.Int64
	writes  *atomic.Int64
	started *atomic.Bool
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case !c.started.Load() || strings.Contains(r.URL.Path, "/events"):
	case r.Method == http.MethodGet && r.URL.Query().Get("watch") == "":
		c.reads.Add(1)
	case r.Method != http.MethodGet:
		c.writes.Add(1)
	}
	return c.base.RoundTrip(r)
}

// BenchmarkThousand takes the time for 1,000 disruptions of a target each, from their creation until all are injected,
// and until none is left. The targets and the chaos pods run on simulated nodes: only the controllers work.
func BenchmarkThousand(b *testing.B) {
	const many = 1000
	to := must(shared.RESTConfig(""))
	to.QPS = -1
	c := &counting{reads: &atomic.Int64{}, writes: &atomic.Int64{}, started: &atomic.Bool{}}
	to.Wrap(func(rt http.RoundTripper) http.RoundTripper { c.base = rt; return c })
	o := options()
	o.Simulated = ""
	start(b, to, o)
	f := newFixture(b)
	var pods []*corev1.Pod
	for i := range many {
		p := f.pod(fmt.Sprintf("p%d", i), []string{"node-1", "node-2"}[i%2])
		patch := client.MergeFrom(p.DeepCopy())
		p.Labels["n"] = fmt.Sprint(i)
		if err := f.Patch(b.Context(), p, patch); err != nil {
			b.Fatal(err)
		}
		pods = append(pods, p)
	}
	f.running(pods...)
	c.started.Store(true)
	for b.Loop() {
		var all []*chaos.Disruption
		for i := range many {
			all = append(all, f.disrupt(fmt.Sprintf("d%d", i), hangs(func(s *chaos.DisruptionSpec) {
				s.Selector = map[string]string{"n": fmt.Sprint(i)}
			})))
		}
		for _, d := range all {
			f.phase(d, chaos.Injected)
		}
		for _, d := range all {
			if err := f.Delete(b.Context(), d); err != nil {
				b.Fatal(err)
			}
		}
		for _, d := range all {
			clustertest.Eventually(b, func(ctx context.Context) error {
				err := f.Get(ctx, client.ObjectKeyFromObject(d), d)
				if err == nil {
					return fmt.Errorf("%s is still there: %+v", d.Name, d.Status)
				}
				return client.IgnoreNotFound(err)
			})
		}
	}
	n := float64(b.N * many)
	b.ReportMetric(n/b.Elapsed().Seconds(), "disruptions/s")
	b.ReportMetric(float64(c.reads.Load())/n, "reads/disruption")
	b.ReportMetric(float64(c.writes.Load())/n, "writes/disruption")
}
