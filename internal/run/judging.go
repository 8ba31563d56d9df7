package run

import (
	"context"
	"fmt"
	"slices"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/judge"
	"github.com/trommel-dev/trommel/internal/judge/invariant"
	"github.com/trommel-dev/trommel/internal/objects/history"
	"github.com/trommel-dev/trommel/internal/run/await"
	"github.com/trommel-dev/trommel/internal/run/journal"
	"github.com/trommel-dev/trommel/internal/run/settle"
	"github.com/trommel-dev/trommel/record"
)

// judge gives the controllers time to settle, first as the plan has left things and again after its effects are undone;
// then it runs the judges. stuck says why the plan did not finish; failed, that the workload did. From here on a
// failure becomes another finding and cannot discard earlier ones. The error is that of ctx.
func (r *runner) judge(
	ctx context.Context, p *parts, recorder *history.Recorder, invariants *invariant.Set, stuck string, failed bool,
) error {
	meta := &r.journal.Meta
	waiting, cool := r.events.UntilTooHot(ctx) // for the controllers to come to rest
	defer cool()
	troubled := func(err error) {
		if err != nil && ctx.Err() == nil && !journal.Cooled(waiting, err) {
			r.journal.Trouble(err)
		}
	}
	// From now on nothing disturbs the controllers.
	becalm := func() {
		meta.Calm = clock.Now(ctx)
		troubled(p.logs.Becalm(ctx))
	}
	status, err := p.coordinator.Status(ctx)
	troubled(err)
	meta.ActionsFired = status.Fired
	if !failed && status.Stuck == "" && len(status.Down) == 0 {
		p.course.concludeCycles(ctx) // controllers cannot settle while their nodes go
		status, err = p.coordinator.Status(ctx)
		troubled(err)
	}
	lasts := status.Stuck != "" || len(status.Down) > 0 || len(status.Lasting) > 0
	if !failed && !lasts {
		becalm()
	}
	// A controller that is still paused or killed cannot bring about what "eventually" asks for.
	settles := stuck == "" && !failed
	if settles {
		settled, err := p.settling.Await(waiting)
		troubled(err)
		// A controller that did not settle will not settle later either, unless undoing the plan changes something for
		// it.
		settles = settled || status.Stuck != "" || len(status.Down) > 0
	}
	troubled(p.course.letGo(ctx))
	if !failed && lasts {
		becalm()
	}
	if settles {
		_, err := p.settling.Await(waiting)
		troubled(err)
	}
	if !failed {
		if meta.CaughtUp.IsZero() && invariants.Awaited() {
			troubled(r.catchUp(ctx, recorder))
		}
		if meta.GivenBack, err = await.Invariants(ctx, invariants, recorder, meta.CaughtUp); err != nil {
			return err
		}
	}
	if ref := r.options.Baseline; ref != nil && !failed {
		late, err := await.Baseline(ctx, ref, r.plan, recorder,
			facts.Began(meta.Steps, r.events.CarriedOut()), meta.GivenBack, p.work.Look,
			settle.ReportNodes(p.Site, r.session.Logger), r.suite.Timeouts)
		troubled(err)
		if text := late.String(); text != "" {
			r.journal.Note(text)
		}
	}
	if settles && r.options.Baseline == nil && r.plan.Disturbs() {
		troubled(await.Deletions(ctx, recorder))
	}
	if settles {
		meta.Rested, meta.Unrest, err = await.Rest(waiting, recorder, p.work.Look, r.suite.Timeouts)
		troubled(err)
		meta.Polls = p.work.Polled(ctx)
	}
	if stuck == "" && !failed {
		restless, err := await.Watch(waiting, recorder, p.work.Look)
		troubled(err)
		meta.Unrest = append(meta.Unrest, restless...)
	}
	last, err := p.coordinator.Status(ctx)
	troubled(err)
	r.journal.Add(last.Findings...)
	status.StaleReads, status.NoneStale, status.NoneFailed = last.StaleReads, last.NoneStale, last.NoneFailed
	// Nothing waits for the controllers any more; what follows takes the machine's time.
	release := clock.Hold(ctx)
	defer release()
	evidence := r.gather(ctx, p, recorder, invariants)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	found := judge.Hear(ctx, evidence, judge.Judges())
	doubt := func(because record.Finding) {
		judge.Doubt(found, because.Title)
		judge.Doubt(r.journal.Findings, because.Title)
		r.journal.Add(because)
	}
	if last.Diverged != "" {
		// The finding is there.
		judge.Doubt(found, last.Diverged)
		judge.Doubt(r.journal.Findings, last.Diverged)
	}
	if step := r.wall.step(); step != 0 {
		doubt(judge.ClockSet(step, r.journal.Now()))
	}
	if p.Can.Ailing != nil {
		if why := p.Can.Ailing.Ails(ctx); why != "" {
			doubt(judge.Trouble(why, r.journal.Now()))
		}
	}
	r.journal.Add(found...)
	if slices.ContainsFunc(found, func(f record.Finding) bool {
		return f.Judge == record.JudgeBaseline && f.IsBug()
	}) {
		if text := p.work.NotAwaited(meta.Polls); text != "" {
			r.journal.Note(text)
		}
	}
	if status.Stuck == "" {
		status.Stuck = p.course.why
	}
	meta.StaleReads, meta.Awaited = status.StaleReads, status.Awaited
	r.journal.Conclude(judge.Decide(r.journal.Findings, courseOf(status, stuck)))
	return nil
}

// gather ends the recording and returns what the judges look at.
func (r *runner) gather(
	ctx context.Context, p *parts, recorder *history.Recorder, invariants *invariant.Set,
) judge.Evidence {
	meta := &r.journal.Meta
	states := p.evidence.History(ctx, recorder)
	r.reportServed(ctx, p, recorder.NeverServed())
	if r.options.Baseline != nil {
		for _, key := range p.states.Unrecorded(ctx, r.events.TypesSeen()) {
			meta.Unrecorded = append(meta.Unrecorded, key.String())
			r.journal.Note(fmt.Sprintf("%s was not recorded: a controller wrote it, which it does not do without "+
				"faults; name it in history: of the suite or the plan", key))
		}
	}
	processes := p.evidence.Processes(ctx)
	p.evidence.FillInLocks(ctx, meta.Controllers)
	meta.Observed = clock.Now(ctx)
	return judge.Evidence{
		Plan: r.plan, Invariants: invariants, Timeouts: r.suite.Timeouts, Dir: r.recordDir, Meta: *meta,
		Actions: r.events.CarriedOut(), Events: r.events.OfControllers(),
		History: states, Gaps: recorder.Gaps(), Processes: processes, Baseline: r.options.Baseline,
		Found: r.journal.Findings, Stood: r.stood.first(),
	}
}
