package linux

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/inject"
)

func init() {
	register(v1alpha1.KindCPUPressure, func(base injection, spec v1alpha1.CPUPressure) inject.Injection {
		return &pressure{injection: base, cpu: &spec}
	})
	register(v1alpha1.KindMemoryPressure, func(base injection, spec v1alpha1.MemoryPressure) inject.Injection {
		return &pressure{injection: base, memory: &spec}
	})
}

// pressure takes processor time or memory with processes of ours in the target's cgroups. Exactly one of cpu and memory
// is set.
type pressure struct {
	injection
	cpu    *v1alpha1.CPUPressure
	memory *v1alpha1.MemoryPressure

	stop       context.CancelFunc
	supervised sync.WaitGroup
}

// victim is a container, or the node.
type victim struct {
	init  int
	start uint64 // of init
	// join are the cgroups that a helper joins.
	join []string
	helperSpec
}

// Check implements inject.Injection.
func (i *pressure) Check(context.Context) error {
	if err := privileged(); err != nil {
		return err
	}
	victims, err := i.victims()
	if err != nil {
		return err
	}
	for _, v := range victims {
		if len(v.join) == 0 {
			return inject.Unsupported("the target is in no cgroup that accounts for what %s takes", i.request.Kind)
		}
	}
	return nil
}

// victims finds the target.
func (i *pressure) victims() ([]victim, error) {
	var containers []container
	if i.request.Target.NodeLevel {
		roots, err := i.node.hierarchies()
		if err != nil {
			return nil, err
		}
		containers = []container{{init: i.node.Host, cgroups: roots}}
	} else {
		var err error
		if containers, err = i.containers(); err != nil {
			return nil, err
		}
	}
	var victims []victim
	for _, c := range containers {
		start, ok := i.node.startTime(c.init)
		if !ok {
			return nil, fmt.Errorf("%w: process %d has ended", errNoProcess, c.init)
		}
		v := victim{init: c.init, start: start, helperSpec: helperSpec{ID: i.request.ID()}}
		var err error
		if i.cpu != nil {
			err = i.cpuVictim(&v, c)
		} else {
			err = i.memoryVictim(&v, c)
		}
		if err != nil {
			return nil, err
		}
		victims = append(victims, v)
	}
	return victims, nil
}

func (i *pressure) cpuVictim(v *victim, c container) error {
	processors := float64(runtime.NumCPU()) // if nothing says less
	if limit, ok := firstFile(c.cgroups, "cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"); ok {
		if n := countCPUs(limit); n > 0 {
			processors = float64(n)
		}
	}
	allowed := int(processors)
	for _, dir := range c.levels() {
		if quota, ok := cpuQuota(dir); ok {
			processors = min(processors, quota)
		}
	}
	load := int32(100)
	if i.cpu.Load != nil {
		load = *i.cpu.Load
	}
	v.CPU = &cpuSpec{Threads: allowed, Processors: processors * float64(load) / 100}
	if i.request.Target.NodeLevel {
		v.join = c.cgroups
		return nil
	}
	for _, dir := range c.cgroups {
		// Version 2; or one of the hierarchies of version 1. All of a version 2 hierarchy is one.
		if hasAny(dir, "cpu.max", "cpu.stat", "cpu.shares", "cpuacct.usage", "cpuset.cpus") {
			v.join = append(v.join, dir)
		}
	}
	return nil
}

func (i *pressure) memoryVictim(v *victim, c container) error {
	v.Memory = &memorySpec{Percent: i.memory.Target, Proc: i.node.Proc}
	if i.memory.Ramp != nil {
		v.Memory.Ramp = i.memory.Ramp.Duration()
	}
	if i.request.Target.NodeLevel {
		v.join = c.cgroups
		return nil
	}
	for _, dir := range c.cgroups {
		if hasAny(dir, "memory.current", "memory.usage_in_bytes") {
			v.join = append(v.join, dir)
		}
	}
	adj, err := os.ReadFile(filepath.Join(i.node.Proc, strconv.Itoa(c.init), "oom_score_adj"))
	if err != nil {
		return fmt.Errorf("%w: %w", errNoProcess, err)
	}
	v.Memory.OOMScoreAdj = strings.TrimSpace(string(adj))
	// The smallest limit counts, which may be the pod's.
	for _, dir := range c.levels() {
		limit, ok := memoryLimit(dir)
		if ok && (v.Memory.Limit == 0 || limit < v.Memory.Limit) {
			v.Memory.Limit, v.Memory.Cgroup = limit, dir
		}
	}
	return nil
}

