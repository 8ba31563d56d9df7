package injections

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	corev1 "k8s.io/api/core/v1"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
)

// Each change is counted once, and so is each report of an injector: also the same one again, after a restart.
func TestInjectorMetrics(t *testing.T) {
	m, d := newMetrics(), &chaos.Disruption{}
	in := func(state chaos.InjectionState) own {
		return own{Injections: []chaos.Injection{{Target: "a", Kind: "dns", State: state}}}
	}
	for _, state := range []chaos.InjectionState{
		chaos.InjectionInjected, chaos.InjectionInjected, chaos.InjectionRemoved, chaos.InjectionRemoved,
	} {
		m.count(d, in(state))
		d.Status.Injections = in(state).Injections
	}
	pod := func(state corev1.ContainerState, last string) *corev1.Pod {
		p := &corev1.Pod{}
		p.Labels = map[string]string{controller.LabelTarget: "a", controller.LabelKind: "dns"}
		s := corev1.ContainerStatus{State: state}
		if last != "" {
			s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Message: last}
		}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{s}
		return p
	}
	ended := func(message string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: message}}
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	waiting := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
	const stuck = `{"state":"Stuck","at":"2026-01-02T03:04:05Z","injectMillis":20,"removeMillis":3000,` +
		`"counts":{"injected":1,"retries":3,"cleanFailures":4}}`
	const removed = `{"state":"Removed","at":"2026-01-02T03:05:05Z","injectMillis":30,"removeMillis":1000,` +
		`"counts":{"injected":1,"cleaned":2}}`
	const failed = `{"state":"Failed","at":"2026-01-02T03:06:05Z","counts":{"injectFailures":1,"cleaned":1}}`
	states := []*corev1.Pod{
		pod(running, ""), pod(ended(stuck), ""), pod(ended(stuck), ""), pod(waiting, stuck), pod(running, stuck),
		pod(ended(removed), stuck), pod(ended(removed), stuck), pod(running, removed), pod(ended(failed), removed),
		pod(running, failed), pod(ended("panic: oh no"), failed),
	}
	for i, after := range states[1:] {
		m.report(states[i], after)
	}
	var all strings.Builder
	for _, c := range m.collectors() {
		text, err := testutil.CollectAndFormat(c, expfmt.TypeTextPlain, "trommel_injection_changes_total",
			"trommel_injector_seconds", "trommel_injector_injected_total", "trommel_injector_cleaned_total",
			"trommel_injector_retries_total", "trommel_injector_failures_total")
		if err != nil {
			t.Error(err)
		}
		all.Write(text)
		if problems, err := testutil.CollectAndLint(c); err != nil || len(problems) > 0 {
			t.Errorf("%v, %v", problems, err)
		}
	}
	for _, want := range []string{
		`trommel_injection_changes_total{kind="dns",state="Injected"} 1`,
		`trommel_injection_changes_total{kind="dns",state="Removed"} 1`,
		`trommel_injector_seconds_sum{kind="dns",step="inject"} 0.05`,
		`trommel_injector_seconds_sum{kind="dns",step="remove"} 4`,
		`trommel_injector_seconds_count{kind="dns",step="remove"} 2`,
		`trommel_injector_injected_total{kind="dns"} 2`,
		`trommel_injector_cleaned_total{kind="dns"} 3`,
		`trommel_injector_retries_total{kind="dns"} 3`,
		`trommel_injector_failures_total{kind="dns",step="inject"} 1`,
		`trommel_injector_failures_total{kind="dns",step="remove"} 4`,
	} {
		if !strings.Contains(all.String(), want+"\n") {
			t.Errorf("no %s in\n%s", want, all.String())
		}
	}
}
