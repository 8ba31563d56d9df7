//go:build amd64 || arm64

package keeper

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/trommel-dev/trommel/internal/clock"
)

const pageSize = 4096

// slot is what a process writes about itself; the template standard_clock.go.tmpl has the same layout and says what the
// fields mean.
type slot struct {
	changes uint64
	next    int64
	skew    int64
	busy    uint32
	polling uint32
	calls   int32
}

type process struct {
	pid   int
	conn  *net.UnixConn
	page  []byte
	slot  *slot
	epoll int // its epoll instance
	wake  int // its eventfd
	stat  int // its file with the state; -1: there is none

	threads *threadStates // nil: not looked at yet
	seen    uint64        // changes at the last look
	same    uint64        // changes since when it does the same, which is not waiting
	since   time.Time     // zero: it waits
	told    time.Time     // the last notification of a due timer since it changed; zero: there was none
	asked   bool          // at the last look there was something that it had not taken yet
	stopped bool          // by a signal: it takes no part
}

// keeper is the part of Keeper that exists on this system.
type keeper struct {
	page     []byte
	listener *net.UnixListener
	done     chan struct{}
	ended    sync.WaitGroup

	mu        sync.Mutex
	processes map[int]*process
	expected  map[int]func(counts bool) // by process ID: releases the clock
	skews     map[int]time.Duration
	moved     time.Duration
	steps     int
	causes    map[int]int // steps by process ID, see State
	stepped   time.Time   // when it was moved last, by the machine's clock
	calm      int64       // since when nothing was done but a little after each step, in the run's monotonic time

	pace      *pace     // of the loop alone, as heldSince and rested
	heldSince int64     // since when the clock is held, see clock.Monotonic; 0: it is not
	rested    time.Time // when a step of an ordered run went on last, by the machine's clock

	running atomic.Bool
	start   chan struct{} // capacity 1: running has become true
}

// Start starts a keeper whose files are in dir, which must exist and belong to the user alone; its path must be short
// enough for unix sockets. The clock goes as the machine's until Run.
func Start(dir string) (*Keeper, error) {
	page, err := newPage(filepath.Join(dir, "clock"))
	if err != nil {
		return nil, fmt.Errorf("create the clock: %w", err)
	}
	path := filepath.Join(dir, "keeper")
	_ = os.Remove(path)
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		_ = unix.Munmap(page)
		return nil, fmt.Errorf("listen for processes: %w", err)
	}
	k := &Keeper{clock: clock.Drawn((*lines)(unsafe.Pointer(&page[0])).add), dir: dir, keeper: &keeper{
		page: page, listener: listener, done: make(chan struct{}), pace: newPace(),
		processes: map[int]*process{}, expected: map[int]func(bool){}, skews: map[int]time.Duration{},
		causes: map[int]int{}, start: make(chan struct{}, 1),
	}}
	ownEpoll()
	k.ended.Go(k.accept)
	k.ended.Go(k.loop)
	return k, nil
}

