//go:build amd64 || arm64

package keeper

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trommel-dev/trommel/internal/clock"
)

// A run whose processes lack processors, because others have them, gets slower; its clock gets slower with it, so that
// what ends by the clock, such as a fault of three seconds, strikes as much work as on a machine of its own. What it
// lacks is what its threads have waited for a processor, but no more than others have computed meanwhile: on a machine
// of its own its threads wait for one another, too.
const (
	// paceEvery is how often that is measured, by the machine's clock, at most: measuring takes no more than a
	// paceCost-th of the time.
	paceEvery = 25 * time.Millisecond
	paceCost  = 100
	// slowest is the least that the clock goes by, in parts of clock.Whole: what waits by the clock of a run that is
	// never idle must end.
	slowest = clock.Whole / 16
	// paceRepair is in what time the clock makes up for having been too fast before that was measured, and paceDebt
	// how much it makes up for.
	paceRepair = 100 * time.Millisecond
	paceDebt   = time.Second
	// orderedHold is after what time the clock of an ordered run goes as the machine's while something holds it, which
	// may wait for time to pass.
	orderedHold = time.Second
	// orderedBusy is for how long an ordered run may be busy until its clock goes by an orderedPart-th of the
	// machine's: a process may work until some time has passed.
	orderedBusy = 5 * time.Second
	orderedPart = 1024
	// othersEvery is how often it is measured what others have computed, at most: the kernel counts that in ticks.
	othersEvery = 200 * time.Millisecond
	tick        = 10 * time.Millisecond // USER_HZ is 100 on all processors that there is a keeper for
)

// used is what a thread has computed, and how long it has waited for a processor, in nanoseconds.
type used struct{ computed, waited int64 }

// pace measures how many processors a run lacks.
type pace struct {
	processes map[int]*threads // by process ID
	budget    int              // how many more files it may have open
	looked    time.Time        // zero: not yet
	pause     time.Duration    // until the next look
	slow      int64            // what the clock was set to, see clock.Line
	debt      time.Duration    // how far the clock is ahead of what the run has deserved

	computed int64   // by the run, since its beginning
	others   float64 // how many processors others have had
	counted  count   // when others was measured
}

// count is what has been computed until a moment, in nanoseconds.
type count struct {
	at        time.Time
	own, busy int64 // by the run and this process; by all of the machine
}

// threads are those of a process. Their files stay open: to look one up by its name costs the kernel much more than to
// read it.
type threads struct {
	dir   int               // open
	links uint64            // the directory's link count at the last look, which grows with each thread
	files map[int]openUsage // by thread
}

type openUsage struct {
	file int
	used used
}

func newPace() *pace {
	const most, part = 1024, 8 // others need files, too
	p := &pace{processes: map[int]*threads{}, budget: most}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil && limit.Cur/part < most {
		p.budget = int(limit.Cur / part)
	}
	return p
}

// forget ends that the clock is slow.
func (p *pace) forget() { p.looked, p.slow, p.debt, p.counted = time.Time{}, 0, 0, count{} }

// keepPace sets the clock's pace. Once the clock has been moved nothing waits any more for what has happened before.
func (k *Keeper) keepPace(moved bool) {
	p := k.pace
	if !k.running.Load() || !k.clock.Paced() || k.clock.Real() {
		p.forget()
		k.clock.Slow(0)
		return
	}
	if k.clock.Ordered() {
		p.forget()
		k.clock.Slow(k.orderedSlow(moved))
		return
	}
	k.rested = time.Time{}
	if moved {
		p.debt = 0
	}
	now := time.Now()
	since := now.Sub(p.looked)
	if since < p.pause {
		return
	}
	began := threadTime()
	k.mu.Lock()
	of := make([]int, 0, len(k.processes))
	for pid := range k.processes {
		of = append(of, pid)
	}
	k.mu.Unlock()
	u := p.look(of)
	p.computed += u.computed
	p.count(now)
	first := p.looked.IsZero()
	p.looked = now
	p.pause = max(paceEvery, paceCost*(threadTime()-began))
	if !first {
		p.slow = p.next(u, since)
		k.clock.Slow(p.slow)
	}
}

// orderedSlow is how slow the clock of an ordered run shall be, of which a step may just have gone on.
func (k *Keeper) orderedSlow(moved bool) int64 {
	switch {
	case k.heldFor() > orderedHold:
		return 0
	case moved || k.rested.IsZero():
		k.rested = time.Now()
	case time.Since(k.rested) > orderedBusy:
		return clock.Whole - clock.Whole/orderedPart
	}
	return clock.Whole - 1
}

// heldFor is for how long something has held the clock, by the machine's clock.
func (k *Keeper) heldFor() time.Duration {
	if k.heldSince == 0 {
		return 0
	}
	return time.Duration(clock.Monotonic() - k.heldSince)
}

// count measures how many processors others have.
func (p *pace) count(now time.Time) {
	since := now.Sub(p.counted.at)
	if since < othersEvery {
		return
	}
	busy, ok := machineTime()
	if !ok {
		return
	}
	c := count{now, p.computed + int64(processTime()), busy}
	if p.counted.at.IsZero() {
		p.others = 0
	} else {
		p.others = max(0, float64(c.busy-p.counted.busy-(c.own-p.counted.own))/float64(since))
	}
	p.counted = c
}

