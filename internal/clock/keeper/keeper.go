// Package keeper keeps the clock of a run's processes.
//
// All of these processes are built with a runtime that takes the time from a page of memory, which the keeper writes
// (instrumentation/points/standard_clock.go.tmpl). Each process tells the keeper through a page of its own whether it is
// idle, and when its next timer is due. When every process is idle, and this one too, nothing can happen before the
// first of these timers; so the keeper moves the clock there at once. While any of them works, the clock goes as the
// machine's does: nothing times out because of a jump.
package keeper

import (
	"errors"
	"time"

	"github.com/trommel-dev/trommel/internal/clock"
)

// Env is the environment variable that tells a process the keeper's directory.
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
}

// Keeper is made by Start, and ended by Close.
type Keeper struct {
	clock *clock.Clock
	*keeper
}

// Clock is the clock that it keeps.
func (k *Keeper) Clock() *clock.Clock { return k.clock }
