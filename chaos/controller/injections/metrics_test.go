package injections

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	corev1 "k8s.io/api/core/v1"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
)

// Each change is counted once, and so is the state in an injector's termination message.
func TestInjectorMetrics(t *testing.T) {
	m, d := newMetrics(), &chaos.Disruption{}
	pod := corev1.Pod{}
	pod.Labels = map[string]string{controller.LabelTarget: "a", controller.LabelKind: "dns"}
	in := func(state chaos.InjectionState) own {
		return own{Injections: []chaos.Injection{{Target: "a", Kind: "dns", State: state}}}
	}
	m.count(d, in(chaos.InjectionInjected), []corev1.Pod{pod})
	d.Status.Injections = in(chaos.InjectionInjected).Injections
	m.count(d, in(chaos.InjectionInjected), []corev1.Pod{pod})
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{
			Message: `{"state":"Removed","injectMillis":20,"removeMillis":3000}`,
		},
	}}}
	m.count(d, in(chaos.InjectionRemoved), []corev1.Pod{pod})
	d.Status.Injections = in(chaos.InjectionRemoved).Injections
	m.count(d, in(chaos.InjectionRemoved), []corev1.Pod{pod})
	err := testutil.CollectAndCompare(m.changes, strings.NewReader(`
# HELP trommel_injection_changes_total Injections that have come into a state, by kind.
# TYPE trommel_injection_changes_total counter
trommel_injection_changes_total{kind="dns",state="Injected"} 1
trommel_injection_changes_total{kind="dns",state="Removed"} 1
`))
	if err != nil {
		t.Error(err)
	}
	text, err := testutil.CollectAndFormat(m.injectors, expfmt.TypeTextPlain, "trommel_injector_seconds")
	for _, want := range []string{
		`trommel_injector_seconds_sum{kind="dns",step="inject"} 0.02`,
		`trommel_injector_seconds_sum{kind="dns",step="remove"} 3`,
		`trommel_injector_seconds_count{kind="dns",step="remove"} 1`,
	} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("no %s (%v) in\n%s", want, err, text)
		}
	}
	for _, c := range []prometheus.Collector{m.changes, m.injectors} {
		if problems, err := testutil.CollectAndLint(c); err != nil || len(problems) > 0 {
			t.Errorf("%v, %v", problems, err)
		}
	}
}
