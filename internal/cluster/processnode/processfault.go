package processnode

import (
	"context"
	"syscall"
	"time"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/inject/fault"
)

// prepareContainerFailure ends the target's processes, and those that are started in their place. Their exits count as
// planned, so that no verdict blames the controller, but there is a back-off between them as after crashes.
func prepareContainerFailure(_ context.Context, p *pod, f fault.Fault) (func() (func(), error), error) {
	var spec v1alpha1.ContainerFailure
	if err := decodeSpec(f, &spec); err != nil {
		return nil, err
	}
	containers, err := p.targets(f)
	if err != nil {
		return nil, err
	}
	signal := syscall.SIGKILL
	if spec.Signal == "TERM" {
		signal = syscall.SIGTERM
	}
	return func() (func(), error) {
		changed := p.node.fail(containers, signal)
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
				changed = p.node.fail(containers, signal)
			}
		}()
		return func() {
			cancel()
			<-done
			n := p.node
			n.mu.Lock()
			defer n.mu.Unlock()
			for _, c := range containers {
				c.forgiven++
			}
			n.broadcastLocked()
		}, nil
	}, nil
}

// fail sends the signal to all processes of the containers that have not got it. It returns a channel that is closed
// when there may be others.
func (n *Node) fail(containers []*container, signal syscall.Signal) (changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range containers {
		r := c.current
		if r == nil || r.failed {
			continue
		}
		r.failed, r.record.Planned = true, true
		r.process.Signal(signal)
	}
	return n.changed
}

// prepareCPUPressure stops the target's processes for a share of the time. A process on this node has no processors of
// its own that others could take.
func prepareCPUPressure(_ context.Context, p *pod, f fault.Fault) (func() (func(), error), error) {
	var spec v1alpha1.CPUPressure
	if err := decodeSpec(f, &spec); err != nil {
		return nil, err
	}
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
		ctx, cancel := context.WithCancel(context.Background())
		started, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			p.node.throttle(ctx, containers, share, func() { close(started) })
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
func (n *Node) throttle(ctx context.Context, containers []*container, share float64, started func()) {
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
	// A timer of a busy machine is late. What counts is the share, so the next stop is longer or shorter.
	var missing time.Duration // missing of the time in which they should have been stopped
	cycle := time.Now()
	for started != nil || ctx.Err() == nil {
		n.mu.Lock()
		var runs []*run
		for _, c := range containers {
			if r := c.current; r != nil && !r.frozen {
				runs = append(runs, r)
			}
		}
		n.mu.Unlock()
		for _, r := range runs {
			r.process.Freeze()
		}
		begin := time.Now() // on a busy machine a process takes a while to stop
		if started != nil {
			started()
			started = nil
		}
		sleep(min(max(stopped+missing, stopped/4), 4*stopped))
		n.mu.Lock()
		for _, r := range runs {
			// Freeze sets frozen before it stops a process, under the same lock.
			if !r.frozen {
				r.process.Thaw()
			}
		}
		n.mu.Unlock()
		halt := time.Since(begin)
		sleep(running)
		total := time.Since(cycle)
		cycle = cycle.Add(total)
		missing += time.Duration(float64(total)*(1-share)) - halt
		missing = min(max(missing, -4*stopped), 4*stopped)
	}
}
