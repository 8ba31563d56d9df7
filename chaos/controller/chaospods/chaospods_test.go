package chaospods

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/chaos/inject/fault"
)

func TestPrivileges(t *testing.T) {
	for _, tt := range []struct {
		name       string
		privileged bool
		node       string
		hostPID    bool
		cgroups    bool
	}{
		{name: "none", node: "worker"},
		{name: "real node", privileged: true, node: "worker", hostPID: true, cgroups: true},
		{name: "process node", privileged: true, node: "simulated", hostPID: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &Reconciler{&controller.Env{Clock: &clocktesting.FakeClock{}, Config: controller.Config{
				Namespace: "chaos", Image: "injector", Privileged: tt.privileged, Simulated: "simulated",
			}}}
			d := &chaos.Disruption{}
			d.Spec.DNS = &chaos.DNS{}
			pod, err := r.pod(d, &chaos.Target{Name: "web-0", UID: "u", Node: "worker"}, "dns", tt.node)
			if err != nil {
				t.Fatal(err)
			}
			c := pod.Spec.Containers[0]
			privileged := c.SecurityContext != nil && *c.SecurityContext.Privileged
			if privileged != tt.privileged || pod.Spec.HostPID != tt.hostPID {
				t.Errorf("privileged %t, hostPID %t", privileged, pod.Spec.HostPID)
			}
			var at string
			for _, e := range c.Env {
				if e.Name == fault.EnvCgroups {
					at = e.Value
				}
			}
			volume := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
				return v.HostPath != nil && v.HostPath.Path == "/sys/fs/cgroup"
			})
			if (at != "") != tt.cgroups || (volume >= 0) != tt.cgroups {
				t.Fatalf("directory %q, volume %d", at, volume)
			}
			if tt.cgroups && !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
				return m.Name == pod.Spec.Volumes[volume].Name && m.MountPath == at
			}) {
				t.Errorf("mounts %v", c.VolumeMounts)
			}
		})
	}
}
