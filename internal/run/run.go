// Package run executes plans, from the build to the verdict. It connects packages that do not import each other.
//
// [Open] builds a suite's controllers, and the control plane if it is needed, or takes them from the cache. The
// [Session] runs plans on one cluster, which it resets between them; [Session.Close] ends the cluster. A run leaves a
// record (package record) in a directory of its own, also if it failed, and returns its metadata with the verdict:
// pass, bug or inconclusive. An error means that the run could not be carried out; a [UserError] is a mistake in a plan
// or a suite.
//
// A session tells [Options.Progress] what it does, as it happens (package progress).
//
// A run consists of parts, each in a file of its own. A part's fields name what it needs, and it knows no other part:
// parts.go puts them together, run.go says what happens in which order.
package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/discovery"

	"github.com/trommel-dev/trommel/coordinator"
	"github.com/trommel-dev/trommel/coordinator/monitor"
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/judge"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/objects/history"
	"github.com/trommel-dev/trommel/internal/run/await"
	"github.com/trommel-dev/trommel/internal/workload"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// UserError is a mistake in the plan or the suite.
type UserError struct{ Err error }

func (e *UserError) Error() string { return e.Err.Error() }
func (e *UserError) Unwrap() error { return e.Err }

// task is what a run has to do.
type task struct {
	plan      *plan.Plan  // validated against suite
	suite     *plan.Suite // with the variant merged in, and with what the plan has of its own
	workload  string      // its name in the suite; empty: its only one
	binaries  []Binary    // of the suite's controllers, in order
	recordDir string      // created; must not hold a record yet
	session   Options     // with a Progress and a Logger
	options   RunOptions
	clusters  clusters
}

// runner carries out a task, from one part of the run to the next.
type runner struct {
	task
	writer   *record.Writer
	journal  *journal
	teardown *teardown
	events   *events
	course   *course // nil: nothing can have happened yet that must be undone
}

// execute runs the plan and returns the record's metadata with the verdict. With an error the run could not be carried
// out: the metadata has the verdict error and the reason, and the record contains what there is. The teardown is
// complete when execute returns, even if ctx was cancelled.
func execute(ctx context.Context, t task) (*record.Meta, error) {
	writer, err := record.Create(t.recordDir)
	if err != nil {
		return nil, fmt.Errorf("create run record: %w", err)
	}
	t.suite, t.workload = t.plan.Within(t.suite)
	j := &journal{console: newConsole(t.session.Progress, t.recordDir), meta: record.Meta{
		Plan: t.plan.TestName, PlanFile: t.plan.File, Suite: t.suite.File, Variant: t.session.Variant,
		Trommel: t.session.Version, Started: time.Now(), Phases: []record.Phase{},
		ActionsTotal: len(t.plan.Actions),
	}}
	r := &runner{
		task: t, writer: writer, journal: j, teardown: new(teardown),
		events: &events{record: writer, findTypes: t.options.FindTypes},
	}
	j.console.started(t.plan, t.session.Variant)
	err = r.run(ctx)
	if err != nil {
		j.meta.Verdict = record.Error
		j.meta.Reason = err.Error()
		if ctx.Err() != nil {
			err = fmt.Errorf("interrupted: %w", context.Cause(ctx))
			j.meta.Reason = "interrupted"
		}
	}
	j.meta.Ended = time.Now()
	if closeErr := j.close(writer); err == nil && closeErr != nil {
		err = closeErr
		j.meta.Verdict = record.Error
	}
	j.console.ended(&j.meta, t.recordDir)
	return &j.meta, err
}

// run executes the plan and tears down what it set up.
func (r *runner) run(ctx context.Context) (err error) {
	standstills := watchItself()
	defer func() {
		for _, text := range standstills() {
			r.journal.note(text)
		}
	}()
	defer func() { err = r.end(ctx, err) }()
	files := &planFiles{dir: r.recordDir, plan: r.plan, suite: r.suite, variant: r.session.Variant}
	kept, err := files.write()
	if err != nil {
		return err
	}
	at, logs, err := r.startCluster(ctx)
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
			r.journal.meta.ActionsFired = fired
		}
	}
	r.journal.enter("teardown")
	if r.course != nil {
		// The plan's effects are always undone, while the coordinator still serves the processes.
		r.teardown.later(r.course.end)
	}
	r.teardown.run(ctx, func(e error) {
		r.session.Logger.Debug("teardown", "error", e)
		e = fmt.Errorf("teardown: %w", e)
		if r.journal.judged() {
			r.journal.trouble(e)
		} else {
			err = errors.Join(err, e)
		}
	})
	if meta := &r.journal.meta; meta.Verdict == record.Pass {
		meta.Verdict, meta.Reason = judge.Verdict(r.journal.findings, true)
	}
	r.journal.enter("")
	return err
}

