// Package filelock locks files between processes.
//
// A lock belongs to the open file. It lasts until the file is closed in this process and in each process that has
// inherited it, so a command that outlives its caller keeps the lock. Locks of different openings of one file exclude
// each other, also within a process.
//
// Package lockedfile of go-internal does not fit: it can neither try a lock nor wait with a context, and closing a file
// takes the lock from processes that have inherited it.
package filelock

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// ErrLocked says that the file is locked already.
const ErrLocked = syscall.EWOULDBLOCK

// pollInterval is how often Lock and LockShared try.
const pollInterval = 50 * time.Millisecond

// Try takes the exclusive lock of a file. It does not wait: if the file is locked, it returns ErrLocked.
func Try(f *os.File) error { return try(f, syscall.LOCK_EX) }

// TryShared takes a shared lock of a file. It does not wait: if the file is locked exclusively, it returns ErrLocked.
func TryShared(f *os.File) error { return try(f, syscall.LOCK_SH) }

func try(f *os.File, how int) error {
	for {
		if err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// Lock takes the exclusive lock of a file. It calls waiting once if the file is locked, and waits until it has the lock
// or ctx ends. The error is then that of ctx. waiting may be nil.
func Lock(ctx context.Context, f *os.File, waiting func()) error { return wait(ctx, f, Try, waiting) }

// LockShared takes a shared lock of a file. It waits until it has the lock or ctx ends.
func LockShared(ctx context.Context, f *os.File) error { return wait(ctx, f, TryShared, nil) }

func wait(ctx context.Context, f *os.File, try func(*os.File) error, waiting func()) error {
	for tried := 0; ; tried++ {
		if err := try(f); !errors.Is(err, ErrLocked) {
			return err
		}
		if tried == 0 && waiting != nil {
			waiting()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollInterval):
		}
	}
}

// Block takes the exclusive lock of a file. It waits without a limit, so it is for locks that are held for a moment.
func Block(f *os.File) error {
	for {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