func newPage(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := file.Truncate(pageSize); err != nil {
		return nil, err
	}
	return unix.Mmap(int(file.Fd()), 0, pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// Run lets the clock move while nothing happens.
func (k *Keeper) Run() {
	k.running.Store(true)
	select {
	case k.start <- struct{}{}:
	default:
	}
}

// Rest lets the clock go as the machine's, until Run.
func (k *Keeper) Rest() { k.running.Store(false) }

// Expect keeps the clock from moving until the process with this ID has joined it; the caller calls Gone when the
// process has ended, whether it had joined or not. So a process that does not have the clock, because it was not built
// with it, lives in real time, and everything else with it.
func (k *Keeper) Expect(pid int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.processes[pid] == nil && k.expected[pid] == nil {
		k.expected[pid] = k.clock.HoldFor("a process ran that does not have the run's clock")
	}
}

// Gone says that the process has ended.
func (k *Keeper) Gone(pid int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.arrived(pid, false)
	delete(k.skews, pid)
	if p := k.processes[pid]; p != nil {
		k.remove(p)
	}
}

// arrived ends that a process is expected: it has joined the clock, or it has ended. It is called with the lock.
func (k *keeper) arrived(pid int, joined bool) {
	if release := k.expected[pid]; release != nil {
		release(!joined)
		delete(k.expected, pid)
	}
}

// Has reports whether the process runs by the clock.
func (k *Keeper) Has(pid int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.processes[pid] != nil
}

// Skew puts the wall clock of one process ahead of the others', or behind; its timers are not concerned. That of a
// process that has not joined the clock yet is set when it does.
func (k *Keeper) Skew(pid int, by time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.skews[pid] = by
	if p := k.processes[pid]; p != nil {
		atomic.StoreInt64(&p.slot.skew, int64(by))
	}
}

// A jump ends what is under way, such as a request with a timeout. mostLull is how long a calm moment is waited for, by
// the machine's clock.
const mostLull = 500 * time.Millisecond

// Lull returns at a moment at which no process does anything, at the latest after half a second.
func (k *Keeper) Lull() {
	for began := time.Now(); !k.calmNow() && time.Since(began) < mostLull; {
		time.Sleep(time.Millisecond)
	}
}

// calmNow looks twice, as step does, but not at this process.
func (k *Keeper) calmNow() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := &self{}
	for first := true; ; first = false {
		now := k.monotonic()
		for _, p := range k.processes {
			if p.works(now, first) {
				return false
			}
		}
		if s.arrived(k.processes) != "" {
			return false
		}
		if !first {
			return true
		}
		sleep(shortPause)
	}
}

// Jump moves the clock at once, whatever the processes do, and notifies those whose timers are then due. What waits by
// the clock in this process does not end sooner, see [clock.Clock.Jump].
func (k *Keeper) Jump(by time.Duration) {
	if by <= 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.moved += by
	k.steps++
	k.clock.Jump(by)
	k.tell(k.monotonic())
}

// advance is called with the lock.
func (k *Keeper) advance(by time.Duration) {
	if by <= 0 {
		return
	}
	k.moved += by
	k.steps++
	k.clock.Advance(by)
	k.tell(k.monotonic())
}

// Close ends the keeper. The processes go on in real time, with the offset that they have.
func (k *Keeper) Close() {
	k.running.Store(false)
	close(k.done)
	_ = k.listener.Close()
	k.mu.Lock()
	for _, p := range k.processes {
		_ = p.conn.Close()
	}
	k.mu.Unlock()
	k.ended.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, release := range k.expected {
		release(false)
	}
	_ = unix.Munmap(k.page)
}

func (k *Keeper) accept() {
	for {
		conn, err := k.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(time.Millisecond)
			continue
		}
		p, err := join(conn)
		if err != nil {
			_ = conn.Close()
			continue
		}
		k.mu.Lock()
		if old := k.processes[p.pid]; old != nil {
			k.remove(old) // it has executed another program
		}
		k.processes[p.pid] = p
		atomic.StoreInt64(&p.slot.skew, int64(k.skews[p.pid]))
		k.arrived(p.pid, true)
		k.mu.Unlock()
		k.ended.Go(func() {
			_, _ = conn.Read(make([]byte, 1)) // until its end
			k.mu.Lock()
			defer k.mu.Unlock()
			if k.processes[p.pid] == p {
				k.remove(p)
			}
		})
	}
}

