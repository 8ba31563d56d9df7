package addons

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/objects"
	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
	"github.com/trommel-dev/trommel/nodes/controller"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// cycles implements actions.Cycles: it writes the requests that a plan asks for, and follows them.
type cycles struct {
	in    func(cluster string) followedCluster[nodes.CycleNodeRequest]
	step  time.Duration // for which a request may stand still
	clock *clock.Clock

	mu    sync.Mutex
	begun map[string]*cycle
	order []string // the names of those that were begun

	watching sync.WaitGroup
	stops    []context.CancelFunc
}

// cycle is a CycleNodeRequest that the plan has created, as far as it was seen.
type cycle struct {
	in     followedCluster[nodes.CycleNodeRequest]
	clock  *clock.Clock
	action *plan.Action
	key    plan.ResourceKey
	ended  chan struct{} // closed when the request has ended, by itself or by being deleted

	mu      sync.Mutex
	changed chan struct{} // closed, and replaced, with each change
	at      time.Time     // of the last change
	seen    []plan.CyclePhase
	status  nodes.CycleNodeRequestStatus
	deleted bool // by endCycle, or because it stood still
	gone    bool
	err     error // why nothing more will be seen
	told    bool  // its end was judged
}

// cycle returns the cycle of that name, one that nothing is known of if it has not begun.
func (c *cycles) cycle(name string) *cycle {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one := c.begun[name]; one != nil {
		return one
	}
	if c.begun == nil {
		c.begun = map[string]*cycle{}
	}
	c.begun[name] = &cycle{clock: c.clock, ended: make(chan struct{}), changed: make(chan struct{})}
	return c.begun[name]
}

// all returns the cycles that were begun, in their order.
func (c *cycles) all() (all []*cycle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range c.order {
		all = append(all, c.begun[name])
	}
	return all
}

// Begin creates the request and waits for the phase that the action names.
func (c *cycles) Begin(ctx context.Context, a *plan.Action) (note string, err error) {
	f := a.Cycles()
	one := c.cycle(f.Name())
	in := c.in(a.Cluster)
	one.mu.Lock()
	one.in, one.action, one.at, one.key = in, a, one.clock.Now(), f.Key()
	one.mu.Unlock()
	object, err := objects.FromMap(map[string]any{
		"apiVersion": nodes.GroupVersion.String(), "kind": "CycleNodeRequest",
		"metadata": map[string]any{"name": f.Name(), "namespace": f.Namespace()}, "spec": f.Spec(),
	})
	if err != nil {
		return "", err
	}
	if _, err := in.Apply(ctx, object); err != nil {
		return "", fmt.Errorf("cycle %s: %w", f.Name(), err)
	}
	// It is followed until the run ends, longer than this action takes.
	seeing, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.mu.Lock()
	c.order, c.stops = append(c.order, f.Name()), append(c.stops, stop)
	c.watching.Go(func() { one.end(in.follow(seeing, one.key, one.see)) })
	c.mu.Unlock()
	if err := one.await(ctx, c.step, one.reached); err != nil {
		return "", fmt.Errorf("cycle %s: %w", f.Name(), err)
	}
	return one.note(), nil
}

// close ends what follows the requests.
func (c *cycles) close(context.Context) error {
	c.mu.Lock()
	for _, stop := range c.stops {
		stop()
	}
	c.mu.Unlock()
	c.watching.Wait()
	return nil
}

// see takes note of a state of the request.
func (one *cycle) see(o *nodes.CycleNodeRequest) (done bool, err error) {
	one.mu.Lock()
	defer one.mu.Unlock()
	one.at = one.clock.Now()
	if o == nil {
		one.gone = true
	} else {
		one.status = o.Status
		if phase := plan.CyclePhase(o.Status.Phase); phase != "" && (len(one.seen) == 0 ||
			one.seen[len(one.seen)-1] != phase) {
			one.seen = append(one.seen, phase)
		}
		if controller.Ended(o.Status.Phase) {
			one.close()
		}
	}
	close(one.changed)
	one.changed = make(chan struct{})
	return one.gone, nil
}

// end takes note that nothing more is seen.
func (one *cycle) end(err error) {
	one.mu.Lock()
	defer one.mu.Unlock()
	one.err = err
	one.close()
	close(one.changed)
	one.changed = make(chan struct{})
}

// close must be called with the lock.
func (one *cycle) close() {
	select {
	case <-one.ended:
	default:
		close(one.ended)
	}
}

// await returns when enough, which is called with the lock, is true or has an error. It gives up when nothing has
// changed for so long.
func (one *cycle) await(ctx context.Context, still time.Duration, enough func() (bool, error)) error {
	for {
		one.mu.Lock()
		done, err := enough()
		if err == nil && !done {
			err = one.err
		}
		changed, rest, what := one.changed, one.clock.Until(one.at.Add(still)), one.describe()
		one.mu.Unlock()
		if done || err != nil {
			return err
		}
		timer := one.clock.NewTimer(rest)
		select {
		case <-changed:
			timer.Stop()
		case <-timer.C:
			return fmt.Errorf("nothing has changed for %s (timeouts.step); it is %s", still, what)
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w; it is %s", context.Cause(ctx), what)
		}
	}
}

