package manager

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

// list is a reader with these disruptions.
type list struct {
	client.Reader
	items []chaos.Disruption
	err   error
}

func (l list) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	into.(*chaos.DisruptionList).Items = l.items
	return l.err
}

func TestMetrics(t *testing.T) {
	with := func(phase chaos.Phase, stuck bool, injections ...chaos.Injection) chaos.Disruption {
		return chaos.Disruption{Status: chaos.DisruptionStatus{
			Phase: phase, IsStuckOnRemoval: stuck, Injections: injections,
		}}
	}
	m := measures{list{items: []chaos.Disruption{
		with("", false),
		with(chaos.Injected, false, chaos.Injection{Kind: "dns", State: chaos.InjectionInjected},
			chaos.Injection{Kind: "apiFault", State: chaos.InjectionInjected}),
		with(chaos.Injected, true, chaos.Injection{Kind: "dns", State: chaos.InjectionStuck},
			chaos.Injection{Kind: "dns", State: chaos.InjectionInjected}),
	}}}
	err := testutil.CollectAndCompare(m, strings.NewReader(`
# HELP trommel_disruptions Disruptions by phase.
# TYPE trommel_disruptions gauge
trommel_disruptions{phase=""} 1
trommel_disruptions{phase="Injected"} 2
trommel_disruptions{phase="NotInjected"} 0
trommel_disruptions{phase="PartiallyInjected"} 0
trommel_disruptions{phase="PausedInjected"} 0
trommel_disruptions{phase="PausedPartiallyInjected"} 0
trommel_disruptions{phase="PossiblyInjected"} 0
trommel_disruptions{phase="PreviouslyInjected"} 0
trommel_disruptions{phase="PreviouslyNotInjected"} 0
trommel_disruptions{phase="PreviouslyPartiallyInjected"} 0
# HELP trommel_disruptions_stuck Disruptions that need a person to be removed.
# TYPE trommel_disruptions_stuck gauge
trommel_disruptions_stuck 1
# HELP trommel_injections Injections by kind and state.
# TYPE trommel_injections gauge
trommel_injections{kind="apiFault",state="Injected"} 1
trommel_injections{kind="dns",state="Injected"} 2
trommel_injections{kind="dns",state="Stuck"} 1
`))
	if err != nil {
		t.Error(err)
	}
	if problems, err := testutil.CollectAndLint(m); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(measures{list{err: errors.New("no cache")}})
	if _, err := registry.Gather(); err == nil || !strings.Contains(err.Error(), "no cache") {
		t.Errorf("want the reader's error, got %v", err)
	}
}

// The controllers publish what injectors report. Injectors have no network.
func TestWhatInjectorsReport(t *testing.T) {
	start(t, account.Config(t), options())
	f := newFixture(t)
	f.processes(1)
	value := func(name string) (sum float64) {
		families, err := metrics.Registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			if family.GetName() != name {
				continue
			}
			for _, m := range family.GetMetric() {
				for _, label := range m.GetLabel() {
					if label.GetName() == "kind" && label.GetValue() == "apiFault" {
						sum += m.GetCounter().GetValue()
					}
				}
			}
		}
		return sum
	}
	const injected, cleaned = "trommel_injector_injected_total", "trommel_injector_cleaned_total"
	before := map[string]float64{injected: value(injected), cleaned: value(cleaned)}
	d := f.disrupt("counted", hangs(nil))
	f.phase(d, chaos.Injected)
	f.end(d)
	clustertest.Eventually(t, func(context.Context) error {
		for name, n := range before {
			if now := value(name); now != n+1 {
				return fmt.Errorf("%s was %v and is %v", name, n, now)
			}
		}
		return nil
	})
}
