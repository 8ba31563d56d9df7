package manager

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
)

// measures are Prometheus metrics of the disruptions that exist when they are asked for:
//
//	trommel_disruptions{phase}        disruptions by phase; a new one has the phase ""
//	trommel_disruptions_stuck         disruptions that need a person to be removed
//	trommel_injections{kind,state}    injections by kind and state
type measures struct {
	disruptions client.Reader // a cache
}

var (
	disruptionsDesc = prometheus.NewDesc("trommel_disruptions", "Disruptions by phase.", []string{"phase"}, nil)
	stuckDesc       = prometheus.NewDesc("trommel_disruptions_stuck",
		"Disruptions that need a person to be removed.", nil, nil)
	injectionsDesc = prometheus.NewDesc("trommel_injections", "Injections by kind and state.",
		[]string{"kind", "state"}, nil)
)

// Describe is part of prometheus.Collector.
func (m measures) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{disruptionsDesc, stuckDesc, injectionsDesc} {
		ch <- d
	}
}

// Collect is part of prometheus.Collector.
func (m measures) Collect(ch chan<- prometheus.Metric) {
	var list chaos.DisruptionList
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := m.disruptions.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		ch <- prometheus.NewInvalidMetric(disruptionsDesc, err)
		return
	}
	// A metric that disappears when there is nothing to count would look like an old value.
	phases := map[chaos.Phase]int{
		"": 0, chaos.NotInjected: 0, chaos.PartiallyInjected: 0, chaos.Injected: 0, chaos.PausedPartiallyInjected: 0,
		chaos.PausedInjected: 0, chaos.PreviouslyNotInjected: 0, chaos.PreviouslyPartiallyInjected: 0,
		chaos.PreviouslyInjected: 0, chaos.PossiblyInjected: 0,
	}
	type injection struct {
		kind  chaos.Kind
		state chaos.InjectionState
	}
	injections, stuck := map[injection]int{}, 0
	for i := range list.Items {
		s := &list.Items[i].Status
		phases[s.Phase]++
		if s.IsStuckOnRemoval {
			stuck++
		}
		for _, i := range s.Injections {
			injections[injection{i.Kind, i.State}]++
		}
	}
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	for phase, n := range phases {
		gauge(disruptionsDesc, n, string(phase))
	}
	gauge(stuckDesc, stuck)
	for i, n := range injections {
		gauge(injectionsDesc, n, string(i.kind), string(i.state))
	}
}
