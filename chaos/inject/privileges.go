package inject

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
)

// Privileges are what an injector needs on a real node. The zero value is nothing.
type Privileges struct {
	// Node is whether it needs the node's processes and cgroups.
	Node bool
	// All privileges: it enters namespaces and cgroups, and uses devices.
	All bool
	// Capabilities, if it does not need all.
	Capabilities []corev1.Capability
	// WritesCgroups is whether it changes cgroups.
	WritesCgroups bool
}

// PrivilegesOf returns what the injector of a kind needs on a real node. A dry run only looks.
func PrivilegesOf(kind v1alpha1.Kind, dryRun bool) Privileges {
	some := func(capabilities ...corev1.Capability) Privileges {
		return Privileges{Node: true, Capabilities: capabilities}
	}
	switch kind {
	case v1alpha1.KindNetwork, v1alpha1.KindDNS:
		if dryRun { // it tries its rules in a network namespace of its own
			return some("SYS_PTRACE", "SYS_ADMIN", "NET_ADMIN")
		}
		return Privileges{Node: true, All: true, WritesCgroups: true}
	case v1alpha1.KindCPUPressure, v1alpha1.KindMemoryPressure:
		if dryRun {
			return some()
		}
		return Privileges{Node: true, All: true, WritesCgroups: true}
	case v1alpha1.KindDiskPressure: // the path may lead through directories of others
		p := some("SYS_PTRACE", "DAC_READ_SEARCH")
		p.WritesCgroups = !dryRun
		return p
	case v1alpha1.KindContainerFailure:
		if dryRun {
			return some()
		}
		return some("KILL") // processes of other users
	}
	return Privileges{} // by the API, or unsupported there
}
