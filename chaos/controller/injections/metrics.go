package injections

import (
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/inject"
)

// metrics are what injections and their injectors have done since the controllers began. Injectors have no network of
// their own: they tell their times with their last words.
type metrics struct {
	changes   *prometheus.CounterVec
	injectors *prometheus.HistogramVec
}

func newMetrics() *metrics {
	return &metrics{
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "trommel_injection_changes_total", Help: "Injections that have come into a state, by kind.",
		}, []string{"kind", "state"}),
		injectors: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "trommel_injector_seconds",
			Help:    "How long injectors that have ended took to inject and to remove a fault, as they reported.",
			Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 30},
		}, []string{"kind", "step"}),
	}
}

// count counts what has changed in a disruption.
func (m *metrics) count(d *chaos.Disruption, next own, pods []corev1.Pod) {
	before := map[id]chaos.InjectionState{}
	for _, i := range d.Status.Injections {
		before[id{i.Target, i.Kind}] = i.State
	}
	changed := map[id]bool{}
	for _, i := range next.Injections {
		of := id{i.Target, i.Kind}
		if i.State != before[of] {
			changed[of] = true
			m.changes.WithLabelValues(string(i.Kind), string(i.State)).Inc()
		}
	}
	for i := range pods {
		of, reported := idOf(&pods[i]), inject.Reported(&pods[i])
		if !changed[of] || reported.State == chaos.InjectionInjected {
			continue
		}
		for step, millis := range map[string]int64{"inject": reported.InjectMillis, "remove": reported.RemoveMillis} {
			if millis > 0 {
				m.injectors.WithLabelValues(string(of.kind), step).Observe(float64(millis) / 1000)
			}
		}
	}
}
