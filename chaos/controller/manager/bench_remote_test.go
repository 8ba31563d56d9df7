package manager

import (
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/internal/cluster/embedded"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

// manyChildren are the clusters of BenchmarkRemote that answer.
var manyChildren = clustertest.Once(
	embedded.Config{APIServers: 1, Nodes: 1}, embedded.Config{APIServers: 1, Nodes: 1},
)

// BenchmarkRemote takes the time for disruptions of one target each in two other clusters, from their creation until
// all are injected, and from their deletion until none is left: first without, and then beside half as many in a third
// cluster, which never answers. The unit "x" says how many times as long it takes beside them. Targets and chaos pods
// are on simulated nodes.
//
// There are 1,000 disruptions if the long tests run, 150 otherwise, the third cluster's included.
func BenchmarkRemote(b *testing.B) {
	each := 50
	if os.Getenv("TROMMEL_TEST_LONG") != "" {
		each = 333
	}
	o := parentOptions()
	o.Remote.Look = 0 // the default, as in production
	startParent(b, o)
	f := newFixture(b)
	f.Client = unlimited(shared)
	until := lives(b)
	var there []*fixture
	for i, c := range manyChildren(b) {
		child, err := newChild(b.Context(), c)
		if err != nil {
			b.Fatal(err)
		}
		o := options()
		o.Mode, o.Simulated = controller.ModeChild, ""
		start(b, child.controllers.Config(b), o)
		child.client = unlimited(c)
		complete(b, c, child.client)
		far := child.fixture(b)
		var pods []*corev1.Pod
		for n := range each {
			pods = append(pods, far.labelled(fmt.Sprintf("p%d", n), "node-1", fmt.Sprint(n)))
		}
		far.running(pods...)
		there = append(there, far)
		f.cluster(f.remoteCluster(fmt.Sprintf("alive-%d", i), child.kubeconfig), "ready", isReady)
	}
	disrupt := func(round string, n int, cluster string, far *fixture) *chaos.Disruption {
		spec := to(cluster, far, func(s *chaos.DisruptionSpec) { s.Selector = map[string]string{"app": fmt.Sprint(n)} })
		return f.disrupt(fmt.Sprintf("%s-%s-%d", round, cluster, n), spec)
	}
	life := func(round string) (begin, end time.Duration) {
		began := time.Now()
		var all []*chaos.Disruption
		for n := range each {
			for i, far := range there {
				all = append(all, disrupt(round, n, fmt.Sprintf("alive-%d", i), far))
			}
		}
		until(all, false)
		begin, began = time.Since(began), time.Now()
		for _, d := range all {
			if err := f.Delete(b.Context(), d); err != nil {
				b.Fatal(err)
			}
		}
		until(all, true)
		return begin, time.Since(began)
	}
	var alone, beside [2]time.Duration
	add := func(to *[2]time.Duration, begin, end time.Duration) { to[0] += begin; to[1] += end }
	life("warm")
	for i := 0; b.Loop(); i++ {
		begin, end := life(fmt.Sprintf("alone-%d", i))
		add(&alone, begin, end)
		cluster := f.deadCluster(fmt.Sprintf("dead-%d", i))
		var dead []*chaos.Disruption
		for n := range each {
			dead = append(dead, disrupt("dead", n, cluster.Name, there[0]))
		}
		begin, end = life(fmt.Sprintf("beside-%d", i))
		add(&beside, begin, end)
		for _, d := range dead {
			f.endAlone(d)
		}
		until(dead, true)
		f.endAlone(cluster)
	}
	for i, what := range []string{"begin", "end"} {
		b.ReportMetric(alone[i].Seconds()/float64(b.N), "s/"+what)
		b.ReportMetric(beside[i].Seconds()/alone[i].Seconds(), "x/"+what)
	}
	b.ReportMetric(0, "ns/op")
}
