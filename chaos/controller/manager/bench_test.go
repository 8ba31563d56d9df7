package manager

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/internal/cluster/embedded"
)

// BenchmarkBeginAndEnd takes the time from the creation of a disruption of one target until it is injected, and from
// its deletion until nothing is left.
func BenchmarkBeginAndEnd(b *testing.B) {
	to := account.Config(b)
	to.QPS = -1
	start(b, to, options())
	f := newFixture(b)
	f.processes(1)
	// An API server lets creations of a type wait for two seconds if its definition is new.
	f.end(f.disrupt("first", hangs(nil)))
	w, err := client.NewWithWatch(must(shared.RESTConfig("")), client.Options{Scheme: newScheme()})
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

// counting counts a manager's requests, without watches and events.
type counting struct {
	base          http.RoundTripper
	reads, writes *atomic.Int64
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case strings.Contains(r.URL.Path, "/events"):
	case r.Method != http.MethodGet:
		c.writes.Add(1)
	case r.URL.Query().Get("watch") == "":
		c.reads.Add(1)
	}
	return c.base.RoundTrip(r)
}

// heap is how much memory is in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// processorTime is the time of processors that this process has used.
func processorTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// reconciles is the number of reconciles that all controllers of this process have finished.
func reconciles(b *testing.B) (n float64) {
	families, err := metrics.Registry.Gather()
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "controller_runtime_reconcile_total" {
			for _, m := range f.Metric {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// follow calls a function with each state of all objects of a type in a cluster, in order, until the end of the
// benchmark.
func follow[T client.Object](b *testing.B, in *embedded.Cluster, of T, see func(o T, gone bool)) {
	to := must(in.RESTConfig(""))
	to.QPS = -1
	c, err := cache.New(to, cache.Options{Scheme: newScheme()})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- c.Start(ctx) }()
	b.Cleanup(func() {
		cancel()
		<-done
	})
	informer, err := c.GetInformer(ctx, of)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { see(o.(T), false) },
		UpdateFunc: func(_, o any) { see(o.(T), false) },
		DeleteFunc: func(o any) {
			if t, ok := o.(T); ok {
				see(t, true)
			}
		},
	}); err != nil {
		b.Fatal(err)
	}
}

// complete lets simulated chaos pods of a cluster complete when they are deleted, as injectors do. Nothing else does:
// KWOK leaves them running.
func complete(b *testing.B, in *embedded.Cluster, c client.Client) {
	todo := make(chan *corev1.Pod, 1<<16)
	follow(b, in, &corev1.Pod{}, func(p *corev1.Pod, gone bool) {
		_, ours := controller.OwnerOf(p)
		if ours && !gone && p.DeletionTimestamp != nil && p.Status.Phase != corev1.PodSucceeded {
			todo <- p
		}
	})
	for range 4 {
		go func() {
			for {
				select {
				case p := <-todo:
					after := p.DeepCopy()
					after.Status.Phase = corev1.PodSucceeded
					err := c.Status().Patch(b.Context(), after, client.MergeFrom(p))
					if client.IgnoreNotFound(err) != nil && b.Context().Err() == nil {
						b.Error(err)
					}
				case <-b.Context().Done():
					return
				}
			}
		}()
	}
}

// BenchmarkMany takes the time for up to 1,000 disruptions of a target each, from their creation until all are
// injected, and from their deletion until none is left. Targets and chaos pods are on simulated nodes: only the
// controllers work. Memory and CPU time are those of this process, with the benchmark's own caches and requests.
//
// What each disruption costs should be the same for few and many: the unit "x" of a figure is how many times as much
// it is as with the fewest. That takes minutes, so only the fewest are measured unless the long tests run.
func BenchmarkMany(b *testing.B) {
	sizes := []int{250}
	if os.Getenv("TROMMEL_TEST_LONG") != "" {
		sizes = append(sizes, 500, 1000)
	}
	var fewest costs
	for _, many := range sizes {
		b.Run(fmt.Sprint(many), func(b *testing.B) {
			each := benchmarkMany(b, many)
			if fewest == nil {
				fewest = each
			}
			for _, what := range []string{"time", "CPU", "memory", "writes"} {
				b.ReportMetric(each[what]/fewest[what], "x/"+what)
			}
		})
	}
}