// startCluster gets a cluster for the run, and listens for its instrumented processes.
func (r *runner) startCluster(ctx context.Context) (*site, *logs, error) {
	r.journal.enter("cluster")
	l, err := r.clusters.acquire(ctx, r.journal.console)
	if err != nil {
		return nil, nil, err
	}
	r.teardown.later(l.release)
	at := &site{lease: l, cluster: l.cluster, node: processNode(l.cluster)}
	r.journal.meta.Cluster = l.state
	logs := r.newLogs(at)
	if l.state != record.ClusterFresh {
		if err := logs.skip(ctx); err != nil {
			return nil, nil, err
		}
	}
	address, token, err := rendezvous(at.cluster, r.teardown.later)
	if err != nil {
		return nil, nil, err
	}
	at.token = token
	at.monitor, err = monitor.Listen(monitor.Config{
		Address: address, Token: token, Logger: r.session.Logger, Limits: monitor.LimitsFor(r.suite.Timeouts.Hold),
		AckTimeout: r.suite.Timeouts.Acknowledge,
	})
	if err != nil {
		return nil, nil, err
	}
	r.teardown.later(func(context.Context) error { return at.monitor.Close() })
	return at, logs, nil
}

// prepare sets up everything that the workload needs. Kept are the manifests of the plan's apply actions: path in the
// plan to path in the record.
func (r *runner) prepare(ctx context.Context, at *site, logs *logs, kept map[string]string) (*parts, error) {
	if err := at.connect(steadyAPIServer(r.plan, at.cluster.APIServers())); err != nil {
		return nil, err
	}
	if err := r.check(at); err != nil {
		return nil, err
	}
	r.teardown.later(logs.keep)
	r.journal.enter("manifests")
	set := r.newPreparation(at)
	if err := set.cycles.install(ctx); err != nil {
		return nil, err
	}
	apply := set.apply.all
	if at.lease.prepared {
		apply = nil
	}
	found, err := set.manifests.install(ctx, apply)
	if err != nil {
		return nil, err
	}
	if found.runsPods {
		at.lease.keepPrepared = nil // the pods would be part of the baseline, and run on after the run
	}
	if err := set.disruptions.install(ctx); err != nil {
		return nil, err
	}
	resolve, err := resolveTypes(ctx, at.objects, r.plan)
	if err != nil {
		return nil, err
	}
	r.journal.meta.Controllers = describeControllers(r.suite, r.binaries, found.own)
	p := r.newParts(at, logs, found.webhooks, kept)
	r.teardown.later(p.cycles.close)
	for _, line := range stalenessWarnings(r.plan, r.suite, r.journal.meta.Controllers) {
		r.journal.console.Info(line)
	}
	if err := r.startCoordinator(ctx, p, resolve); err != nil {
		return nil, err
	}
	if err := awaitAPIServers(ctx, at.cluster, r.suite.Timeouts.Ready, p.coordinator); err != nil {
		return nil, err
	}
	if err := warmWatchCaches(ctx, at.cluster, at.objects, r.plan, r.suite); err != nil {
		return nil, err
	}
	if keep := at.lease.keepPrepared; keep != nil {
		keep(ctx)
	}
	r.journal.enter("controllers")
	return p, r.startControllers(ctx, p, set, found)
}

// check refuses a cluster that is not what the plan and the suite need.
func (r *runner) check(at *site) error {
	s := &served{cluster: at.cluster.Name(), apiServers: at.cluster.APIServers()}
	if err := s.checkServers(r.plan); err != nil {
		return err
	}
	client, err := discovery.NewDiscoveryClientForConfig(at.config)
	if err != nil {
		return err
	}
	if err := s.askVersion(client); err != nil {
		return err
	}
	r.journal.meta.Kubernetes = s.kubernetes
	if err := s.checkVersion(r.suite); err != nil {
		return err
	}
	if err := s.askRemovedAPIs(client); err != nil {
		return err
	}
	note, err := s.checkRemovedAPIs(r.suite, r.binaries)
	if note != "" {
		r.journal.note(note)
	}
	return err
}

