package faults

import (
	"context"
	"time"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/inject/fault"

	"github.com/trommel-dev/trommel/internal/clock"
)

var _ = register(v1alpha1.KindMemoryPressure, prepareMemoryPressure)

// rampStep is the time between two steps of a pressure that grows.
const rampStep = 100 * time.Millisecond

// prepareMemoryPressure leaves each of the target's processes, and those that are started in their place, as much
// memory as they could still get if the share of the limit were in use. No memory is taken: the processes are in no
// cgroup, so what others take is not theirs.
func prepareMemoryPressure(
	_ context.Context, p *Pod, f fault.Fault, spec v1alpha1.MemoryPressure,
) (beginFunc, error) {
	containers, err := p.targets(f)
	if err != nil {
		return nil, err
	}
	machine, err := machineMemory()
	if err != nil {
		return nil, err
	}
	var all []*pressed
	for _, c := range containers {
		limit := machine
		if own := c.MemoryLimit(); own > 0 {
			limit = min(limit, own)
		}
		all = append(all, &pressed{container: c, limit: limit, target: int64(spec.Target)})
	}
	ramp := time.Duration(0)
	if spec.Ramp != nil {
		ramp = spec.Ramp.Duration()
	}
	return func() (func(), error) {
		ctx, cancel := context.WithCancel(clock.With(context.Background(), clock.Of(p.set.ctx)))
		done := make(chan struct{})
		began := clock.Now(ctx)
		// press returns a channel that is closed when there may be other processes, and whether the pressure grows.
		press := func() (<-chan struct{}, bool, error) {
			changed, part := p.set.config.Changed(), 1.0
			if passed := clock.Since(ctx, began); passed < ramp {
				part = float64(passed) / float64(ramp)
			}
			for _, c := range all {
				if err := c.press(part); err != nil {
					return changed, false, err
				}
			}
			return changed, part < 1, nil
		}
		relieve := func() {
			for _, c := range all {
				c.relieve()
			}
		}
		changed, grows, err := press()
		if err != nil {
			cancel()
			relieve()
			return nil, err
		}
		go func() {
			defer close(done)
			for {
				var step <-chan time.Time
				stop := func() bool { return false }
				if grows {
					timer := clock.NewTimer(ctx, rampStep)
					step, stop = timer.C, timer.Stop
				}
				select {
				case <-changed:
				case <-step:
				case <-ctx.Done():
					stop()
					return
				}
				stop()
				if changed, grows, err = press(); err != nil {
					p.set.log.Error("limit the memory of a process", "namespace", p.config.Namespace,
						"pod", p.config.Name, "error", err)
				}
			}
		}()
		return func() {
			cancel()
			<-done
			relieve()
			for _, c := range containers {
				c.Forgive()
			}
		}, nil
	}, nil
}

// pressed is a container that is short of memory.
type pressed struct {
	container Container
	limit     int64 // in bytes
	target    int64 // share of it in use in the end, in percent
	pid       int   // of the process with the limit
	last      bool  // it has the limit of the end
	memory    processMemory
	first     *memoryUse // of the first process, when its limit was first set
}

// memoryUse is the memory of a process, in bytes.
type memoryUse struct {
	used int64 // that it uses
	data int64 // that it has mapped to write into
}

// press leaves the container's process as much memory as the part of the pressure says that there is by now. The first
// call of the end decides for a process. One that takes the place of another may have as much as the first: when it has
// just started it has mapped nearly nothing yet, and the stacks of its threads alone, which it hardly uses, could be
// more than it may add to that.
func (c *pressed) press(part float64) error {
	pid := c.container.ShortOfMemory()
	if pid == 0 || pid == c.pid && c.last {
		return nil
	}
	if pid != c.pid {
		c.pid, c.memory = pid, processMemory{pid: pid}
	}
	now, err := c.memory.use()
	if err != nil || now == nil {
		return err
	}
	if c.first == nil {
		c.first = now
	}
	limit := max(now.data+c.left(now.used, part), c.first.data+c.left(c.first.used, part))
	err = c.memory.set(uint64(limit))
	c.last = err == nil && part == 1
	return err
}

// left is how much more memory than it uses a process may get.
func (c *pressed) left(used int64, part float64) int64 {
	free := max(c.limit-used, 0)
	inTheEnd := min(free, c.limit/100*(100-c.target))
	return free - int64(part*float64(free-inTheEnd))
}

// relieve gives the process, and those that it has started, their own limit back.
func (c *pressed) relieve() {
	if c.pid != 0 {
		c.memory.restore()
	}
}
