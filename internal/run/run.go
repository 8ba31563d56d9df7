// Package run executes plans, from the build to the verdict. It connects packages that do not import each other.
//
// [Open] builds a suite's controllers, and the control plane if it is needed, or takes them from the cache. The
// [Session] runs plans on one cluster, which it resets between them; [Session.Close] ends the cluster. A run leaves a
// record (package record) in a directory of its own, also if it failed, and returns its metadata with the verdict:
// pass, bug or inconclusive. An error means that the run could not be carried out; a [UserError] is a mistake in a plan
// or a suite.
//
// A session reports its activity to [Options.Progress] as it happens (package progress).
//
// A run consists of parts, each in a file or in a package below this one. A part's fields name what it needs, and it
// knows no other part: parts.go puts them together; run.go, prepare.go, exercise.go and judging.go say what happens in
// which order.
package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/judge"
	"github.com/trommel-dev/trommel/internal/mistake"
	"github.com/trommel-dev/trommel/internal/run/addons"
	"github.com/trommel-dev/trommel/internal/run/builds"
	"github.com/trommel-dev/trommel/internal/run/clusters"
	"github.com/trommel-dev/trommel/internal/run/journal"
	"github.com/trommel-dev/trommel/internal/run/logs"
	"github.com/trommel-dev/trommel/internal/run/site"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// UserError is a mistake in the plan or the suite.
type UserError = mistake.Error

// task is what a run has to do.
type task struct {
	plan      *plan.Plan               // validated against suite
	suite     *plan.Suite              // with the variant merged in, and with what the plan has of its own
	workload  string                   // its name in the suite; empty: its only one
	binaries  []builds.Binary          // of the suite's controllers, in order
	builds    map[string]*builds.Build // that the run begins with or upgrades to; plan.Build is suite and binaries
	recordDir string                   // created; must not hold a record yet
	session   Options                  // with a Progress and a Logger
	options   RunOptions
	clusters  clusters.Source
	realTime  string // why the run goes in real time; empty: the cluster may have a clock of its own
}

// runner carries out a task, from one part of the run to the next.
type runner struct {
	task
	writer   *record.Writer
	journal  *journal.Journal
	teardown *teardown
	events   *journal.Events
	course   *course // nil: nothing can have happened yet that must be undone
	wall     wallClock
	stood    *standstills
}

// execute runs the plan and returns the record's metadata with the verdict. With an error the run could not be carried
// out: the metadata has the verdict error and the reason, and the record contains what there is. The teardown is
// complete when execute returns, even if ctx was cancelled.
func execute(ctx context.Context, t task) (*record.Meta, error) {
	writer, err := record.Create(t.recordDir)
	if err != nil {
		return nil, fmt.Errorf("create run record: %w", err)
	}
	_, t.workload = t.plan.Within(t.suite)
	began := time.Now()
	j := &journal.Journal{Console: journal.NewConsole(t.session.Progress, t.recordDir), Began: began, Meta: record.Meta{
		Plan: t.plan.TestName, PlanFile: t.plan.File, Suite: t.suite.File, Variant: t.session.Variant,
		Build:   t.plan.Build,
		Trommel: t.session.Version, Started: began, Phases: []record.Phase{},
		ActionsTotal: len(t.plan.Actions),
	}}
	r := &runner{
		task: t, writer: writer, journal: j, teardown: new(teardown),
		events: &journal.Events{Record: writer, FindTypes: t.options.FindTypes, Brief: !t.options.Trace},
	}
	if len(t.plan.Actions) == 0 && t.options.Baseline == nil {
		r.events.Overheated = make(chan struct{})
	}
	j.Console.Started(t.plan, t.session.Variant)
	err = r.run(ctx)
	if err != nil {
		reason := err.Error()
		if ctx.Err() != nil {
			err = fmt.Errorf("interrupted: %w", context.Cause(ctx))
			reason = "interrupted"
		}
		j.Conclude(judge.Failed(reason))
	}
	j.End()
	if closeErr := j.Close(writer); err == nil && closeErr != nil {
		err = closeErr
		j.Conclude(judge.Failed(j.Meta.Reason))
	}
	j.Console.Ended(&j.Meta, t.recordDir)
	return &j.Meta, err
}