// startCoordinator starts the coordinator of the plan.
func (r *runner) startCoordinator(
	ctx context.Context, p *parts, resolve func(plan.ResourceKey) wire.Rule,
) error {
	under := r.journal.meta.Controllers
	c, err := coordinator.New(coordinator.Config{
		Plan: r.plan, Monitor: p.monitor, Controllers: under, Tools: p.tools,
		Trace:   traceRules(r.options.Trace, p.cluster.APIServers(), under),
		Resolve: resolve, Lookup: lookup{p.objects}, Hold: r.suite.Timeouts.Hold,
		Recorder: r.events, Watcher: r.journal.console, Logger: r.session.Logger,
	})
	if err != nil {
		return &UserError{err}
	}
	p.coordinator.Coordinator, r.course = c, p.course
	// The coordinator outlives ctx: the teardown needs it.
	serve, stop := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() { served <- c.Run(serve) }()
	r.teardown.later(func(context.Context) error { stop(); return <-served })
	return nil
}

// startControllers starts all controllers, those under test last, and waits until they and their webhooks work.
func (r *runner) startControllers(ctx context.Context, p *parts, set *preparation, found *installed) error {
	if err := set.disruptions.start(ctx, p.config); err != nil {
		return err
	}
	if err := set.cycles.start(ctx, p.config); err != nil {
		return err
	}
	if p.node == nil && len(r.suite.Controllers) > 0 {
		return fmt.Errorf("run controllers: %w", cluster.ErrNotSupported)
	}
	for _, c := range r.suite.Controllers {
		for _, u := range found.own[c.Name] {
			if err := set.apply.one(ctx, u); err != nil {
				return err
			}
		}
	}
	if err := p.fleet.await(ctx); err != nil {
		return err
	}
	if err := p.webhooks.await(ctx); err != nil {
		return err
	}
	if err := set.cycles.applyGroups(ctx); err != nil {
		return err
	}
	if keep := p.lease.keepCertificates; keep != nil && len(p.webhooks.declared) > 0 {
		keep(ctx)
	}
	return nil
}

// exercise runs the workload with the plan, then the judges.
func (r *runner) exercise(ctx context.Context, p *parts) error {
	invariants, err := judge.Compile(r.suite.Invariants)
	if err != nil {
		return &UserError{err}
	}
	recorder, err := r.startRecorder(ctx, p)
	if err != nil {
		return err
	}
	r.journal.enter("workload")
	meta := &r.journal.meta
	planCtx, cancel := context.WithTimeoutCause(ctx, r.suite.Timeouts.Plan,
		fmt.Errorf("workload and plan took longer than the suite's timeouts.plan (%s)", r.suite.Timeouts.Plan))
	defer cancel()
	if err := p.coordinator.Begin(planCtx); err != nil {
		return err
	}
	meta.WorkloadStart = time.Now()
	p.settling.since = meta.WorkloadStart
	config, err := r.workloadConfig(p)
	if err != nil {
		return err
	}
	findings, err := workload.Run(planCtx, config)
	meta.WorkloadEnd = time.Now()
	timedOut := planCtx.Err() != nil && ctx.Err() == nil
	if err != nil && !timedOut {
		misused := new(workload.FunctionError)
		if errors.Is(err, objects.ErrNotServed) || errors.As(err, &misused) {
			err = &UserError{err}
		}
		return fmt.Errorf("workload: %w", err)
	}
	if len(findings) > 0 {
		r.journal.add(withCauses(findings, r.causes(ctx, p))...)
	}
	if err != nil && timedOut {
		r.journal.add(record.Finding{
			Severity: record.SeverityInconclusive, Judge: record.JudgeTimeout,
			Title: "the workload did not finish: " + err.Error(), Detail: p.webhooks.lastOutage(), Time: time.Now(),
		})
	}
	var stuck string
	switch {
	case timedOut:
		stuck = context.Cause(planCtx).Error()
	case len(findings) > 0:
		stuck = "the workload failed" // what the plan still waits for may never happen
	default:
		if stuck, err = p.course.await(planCtx, meta.WorkloadEnd); err != nil {
			return err
		}
	}

	r.journal.enter("oracles")
	return r.judge(ctx, p, recorder, invariants, stuck, len(findings) > 0)
}

// startRecorder starts recording the history of the objects that the suite and the plan name; if types are to be found,
// of all objects.
func (r *runner) startRecorder(ctx context.Context, p *parts) (*history.Recorder, error) {
	keys := slices.Concat(watchedKeys(r.plan, r.suite), keysOf(r.plan))
	types, err := p.states.choose(ctx, keys, r.options.History)
	for _, key := range p.states.named {
		r.journal.meta.Recorded = append(r.journal.meta.Recorded, key.String())
	}
	if err != nil {
		return nil, fmt.Errorf("record history: %w", err)
	}
	recorder, err := history.Start(ctx, history.Config{Objects: p.objects, Keys: types})
	if err != nil {
		return nil, fmt.Errorf("record history: %w", err)
	}
	r.teardown.later(func(context.Context) error { recorder.Close(); return nil })
	return recorder, nil
}

