package instrumentation_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/trommel-dev/trommel/coordinator/monitor"
	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/cluster/embedded"
)

// BenchmarkAPIServerWrites measures the write throughput of an instrumented API server, whose coordinator observes one
// object, against that of one built without hooks. Both run at the same time and take turns, so that other load on the
// machine affects both; the ratio is that of the medians.
func BenchmarkAPIServerWrites(b *testing.B) {
	const (
		writers = 8
		writes  = 800 // per turn
	)
	ctx := context.Background()
	type contender struct {
		client  typed.ConfigMapInterface
		seconds []float64
	}
	var contenders [2]contender
	for i, plain := range []bool{true, false} {
		built, err := instrumentation.BuildControlPlane(ctx, instrumentation.ControlPlaneConfig{Plain: plain})
		if err != nil {
			b.Fatal(err)
		}
		c, err := embedded.Start(ctx, embedded.Config{Binary: built.Binary, APIServers: 1, Nodes: -1})
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = c.Close(ctx) }()
		config, err := c.RESTConfig("")
		if err != nil {
			b.Fatal(err)
		}
		config.QPS = -1
		contenders[i].client = kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")
		if plain {
			continue
		}
		address, token := c.Rendezvous()
		m, err := monitor.Listen(monitor.Config{Address: address, Token: token})
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = m.Close() }()
		m.SetRules(ctx,
			map[string][]wire.Rule{"apiserver-1": bothPhases(wire.Rule{Point: wire.APIServerRecv, Kind: "configmap",
				Resource: "configmaps", Namespace: "default", Name: "watched"})})
		select {
		case e := <-m.Events():
			if !e.Started {
				b.Fatalf("the first event is no session: %+v", e)
			}
		case <-time.After(10 * time.Second):
			b.Fatal("the API server's hook does not connect")
		}
	}
	var object atomic.Int64
	data := map[string]string{"text": strings.Repeat("x", 1<<10)}
	turn := func(c *contender) {
		var group errgroup.Group
		began := time.Now()
		for range writers {
			group.Go(func() error {
				for range writes / writers / 2 {
					name := fmt.Sprintf("o-%d", object.Add(1))
					o, err := c.client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name},
						Data: data}, metav1.CreateOptions{})
					if err != nil {
						return err
					}
					o.Labels = map[string]string{"changed": "yes"}
					if _, err := c.client.Update(ctx, o, metav1.UpdateOptions{}); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			b.Fatal(err)
		}
		c.seconds = append(c.seconds, time.Since(began).Seconds())
		if err := c.client.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	turn(&contenders[0])
	turn(&contenders[1])
	contenders[0].seconds, contenders[1].seconds = nil, nil // warmed up
	n := 0
	for b.Loop() {
		// The order alternates.
		for i := range contenders {
			turn(&contenders[(i+n)%2])
		}
		n++
	}
	median := func(list []float64) float64 { slices.Sort(list); return list[len(list)/2] }
	plain, instrumented := median(contenders[0].seconds), median(contenders[1].seconds)
	b.ReportMetric(writes/plain, "plain-writes/s")
	b.ReportMetric(writes/instrumented, "instrumented-writes/s")
	b.ReportMetric(100*plain/instrumented, "%-of-plain")
}
