package cleanup

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/trommel-dev/trommel/chaos/controller"
)

func terminated(code, restarts int32) []corev1.ContainerStatus {
	return []corev1.ContainerStatus{{RestartCount: restarts, State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}}}
}

// A chaos pod that failed before its injector did anything goes; what another one may have left is cleaned.
func TestFailedBeforeItBegan(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status corev1.PodStatus
		want   bool
	}{
		{"rejected, there are too many pods", corev1.PodStatus{Reason: "OutOfpods", Message: "Pod was rejected: Node " +
			"didn't have enough resource: pods"}, true},
		{"rejected, the disk is full", corev1.PodStatus{Reason: "Evicted", Message: "Pod was rejected: The node had " +
			"condition: [DiskPressure]. "}, true},
		{"evicted", corev1.PodStatus{Reason: "Evicted", Message: "The node was low on resource: memory."}, false},
		{"evicted, with its containers", corev1.PodStatus{Reason: "Evicted", ContainerStatuses: terminated(137, 0)},
			false},
		{"ended before it handled signals", corev1.PodStatus{ContainerStatuses: terminated(143, 0)}, true},
		{"another injector of the pod ran before", corev1.PodStatus{ContainerStatuses: terminated(143, 1)}, false},
		{"killed", corev1.PodStatus{ContainerStatuses: terminated(137, 0)}, false},
	} {
		if got := failedBeforeItBegan(&corev1.Pod{Status: tt.status}); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

// A cleaner has what its chaos pod had, and neither its readiness nor its finalizer.
func TestCleaner(t *testing.T) {
	privileged, no := true, false
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.UID = "chaos", "chaos-dns-x", "p"
	pod.Finalizers = []string{controller.PodFinalizer}
	pod.Labels = map[string]string{
		controller.LabelDisruption: "d", controller.LabelTarget: "t", controller.LabelKind: "dns",
	}
	pod.Annotations = map[string]string{controller.AnnotationDisruption: "default/x"}
	pod.Spec = corev1.PodSpec{
		NodeName: "worker", HostPID: true, ServiceAccountName: "none", AutomountServiceAccountToken: &no,
		Containers: []corev1.Container{{
			Name: "injector", Image: "i", Command: []string{"/trommel-injector"}, Args: []string{"inject", "dns"},
			SecurityContext: &corev1.SecurityContext{Privileged: &privileged}, ReadinessProbe: &corev1.Probe{},
			VolumeMounts: []corev1.VolumeMount{
				{Name: "journal", MountPath: "/journal"}, {Name: "kube-api-access-x", MountPath: "/var/run"},
			},
		}},
		Volumes: []corev1.Volume{
			{Name: "journal", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/journal"}}},
			{Name: "kube-api-access-x"},
		},
	}
	cleaner := newCleaner(pod)
	c := &cleaner.Spec.Containers[0]
	if got := strings.Join(c.Args, " "); got != "clean --journal /journal --id d.t.dns" {
		t.Errorf("arguments: %s", got)
	}
	if cleaner.Spec.NodeName != "worker" || !cleaner.Spec.HostPID || cleaner.Spec.ServiceAccountName != "none" ||
		*cleaner.Spec.AutomountServiceAccountToken || !*c.SecurityContext.Privileged || c.ReadinessProbe != nil {
		t.Errorf("%+v", cleaner.Spec)
	}
	if len(cleaner.Finalizers) > 0 || len(cleaner.Spec.Volumes) != 1 || len(c.VolumeMounts) != 1 ||
		cleaner.Annotations[controller.AnnotationInjection] != "d.t.dns" ||
		cleaner.Labels[controller.LabelDisruption] != "" {
		t.Errorf("%+v", cleaner)
	}
	const want = "trommel-injector clean --journal /journal --id d.t.dns` as root on node worker"
	if got := remedy(pod); !strings.Contains(got, want) {
		t.Errorf("%s", got)
	}
	// On the process node it is the controllers' own program.
	pod.Spec.Containers[0].Command = []string{"/home/me/bin/trommel-chaos", "injector"}
	if got := remedy(pod); !strings.Contains(got, "`/home/me/bin/trommel-chaos injector clean --journal /journal") {
		t.Errorf("%s", got)
	}
}
