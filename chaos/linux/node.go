package linux

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// Node is where a node's files are.
type Node struct {
	// Cgroups is the root of the node's cgroups: a cgroup2 file system, or a directory with the hierarchies of version
	// 1. Default: /sys/fs/cgroup.
	Cgroups string
	// Proc is a proc file system with the node's processes. Default: /proc.
	Proc string
	// Host is a process with the node's own network and mounts. Default: 1.
	Host int
	// APIServers is the address of the API servers' service; invalid: unknown.
	APIServers netip.AddrPort
}

func (n Node) withDefaults() Node {
	if n.Cgroups == "" {
		n.Cgroups = "/sys/fs/cgroup"
	}
	if n.Proc == "" {
		n.Proc = "/proc"
	}
	if n.Host == 0 {
		n.Host = 1
	}
	return n
}

// errNoProcess says that nothing of a target runs on this node.
var errNoProcess = errors.New("the target has no process on this node")

// container is one that runs.
type container struct {
	// name is its name in the pod; empty for the sandbox.
	name string
	id   string
	// init is its first process.
	init int
	// cgroups are the directories of the first process's cgroup, one for each hierarchy.
	cgroups []string
	// podCgroups are the directories of the pod's cgroup.
	podCgroups []string
}

// levels lists the directories whose limits hold for a container: from its first process's cgroups up to the pod's.
func (c container) levels() []string {
	var all []string
	for _, dir := range c.cgroups {
		for ; !slices.Contains(c.podCgroups, dir) && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
			all = append(all, dir)
		}
	}
	return append(all, c.podCgroups...)
}

// pod is a pod with its containers, without the sandbox; there is at least one.
type pod struct{ containers []container }

// hierarchies lists the roots of the cgroup hierarchies.
func (n Node) hierarchies() ([]string, error) {
	if exists(filepath.Join(n.Cgroups, "cgroup.controllers")) {
		return []string{n.Cgroups}, nil
	}
	entries, err := os.ReadDir(n.Cgroups)
	if err != nil {
		return nil, fmt.Errorf("list the node's cgroups: %w", err)
	}
	var roots []string
	for _, e := range entries {
		// Links such as cpu -> cpu,cpuacct are not directories.
		if dir := filepath.Join(n.Cgroups, e.Name()); e.IsDir() && exists(filepath.Join(dir, "cgroup.procs")) {
			roots = append(roots, dir)
		}
	}
	if len(roots) == 0 {
		return nil, fmt.Errorf("there are no cgroups in %s", n.Cgroups)
	}
	return roots, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// isPodCgroup reports whether a directory's name is that of a pod's cgroup: pod1b4e28ba-… with the kubelet's driver
// cgroupfs, kubepods-burstable-pod1b4e28ba_….slice with systemd.
func isPodCgroup(name string, uid types.UID) bool {
	if name == "pod"+string(uid) {
		return true
	}
	slice, ok := strings.CutSuffix(name, ".slice")
	return ok && strings.HasSuffix(slice, "-pod"+strings.ReplaceAll(string(uid), "-", "_"))
}

// containerID returns the ID in the name of a container's cgroup: the name itself, or cri-containerd-ID.scope. It is
// empty if the cgroup is not a container's.
func containerID(name string) string {
	id, scope := strings.CutSuffix(name, ".scope")
	if !scope {
		return name
	}
	at := strings.LastIndex(id, "-")
	if strings.HasSuffix(id[:max(at, 0)], "-conmon") {
		return "" // CRI-O's monitor of a container, which runs beside it
	}
	return id[at+1:]
}

// podDirectories finds a pod's cgroup in each hierarchy; it is not in all of them.
func (n Node) podDirectories(uid types.UID) ([]string, error) {
	if uid == "" || strings.ContainsAny(string(uid), "/\x00") {
		return nil, fmt.Errorf("invalid UID %q", uid)
	}
	roots, err := n.hierarchies()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil // it has just gone
			case err != nil:
				return err
			case d.IsDir() && isPodCgroup(d.Name(), uid):
				found = append(found, path)
				return fs.SkipAll
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("look for the pod's cgroup: %w", err)
		}
	}
	return found, nil
}

// pod finds the containers of a pod that are running. The error is errNoProcess if there is none.
func (n Node) pod(uid types.UID) (*pod, error) {
	dirs, err := n.podDirectories(uid)
	if err != nil {
		return nil, err
	}
	byID := map[string][]int{}
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("list the pod's cgroups: %w", err)
		}
		for _, e := range entries {
			if id := containerID(e.Name()); e.IsDir() && id != "" {
				byID[id] = append(byID[id], processesBelow(filepath.Join(dir, e.Name()))...)
			}
		}
	}
	found := &pod{}
	for id, pids := range byID {
		c := container{id: id, podCgroups: dirs}
		c.init = n.first(pids)
		if c.init == 0 {
			continue
		}
		if c.name = n.containerName(c.init, uid); c.name == "" {
			continue
		}
		for _, dir := range dirs {
			if at := cgroupOf(dir, c.init); at != "" {
				c.cgroups = append(c.cgroups, at)
			}
		}
		found.containers = append(found.containers, c)
	}
	if len(found.containers) == 0 {
		return nil, fmt.Errorf("%w: no container of pod %s runs", errNoProcess, uid)
	}
	slices.SortFunc(found.containers, func(a, b container) int { return strings.Compare(a.name, b.name) })
	return found, nil
}