// join takes what a process sends when it starts.
func join(conn *net.UnixConn) (*process, error) {
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	data, control := make([]byte, 1), make([]byte, unix.CmsgSpace(3*4))
	n, cn, _, _, err := conn.ReadMsgUnix(data, control)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	messages, err := unix.ParseSocketControlMessage(control[:cn])
	if err != nil || n != 1 || len(messages) != 1 {
		return nil, errors.Join(errors.New("not a process of the run"), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, err
	}
	closeAll := func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}
	if len(fds) != 3 || data[0] != 2 {
		closeAll()
		return nil, errors.New("not a process of the run")
	}
	var peer *unix.Ucred
	raw, err := conn.SyscallConn()
	if err == nil {
		controlErr := raw.Control(func(fd uintptr) {
			peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		})
		err = errors.Join(err, controlErr)
	}
	if err != nil {
		closeAll()
		return nil, err
	}
	page, err := unix.Mmap(fds[0], 0, pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	_ = unix.Close(fds[0])
	fds = fds[1:]
	if err != nil {
		closeAll()
		return nil, err
	}
	stat, err := unix.Open(fmt.Sprintf("/proc/%d/stat", peer.Pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		stat = -1
	}
	return &process{
		pid: int(peer.Pid), conn: conn, page: page, slot: (*slot)(unsafe.Pointer(&page[0])),
		epoll: fds[0], wake: fds[1], stat: stat,
	}, nil
}

// remove is called with the lock.
func (k *keeper) remove(p *process) {
	delete(k.processes, p.pid)
	_ = p.conn.Close()
	_ = unix.Close(p.epoll)
	_ = unix.Close(p.wake)
	_ = unix.Close(p.stat)
	if p.threads != nil {
		p.threads.leave()
	}
	_ = unix.Munmap(p.page)
}

// monotonic is the run's monotonic time, in which processes tell when their timers are due.
func (k *Keeper) monotonic() int64 {
	now := clock.Monotonic()
	return now + int64(k.clock.At(now))
}

// How long the keeper waits between looks: after a move the processes need some 100 µs, and a busy process often needs
// much longer.
const (
	shortPause = 50 * time.Microsecond
	longPause  = time.Millisecond
)

// loop has a thread of its own, so that its pauses may be short: the runtime's timers are not precise enough.
func (k *Keeper) loop() {
	runtime.LockOSThread() // ends with the goroutine
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1000, 0, 0, 0)
	own := newSelf()
	defer own.close()
	defer func() {
		k.pace.close()
		k.clock.Slow(0)
	}()
	pause, moving := shortPause, false
	for {
		if !k.running.Load() || k.clock.Held() {
			if moving {
				// From now on they wait in real time, for what is left of their time.
				k.mu.Lock()
				for _, p := range k.processes {
					p.rouse()
				}
				k.mu.Unlock()
				moving = false
			}
			if k.running.Load() {
				k.heldSince = cmp.Or(k.heldSince, clock.Monotonic())
			}
			k.keepPace(false)
			if k.clock.Ordered() && k.heldFor() > orderedHold && k.idle(own) {
				k.clock.GoesOn() // what holds the clock may wait for it
			}
			var again <-chan time.Time
			if k.running.Load() {
				again = time.After(paceEvery)
			}
			select {
			case <-k.done:
				return
			case <-k.start:
			case <-k.clock.Freed():
			case <-again:
			}
			continue
		}
		moving, k.heldSince = true, 0
		select {
		case <-k.done:
			return
		default:
		}
		moved := k.step(own)
		k.keepPace(moved)
		if moved {
			pause = shortPause
		} else {
			pause = min(pause*5/4, longPause)
		}
		sleep(pause)
	}
}

func sleep(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil)
}

// The longer the run is calm, the more timers come due with one step: a step may be late by a part of that time, but
// not by more than a busy machine is now and then. It is calm as long as all processes need little time after each
// step.
const (
	little    = 20 * time.Millisecond
	lateBy    = 100 // a hundredth
	mostLate  = 100 * time.Millisecond
	leastLate = time.Millisecond
)

// late is how late the next step may be. It is called with the lock, when nothing happens any more after the last one.
func (k *Keeper) late(now int64) time.Duration {
	if time.Since(k.stepped) > little {
		k.calm = now
	}
	late := min(time.Duration(now-k.calm)/lateBy, mostLate)
	if late < leastLate || k.clock.Ordered() {
		return 0
	}
	return late
}

// step moves the clock if nothing happens.
func (k *Keeper) step(own *self) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.atRest(own) || k.clock.Held() {
		return false
	}
	if k.clock.GoesOn() {
		return true
	}
	now := k.monotonic()
	next, cause := k.next(now)
	if next == math.MaxInt64 || next <= now {
		return false
	}
	k.causes[cause]++
	k.clock.Unheld(func() { k.advance(time.Duration(next-now) + k.late(now)) })
	k.stepped = time.Now()
	return true
}

// idle reports whether nothing happens, although something may hold the clock.
func (k *Keeper) idle(own *self) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.atRest(own)
}

