package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/coordinator"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// course follows a plan from the begin of the workload to its end.
type course struct {
	plan interface {
		Status(ctx context.Context) (coordinator.Status, error)
		Changed(ctx context.Context) (<-chan struct{}, error)
		End(ctx context.Context) error
		Undo(ctx context.Context) error
	}
	addons interface { // see addons.Set
		Conclude(ctx context.Context) []record.Finding
		Blocked() string
		Disturbed() time.Time
	}
	actions    []plan.Action    // of the plan
	lastAction func() time.Time // when the plan's last action completed; zero: none has
	postponed  func() time.Time // see coordinator.Ordering.Postponed
	stuckAfter time.Duration
	add        func(findings ...record.Finding)

	ended  bool   // the plan has ended
	undone bool   // its effects are undone
	why    string // what the plan blocked when a workload step timed out
}

// fired returns how many actions have fired, and false if that is unknown.
func (c *course) fired(ctx context.Context) (int, bool) {
	s, err := c.plan.Status(ctx)
	return s.Fired, err == nil
}

// await waits until every action has completed. It gives up, and returns the reason, when nothing that could advance
// the plan has happened for a while, counted at the earliest from since.
func (c *course) await(ctx context.Context, since time.Time) (stuck string, err error) {
	for {
		changed, err := c.plan.Changed(ctx)
		if err != nil {
			return context.Cause(ctx).Error(), ignoreDeadline(ctx, err)
		}
		s, err := c.plan.Status(ctx)
		if err != nil {
			return context.Cause(ctx).Error(), ignoreDeadline(ctx, err)
		}
		if s.Completed == s.Total {
			return "", nil
		}
		idle := min(s.Now.Sub(s.LastEvent), s.Now.Sub(since))
		if !s.OnItsWay && idle >= c.stuckAfter {
			return "the workload is finished and nothing that the plan observes has happened since", nil
		}
		wait := c.stuckAfter - idle
		if s.OnItsWay {
			wait = c.stuckAfter
		}
		timer := clock.NewTimer(ctx, wait)
		select {
		case <-changed:
			timer.Stop()
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx).Error(), ignoreDeadline(ctx, ctx.Err())
		}
	}
}

// ignoreDeadline drops the error of a plan that ran out of time: that is an outcome, not a failure of the run.
func ignoreDeadline(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil
	}
	return err
}

// blocked describes what the plan blocks now, for a workload step that is not satisfied.
func (c *course) blocked(ctx context.Context) string {
	status, err := c.plan.Status(ctx)
	if err != nil {
		return ""
	}
	why := status.Stuck
	for _, name := range status.Down {
		if why != "" {
			why += "; "
		}
		why += fmt.Sprintf("the plan has killed %s and not started it again", name)
	}
	// A process that was not observed for a while was not under the plan's control.
	for _, f := range status.Findings {
		if why == "" && f.Judge == record.JudgeSession {
			why = f.Title
		}
	}
	if why == "" {
		why = c.addons.Blocked()
	}
	c.why = why
	return why
}

// renewing reports whether the plan has deleted an object that a later action of it creates again, and that has not
// begun: a workload's step may come in between.
func (c *course) renewing(ctx context.Context, key plan.ResourceKey) bool {
	status, err := c.plan.Status(ctx)
	if err != nil || status.Completed == len(c.actions) {
		return false
	}
	deleted := slices.IndexFunc(c.actions[:status.Fired], func(a plan.Action) bool {
		write := plan.EffectOf[*plan.Write](&a)
		if write == nil {
			return false
		}
		k := write.Deletes
		k.Group = key.Group // either may leave it out
		return k == key
	})
	return deleted >= 0 && slices.ContainsFunc(c.actions[max(deleted+1, status.Completed):], func(a plan.Action) bool {
		write := plan.EffectOf[*plan.Write](&a)
		if write == nil {
			return false
		}
		meta, _ := write.Applies["metadata"].(map[string]any)
		return meta["name"] == key.Name
	})
}

// disturbed returns when the plan last did something to the cluster; zero: never.
func (c *course) disturbed() time.Time {
	last := c.lastAction()
	if at := c.addons.Disturbed(); at.After(last) {
		last = at
	}
	if at := c.postponed(); at.After(last) {
		last = at
	}
	return last
}

// letGo is end, and returns when no cycle of nodes goes on any more.
func (c *course) letGo(ctx context.Context) error {
	if err := c.end(ctx); err != nil {
		return err
	}
	c.concludeCycles(ctx)
	return nil
}

// concludeCycles returns when no cycle of nodes goes on any more.
func (c *course) concludeCycles(ctx context.Context) { c.add(c.addons.Conclude(ctx)...) }

// end releases what the plan holds and undoes its effects, once.
func (c *course) end(ctx context.Context) error {
	if !c.ended {
		if err := c.plan.End(ctx); err != nil {
			return err
		}
		c.ended = true
	}
	if !c.undone {
		if err := within(ctx, teardownTimeout, c.plan.Undo); err != nil {
			return err
		}
		c.undone = true
	}
	return nil
}