// reached reports whether the request is what its action waits for, or why it never will be.
func (one *cycle) reached() (bool, error) {
	phase := one.status.Phase
	switch {
	case one.lost():
		return true, errors.New("another client has deleted it")
	case one.failed() != nil:
		return true, one.failed()
	case one.action.WaitFor == "":
		return phase != "", nil
	case slices.Contains(one.seen, one.action.WaitFor):
		return true, nil
	case phase == nodes.RequestSuccessful:
		return true, fmt.Errorf("it is Successful and was not seen in the phase %s", one.action.WaitFor)
	}
	return phase == nodes.RequestFailed, nil // with acceptFailure
}

// lost reports whether the request was deleted before it had ended, and not by the plan. Later its ttlAfterFinished may
// delete it.
func (one *cycle) lost() bool { return one.gone && !one.deleted && !controller.Ended(one.status.Phase) }

// failed says why the request has failed, if the plan does not accept that.
func (one *cycle) failed() error {
	if one.status.Phase != nodes.RequestFailed || one.action.AcceptFailure {
		return nil
	}
	return fmt.Errorf("it failed: %s (acceptFailure: true allows that)", one.why())
}

// why says why a request failed, or what it waits for.
func (one *cycle) why() string {
	return strings.Trim(one.status.Reason+": "+one.status.Message, ": ")
}

// note is what is worth knowing about the end of the action.
func (one *cycle) note() string {
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.status.Phase == nodes.RequestFailed && one.action.WaitFor != plan.CycleFailed {
		return "began a cycle that has failed already: " + one.why()
	}
	return ""
}

// describe must be called with the lock.
func (one *cycle) describe() string {
	switch {
	case one.gone:
		return "deleted"
	case one.status.Phase == "":
		return "new"
	}
	text := string(one.status.Phase)
	if p := one.status.Progress; p != "" {
		text += " (" + p + ")"
	}
	if m := one.status.Message; m != "" {
		text += ": " + m
	}
	return text
}

// End deletes the request and waits until it is gone.
func (c *cycles) End(ctx context.Context, name string) (ended bool, err error) {
	one := c.cycle(name)
	one.mu.Lock()
	begun, in, key := one.action != nil, one.in, one.key
	one.mu.Unlock()
	if !begun {
		return false, nil
	}
	present, err := in.Get(ctx, key)
	if err != nil || present == nil {
		return false, err
	}
	one.mu.Lock()
	failed := one.failed()
	one.deleted, one.told, one.at = true, true, one.clock.Now()
	one.mu.Unlock()
	if err := in.Delete(ctx, key, objects.DeleteOptions{}); err != nil {
		return false, fmt.Errorf("end cycle %s: %w", name, err)
	}
	if err := one.await(ctx, c.step, func() (bool, error) { return one.gone, nil }); err != nil {
		return true, fmt.Errorf("end cycle %s: %w", name, err)
	}
	if failed != nil {
		return true, fmt.Errorf("cycle %s: %w", name, failed)
	}
	return true, nil
}

// Status implements actions.Cycles.
func (c *cycles) Status(name string) string {
	one := c.cycle(name)
	one.mu.Lock()
	defer one.mu.Unlock()
	return one.describe()
}

// Ended implements actions.Cycles.
func (c *cycles) Ended(name string) <-chan struct{} { return c.cycle(name).ended }

// conclude waits for the cycles that the plan has left behind, ends those that stand still, and reports those that did
// not end as the plan says. The controllers of cycling, the simulated cloud and the plan's own faults may be the cause,
// so this says nothing about the controllers under test.
func (c *cycles) conclude(ctx context.Context) (findings []record.Finding) {
	for _, one := range c.all() {
		stood := one.await(ctx, c.step, func() (bool, error) {
			return one.gone || controller.Ended(one.status.Phase), nil
		})
		one.mu.Lock()
		told, name := one.told, one.action.Cycles().Name()
		err := one.failed()
		switch {
		case stood != nil:
			err = fmt.Errorf("it did not end: %w", stood)
		case one.lost():
			err = errors.New("another client has deleted it")
		}
		one.told = true
		one.mu.Unlock()
		if told || err == nil {
			continue
		}
		findings = append(findings, record.Finding{
			Severity: record.SeverityInconclusive, Judge: record.JudgeAction, Subject: one.key.String(),
			Time: c.clock.Now(), Title: fmt.Sprintf("cycle %s: %v", name, err),
		})
		if stood != nil && ctx.Err() == nil {
			if _, err := c.End(ctx, name); err != nil {
				findings[len(findings)-1].Detail = err.Error()
			}
		}
	}
	return findings
}

// blocked says which cycle goes on, or has not ended as the plan says; empty: none.
func (c *cycles) blocked() string {
	for _, one := range c.all() {
		one.mu.Lock()
		what, over := one.describe(), one.gone || one.status.Phase == nodes.RequestSuccessful
		name := one.action.Cycles().Name()
		one.mu.Unlock()
		if !over {
			return fmt.Sprintf("the cycle of nodes %s is %s", name, what)
		}
	}
	return ""
}

// disturbed returns when a cycle changed last; zero: never.
func (c *cycles) disturbed() (last time.Time) {
	for _, one := range c.all() {
		one.mu.Lock()
		if one.at.After(last) {
			last = one.at
		}
		one.mu.Unlock()
	}
	return last
}