// workloadConfig tells the workload what it needs of the run.
func (r *runner) workloadConfig(p *parts) (workload.Config, error) {
	kubeconfig, err := kubeconfig(p.cluster, p.steady, r.teardown.later)
	if err != nil {
		return workload.Config{}, err
	}
	config, err := p.cluster.RESTConfig(p.steady)
	if err != nil {
		return workload.Config{}, err
	}
	c := workload.Config{
		Suite: r.suite, Workload: r.workload, Objects: p.objects, Kubeconfig: kubeconfig,
		REST: config, Functions: r.options.Functions,
		Progress: r.journal.console.Info, Step: r.journal.step,
		Log:    workloadLog(r.recordDir, r.teardown.later, r.session.Logger),
		Outage: p.webhooks.outage, Blocked: p.course.blocked, LetGo: p.course.letGo, Disturbed: p.course.disturbed,
		Note: r.journal.note,
	}
	if r.options.Paced {
		c.Rest = p.settling.pause
	}
	return c, nil
}

// causes lists which controllers wait for leader election, and each controller's last logged error, which is often the
// cause of what a workload finds.
func (r *runner) causes(ctx context.Context, p *parts) (lines []string) {
	if status, err := p.coordinator.Status(ctx); err == nil {
		lines = status.Electing
	}
	return append(lines, p.logs.lastErrors(ctx)...)
}

// withCauses adds possible causes to findings.
func withCauses(findings []record.Finding, causes []string) []record.Finding {
	for i := range findings {
		findings[i].Detail = strings.Trim(strings.Join(append(slices.Clone(causes), findings[i].Detail), "\n"), "\n")
	}
	return findings
}

// judge gives the controllers time to settle, first as the plan has left things and again after its effects are undone;
// then it runs the judges. stuck says why the plan did not finish; failed, that the workload did. From here on a
// failure becomes another finding and cannot discard earlier ones. The error is that of ctx.
func (r *runner) judge(
	ctx context.Context, p *parts, recorder *history.Recorder, invariants *judge.Invariants, stuck string, failed bool,
) error {
	meta := &r.journal.meta
	troubled := func(err error) {
		if err != nil && ctx.Err() == nil {
			r.journal.trouble(err)
		}
	}
	// From now on nothing disturbs the controllers.
	becalm := func() {
		meta.Calm = time.Now()
		troubled(p.logs.becalm(ctx))
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
		settled, err := p.settling.await(ctx)
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
		_, err := p.settling.await(ctx)
		troubled(err)
	}
	if !failed {
		if meta.GivenBack, err = await.Invariants(ctx, invariants, recorder, meta.WorkloadEnd); err != nil {
			return err
		}
	}
	if ref := r.options.Reference; ref != nil && !failed {
		troubled(await.Reference(ctx, ref, r.plan, recorder, meta.GivenBack, r.suite.Timeouts))
	}
	last, err := p.coordinator.Status(ctx)
	troubled(err)
	r.journal.add(last.Findings...)
	status.StaleReads, status.NoneStale, status.NoneFailed = last.StaleReads, last.NoneStale, last.NoneFailed
	evidence := r.gather(ctx, p, recorder, invariants)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.journal.add(judge.Hear(ctx, evidence, judge.Judges())...)
	if status.Stuck == "" {
		status.Stuck = p.course.why
	}
	meta.StaleReads = status.StaleReads
	r.journal.conclude(decide(r.journal.findings, status, stuck))
	return nil
}

// gather ends the recording and returns what the judges look at.
func (r *runner) gather(
	ctx context.Context, p *parts, recorder *history.Recorder, invariants *judge.Invariants,
) judge.Evidence {
	meta := &r.journal.meta
	states := p.evidence.history(ctx, recorder)
	processes := p.evidence.ofProcesses(ctx)
	p.evidence.fillInLocks(ctx, meta.Controllers)
	meta.Observed = time.Now()
	return judge.Evidence{
		Plan: r.plan, Invariants: invariants, Timeouts: r.suite.Timeouts, Dir: r.recordDir, Meta: *meta,
		Actions: r.events.carriedOut(), Events: r.events.ofControllers(),
		History: states, Gaps: recorder.Gaps(), Processes: processes, Reference: r.options.Reference,
	}
}
