// Package linux injects faults into pods of real nodes, as root: by nftables and queueing disciplines in a pod's
// network namespace, and by cgroups, processes and signals.
//
// An injector runs in a chaos pod on the target's node, with the node's process IDs and the node's cgroups. It finds
// the target without the Kubernetes API: from the pod's UID to its cgroups, to their processes, to their namespaces.
// All that it makes has a name with the injection's ID, or is noted in the journal before it is made, so that a
// clean-up finds it.
package linux

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/inject"
	"github.com/trommel-dev/trommel/chaos/inject/fault"
	"github.com/trommel-dev/trommel/chaos/kinds"
)

// Name is the backend's name.
const Name = "linux"

// Backend implements inject.Backend for the node that it runs on. Its zero value uses the directories of
// FromEnvironment.
type Backend struct{ Node Node }

// FromEnvironment returns the backend for a chaos pod: fault.EnvCgroups names the directory where the node's cgroups
// are mounted; default: /sys/fs/cgroup.
func FromEnvironment() *Backend {
	n := Node{Cgroups: os.Getenv(fault.EnvCgroups)}
	// The kubelet gives each container the address of the API servers' service.
	at := net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	if to, err := netip.ParseAddrPort(at); err == nil {
		n.APIServers = to
	}
	return &Backend{n}
}

// Name implements inject.Backend.
func (b *Backend) Name() string { return Name }

// New implements inject.Backend.
func (b *Backend) New(request inject.Request, notes *inject.Notes) (inject.Injection, error) {
	base := injection{node: b.Node.withDefaults(), request: request, notes: notes}
	if made, ok := registered[request.Kind]; ok {
		return made(base)
	}
	if reason := kinds.Of(request.Kind).NotOnRealNodes; reason != "" {
		return nil, inject.Unsupported("%s", reason)
	}
	return nil, inject.Unsupported("%s is not implemented for real nodes", request.Kind)
}

// registered make injections of the kinds that real nodes can do. Each kind is registered by its file.
var registered = map[v1alpha1.Kind]func(injection) (inject.Injection, error){}

// register adds a kind, with the function that makes an injection of its spec.
func register[T any](kind v1alpha1.Kind, made func(injection, T) inject.Injection) {
	registered[kind] = func(base injection) (inject.Injection, error) {
		var spec T
		if err := json.Unmarshal(base.request.Spec, &spec); err != nil {
			return nil, fmt.Errorf("read the spec of %s: %w", kind, err)
		}
		return made(base, spec), nil
	}
}

// injection is what all kinds share.
type injection struct {
	node    Node
	request inject.Request
	notes   *inject.Notes
}

// privileged reports what an injector needs in any case.
func privileged() error {
	if os.Geteuid() != 0 {
		return inject.Unsupported("faults on real nodes need root: let the controllers create privileged chaos pods")
	}
	return nil
}

// containers returns the target's containers that are running, without the pod's sandbox.
func (i *injection) containers() ([]container, error) {
	pod, err := i.node.pod(i.request.Target.UID)
	if err != nil {
		return nil, err
	}
	var chosen []container
	for _, c := range pod.containers {
		if len(i.request.Target.Containers) == 0 || slices.Contains(i.request.Target.Containers, c.name) {
			chosen = append(chosen, c)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("%w: none of the containers %q runs", errNoProcess, i.request.Target.Containers)
	}
	return chosen, nil
}

// place is what is noted about a network namespace before anything in it is changed.
type place struct {
	// Namespace is the inode of the network namespace.
	Namespace uint64 `json:"namespace"`
	// Interfaces are the addresses of its interfaces: another namespace may get the inode when this one has gone.
	Interfaces []string `json:"interfaces,omitempty"`
}

func (ns *namespace) place() place { return place{ns.inode, ns.addresses()} }

// addresses lists the hardware addresses of the interfaces of a namespace.
func (ns *namespace) addresses() []string {
	h, err := netlink.NewHandleAt(ns.NsHandle, unix.NETLINK_ROUTE)
	if err != nil {
		return nil
	}
	defer h.Close()
	all, err := h.LinkList()
	if err != nil {
		return nil
	}
	var found []string
	for _, l := range all {
		if a := l.Attrs(); len(a.HardwareAddr) > 0 && a.RawFlags&unix.IFF_LOOPBACK == 0 {
			found = append(found, a.HardwareAddr.String())
		}
	}
	return found
}

// noted opens the namespace in the notes. It is nil if there is none, or if it has gone with everything in it. The
// caller closes it.
func (i *injection) noted(ctx context.Context) (*namespace, error) {
	var at place
	if saved, err := i.notes.Load(&at); !saved || err != nil {
		return nil, err
	}
	ns, err := i.node.findNamespace(ctx, at.Namespace)
	if ns == nil || err != nil || len(at.Interfaces) == 0 {
		return ns, err
	}
	present := ns.addresses()
	if slices.ContainsFunc(at.Interfaces, func(a string) bool { return slices.Contains(present, a) }) {
		return ns, nil
	}
	ns.Close() // it has only the inode of the one that was meant
	return nil, nil
}