// Inject implements inject.Injection.
func (i *pressure) Inject(ctx context.Context) error {
	victims, err := i.victims()
	if err != nil {
		return err
	}
	background, cancel := context.WithCancel(context.Background())
	i.stop = cancel
	ready := make(chan error, len(victims))
	for _, v := range victims {
		i.supervised.Go(func() { i.supervise(background, v, ready) })
	}
	var errs []error
	for range victims {
		select {
		case err := <-ready:
			errs = append(errs, err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errors.Join(errs...)
}

// restartDelay is between a helper's death, for instance because memory ran out, and the next one.
const restartDelay = time.Second

// supervise keeps a helper beside a container, as long as the container lives. It sends to ready once.
func (i *pressure) supervise(ctx context.Context, v victim, ready chan<- error) {
	told := false
	tell := func(err error) {
		if !told {
			told = true
			ready <- err
		}
	}
	defer tell(context.Canceled)
	// A runtime cannot remove the container's cgroup as long as a process is in it.
	alive, err := whileAlive(ctx, v.init)
	if err == nil {
		// From here on it cannot be mistaken for another; before, another may have got its ID.
		if start, ok := i.node.startTime(v.init); !ok || start != v.start {
			err = fmt.Errorf("%w: process %d has ended", errNoProcess, v.init)
		}
	}
	if err != nil {
		tell(err)
		return
	}
	for alive.Err() == nil {
		err := i.help(alive, v, func() { tell(nil) })
		if !told {
			tell(err)
			return
		}
		select {
		case <-time.After(restartDelay):
		case <-alive.Done():
		}
	}
}

// help runs a helper until it or the context ends.
func (i *pressure) help(ctx context.Context, v victim, ready func()) error {
	spec, err := json.Marshal(v.helperSpec)
	if err != nil {
		return err
	}
	c := exec.Command("/proc/self/exe", helperArgument, string(spec))
	c.Args[0] = helperName
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // signals of a terminal are the injector's
	stdin, err := c.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return fmt.Errorf("start helper: %w", err)
	}
	stopped := context.AfterFunc(ctx, func() { _ = c.Process.Kill() })
	defer stopped()
	if err := i.node.move(c.Process.Pid, v.join); err != nil {
		_ = c.Process.Kill()
		_ = c.Wait()
		return err
	}
	_, err = io.WriteString(stdin, "go\n")
	line, err2 := bufio.NewReader(stdout).ReadString('\n')
	if strings.TrimSpace(line) == helperReady {
		ready()
	} else {
		_ = c.Process.Kill()
		err = errors.Join(err, err2, fmt.Errorf("the helper says %q", line))
	}
	return errors.Join(err, c.Wait())
}

// move moves a process into cgroups. It does that from the node's own cgroup namespace: with version 2 a process cannot
// be moved across the border of the mover's namespace (the mount option nsdelegate).
func (n Node) move(pid int, cgroups []string) error {
	return ownThread(func() error {
		path := filepath.Join(n.Proc, strconv.Itoa(n.Host), "ns", "cgroup")
		ns, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = errors.Join(unix.Setns(ns, unix.CLONE_NEWCGROUP), unix.Close(ns))
		}
		if err != nil {
			return fmt.Errorf("enter the node's cgroup namespace: %w", err)
		}
		for _, dir := range cgroups {
			if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
				return fmt.Errorf("move helper into the target's cgroup: %w", err)
			}
		}
		return nil
	})
}

// whileAlive returns a context that ends with a process, or with its parent.
func whileAlive(ctx context.Context, pid int) (context.Context, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch the target's process %d: %w", pid, err)
	}
	// The poller of Go's runtime waits for it.
	f := os.NewFile(uintptr(fd), "pidfd")
	alive, end := context.WithCancel(ctx)
	context.AfterFunc(alive, func() { _ = f.Close() })
	raw, err := f.SyscallConn()
	if err != nil {
		end()
		return nil, err
	}
	go func() {
		defer end()
		_ = raw.Read(func(fd uintptr) bool { return ended(int(fd)) }) // or closed: the context is over
	}()
	return alive, nil
}

// ended reports whether the process of a pidfd has.
func ended(fd int) bool {
	polled := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(polled, 0)
	return err == nil && n > 0
}

// Clean implements inject.Injection.
func (i *pressure) Clean(ctx context.Context) error {
	if i.stop != nil {
		i.stop()
		i.supervised.Wait()
	}
	return i.node.endHelpers(ctx, i.request.ID())
}

// endHelpers kills the helpers of an injection whose injector is dead, and waits until they have gone.
func (n Node) endHelpers(ctx context.Context, id string) error {
	for {
		entries, err := os.ReadDir(n.Proc)
		if err != nil {
			return fmt.Errorf("list processes: %w", err)
		}
		found := false
		for _, e := range entries {
			pid, err := strconv.Atoi(e.Name())
			if err != nil || !n.isHelper(pid, id) {
				continue
			}
			found = true
			if err := endProcess(ctx, pid, func() bool { return n.isHelper(pid, id) }); err != nil {
				return fmt.Errorf("end helper %d: %w", pid, err)
			}
		}
		if !found {
			return nil
		}
	}
}

