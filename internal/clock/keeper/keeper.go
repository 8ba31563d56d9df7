// Package keeper keeps the clock of a run's processes.
//
// All of these processes are built with a runtime that takes the time from a page of memory, which the keeper writes
// (instrumentation/points/standard_clock.go.tmpl). Each process reports to the keeper through a page of its own whether
// it is idle, and when its next timer is due. When every process is idle, and this one too, nothing can happen before
// the first of these timers; so the keeper moves the clock there at once. While any of them works, the clock goes as
// the machine's does: nothing times out because of a jump.
package keeper

import (
	"errors"
	"time"

	"github.com/trommel-dev/trommel/internal/clock"
)

// Env is the environment variable that names the keeper's directory to a process.
const Env = "TROMMEL_CLOCK"

// ErrUnsupported says that this system has no keeper.
var ErrUnsupported = errors.New("the clock of a run needs Linux on amd64 or arm64")

// State is what the keeper sees.
type State struct {
	// Idle is true if the clock could be moved: nothing happens in any process.
	Idle bool
	// Busy says why not, for people.
	Busy string
	// Next is when the first timer of any process is due, by the clock; zero without any.
	Next time.Time
	// Moved is how far, and Steps how often, the clock has been moved.
	Moved time.Duration
	Steps int
	// Processes is the number of processes that have the clock.
	Processes int
	// Causes counts the steps by the process whose timer was the first that was due; 0 is this process. Wakes is how
	// often each process has begun to work.
	Causes map[int]int
	Wakes  map[int]uint64
}

// Keeper is made by Start, and ended by Close.
type Keeper struct {
	clock *clock.Clock
	dir   string
	*keeper
}

// Clock is the clock that it keeps; a nil Keeper keeps the machine's.
func (k *Keeper) Clock() *clock.Clock {
	if k == nil {
		return nil
	}
	return k.clock
}

// Environ returns the environment variables of processes that shall have the clock; none if the keeper is nil.
func (k *Keeper) Environ() []string {
	if k == nil {
		return nil
	}
	return []string{Env + "=" + k.dir}
}

// Adopt starts a process that lives by the keeper's clock, if its executable was built for that and Environ is in its
// environment. Until the process has joined the clock, and for as long as it lives if it does not, everything goes in
// real time. A nil keeper only starts it.
func Adopt[P interface {
	PID() int
	Done() <-chan struct{}
}](k *Keeper, start func() (P, error)) (P, error) {
	if k == nil {
		return start()
	}
	defer k.clock.Hold()()
	p, err := start()
	if err != nil {
		return p, err
	}
	k.Expect(p.PID())
	go func() {
		<-p.Done()
		k.Gone(p.PID())
	}()
	return p, nil
}
