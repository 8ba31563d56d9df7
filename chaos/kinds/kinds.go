// Package kinds is the table of the kinds of faults: what each kind needs of a node and does to its target. Their
// fields are in chaos/api/v1alpha1. A backend has a file for each kind that it can carry out. The package imports
// nothing of Kubernetes, so that plans can be checked with it.
package kinds

import "slices"

// Kind is a kind of fault.
type Kind struct {
	// Name is the kind's field in v1alpha1.Kinds.
	Name string
	// InAPI: its effects are objects. It may take its target away, and can be cleaned without it.
	InAPI bool
	// EndsContainers: it may end containers of its target.
	EndsContainers bool
	// OutlivesContainers: a new container of its target is disrupted by the same injection. The injections of other
	// kinds on real nodes end with the container.
	OutlivesContainers bool
	// RealNode is what its injector needs on a real node, and DryRun what a dry run needs there, which only looks.
	RealNode, DryRun Privileges
	// NotOnRealNodes says why the backend for real nodes cannot carry it out; empty: it can, or the kind is InAPI.
	NotOnRealNodes string
	// NotOnProcessNode says why the process node cannot carry it out; empty: it can.
	NotOnProcessNode string
}

// Privileges are what an injector needs on a real node. The zero value is nothing.
type Privileges struct {
	// Node is whether it needs the node's processes and cgroups.
	Node bool
	// All privileges: it enters namespaces and cgroups, and uses devices.
	All bool
	// Capabilities, if it does not need all.
	Capabilities []string
	// WritesCgroups is whether it changes cgroups.
	WritesCgroups bool
}

// all are the kinds in the order of the fields of v1alpha1.Kinds.
var all = []Kind{
	{
		Name:     "network",
		RealNode: Privileges{Node: true, All: true, WritesCgroups: true},
		DryRun:   ownNetwork,
	},
	{
		Name:           "apiFault",
		NotOnRealNodes: "requests to the API server are encrypted, and real pods have no proxy",
	},
	{
		Name:     "dns",
		RealNode: Privileges{Node: true, All: true, WritesCgroups: true},
		DryRun:   ownNetwork,
	},
	{
		Name:     "cpuPressure",
		RealNode: Privileges{Node: true, All: true, WritesCgroups: true},
		DryRun:   Privileges{Node: true},
	},
	{
		Name:           "memoryPressure",
		EndsContainers: true,
		RealNode:       Privileges{Node: true, All: true, WritesCgroups: true},
		DryRun:         Privileges{Node: true},
	},
	{
		Name: "diskPressure",
		// The path may lead through directories of other users.
		RealNode: Privileges{Node: true, Capabilities: []string{"SYS_PTRACE", "DAC_READ_SEARCH"}, WritesCgroups: true},
		DryRun:   Privileges{Node: true, Capabilities: []string{"SYS_PTRACE", "DAC_READ_SEARCH"}},
	},
	{
		Name: "diskFailure",
		// SYS_ADMIN answers for the kernel. The path may lead through directories of other users.
		RealNode: Privileges{Node: true, Capabilities: []string{"SYS_PTRACE", "SYS_ADMIN", "DAC_READ_SEARCH"}},
		DryRun:   Privileges{Node: true, Capabilities: []string{"SYS_PTRACE", "SYS_ADMIN", "DAC_READ_SEARCH"}},
	},
	{
		Name:           "containerFailure",
		EndsContainers: true, OutlivesContainers: true,
		RealNode: Privileges{Node: true, Capabilities: []string{"KILL"}}, // the processes may belong to other users
		DryRun:   Privileges{Node: true},
	},
	{
		Name:  "nodeFailure",
		InAPI: true, EndsContainers: true,
		NotOnProcessNode: "it runs the pods of this run and cannot fail; choose a simulated node",
	},
	{
		Name:  "podReplacement",
		InAPI: true, EndsContainers: true,
		NotOnProcessNode: "there is no other node for a pod that runs as a process",
	},
	{
		Name:     "grpc",
		RealNode: Privileges{Node: true, All: true, WritesCgroups: true},
		DryRun:   ownNetwork,
	},
}

// ownNetwork is what a dry run needs that tries its rules in a network namespace of its own.
var ownNetwork = Privileges{Node: true, Capabilities: []string{"SYS_PTRACE", "SYS_ADMIN", "NET_ADMIN"}}

// All returns the kinds in the order of the fields of v1alpha1.Kinds.
func All() []Kind { return slices.Clone(all) }

// Of returns the kind with a name; an unknown one has only its name.
func Of[Name ~string](name Name) Kind {
	i := slices.IndexFunc(all, func(k Kind) bool { return k.Name == string(name) })
	if i < 0 {
		return Kind{Name: string(name)}
	}
	return all[i]
}

// Privileges are what the kind's injector needs on a real node. They are zero for a kind that needs only the API, or
// that is unsupported there.
func (k Kind) Privileges(dryRun bool) Privileges {
	if dryRun {
		return k.DryRun
	}
	return k.RealNode
}

// OfRealNodes are the names of the kinds that need nothing but a real node, sorted.
func OfRealNodes() []string {
	var names []string
	for _, k := range all {
		if !k.InAPI && k.NotOnRealNodes == "" {
			names = append(names, k.Name)
		}
	}
	slices.Sort(names)
	return names
}
