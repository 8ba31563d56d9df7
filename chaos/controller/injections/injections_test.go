package injections

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
)

// chaosPod is the chaos pod of a target; a ready one has injected its fault.
func chaosPod(target string, ready bool) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name:   controller.PodName(chaos.LevelPod, "default", target, "apiFault"),
		Labels: map[string]string{controller.LabelTarget: target + "-uid", controller.LabelKind: "apiFault"},
	}}
	if ready {
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	return p
}

func TestPhase(t *testing.T) {
	const active, over = true, true
	for _, tt := range []struct {
		name         string
		old          chaos.Phase
		active, over bool
		pods         []corev1.Pod
		want         chaos.Phase
	}{
		{name: "new", want: chaos.NotInjected},
		{name: "one of two", old: chaos.NotInjected, active: active,
			pods: []corev1.Pod{chaosPod("a", true), chaosPod("b", false)}, want: chaos.PartiallyInjected},
		{name: "both", old: chaos.NotInjected, active: active,
			pods: []corev1.Pod{chaosPod("a", true), chaosPod("b", true)}, want: chaos.Injected},
		{name: "paused, but one is still there", old: chaos.Injected, pods: []corev1.Pod{chaosPod("a", true)},
			want: chaos.Injected},
		{name: "paused", old: chaos.Injected, want: chaos.PausedInjected},
		{name: "over", old: chaos.PartiallyInjected, over: over, want: chaos.PreviouslyPartiallyInjected},
		{name: "was injected, which is seen only when it pauses", old: chaos.NotInjected,
			pods: []corev1.Pod{chaosPod("a", true), chaosPod("b", true)}, want: chaos.Injected},
		{name: "was injected in part, which is seen only when it is over", old: chaos.NotInjected, over: over,
			pods: []corev1.Pod{chaosPod("a", true)}, want: chaos.PartiallyInjected},
		{name: "never injected", old: chaos.NotInjected, over: over, want: chaos.PreviouslyNotInjected},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := &chaos.Disruption{}
			d.Namespace, d.Spec.Level, d.Spec.APIFault = "default", chaos.LevelPod, &chaos.APIFault{}
			d.Status.Targets = []chaos.Target{{Name: "a", UID: "a-uid"}, {Name: "b", UID: "b-uid"}}
			d.Status.Phase, d.Status.Counts.Desired = tt.old, 2
			d.Status.Schedule = chaos.Schedule{Active: tt.active, Over: tt.over, Runs: 1}
			if got := sum(d, tt.pods, nil, metav1.NowMicro()); got.Phase != tt.want {
				t.Errorf("%s, want %s: %+v", got.Phase, tt.want, got.Injections)
			}
		})
	}
}

// TestFailedInjector: a disruption that waits for an injector says what keeps it.
func TestFailedInjector(t *testing.T) {
	d := &chaos.Disruption{}
	d.Namespace, d.Spec.Level, d.Spec.APIFault = "default", chaos.LevelPod, &chaos.APIFault{}
	d.Status.Targets = []chaos.Target{{Name: "a", UID: "a-uid"}}
	d.Status.Schedule.Active = true
	pod := chaosPod("a", false)
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Message: "back-off 10s"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: 1, Message: "level=INFO msg=start\ninjector: open the journal: permission denied\n",
		}},
	}}
	const want = "the injector has failed: exit code 1 injector: open the journal: permission denied"
	got := sum(d, []corev1.Pod{pod}, nil, metav1.NowMicro())
	if got.Injections[0].State != chaos.InjectionPending || got.Injections[0].Error != want || got.Message == "" {
		t.Errorf("%+v, message %q", got.Injections, got.Message)
	}
}

// TestStateBeforeTheFirstInjection: what has not begun is not removed.
func TestStateBeforeTheFirstInjection(t *testing.T) {
	d := &chaos.Disruption{}
	d.Spec.Level, d.Spec.APIFault = chaos.LevelPod, &chaos.APIFault{}
	d.Status.Targets = []chaos.Target{{Name: "a", UID: "a-uid"}}
	if got := sum(d, nil, nil, metav1.NowMicro()); got.Injections[0].State != chaos.InjectionPending {
		t.Errorf("%+v", got.Injections)
	}
	d.Status.Schedule.Over = true
	if got := sum(d, nil, nil, metav1.NowMicro()); got.Injections[0].State != chaos.InjectionRemoved {
		t.Errorf("over: %+v", got.Injections)
	}
}

// TestTargetWithTheNameOfAFormerOne: both have a chaos pod of the same name, and each its own state.
func TestTargetWithTheNameOfAFormerOne(t *testing.T) {
	d := &chaos.Disruption{}
	d.Namespace, d.Spec.Level, d.Spec.APIFault = "default", chaos.LevelPod, &chaos.APIFault{}
	d.Status.Targets = []chaos.Target{{Name: "a", UID: "new"}}
	d.Status.Schedule = chaos.Schedule{Active: true, Runs: 1}
	d.Status.Counts.Desired = 1
	got := sum(d, []corev1.Pod{chaosPod("a", true)}, nil, metav1.NowMicro())
	if len(got.Injections) != 2 || got.Injected != 0 {
		t.Fatalf("%+v", got)
	}
	for _, i := range got.Injections {
		want := chaos.InjectionInjected
		if i.Target == "new" {
			want = chaos.InjectionPending
		}
		if i.State != want {
			t.Errorf("%+v, want %s", i, want)
		}
	}
}
