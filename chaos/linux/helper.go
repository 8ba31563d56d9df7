package linux

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// A helper is this program, started with these arguments and a helperSpec.
const (
	helperName     = "trommel-injector-helper"
	helperArgument = "put-pressure"
	// helperReady is the line that a helper writes when its pressure is in effect, or has begun to grow.
	helperReady = "ready"
)

// helperSpec is what a helper does.
type helperSpec struct {
	// ID of the injection.
	ID     string      `json:"id"`
	CPU    *cpuSpec    `json:"cpu,omitempty"`
	Memory *memorySpec `json:"memory,omitempty"`
}

type cpuSpec struct {
	// Threads, one for each processor.
	Threads int `json:"threads"`
	// Processors is how many processors' time all threads take together.
	Processors float64 `json:"processors"`
}

type memorySpec struct {
	// Percent of the limit that is in use in the end.
	Percent int32         `json:"percent"`
	Ramp    time.Duration `json:"ramp,omitempty"`
	// Limit in bytes, and the cgroup that has it. Without one it is the node's memory.
	Limit  int64  `json:"limit,omitempty"`
	Cgroup string `json:"cgroup,omitempty"`
	Proc   string `json:"proc"`
	// OOMScoreAdj is the target's: the kernel chooses between both as if one of them had all the memory.
	OOMScoreAdj string `json:"oomScoreAdj,omitempty"`
}

// Helper does a helper's work if the process was started as one, and returns its exit code. main must call it before
// anything else, and end if isHelper is true.
func Helper(args []string) (code int, isHelper bool) {
	if len(args) != 3 || args[0] != helperName || args[1] != helperArgument {
		return 0, false
	}
	if err := help(args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return 0, true
}

// help works until its injector ends, however that ends: then the pipe to it breaks.
func help(text string) error {
	var spec helperSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return err
	}
	// The injector first puts it where it belongs.
	var begin [3]byte
	if _, err := io.ReadFull(os.Stdin, begin[:]); err != nil {
		return nil // the injector has ended
	}
	over := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		over <- err
	}()
	switch {
	case spec.CPU != nil:
		for n := range spec.CPU.Threads {
			go func() { over <- burn(spec.CPU, n) }()
		}
		fmt.Println(helperReady)
	case spec.Memory != nil:
		go func() {
			if err := fill(spec.Memory); err != nil {
				over <- err
			}
		}()
	default:
		return errors.New("nothing to do")
	}
	return <-over
}

// step is the longest time without a look at the clock, and the shortest pause.
const step = time.Millisecond

// burn takes a thread's share of the processors' time. Its priority is the highest, so that the target gets what is
// left.
func burn(spec *cpuSpec, n int) error {
	runtime.LockOSThread()
	tid := unix.Gettid()
	if err := unix.Setpriority(unix.PRIO_PROCESS, tid, -20); err != nil {
		return fmt.Errorf("raise the priority: %w", err)
	}
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(tid, &allowed); err != nil {
		return fmt.Errorf("read the allowed processors: %w", err)
	}
	for cpu := range len(allowed) * 64 {
		if !allowed.IsSet(cpu) {
			continue
		}
		if n == 0 {
			var one unix.CPUSet
			one.Set(cpu)
			// The allowed ones may just have changed: then the kernel places the thread.
			_ = unix.SchedSetaffinity(tid, &one)
			break
		}
		n--
	}
	share := spec.Processors / float64(spec.Threads)
	// It may run while it has had less than its share. What a quota has kept from it is caught up with, but not for
	// long.
	debt, before, used := time.Duration(0), time.Now(), threadTime()
	for {
		now, took := time.Now(), threadTime()
		debt += time.Duration(share*float64(now.Sub(before))) - (took - used)
		debt = min(debt, time.Duration(share*float64(500*time.Millisecond)))
		before, used = now, took
		if debt < step && share < 1 {
			time.Sleep(step) // the duty cycle's pause
			continue
		}
		for threadTime()-took < step {
			continue // the load itself
		}
	}
}

// threadTime is the processor time of the thread.
func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}

const (
	// chunk is how much memory is taken at once, in bytes.
	chunk = 1 << 20
	// rampStep is the time between two looks at what is in use.
	rampStep = 50 * time.Millisecond
)

// fill takes memory until the wanted share is in use, and keeps it.
func fill(spec *memorySpec) error {
	if spec.OOMScoreAdj != "" {
		if err := os.WriteFile("/proc/self/oom_score_adj", []byte(spec.OOMScoreAdj), 0); err != nil {
			return err
		}
	}
	began := time.Now()
	said := false
	say := func() {
		if !said {
			said = true
			fmt.Println(helperReady)
		}
	}
	first := int64(-1)
	for {
		limit, use := spec.Limit, int64(0)
		var err error
		if limit > 0 {
			use, err = memoryUse(spec.Cgroup)
		} else {
			limit, use, err = nodeMemory(spec.Proc)
		}
		if err != nil {
			return err
		}
		if first < 0 {
			first = use
		}
		goal := limit / 100 * int64(spec.Percent)
		elapsed := time.Since(began)
		if elapsed < spec.Ramp {
			goal = first + int64(float64(goal-first)*float64(elapsed)/float64(spec.Ramp))
			say()
		}
		for ; use+chunk <= goal; use += chunk {
			memory, err := unix.Mmap(-1, 0, chunk, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
			if err != nil {
				return fmt.Errorf("take memory: %w", err)
			}
			for at := 0; at < chunk; at += os.Getpagesize() {
				memory[at] = 1
			}
		}
		if elapsed >= spec.Ramp {
			say()
			return nil // it keeps what it has
		}
		time.Sleep(rampStep) // the ramp
	}
}
