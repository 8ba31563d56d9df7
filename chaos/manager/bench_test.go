package manager

import (
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s.io/apimachinery/pkg/watch"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
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