// processesBelow lists the processes in a cgroup and in those below it.
func processesBelow(dir string) []int {
	var pids []int
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			pids = append(pids, processes(path)...)
		}
		return nil // what has gone has no processes
	})
	return pids
}

// processes lists those in a cgroup.
func processes(dir string) []int {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil
	}
	var pids []int
	for _, field := range strings.Fields(string(data)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// cgroupOf returns the cgroup of a process, which is dir or below it; empty if it is somewhere else.
func cgroupOf(dir string, pid int) string {
	found := ""
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.Contains(processes(path), pid) {
			found = path
			return fs.SkipAll
		}
		return nil
	})
	return found
}

// first returns the process that started first, but not one of ours; 0 if there is none.
func (n Node) first(pids []int) int {
	first, began := 0, uint64(0)
	for _, pid := range pids {
		if start, ok := n.startTime(pid); ok && (first == 0 || start < began) && !n.isHelper(pid, "") {
			first, began = pid, start
		}
	}
	return first
}

// startTime is when a process started, in clock ticks since the machine did; ok is false if it does not run.
func (n Node) startTime(pid int) (start uint64, ok bool) {
	data, err := os.ReadFile(filepath.Join(n.Proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, false
	}
	// The name, in parentheses, may contain anything.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return 0, false
	}
	start, err = strconv.ParseUint(fields[19], 10, 64)
	return start, err == nil
}

// ofContainer matches the file in which a container leaves its last words. The kubelet mounts it into each container,
// and into no sandbox.
var ofContainer = regexp.MustCompile(`/pods/([^/]+)/containers/([^/]+)/`)

// containerName returns a container's name in its pod, from the mounts of a process; empty if it has none, for example
// while a container starts.
func (n Node) containerName(pid int, uid types.UID) string {
	dir := filepath.Join(n.Proc, strconv.Itoa(pid))
	// The runtime's own process, which has not become the container's yet.
	name, err := os.ReadFile(filepath.Join(dir, "comm"))
	if comm := string(name); err != nil || strings.HasPrefix(comm, "runc:[") || comm == "crun\n" {
		return ""
	}
	f, err := os.Open(filepath.Join(dir, "mountinfo"))
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			continue
		}
		// The node itself has such files too, but mounts no single one.
		if found := ofContainer.FindStringSubmatch(fields[3]); found != nil && found[1] == string(uid) {
			return found[2]
		}
	}
	return ""
}

// namespace is an open network namespace.
type namespace struct {
	netns.NsHandle
	inode uint64
}

// Close closes the handle.
func (ns *namespace) Close() { _ = ns.NsHandle.Close() }

// openNamespace opens a file of a network namespace.
func openNamespace(path string) (*namespace, error) {
	handle, err := netns.GetFromPath(path)
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(handle), &stat); err != nil {
		return nil, errors.Join(fmt.Errorf("open network namespace: %w", err), handle.Close())
	}
	return &namespace{handle, stat.Ino}, nil
}

// networkOf opens the network namespace of a process.
func (n Node) networkOf(pid int) (*namespace, error) {
	return openNamespace(filepath.Join(n.Proc, strconv.Itoa(pid), "ns", "net"))
}

// findNamespace opens a network namespace by its inode, as long as a process is in it or it is mounted; otherwise it is
// nil.
func (n Node) findNamespace(ctx context.Context, inode uint64) (*namespace, error) {
	entries, err := os.ReadDir(n.Proc)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var paths []string
	wanted := fmt.Sprintf("net:[%d]", inode)
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err == nil {
			paths = append(paths, filepath.Join(n.Proc, e.Name(), "ns", "net"))
		}
	}
	// A network plugin mounts the namespaces that it makes.
	host := filepath.Join(n.Proc, strconv.Itoa(n.Host))
	mounts, err := os.ReadFile(filepath.Join(host, "mountinfo"))
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 5 && fields[3] == wanted {
			paths = append(paths, filepath.Join(host, "root", fields[4]))
		}
	}
	for _, path := range paths {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var stat unix.Stat_t
		if unix.Stat(path, &stat) != nil || stat.Ino != inode {
			continue
		}
		ns, err := openNamespace(path)
		if err == nil && ns.inode == inode {
			return ns, nil
		}
		if err == nil {
			ns.Close() // the process has ended, and another has its ID
		}
	}
	return nil, nil
}

// ownThread calls f in a thread that ends with f, so that f may take it to other namespaces. It is never the process's
// first one: that cannot end, and its namespaces are taken for those of the process.
func ownThread(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			result <- ownThread(f) // this goroutine keeps the first thread meanwhile
			return
		}
		result <- f()
	}()
	return <-result
}

// do calls f in a thread that is in the namespace. Sockets that f opens stay there; goroutines that it starts do not.
func (ns *namespace) do(f func() error) error {
	return ownThread(func() error {
		if err := netns.Set(ns.NsHandle); err != nil {
			return fmt.Errorf("enter network namespace: %w", err)
		}
		return f()
	})
}

// scratch calls f with a new network namespace, which ends with f.
func scratch(f func(*namespace) error) error {
	return ownThread(func() error {
		handle, err := netns.New()
		if err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		ns := &namespace{NsHandle: handle}
		defer ns.Close()
		return f(ns)
	})
}
