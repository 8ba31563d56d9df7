package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/coordinator/order"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/judge"
	"github.com/trommel-dev/trommel/internal/judge/invariant"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/objects/history"
	"github.com/trommel-dev/trommel/internal/run/observed"
	"github.com/trommel-dev/trommel/internal/run/tools"
	"github.com/trommel-dev/trommel/internal/workload"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// exercise runs the workload with the plan, then the judges.
func (r *runner) exercise(ctx context.Context, p *parts) error {
	invariants, err := invariant.Compile(r.suite.Invariants)
	if err != nil {
		return &UserError{Err: err}
	}
	if err := r.shift(ctx); err != nil {
		return err
	}
	recorder, err := r.startRecorder(ctx, p)
	if err != nil {
		return err
	}
	r.journal.Enter("workload")
	meta := &r.journal.Meta
	limit := r.suite.Timeouts.Settle + r.suite.Timeouts.Plan + r.asksToWait()
	if clock.Of(ctx) != nil {
		limit += r.suite.Timeouts.Rest // a step may go on for so long, see workload.Config.Coming
	}
	planCtx, cancel := clock.WithTimeoutCause(ctx, limit,
		fmt.Errorf("workload and plan took longer than the suite's timeouts.plan (%s)", r.suite.Timeouts.Plan))
	defer cancel()
	planCtx, cool := r.events.UntilTooHot(planCtx)
	defer cool()
	begins, err := p.coordinator.BeginEarly(planCtx)
	if err != nil {
		return err
	}
	meta.WorkloadStart = clock.Now(ctx)
	p.settling.Since = meta.WorkloadStart
	var usual time.Duration
	if r.options.Baseline != nil {
		usual = r.options.Baseline.Startup
	}
	meta.Startup = p.settling.Start(planCtx, usual)
	if err := begins(planCtx); err != nil {
		return err
	}
	if err := p.coordinator.Ordering().Begin(planCtx); err != nil {
		return err
	}
	config, err := r.workloadConfig(p)
	if err != nil {
		return err
	}
	failed, err := workload.Run(planCtx, config)
	meta.WorkloadEnd = clock.Now(ctx)
	if err := p.coordinator.Ordering().Drain(ctx); err != nil {
		return err
	}
	if err == nil && failed == nil && invariants.Awaited() {
		// The plan may keep the API server from answering; then the recorder catches up when everything is given back.
		catchUpCtx, cancel := clock.WithTimeoutCause(ctx, 2*time.Second, errors.New("not within 2s"))
		_ = r.catchUp(catchUpCtx, recorder)
		cancel()
	}
	timedOut := planCtx.Err() != nil && ctx.Err() == nil
	if err != nil && !timedOut {
		misused := new(workload.FunctionError)
		if errors.Is(err, objects.ErrNotServed) || errors.Is(err, workload.ErrRealTime) || errors.As(err, &misused) {
			err = &UserError{Err: err}
		}
		return fmt.Errorf("workload: %w", err)
	}
	if failed != nil {
		status, err := p.coordinator.Status(ctx)
		if err != nil {
			return err
		}
		failed.Detail = strings.Trim(strings.Join(append(r.causes(ctx, p), failed.Detail), "\n"), "\n")
		findings := []record.Finding{judge.Step(failed)}
		r.journal.Add(judge.Untested(findings, r.plan, courseOf(status, ""))...)
	}
	if err != nil && timedOut {
		title := "the workload did not finish: " + err.Error()
		if hot := r.events.TooHot(); hot != nil {
			title = "the run ended early: " + judge.HotTitle(*hot)
		}
		r.journal.Add(record.Finding{
			Severity: record.SeverityInconclusive, Judge: record.JudgeTimeout,
			Title: title, Detail: p.webhooks.LastOutage(), Time: clock.Now(ctx),
		})
	}
	var stuck string
	switch {
	case err == nil && failed == nil && len(r.plan.Actions) == 0: // nothing else is to come
	case timedOut:
		stuck = context.Cause(planCtx).Error()
	case failed != nil:
		stuck = "the workload failed" // what the plan still waits for may never happen
	default:
		if stuck, err = p.course.await(planCtx, meta.WorkloadEnd); err != nil {
			return err
		}
	}

	r.journal.Enter("judges")
	// What is different when the workload has not come to its end follows from that, too.
	return r.judge(ctx, p, recorder, invariants, stuck, failed != nil || err != nil && timedOut)
}

// shift lets the controllers run by themselves before the workload begins, as the run's options say.
func (r *runner) shift(ctx context.Context) error {
	by := r.options.Shift
	if by <= 0 {
		return nil
	}
	if clock.Of(ctx) == nil {
		by /= 12
	}
	r.journal.Meta.Shift = by
	return clock.Sleep(ctx, by)
}

// catchUp blocks until the recorder knows all that the workload has done. It may hear of it later than the workload: an
// "eventually" that is true of what was there before would seem to have come true.
func (r *runner) catchUp(ctx context.Context, recorder *history.Recorder) error {
	if err := recorder.Seen(ctx); err != nil {
		return fmt.Errorf("the history of what the workload did: %w", err)
	}
	r.journal.Meta.CaughtUp = clock.Now(ctx)
	return nil
}

