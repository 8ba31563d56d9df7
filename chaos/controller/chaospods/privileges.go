package chaospods

import (
	corev1 "k8s.io/api/core/v1"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/chaos/inject/fault"
	"github.com/trommel-dev/trommel/chaos/kinds"
)

// restrict gives a chaos pod what its kind needs, and no more. A kind whose effects are objects gets a token of the
// API, and nothing of its node but the journal. All others get no token; on a real node they get the node's processes
// and cgroups, and the privileges to change them.
func restrict(spec *corev1.PodSpec, config *controller.Config, kind chaos.Kind, dryRun bool, node string) {
	inAPI := kinds.Of(kind).InAPI
	spec.AutomountServiceAccountToken = &inAPI
	spec.ServiceAccountName = config.ServiceAccount
	if inAPI {
		spec.ServiceAccountName = config.APIServiceAccount
	}
	links := false // to services: they are not used
	spec.EnableServiceLinks = &links
	c := &spec.Containers[0]
	needs := kinds.Of(kind).Privileges(dryRun)
	if !config.Privileged || node == config.Simulated {
		needs = kinds.Privileges{}
	}
	if needs.Node {
		spec.HostPID = true
		mountCgroups(spec, needs.WritesCgroups)
	}
	if needs.All {
		c.SecurityContext = &corev1.SecurityContext{Privileged: &needs.All}
		return
	}
	// Root, since the journal belongs to it on real nodes, but without its other privileges.
	escalation, readOnly := false, true
	var capabilities []corev1.Capability
	for _, c := range needs.Capabilities {
		capabilities = append(capabilities, corev1.Capability(c))
	}
	c.SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: &escalation, ReadOnlyRootFilesystem: &readOnly,
		Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: capabilities},
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	if needs.Node { // where these modules confine containers, they would keep it from the target's processes
		c.SecurityContext.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
		c.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Type: "spc_t"}
	}
}

// mountCgroups gives a chaos pod the cgroups of its real node. Its own /sys/fs/cgroup may be only a part of them. Its
// /proc is the node's, because of hostPID.
func mountCgroups(spec *corev1.PodSpec, write bool) {
	directory := corev1.HostPathDirectory
	c := &spec.Containers[0]
	c.Env = append(c.Env, corev1.EnvVar{Name: fault.EnvCgroups, Value: cgroupsDir})
	c.VolumeMounts = append(c.VolumeMounts,
		corev1.VolumeMount{Name: "cgroups", MountPath: cgroupsDir, ReadOnly: !write})
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "cgroups", VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: "/sys/fs/cgroup", Type: &directory}}})
}