// costs is what one disruption costs, by what it costs.
type costs map[string]float64

// unlimited is a client of a cluster that does not wait between its requests.
func unlimited(c *embedded.Cluster) client.Client {
	to := must(c.RESTConfig(""))
	to.QPS = -1
	return must(client.New(to, client.Options{Scheme: newScheme()}))
}

// lives follows all disruptions of the shared cluster. until waits until those that are given are injected, or gone.
func lives(b *testing.B) (until func(disruptions []*chaos.Disruption, gone bool)) {
	type id struct {
		uid  types.UID
		gone bool
	}
	seen := make(chan id, 1<<16)
	follow(b, shared, &chaos.Disruption{}, func(d *chaos.Disruption, gone bool) {
		if gone || d.Status.Phase == chaos.Injected {
			seen <- id{d.UID, gone}
		}
	})
	return func(disruptions []*chaos.Disruption, gone bool) {
		left := map[types.UID]bool{}
		for _, d := range disruptions {
			left[d.UID] = true
		}
		for len(left) > 0 {
			if i := <-seen; i.gone == gone {
				delete(left, i.uid)
			}
		}
	}
}

func benchmarkMany(b *testing.B, many int) costs {
	to := account.Config(b)
	to.QPS = -1
	count := &counting{reads: &atomic.Int64{}, writes: &atomic.Int64{}}
	to.Wrap(func(rt http.RoundTripper) http.RoundTripper { count.base = rt; return count })
	o := options()
	o.Simulated = ""
	stop := start(b, to, o)
	defer stop()
	f := newFixture(b)
	f.Client = unlimited(shared)
	complete(b, shared, f)
	var pods []*corev1.Pod
	for i := range many {
		pods = append(pods, f.labelled(fmt.Sprintf("p%d", i), []string{"node-1", "node-2"}[i%2], fmt.Sprint(i)))
	}
	f.running(pods...)
	until := lives(b)
	reads, writes, before := count.reads.Load(), count.writes.Load(), reconciles(b)
	var begin, end time.Duration
	var memory int64
	empty, cpu := heap(), processorTime(b)
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		var disruptions []*chaos.Disruption
		for n := range many {
			spec := hangs(func(s *chaos.DisruptionSpec) { s.Selector = map[string]string{"app": fmt.Sprint(n)} })
			disruptions = append(disruptions, f.disrupt(fmt.Sprintf("d%d-%d", i, n), spec))
		}
		until(disruptions, false)
		begin += time.Since(began)
		b.StopTimer()
		memory += heap() - empty
		b.StartTimer()
		began = time.Now()
		for _, d := range disruptions {
			if err := f.Delete(b.Context(), d); err != nil {
				b.Fatal(err)
			}
		}
		until(disruptions, true)
		end += time.Since(began)
	}
	n, all := float64(b.N), float64(b.N)*float64(many)
	each := costs{
		"time": (begin + end).Seconds() / all, "CPU": (processorTime(b) - cpu).Seconds() / all,
		"memory": float64(memory) / all,
		"writes": float64(count.writes.Load()-writes) / all,
	}
	b.ReportMetric(begin.Seconds()/n, "s/begin")
	b.ReportMetric(end.Seconds()/n, "s/end")
	b.ReportMetric((reconciles(b)-before)/(begin+end).Seconds(), "reconciles/s")
	b.ReportMetric((reconciles(b)-before)/all, "reconciles/disruption")
	b.ReportMetric(float64(count.reads.Load()-reads)/all, "reads/disruption")
	b.ReportMetric(each["writes"], "writes/disruption")
	b.ReportMetric(each["CPU"]*1000, "CPU-ms/disruption")
	b.ReportMetric(each["memory"]/1024, "KB/disruption")
	b.ReportMetric(0, "ns/op")
	return each
}