// asksToWait is how long the plan and its workload themselves ask to wait, and a longer run is expected then: a step
// may sleep for a month, which takes no time of this machine.
func (r *runner) asksToWait() time.Duration {
	var sum time.Duration
	for i := range r.plan.Actions {
		a := &r.plan.Actions[i]
		sum += a.WaitBefore + a.WaitAfter
		for _, d := range a.Trigger.Definitions {
			sum += d.Condition.Timeout
		}
	}
	for _, s := range r.suite.Workloads[r.workload].Steps {
		sum += s.Sleep
		if s.Wait != nil {
			sum += s.Wait.Timeout
		}
	}
	return sum
}

// startRecorder starts recording the history of the objects that the suite and the plan name; if types are to be found,
// of all objects.
func (r *runner) startRecorder(ctx context.Context, p *parts) (*history.Recorder, error) {
	keys := slices.Concat(observed.WatchedKeys(r.plan, r.suite), observed.KeysOf(r.plan))
	types, err := p.states.Choose(ctx, keys, r.options.History)
	for _, key := range p.states.Named {
		r.journal.Meta.Recorded = append(r.journal.Meta.Recorded, key.String())
	}
	for _, key := range p.states.Unlisted {
		r.journal.Meta.Unlisted = append(r.journal.Meta.Unlisted, key.String())
	}
	slices.Sort(r.journal.Meta.Unlisted)
	if err != nil {
		return nil, fmt.Errorf("record history: %w", err)
	}
	for _, key := range keys {
		if _, err := p.states.Types.Resolve(ctx, key); objects.MayCome(key, err) && !p.served.mayCome(key) {
			return nil, &UserError{Err: fmt.Errorf("record history: %w", err)}
		}
	}
	p.served.coordinator = p.coordinator.Coordinator
	recorder, err := history.Start(ctx, history.Config{
		Objects: p.Objects, Keys: types, Clusters: p.Sources(), Namespaces: r.suite.Cluster.Namespaces,
		Further: p.states.Further, Served: p.served.add,
	})
	if err != nil {
		err = fmt.Errorf("record history: %w", err)
		if errors.Is(err, objects.ErrNotServed) {
			return nil, &UserError{Err: err}
		}
		return nil, err
	}
	r.teardown.later(func(context.Context) error { recorder.Close(); return nil })
	p.states.Recorder = recorder
	// The controllers may have defined some since the plan's types were looked up.
	for _, t := range recorder.Types() {
		p.served.add(ctx, p.All()[0].Name, t)
	}
	return recorder, nil
}

// workloadConfig gives the workload what it needs of the run.
func (r *runner) workloadConfig(p *parts) (workload.Config, error) {
	kubeconfig, err := p.WriteKubeconfig(p.Steady, r.teardown.later)
	if err != nil {
		return workload.Config{}, err
	}
	config, err := p.Cluster.RESTConfig(p.Steady)
	if err != nil {
		return workload.Config{}, err
	}
	clusters := map[string]workload.Cluster{}
	for _, m := range p.Members {
		in := workload.Cluster{Objects: m.Objects}
		if in.Kubeconfig, err = p.WriteKubeconfig(m.Steady, r.teardown.later); err != nil {
			return workload.Config{}, err
		}
		clusters[m.Name] = in
	}
	c := workload.Config{
		Suite: r.suite, Workload: r.workload, Objects: p.Objects, Kubeconfig: kubeconfig, Clusters: clusters,
		REST: config, Functions: r.options.Functions,
		Progress: r.journal.Console.Info, Step: r.journal.Step,
		Log:    workloadLog(r.recordDir, r.teardown.later, r.session.Logger),
		Outage: p.webhooks.Outage, Blocked: p.course.blocked, LetGo: p.course.letGo, Disturbed: p.course.disturbed,
		Renewing: p.course.renewing, Coming: p.work.Coming, Note: r.journal.Note,
	}
	c.Upgrade = func(ctx context.Context, to string) error {
		return p.upgrades.Upgrade(ctx, to, plan.UpgradeRolling)
	}
	if p.Clock != nil {
		c.Advance = func(ctx context.Context, by time.Duration) error {
			clocks := tools.Clocks{Cluster: p.Cluster}
			return clocks.AdvanceAt(by, func(jump func() error) error { return p.coordinator.Jump(ctx, jump) })
		}
	}
	if r.plan.Schedule != nil {
		c.Rest = func(ctx context.Context) {
			p.coordinator.Ordering().AwaitTurn(ctx, order.Workload, "what follows in the workload")
		}
	} else if cmp.Or(r.plan.Pace, r.suite.Pace) == plan.PaceRest {
		c.Rest = p.settling.Pause
	}
	return c, nil
}

// causes lists which controllers wait for leader election, and each controller's last logged error, which is often the
// cause of what a workload finds.
func (r *runner) causes(ctx context.Context, p *parts) (lines []string) {
	if status, err := p.coordinator.Status(ctx); err == nil {
		lines = status.Electing
	}
	return append(lines, p.logs.LastErrors(ctx)...)
}

// workloadLog is the log for the output of the workload's commands.
func workloadLog(recordDir string, later later, logger *slog.Logger) io.Writer {
	f, err := record.CreateFile(filepath.Join(recordDir, record.LogsDir, "workload.log"))
	if err != nil {
		logger.Warn("create the workload's log", "error", err)
		return io.Discard
	}
	later(func(context.Context) error { return f.Close() })
	return f
}
