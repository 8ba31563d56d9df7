//go:build amd64 || arm64

package keeper

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trommel-dev/trommel/internal/clock"
)

// A run whose processes lack processors, because others have them, gets slower; its clock gets slower with it, so that
// what ends by the clock, such as a fault of three seconds, strikes as much work as on a machine of its own. How many
// processors it lacks is what its threads have waited for one, in proportion to what they have computed.
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
)

// used is what a thread has computed, and how long it has waited for a processor, in nanoseconds.
type used struct{ computed, waited int64 }

// pace measures how many processors a run lacks.
type pace struct {
	processes map[int]*threads // by process ID
	budget    int              // how many more files it may have open
	looked    time.Time        // zero: not yet
	pause     time.Duration    // until the next look
	slow      int64            // what the clock was told, see clock.Line
	debt      time.Duration    // how far the clock is ahead of what the run has deserved
}

// threads are those of a process. Their files stay open: to look one up by its name costs the kernel much more than to
// read it.
type threads struct {
	dir   int               // open
	links uint64            // of the directory, which tell how many threads there were
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
func (p *pace) forget() { p.looked, p.slow, p.debt = time.Time{}, 0, 0 }

// keepPace sets the clock's pace. Once the clock has been moved nothing waits any more for what has happened before.
func (k *Keeper) keepPace(moved bool) {
	p := k.pace
	if moved {
		p.debt = 0
	}
	defer func() {
		if k.clock.Real() {
			k.clock.Slow(0)
		} else {
			k.clock.Slow(p.slow)
		}
	}()
	now, began := time.Now(), threadTime()
	since := now.Sub(p.looked)
	if since < p.pause {
		return
	}
	k.mu.Lock()
	of := make([]int, 0, len(k.processes))
	for pid := range k.processes {
		of = append(of, pid)
	}
	k.mu.Unlock()
	u := p.look(of)
	first := p.looked.IsZero()
	p.looked = now
	p.pause = max(paceEvery, paceCost*(threadTime()-began))
	if !first {
		p.slow = p.next(u, since)
	}
}

// next is how slow the clock shall be after a time in which its run has used this much.
func (p *pace) next(u used, since time.Duration) int64 {
	share := int64(clock.Whole) // of the time that the run would have needed on a machine of its own
	if u.waited > 0 {
		// It has lost no more than what all of its threads have waited.
		share = max(u.computed*clock.Whole/(u.computed+u.waited), clock.Whole-u.waited*clock.Whole/int64(since))
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
	dir, ok := p.openFile(fmt.Sprintf("/proc/%d/task", pid), unix.O_DIRECTORY)
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
		entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid)) // it may have ended
		for _, e := range entries {
			tid, err := strconv.Atoi(e.Name())
			if _, known := of.files[tid]; err != nil || known {
				continue
			}
			if fd, ok := p.openFile(fmt.Sprintf("/proc/%d/task/%d/schedstat", pid, tid), 0); ok {
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

// threadTime is what the calling thread has computed.
func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}

// readUsed reads an open file schedstat. A kernel without it (CONFIG_SCHED_INFO) does not tell that processors are
// lacking.
func readUsed(fd int) (used, bool) {
	var data [64]byte
	n, err := unix.Pread(fd, data[:], 0)
	if err != nil {
		return used{}, false
	}
	return parseUsed(data[:n])
}

// parseUsed takes the first two of three numbers.
func parseUsed(text []byte) (used, bool) {
	var values [2]int64
	i := 0
	for _, c := range text {
		switch {
		case c == ' ':
			if i++; i == len(values) {
				return used{values[0], values[1]}, true
			}
		case c >= '0' && c <= '9':
			values[i] = values[i]*10 + int64(c-'0')
		default:
			return used{}, false
		}
	}
	return used{}, false
}