// endProcess kills a process and waits for its end. same is asked once the process cannot be mistaken for another any
// more.
func endProcess(ctx context.Context, pid int, same func() bool) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	if !same() {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	alive, err := whileAlive(ctx, pid)
	if err != nil {
		return nil // it has gone
	}
	<-alive.Done()
	return ctx.Err()
}

// isHelper reports whether a process is a helper of an injection; an empty ID: of any. It knows them by their
// arguments.
func (n Node) isHelper(pid int, id string) bool {
	data, err := os.ReadFile(filepath.Join(n.Proc, strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return false
	}
	args := strings.Split(string(data), "\x00")
	if len(args) < 3 || args[0] != helperName || args[1] != helperArgument {
		return false
	}
	var spec helperSpec
	return json.Unmarshal([]byte(args[2]), &spec) == nil && (id == "" || spec.ID == id)
}

// hasAny reports whether a directory has one of these files.
func hasAny(dir string, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return exists(filepath.Join(dir, name)) })
}

// firstFile reads the first of these files that is in one of the directories.
func firstFile(dirs []string, names ...string) (string, bool) {
	for _, name := range names {
		for _, dir := range dirs {
			if data, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
				return strings.TrimSpace(string(data)), true
			}
		}
	}
	return "", false
}

// countCPUs counts a list such as 0-3,7.
func countCPUs(list string) int {
	n := 0
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := strconv.Atoi(first)
		if err != nil {
			return 0
		}
		to := from
		if isRange {
			if to, err = strconv.Atoi(last); err != nil {
				return 0
			}
		}
		n += to - from + 1
	}
	return n
}

// cpuQuota returns how many processors a cgroup may use; ok is false if there is no limit.
func cpuQuota(dir string) (processors float64, ok bool) {
	var quota, period string
	if data, err := os.ReadFile(filepath.Join(dir, "cpu.max")); err == nil {
		quota, period, _ = strings.Cut(strings.TrimSpace(string(data)), " ")
	} else {
		quota, _ = firstFile([]string{dir}, "cpu.cfs_quota_us")
		period, _ = firstFile([]string{dir}, "cpu.cfs_period_us")
	}
	q, err := strconv.ParseFloat(quota, 64)
	p, err2 := strconv.ParseFloat(period, 64)
	if err != nil || err2 != nil || q <= 0 || p <= 0 {
		return 0, false // "max", -1, or no such files
	}
	return q / p, true
}

// memoryLimit returns a cgroup's limit in bytes; ok is false if there is none.
func memoryLimit(dir string) (limit int64, ok bool) {
	text, _ := firstFile([]string{dir}, "memory.max", "memory.limit_in_bytes")
	limit, err := strconv.ParseInt(text, 10, 64)
	// Version 1 has the largest number of whole pages where there is no limit.
	return limit, err == nil && limit < 1<<62
}

// memoryUse returns what a cgroup uses in bytes, without files that are only cached, as the kubelet counts it.
func memoryUse(dir string) (int64, error) {
	text, _ := firstFile([]string{dir}, "memory.current", "memory.usage_in_bytes")
	use, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read the memory use of %s: %w", dir, err)
	}
	stat, err := os.ReadFile(filepath.Join(dir, "memory.stat"))
	if err != nil {
		return 0, fmt.Errorf("read the memory use: %w", err)
	}
	cached := int64(0)
	for line := range strings.Lines(string(stat)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		// total_ includes cgroups below it (version 1); it comes after the other one.
		if key == "inactive_file" || key == "total_inactive_file" {
			cached, _ = strconv.ParseInt(value, 10, 64)
		}
	}
	return max(use-cached, 0), nil
}

// nodeMemory returns the node's memory and what is in use, in bytes.
func nodeMemory(proc string) (total, use int64, err error) {
	data, err := os.ReadFile(filepath.Join(proc, "meminfo"))
	if err != nil {
		return 0, 0, fmt.Errorf("read the node's memory: %w", err)
	}
	available := int64(-1)
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kib, _ := strconv.ParseInt(fields[1], 10, 64)
		switch fields[0] {
		case "MemTotal:":
			total = kib << 10
		case "MemAvailable:":
			available = kib << 10
		}
	}
	if total == 0 || available < 0 {
		return 0, 0, fmt.Errorf("%s/meminfo: %w", proc, fs.ErrInvalid)
	}
	return total, total - available, nil
}
