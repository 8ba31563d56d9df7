package linux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/trommel-dev/trommel/chaos/inject"
)

// scope is whose packets an injection concerns.
type scope struct {
	// ns is the network namespace. The caller closes it.
	ns *namespace
	// process has the files by which the target looks names up.
	process int
	// containers are the cgroups whose sockets are meant; none: all packets of the namespace.
	containers []socketCgroup
	// kept is what a node needs to stay manageable; nil: the target is a pod.
	kept *kept
}

// network finds the target's packets.
func (i *injection) network() (*scope, error) {
	if i.request.Target.NodeLevel {
		return i.nodeNetwork()
	}
	return i.podNetwork()
}

// podNetwork finds the packets of a pod, or of some of its containers.
func (i *injection) podNetwork() (*scope, error) {
	if i.request.Target.NodeLevel {
		return nil, inject.Unsupported("%s of a whole node would also affect its kubelet: choose pods", i.request.Kind)
	}
	pod, err := i.node.pod(i.request.Target.UID)
	if err != nil {
		return nil, err
	}
	chosen, err := i.containers()
	if err != nil {
		return nil, err
	}
	s := &scope{process: chosen[0].init}
	if len(chosen) < len(pod.containers) {
		for _, c := range chosen {
			cgroup, err := i.node.socketCgroup(c)
			if err != nil {
				return nil, err
			}
			s.containers = append(s.containers, cgroup)
		}
	}
	if s.ns, err = i.node.networkOf(pod.containers[0].init); err != nil {
		return nil, err
	}
	own, err := i.node.networkOf(i.node.Host)
	if err != nil {
		s.ns.Close()
		return nil, err
	}
	defer own.Close()
	if own.inode == s.ns.inode {
		s.ns.Close()
		return nil, inject.Unsupported("the pod uses the node's own network")
	}
	return s, nil
}

// socketCgroup is a cgroup of version 2 as nftables compares it with a socket's. A socket belongs to the cgroup of the
// process that made it. All containers of a pod share its network, but not their cgroups.
type socketCgroup struct {
	id uint64
	// level is how far it is below the root of the node's cgroups.
	level uint32
}

// firstCgroupNamespace is the inode of the kernel's first cgroup namespace.
const firstCgroupNamespace = 0xEFFFFFFB

// unified returns the root of the node's cgroups of version 2; empty: there is none.
func (n Node) unified() (string, error) {
	roots, err := n.hierarchies()
	if err != nil {
		return "", err
	}
	at := slices.IndexFunc(roots, func(root string) bool { return exists(filepath.Join(root, "cgroup.controllers")) })
	if at < 0 {
		return "", nil
	}
	return roots[at], nil
}

// socketCgroup returns the cgroup of a container.
func (n Node) socketCgroup(c container) (socketCgroup, error) {
	root, err := n.unified()
	if err != nil {
		return socketCgroup{}, err
	}
	for _, of := range c.podCgroups {
		below, ok := strings.CutPrefix(of, root+"/")
		if root == "" || !ok {
			continue
		}
		at := slices.IndexFunc(c.cgroups, func(dir string) bool { return strings.HasPrefix(dir, of+"/") })
		if at < 0 {
			break
		}
		// The container may have made further ones in its own.
		own, _, _ := strings.Cut(strings.TrimPrefix(c.cgroups[at], of+"/"), "/")
		return n.cgroupAt(root, filepath.Join(below, own))
	}
	return socketCgroup{}, inject.Unsupported(
		"container %s has no cgroup of version 2, by which its packets differ from those of the pod's other "+
			"containers: choose all containers", c.name)
}

// cgroupAt returns the cgroup at a path below the root.
func (n Node) cgroupAt(root, path string) (socketCgroup, error) {
	var stat unix.Stat_t
	if err := unix.Stat(filepath.Join(root, path), &stat); err != nil {
		return socketCgroup{}, fmt.Errorf("find cgroup %s: %w", path, err)
	}
	return socketCgroup{id: stat.Ino, level: uint32(strings.Count(path, "/") + 1)}, nil
}

// matches lets packets of the cgroup's sockets pass.
func (g socketCgroup) matches() []expr.Any {
	return []expr.Any{
		&expr.Socket{Key: expr.SocketKeyCgroupv2, Level: g.level, Register: 1},
		equals(binary.NativeEndian.AppendUint64(nil, g.id)...),
	}
}

// inCgroups calls f in a thread with the node's cgroup namespace: nftables counts levels from there. Kernels before
// 6.11 count them from the machine's root.
func (n Node) inCgroups(f func() error) error {
	path := filepath.Join(n.Proc, strconv.Itoa(n.Host), "ns", "cgroup")
	return ownThread(func() error {
		file, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("open the node's cgroup namespace: %w", err)
		}
		defer file.Close()
		if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWCGROUP); err != nil {
			return fmt.Errorf("enter the node's cgroup namespace: %w", err)
		}
		return f()
	})
}

// seesCgroups reports whether nftables of this kernel compares cgroups as the node counts them.
func (n Node) seesCgroups() error {
	var stat unix.Stat_t
	if err := unix.Stat(filepath.Join(n.Proc, strconv.Itoa(n.Host), "ns", "cgroup"), &stat); err != nil {
		return fmt.Errorf("find the node's cgroup namespace: %w", err)
	}
	if stat.Ino == firstCgroupNamespace {
		return nil
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return err
	}
	release := unix.ByteSliceToString(name.Release[:])
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("read the kernel's version %q: %w", release, err)
	}
	if major < 6 || major == 6 && minor < 11 {
		return inject.Unsupported("nftables of kernel %s cannot match a cgroup of a node that is itself a container",
			release)
	}
	return nil
}

// writeRules calls write, which writes nftables' rules that match cgroups, if it should.
func (i *injection) writeRules(s *scope, write func() error) error {
	if len(s.containers) == 0 && (s.kept == nil || s.kept.cgroup == nil) {
		return write()
	}
	return errors.Join(i.node.seesCgroups(), i.node.inCgroups(write))
}
