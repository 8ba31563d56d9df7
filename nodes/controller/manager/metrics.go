package manager

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trommel-dev/trommel/internal/controllers"
	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
)

// measures are the Prometheus metrics:
//
//	trommel_node_cycling_requests{phase}               requests that exist, by phase
//	trommel_node_cycling_nodes_cycled_total{group}     nodes cycled
//	trommel_node_cycling_phase_seconds{kind,phase}     how long a request or status was in a phase
type measures struct {
	cycled *prometheus.CounterVec
	phases *prometheus.HistogramVec
}

// register registers the metrics. Of several managers in a process, the last one's requests are counted.
func register(c client.Reader) (*measures, error) {
	m := &measures{
		cycled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "trommel_node_cycling_nodes_cycled_total", Help: "Nodes cycled.",
		}, []string{"group"}),
		phases: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "trommel_node_cycling_phase_seconds", Help: "How long a request or status was in a phase.",
			Buckets: []float64{.1, .5, 1, 5, 15, 30, 60, 120, 300, 600, 1200, 3600, 10800},
		}, []string{"kind", "phase"}),
	}
	if err := controllers.RegisterMetrics(m.cycled, m.phases, requests{c}); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *measures) nodesCycled(group string, n int) { m.cycled.WithLabelValues(group).Add(float64(n)) }

func (m *measures) phaseEnded(kind, phase string, after time.Duration) {
	m.phases.WithLabelValues(kind, phase).Observe(after.Seconds())
}

// requests counts requests by phase when it is asked.
type requests struct{ client.Reader }

var requestsDesc = prometheus.NewDesc("trommel_node_cycling_requests", "Requests that exist, by phase.",
	[]string{"phase"}, nil)

// Describe is part of prometheus.Collector.
func (r requests) Describe(ch chan<- *prometheus.Desc) { ch <- requestsDesc }

// Collect is part of prometheus.Collector.
func (r requests) Collect(ch chan<- prometheus.Metric) {
	var list nodes.CycleNodeRequestList
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := r.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		ch <- prometheus.NewInvalidMetric(requestsDesc, err)
		return
	}
	count := map[nodes.RequestPhase]int{}
	for _, phase := range []nodes.RequestPhase{
		nodes.RequestPending, nodes.RequestInitialised, nodes.RequestScalingUp, nodes.RequestCordoningNode,
		nodes.RequestWaitingTermination, nodes.RequestSuccessful, nodes.RequestHealing, nodes.RequestFailed,
	} {
		count[phase] = 0
	}
	for _, q := range list.Items {
		if q.Status.Phase != "" {
			count[q.Status.Phase]++
		}
	}
	for phase, n := range count {
		ch <- prometheus.MustNewConstMetric(requestsDesc, prometheus.GaugeValue, float64(n), string(phase))
	}
}