// atRest looks twice, and reports whether nothing happens. It is called with the lock.
func (k *Keeper) atRest(own *self) bool {
	now := k.monotonic()
	k.tell(now)
	if k.busy(own, now, true) != "" {
		return false
	}
	// After this pause, each packet between two processes has arrived, unless the kernel has put it off.
	sleep(shortPause)
	if k.busy(own, now, false) != "" {
		return false
	}
	// The looks at the kernel take the longest, so they come last. A thread that leaves the kernel before its turn has
	// changed something by then, which the second look at the processes finds.
	return !own.network.delayed() && !own.inKernel() && (!k.clock.Ordered() || !k.computes()) &&
		k.busy(own, now, false) == ""
}

// computes reports whether a thread of a process waits for a processor, although no process says that it works: on a
// machine that others keep busy, one that was woken gets its turn late. It is called with the lock.
func (k *Keeper) computes() bool {
	for _, p := range k.processes {
		if p.stopped {
			continue
		}
		if p.threads == nil {
			if p.threads = watchThreads(p.pid, 0); p.threads == nil {
				continue
			}
		}
		if p.threads.runs() {
			return true
		}
	}
	return false
}

// next is when the first timer of any process is due, and whose that is; 0 is this process. It is called with the lock.
func (k *Keeper) next(now int64) (next int64, pid int) {
	next = math.MaxInt64
	for _, p := range k.processes {
		if due := atomic.LoadInt64(&p.slot.next); !p.stopped && due < next {
			next, pid = due, p.pid
		}
	}
	if due, ok := k.clock.Next(); ok {
		if due := now + int64(k.clock.Until(due)); due < next {
			next, pid = due, 0
		}
	}
	return next, pid
}

// busy says what happens in the run, or "" if nothing does. It is called with the lock. The first look remembers what
// it has seen, and the second is true only if that has not changed.
func (k *Keeper) busy(own *self, now int64, first bool) string {
	for _, p := range k.processes {
		if p.works(now, first) {
			return fmt.Sprintf("process %d works", p.pid)
		}
	}
	if why := own.busy(k.processes, first); why != "" {
		return why
	}
	for _, p := range k.processes {
		if !p.stopped && (!p.idle() || atomic.LoadUint64(&p.slot.changes) != p.seen) {
			return fmt.Sprintf("process %d works", p.pid)
		}
	}
	return ""
}

// works reports whether a process that is not stopped does something, or has since the first look.
func (p *process) works(now int64, first bool) bool {
	changes := atomic.LoadUint64(&p.slot.changes)
	if p.stopped {
		return false
	}
	if first {
		p.seen = changes
	}
	return changes != p.seen || !p.idle() || atomic.LoadInt64(&p.slot.next) <= now
}

func (p *process) idle() bool {
	return atomic.LoadUint32(&p.slot.busy) == 0 && atomic.LoadUint32(&p.slot.polling) == 1 &&
		atomic.LoadInt32(&p.slot.calls) == 0
}

// How often a process is notified that a timer is due, and after what time one that works on, or does nothing about a
// timer, is looked at.
const (
	toldAgain   = 5 * time.Millisecond
	perhapsHalt = 20 * time.Millisecond
)

// tell wakes the processes whose timers are due: they wait as long as was right before the clock moved. A process that
// was stopped by a signal does not wake, nor does it take what others send it; the clock does not wait for it. It is
// called with the lock.
func (k *keeper) tell(now int64) {
	for _, p := range k.processes {
		changes, idle := atomic.LoadUint64(&p.slot.changes), p.idle()
		due := idle && atomic.LoadInt64(&p.slot.next) <= now
		if idle && !due && !p.asked && !p.stopped {
			p.since = time.Time{}
			continue
		}
		if p.since.IsZero() || p.same != changes {
			p.same, p.since, p.told, p.stopped = changes, time.Now(), time.Time{}, false
		} else if time.Since(p.since) > perhapsHalt {
			p.since, p.stopped = time.Now(), p.halted()
		}
		if due && time.Since(p.told) > toldAgain {
			p.told = time.Now()
			p.rouse()
		}
	}
}

// rouse makes the process look at its timers.
func (p *process) rouse() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(p.wake, one[:])
}

