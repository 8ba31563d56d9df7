package faults

import (
	"context"
	"syscall"
	"time"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/inject/fault"

	"github.com/trommel-dev/trommel/internal/clock"
)

var (
	_ = register(v1alpha1.KindContainerFailure, prepareContainerFailure)
	_ = register(v1alpha1.KindCPUPressure, prepareCPUPressure)
)

// prepareContainerFailure ends the target's processes, and those that are started in their place. Their exits count as
// planned, so that no verdict blames the controller, but there is a back-off between them as after crashes.
func prepareContainerFailure(
	_ context.Context, p *Pod, f fault.Fault, spec v1alpha1.ContainerFailure,
) (beginFunc, error) {
	containers, err := p.targets(f)
	if err != nil {
		return nil, err
	}
	signal := syscall.SIGKILL
	if spec.Signal == "TERM" {
		signal = syscall.SIGTERM
	}
	// fail returns a channel that is closed when there may be other processes.
	fail := func() <-chan struct{} {
		changed := p.set.config.Changed()
		for _, c := range containers {
			c.End(signal)
		}
		return changed
	}
	return func() (func(), error) {
		changed := fail()
		if spec.Once {
			return func() {}, nil
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-changed:
				case <-ctx.Done():
					return
				}
				changed = fail()
			}
		}()
		return func() {
			cancel()
			<-done
			for _, c := range containers {
				c.Forgive()
			}
		}, nil
	}, nil
}

// prepareCPUPressure stops the target's processes for a share of the time. A process on this node has no processors of
// its own that others could take.
func prepareCPUPressure(_ context.Context, p *Pod, f fault.Fault, spec v1alpha1.CPUPressure) (beginFunc, error) {
	containers, err := p.targets(f)
	if err != nil {
		return nil, err
	}
	// Some time is always left: a process that never runs is not under pressure but frozen.
	share := 0.01
	if spec.Load != nil {
		share = max(1-float64(*spec.Load)/100, share)
	}
	return func() (func(), error) {
		ctx, cancel := context.WithCancel(clock.With(context.Background(), clock.Of(p.set.ctx)))
		started, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			throttle(ctx, containers, share, func() { close(started) })
		}()
		<-started
		return func() {
			cancel()
			<-done
		}, nil
	}, nil
}

// throttlePeriod is the time from one stop to the next one; a small share of time makes it longer.
const throttlePeriod = 20 * time.Millisecond

// throttle stops and continues the containers' processes so that they run for a share of the time, until the context is
// done. None is stopped by it then. If this program dies, its children die.
//
// It measures how busy this machine is, so its times are real ones and not the cluster's. A stopped process cannot take
// part in the cluster's time: the clock does not move ahead as long as one is stopped.
func throttle(ctx context.Context, containers []Container, share float64, started func()) {
	running := max(time.Duration(float64(throttlePeriod)*share), time.Millisecond)
	stopped := time.Duration(float64(running) * (1 - share) / share)
	timer := time.NewTimer(0)
	<-timer.C
	defer timer.Stop()
	sleep := func(d time.Duration) {
		timer.Reset(d)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	// A timer of a busy machine is late. The share counts, so the next stop is longer or shorter.
	var missing time.Duration // missing of the time in which they should have been stopped
	cycle := time.Now()
	for started != nil || ctx.Err() == nil {
		release := clock.Hold(ctx)
		var resume []func()
		for _, c := range containers {
			if f := c.Suspend(); f != nil {
				resume = append(resume, f)
			}
		}
		begin := time.Now() // on a busy machine a process takes a while to stop
		if started != nil {
			started()
			started = nil
		}
		sleep(min(max(stopped+missing, stopped/4), 4*stopped))
		for _, f := range resume {
			f()
		}
		release()
		halt := time.Since(begin)
		sleep(running)
		total := time.Since(cycle)
		cycle = cycle.Add(total)
		missing += time.Duration(float64(total)*(1-share)) - halt
		missing = min(max(missing, -4*stopped), 4*stopped)
	}
}