// run executes the plan and tears down what it set up.
func (r *runner) run(ctx context.Context) (err error) {
	r.wall = wallClock{time.Now()}
	r.stood = &standstills{now: r.journal.Now}
	end := r.stood.watch()
	defer func() {
		end()
		for _, text := range r.stood.notes {
			r.journal.Note(text)
		}
	}()
	// From startCluster on, ctx has the clock of the cluster.
	defer func() { err = r.end(ctx, err) }()
	files := &journal.PlanFiles{Dir: r.recordDir, Plan: r.plan, Suite: r.suite, Variant: r.session.Variant}
	kept, err := files.Write()
	if err != nil {
		return err
	}
	at, err := r.startCluster(ctx)
	if err != nil {
		return err
	}
	ctx = clock.With(ctx, at.Clock)
	at.Clock.Pace(true)
	defer at.Clock.Pace(false) // before the teardown
	logs, err := r.listen(ctx, at)
	if err != nil {
		return err
	}
	p, err := r.prepare(ctx, at, logs, kept)
	if err != nil {
		return err
	}
	return r.exercise(ctx, p)
}

// end tears down what the run has set up, and returns the run's error.
func (r *runner) end(ctx context.Context, err error) error {
	// The teardown also runs when ctx has ended.
	ctx = context.WithoutCancel(ctx)
	if r.course != nil {
		if fired, ok := r.course.fired(ctx); ok {
			r.journal.Meta.ActionsFired = fired
		}
	}
	r.journal.Enter("teardown")
	if r.course != nil {
		// The plan's effects are always undone, while the coordinator still serves the processes.
		r.teardown.later(r.course.end)
	}
	r.teardown.run(ctx, func(e error) {
		r.session.Logger.Debug("teardown", "error", e)
		e = fmt.Errorf("teardown: %w", e)
		if r.journal.Judged() {
			r.journal.Trouble(e)
		} else {
			err = errors.Join(err, e)
		}
	})
	if r.journal.Meta.Verdict == record.Pass { // the teardown may have added findings
		r.journal.Conclude(judge.Decide(r.journal.Findings, judge.Course{}))
	}
	r.journal.Enter("")
	return err
}

// startCluster gets a cluster for the run, whose clock is the run's from then on.
func (r *runner) startCluster(ctx context.Context) (*site.Site, error) {
	r.journal.Enter("cluster")
	if r.realTime != "" && r.suite.Time != plan.RealTime {
		r.journal.Console.Info("time is real: " + r.realTime)
	}
	if err := addons.FindImages(ctx, r.plan, r.suite); err != nil {
		return nil, err
	}
	l, err := r.clusters.Acquire(ctx, r.journal.Console.Info, clusters.Need{
		RealTime: r.realTime != "", Build: r.plan.Build, APIServers: r.apiServers(r.suite.APIServerNames()),
	})
	if err != nil {
		return nil, err
	}
	r.teardown.later(l.Release)
	at := site.New(l)
	at.Servers = r.apiServers(at.Cluster.APIServers())
	r.journal.GoBy(at.Clock)
	r.journal.Meta.RealTime = r.whyRealTime(at.Clock)
	r.journal.Meta.Cluster, r.journal.Meta.NotReset = l.State, l.NotReset
	return at, nil
}

// apiServers returns those of the API servers that the run uses.
func (r *runner) apiServers(all []string) []string {
	suites := []*plan.Suite{r.suite}
	for _, b := range r.builds {
		suites = append(suites, b.Suite)
	}
	return site.Used(r.plan, all, suites)
}

// whyRealTime says why a run with this clock goes in real time; empty: it does not.
func (r *runner) whyRealTime(c *clock.Clock) string {
	_, own := r.clusters.(*clusters.Own)
	switch {
	case c != nil:
		return ""
	case r.realTime != "":
		return r.realTime
	case !own:
		return "the cluster was there before the run"
	}
	return "a cluster of this type, or on this system, cannot have a clock of its own"
}

// listen listens for the cluster's instrumented processes. It returns the cluster's logs, as far as they are the run's.
func (r *runner) listen(ctx context.Context, at *site.Site) (*logs.Set, error) {
	logs := r.newLogs(at)
	if r.journal.Meta.Cluster != record.ClusterFresh {
		if err := logs.Skip(ctx); err != nil {
			return nil, err
		}
	}
	return logs, at.Listen(r.suite.Timeouts, r.session.Logger, r.teardown.later)
}