// halted reports whether the process is stopped by a signal.
func (p *process) halted() bool {
	var data [512]byte
	n, err := unix.Pread(p.stat, data[:], 0)
	return err == nil && stateIn(data[:n]) == 'T'
}

// stateIn returns the state in a file stat of a process or thread, after its name in parentheses.
func stateIn(stat []byte) byte {
	rest := stat[bytes.LastIndexByte(stat, ')')+1:]
	if len(rest) < 2 {
		return 0
	}
	return rest[1]
}

// State returns what the keeper sees now.
func (k *Keeper) State() State {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := State{Moved: k.moved, Steps: k.steps, Processes: len(k.processes), Causes: maps.Clone(k.causes),
		Wakes: map[int]uint64{}}
	for _, p := range k.processes {
		s.Wakes[p.pid] = atomic.LoadUint64(&p.slot.changes)
	}
	now := k.monotonic()
	if next, _ := k.next(now); next != math.MaxInt64 {
		s.Next = k.clock.Now().Add(time.Duration(next - now))
	}
	if k.clock.Held() {
		s.Busy = "the clock is held"
		if len(k.expected) > 0 {
			s.Busy = "a process that does not have the clock runs"
		}
		return s
	}
	for _, p := range k.processes {
		if !p.stopped && !p.idle() {
			s.Busy = fmt.Sprintf("process %d works", p.pid)
			return s
		}
	}
	s.Idle = true
	return s
}

// self is what the keeper's own process does. It has Go's own runtime, so this is less exact than what others tell:
// what the poller has just taken from its epoll instance is not seen for a microsecond.
type self struct {
	samples []metrics.Sample
	created uint64
	threads *threadStates // of this process, but the calling one
	polls   []unix.PollFd // own, and then one for each of polled
	polled  []*process
	own     []unix.PollFd
	network softnet
}

func newSelf() *self {
	s := &self{samples: []metrics.Sample{
		{Name: "/sched/goroutines/running:goroutines"},
		{Name: "/sched/goroutines/runnable:goroutines"},
		{Name: "/sched/goroutines-created:goroutines"},
	}}
	s.network.open()
	if fd := ownEpoll(); fd >= 0 {
		s.own = []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	}
	return s
}

// ownEpoll is the epoll instance of this process's runtime: the first that there is, before any process has sent its
// own. It is -1 if it is not found.
var ownEpoll = sync.OnceValue(func() int {
	first := -1
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return first
	}
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || target != "anon_inode:[eventpoll]" {
			continue
		}
		if fd, err := strconv.Atoi(e.Name()); err == nil && (first < 0 || fd < first) {
			first = fd
		}
	}
	return first
})

// busy looks at this process, and at what has arrived.
func (s *self) busy(processes map[int]*process, first bool) string {
	metrics.Read(s.samples)
	if s.samples[0].Value.Uint64() > 1 || s.samples[1].Value.Uint64() > 0 {
		return "trommel itself works"
	}
	created := s.samples[2].Value.Uint64()
	if first {
		s.created = created
	} else if s.created != created {
		return "trommel itself works"
	}
	return s.arrived(processes)
}

// arrived looks at what has arrived for any process and was not yet taken.
func (s *self) arrived(processes map[int]*process) string {
	s.polls, s.polled = append(s.polls[:0], s.own...), s.polled[:0]
	for _, p := range processes {
		if !p.stopped {
			s.polls = append(s.polls, unix.PollFd{Fd: int32(p.epoll), Events: unix.POLLIN})
			s.polled = append(s.polled, p)
		}
	}
	for {
		n, err := unix.Poll(s.polls, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return "poll: " + err.Error()
		}
		for i, p := range s.polled {
			p.asked = s.polls[len(s.own)+i].Revents != 0
		}
		if n > 0 {
			return "something is on its way"
		}
		return ""
	}
}

// inKernel reports whether the kernel works for another thread of this process, such as writing to a slow disk. The
// runtime cannot tell that from a system call that waits for others.
func (s *self) inKernel() bool {
	if s.threads == nil { // there were too many open files
		s.threads = watchThreads(os.Getpid(), unix.Gettid())
	}
	return s.threads == nil || s.threads.runs()
}

func (s *self) close() {
	if s.threads != nil {
		s.threads.leave()
	}
	s.network.close()
}