// next is how slow the clock shall be after a time in which its run has used this much.
func (p *pace) next(u used, since time.Duration) int64 {
	share := int64(clock.Whole) // of the time that the run would have needed on a machine of its own
	if lost := min(u.waited, int64(p.others*float64(since))); lost > 0 {
		share = max(u.computed*clock.Whole/(u.computed+lost), clock.Whole-lost*clock.Whole/int64(since))
	}
	p.debt += since * time.Duration(clock.Whole-p.slow-share) / clock.Whole
	p.debt = min(max(p.debt, 0), paceDebt)
	speed := share - int64(p.debt*clock.Whole/paceRepair)
	return clock.Whole - max(speed, slowest)
}

// look returns what the processes' threads have computed and waited since the last look.
func (p *pace) look(processes []int) used {
	for pid := range p.processes {
		if !slices.Contains(processes, pid) {
			p.leave(pid)
		}
	}
	var sum used
	for _, pid := range processes {
		of, known := p.processes[pid]
		if !known {
			if of = p.open(pid); of == nil {
				continue
			}
			p.processes[pid] = of
		}
		u := p.read(pid, of)
		if known {
			sum.computed += u.computed
			sum.waited += u.waited
		}
	}
	return sum
}

// open opens the list of a process's threads; nil if it has ended, or there are too many open files.
func (p *pace) open(pid int) *threads {
	dir, ok := p.openFile(taskDir(pid), unix.O_DIRECTORY)
	if !ok {
		return nil
	}
	return &threads{dir: dir, files: map[int]openUsage{}}
}

func (p *pace) openFile(path string, flags int) (int, bool) {
	if p.budget <= 0 {
		return -1, false
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|flags, 0)
	if err == nil {
		p.budget--
	}
	return fd, err == nil
}

func (p *pace) closeFile(fd int) {
	_ = unix.Close(fd)
	p.budget++
}

// leave ends that a process is looked at.
func (p *pace) leave(pid int) {
	of := p.processes[pid]
	for _, f := range of.files {
		p.closeFile(f.file)
	}
	p.closeFile(of.dir)
	delete(p.processes, pid)
}

// close ends that anything is looked at.
func (p *pace) close() {
	for pid := range p.processes {
		p.leave(pid)
	}
}

// read returns what the threads have used since they were read last, or since their beginning.
func (p *pace) read(pid int, of *threads) (sum used) {
	var dir unix.Stat_t
	if err := unix.Fstat(of.dir, &dir); err == nil && uint64(dir.Nlink) != of.links {
		of.links = uint64(dir.Nlink)
		entries, _ := os.ReadDir(taskDir(pid)) // it may have ended
		for _, e := range entries {
			tid, err := strconv.Atoi(e.Name())
			if _, known := of.files[tid]; err != nil || known {
				continue
			}
			if fd, ok := p.openFile(fmt.Sprintf("%s/%d/schedstat", taskDir(pid), tid), 0); ok {
				of.files[tid] = openUsage{file: fd}
			}
		}
	}
	for tid, f := range of.files {
		u, ok := readUsed(f.file)
		if !ok { // it has ended
			p.closeFile(f.file)
			delete(of.files, tid)
			of.links = 0
			continue
		}
		sum.computed += u.computed - f.used.computed
		sum.waited += u.waited - f.used.waited
		of.files[tid] = openUsage{f.file, u}
	}
	return sum
}

// threadTime is what the calling thread has computed, and processTime what this process has.
func threadTime() time.Duration  { return readClock(unix.CLOCK_THREAD_CPUTIME_ID) }
func processTime() time.Duration { return readClock(unix.CLOCK_PROCESS_CPUTIME_ID) }

func readClock(id int32) time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(id, &t)
	return time.Duration(t.Nano())
}

// machineTime is what all processes of the machine have computed, in nanoseconds.
func machineTime() (int64, bool) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, false
	}
	return parseMachineTime(string(text))
}

// parseMachineTime takes the first three numbers of the first line, which is for all processors: ticks of user, nice
// and system.
func parseMachineTime(stat string) (int64, bool) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 4 || fields[0] != "cpu" {
		return 0, false
	}
	var ticks int64
	for _, f := range fields[1:4] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, false
		}
		ticks += n
	}
	return ticks * int64(tick), true
}

// readUsed reads an open file schedstat. A kernel without it (CONFIG_SCHED_INFO) does not tell that processors are
// lacking.
func readUsed(fd int) (used, bool) {
	var data [64]byte
	n, err := unix.Pread(fd, data[:], 0)
	if err != nil {
		return used{}, false
	}
	return parseUsed(string(data[:n]))
}

// parseUsed takes the first two of three numbers.
func parseUsed(text string) (used, bool) {
	computed, rest, _ := strings.Cut(text, " ")
	waited, _, whole := strings.Cut(rest, " ")
	c, err := strconv.ParseInt(computed, 10, 64)
	w, err2 := strconv.ParseInt(waited, 10, 64)
	if !whole || err != nil || err2 != nil {
		return used{}, false
	}
	return used{c, w}, true
}
