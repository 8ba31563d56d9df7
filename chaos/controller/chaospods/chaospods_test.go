package chaospods

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/chaos/inject"
	"github.com/trommel-dev/trommel/chaos/inject/fault"
)

// podOf makes a chaos pod of a kind on a node.
func podOf(t *testing.T, kind chaos.Kind, privileged, dryRun bool, node string) *corev1.Pod {
	t.Helper()
	r := &Reconciler{&controller.Env{Clock: clocktesting.NewFakeClock(time.Now()), Config: controller.Config{
		Namespace: "chaos", Image: "injector", Privileged: privileged, Simulated: "simulated",
		ServiceAccount: "none", APIServiceAccount: "api", PriorityClass: "late",
	}}}
	d := &chaos.Disruption{}
	d.Spec.DryRun = dryRun
	d.Spec.DNS, d.Spec.NodeFailure, d.Spec.PodReplacement = &chaos.DNS{}, &chaos.NodeFailure{}, &chaos.PodReplacement{}
	d.Spec.APIFault, d.Spec.ContainerFailure = &chaos.APIFault{}, &chaos.ContainerFailure{}
	pod, err := r.pod(d, &chaos.Target{Name: "web-0", UID: "u", Node: "worker"}, kind, node)
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

func isPrivileged(c *corev1.Container) bool {
	return c.SecurityContext == nil || c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
}

// A chaos pod has what its kind needs: a token, or a real node's processes, or neither.
func TestPrivileges(t *testing.T) {
	for _, tt := range []struct {
		name       string
		kind       chaos.Kind
		privileged bool // as the controllers are configured
		dryRun     bool
		node       string
		all        bool                // privileges
		processes  bool                // of the node
		some       []corev1.Capability // if not all
		account    string
		token      bool
	}{
		{name: "none", kind: "dns", node: "worker", account: "none"},
		{name: "real node", kind: "dns", privileged: true, node: "worker", all: true, processes: true, account: "none"},
		{name: "a signal", kind: "containerFailure", privileged: true, node: "worker", processes: true,
			some: []corev1.Capability{"KILL"}, account: "none"},
		{name: "dry run", kind: "containerFailure", privileged: true, dryRun: true, node: "worker", processes: true,
			account: "none"},
		{name: "unsupported", kind: "apiFault", privileged: true, node: "worker", account: "none"},
		{name: "process node", kind: "dns", privileged: true, node: "simulated", account: "none"},
		{name: "by the API", kind: "nodeFailure", privileged: true, node: "worker", account: "api", token: true},
		{name: "by the API, too", kind: "podReplacement", privileged: true, node: "worker", account: "api",
			token: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod := podOf(t, tt.kind, tt.privileged, tt.dryRun, tt.node)
			c := &pod.Spec.Containers[0]
			if isPrivileged(c) != tt.all || pod.Spec.HostPID != tt.processes {
				t.Errorf("privileged %t, hostPID %t", isPrivileged(c), pod.Spec.HostPID)
			}
			if pod.Spec.ServiceAccountName != tt.account || *pod.Spec.AutomountServiceAccountToken != tt.token {
				t.Errorf("account %s, token %t", pod.Spec.ServiceAccountName, *pod.Spec.AutomountServiceAccountToken)
			}
			if tt.all {
				return
			}
			if s := c.SecurityContext; *s.AllowPrivilegeEscalation || s.SeccompProfile.Type != "RuntimeDefault" ||
				!slices.Equal(s.Capabilities.Add, tt.some) ||
				!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestChaosPodsAreEvictedLast: a node that lacks something takes it first from pods without requests and of little
// priority, and a pod that is evicted leaves its fault.
func TestChaosPodsAreEvictedLast(t *testing.T) {
	pod := podOf(t, "dns", true, false, "worker")
	requests := pod.Spec.Containers[0].Resources.Requests
	if requests.Cpu().IsZero() || requests.Memory().IsZero() || pod.Spec.PriorityClassName != "late" {
		t.Errorf("requests %v, priority class %q", requests, pod.Spec.PriorityClassName)
	}
	if !slices.Contains(pod.Spec.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists}) {
		t.Errorf("tolerations %v", pod.Spec.Tolerations)
	}
}

// TestCgroups: a chaos pod sees the cgroups of its real node.
func TestCgroups(t *testing.T) {
	for node, want := range map[string]bool{"worker": true, "simulated": false} {
		pod := podOf(t, "dns", true, false, node)
		c := pod.Spec.Containers[0]
		var at string
		for _, e := range c.Env {
			if e.Name == fault.EnvCgroups {
				at = e.Value
			}
		}
		volume := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
			return v.HostPath != nil && v.HostPath.Path == "/sys/fs/cgroup"
		})
		if (at != "") != want || (volume >= 0) != want {
			t.Fatalf("%s: directory %q, volume %d", node, at, volume)
		}
		if want && !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return m.Name == pod.Spec.Volumes[volume].Name && m.MountPath == at
		}) {
			t.Errorf("mounts %v", c.VolumeMounts)
		}
	}
}

// An injector that cannot inject ends; the next one could not either.
func TestNoInjectorIsReplacedThatToldWhyItCannotInject(t *testing.T) {
	for _, tt := range []struct {
		phase   corev1.PodPhase
		message string
		want    bool
	}{
		{corev1.PodRunning, "", false},
		{corev1.PodFailed, "", true}, // evicted
		{corev1.PodSucceeded, "", true},
		{corev1.PodSucceeded, `{"state":"Removed"}`, true}, // by its own end
		{corev1.PodSucceeded, `{"state":"Unsupported","error":"no kernel module"}`, false},
		{corev1.PodSucceeded, `{"state":"Failed","error":"no such disk"}`, false},
	} {
		pod := &corev1.Pod{}
		pod.Status.Phase = tt.phase
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{Message: tt.message}}}}
		if got := ended(pod); got != tt.want {
			t.Errorf("%s %s: %t (%s)", tt.phase, tt.message, got, inject.Reported(pod).State)
		}
	}
}
