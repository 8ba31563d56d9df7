package linux

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/inject"
)

func init() {
	register(v1alpha1.KindContainerFailure, func(base injection, spec v1alpha1.ContainerFailure) inject.Injection {
		return &containerFailure{injection: base, spec: spec}
	})
}

// containerFailure sends a signal to the first process of each container.
type containerFailure struct {
	injection
	spec v1alpha1.ContainerFailure

	stop    context.CancelFunc
	stopped sync.WaitGroup
}

// lookForRestarts is how often it looks for containers that have restarted: cgroups do not announce processes.
const lookForRestarts = 50 * time.Millisecond

func (i *containerFailure) signal() unix.Signal {
	if i.spec.Signal == "TERM" {
		return unix.SIGTERM
	}
	return unix.SIGKILL
}

// Check implements inject.Injection.
func (i *containerFailure) Check(context.Context) error {
	if err := privileged(); err != nil {
		return err
	}
	if i.request.Target.NodeLevel {
		return inject.Unsupported("containerFailure ends the containers of pods: choose pods")
	}
	if i.spec.Signal != "" && i.spec.Signal != "TERM" && i.spec.Signal != "KILL" {
		return fmt.Errorf("invalid signal %q", i.spec.Signal)
	}
	_, err := i.containers()
	return err
}

// process is a process that got its signal.
type process struct {
	pid   int
	start uint64
}

// Inject implements inject.Injection.
func (i *containerFailure) Inject(context.Context) error {
	done := map[process]bool{}
	if err := i.strike(done); err != nil {
		return err
	}
	if i.spec.Once {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	i.stop = cancel
	i.stopped.Go(func() {
		again := time.NewTicker(lookForRestarts)
		defer again.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-again.C:
				_ = i.strike(done) // none runs, or one has just gone
			}
		}
	})
	return nil
}

// strike sends the signal to containers that have not got it since they started.
func (i *containerFailure) strike(done map[process]bool) error {
	containers, err := i.containers()
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range containers {
		start, ok := i.node.startTime(c.init)
		p := process{c.init, start}
		if !ok || done[p] {
			continue
		}
		fd, err := unix.PidfdOpen(c.init, 0)
		if err != nil {
			errs = append(errs, ignoreGone(err))
			continue
		}
		// From here on it cannot be mistaken for another.
		if again, ok := i.node.startTime(c.init); ok && again == start {
			done[p] = true
			errs = append(errs, ignoreGone(unix.PidfdSendSignal(fd, i.signal(), nil, 0)))
		}
		errs = append(errs, unix.Close(fd))
	}
	return errors.Join(errs...)
}

func ignoreGone(err error) error {
	if err == nil || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return fmt.Errorf("end a container: %w", err)
}

// Clean implements inject.Injection. What a signal has done cannot be undone: the kubelet restarts containers.
func (i *containerFailure) Clean(context.Context) error {
	if i.stop != nil {
		i.stop()
		i.stopped.Wait()
	}
	return nil
}
