package injections

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/chaos/inject"
)

// metrics are what injections and their injectors have done since the controllers began. Injectors have no network of
// their own: they report their times and counts in their termination messages.
type metrics struct {
	changes  *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	injected *prometheus.CounterVec
	cleaned  *prometheus.CounterVec
	retries  *prometheus.CounterVec
	failures *prometheus.CounterVec
}

func newMetrics() *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &metrics{
		changes: counter("trommel_injection_changes_total", "Injections that have come into a state, by kind.", "kind",
			"state"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "trommel_injector_seconds",
			Help:    "How long injectors that have ended took to inject and to remove a fault, as they reported.",
			Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 30},
		}, []string{"kind", "step"}),
		injected: counter("trommel_injector_injected_total", "Faults that injectors which have ended had injected.",
			"kind"),
		cleaned: counter("trommel_injector_cleaned_total",
			"Faults that injectors have removed: their own, and those that other injectors had left.", "kind"),
		retries: counter("trommel_injector_retries_total", "Retries of clean-ups by injectors.", "kind"),
		failures: counter("trommel_injector_failures_total",
			"Tries of injectors to inject or to remove that have failed.", "kind", "step"),
	}
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.changes, m.seconds, m.injected, m.cleaned, m.retries, m.failures}
}

// count counts what has changed in a disruption.
func (m *metrics) count(d *chaos.Disruption, next own) {
	before := map[id]chaos.InjectionState{}
	for _, i := range d.Status.Injections {
		before[id{i.Target, i.Kind}] = i.State
	}
	for _, i := range next.Injections {
		if i.State != before[id{i.Target, i.Kind}] {
			m.changes.WithLabelValues(string(i.Kind), string(i.State)).Inc()
		}
	}
}

// ofChanges counts what injectors report. It wakes no controller.
func (m *metrics) ofChanges() handler.EventHandler {
	return handler.Funcs{UpdateFunc: func(
		_ context.Context, e event.UpdateEvent, _ workqueue.TypedRateLimitingInterface[reconcile.Request],
	) {
		before, ok := e.ObjectOld.(*corev1.Pod)
		after, ok2 := e.ObjectNew.(*corev1.Pod)
		if _, isChaosPod := controller.OwnerOf(e.ObjectNew); ok && ok2 && isChaosPod {
			m.report(before, after)
		}
	}}
}

// report counts what an injector has reported at its end, if that is new.
func (m *metrics) report(before, after *corev1.Pod) {
	reported := inject.Reported(after)
	if reported.State == "" || reported.At.Equal(inject.Reported(before).At) {
		return
	}
	kind, counts := string(controller.KindOf(after)), reported.Counts
	for step, millis := range map[string]int64{"inject": reported.InjectMillis, "remove": reported.RemoveMillis} {
		if millis > 0 {
			m.seconds.WithLabelValues(kind, step).Observe(float64(millis) / 1000)
		}
	}
	m.injected.WithLabelValues(kind).Add(float64(counts.Injected))
	m.cleaned.WithLabelValues(kind).Add(float64(counts.Cleaned))
	m.retries.WithLabelValues(kind).Add(float64(counts.Retries))
	m.failures.WithLabelValues(kind, "inject").Add(float64(counts.InjectFailures))
	m.failures.WithLabelValues(kind, "remove").Add(float64(counts.CleanFailures))
}
