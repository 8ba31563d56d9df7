// Package run executes plans, from the build to the verdict. It connects packages that do not import each other.
//
// [Open] builds a suite's controllers, and the control plane if it is needed, or takes them from the cache. The
// [Session] runs plans on one cluster, which it resets between them; [Session.Close] ends the cluster. A run leaves a
// record (package record) in a directory of its own, also if it failed, and returns its metadata with the verdict:
// pass, bug or inconclusive. An error means that the run could not be carried out; a [UserError] is a mistake in a plan
// or a suite.
//
// What a session does is told to [Options.Progress] as it happens (package progress).
package run

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/actions"
	"github.com/trommel-dev/trommel/coordinator"
	"github.com/trommel-dev/trommel/coordinator/monitor"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/judge"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/objects/history"
	"github.com/trommel-dev/trommel/internal/objects/manifests"
	"github.com/trommel-dev/trommel/internal/progress"
	"github.com/trommel-dev/trommel/internal/reference"
	"github.com/trommel-dev/trommel/internal/run/await"
	"github.com/trommel-dev/trommel/internal/workload"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// teardownTimeout bounds undo and each part of the teardown; both also run when the run's context has ended.
const teardownTimeout = 30 * time.Second

// Config is what a run needs. All but Variant and Logger are required.
type Config struct {
	Plan                  *plan.Plan           // validated against Suite
	Suite                 *plan.Suite          // with the variant merged in
	Variant               string               // for the record
	Binaries              []Binary             // of the suite's controllers, in order
	RecordDir             string               // created; must not hold a record yet
	Trace                 bool                 // see Options
	Paced                 bool                 // see RunOptions
	History               []plan.ResourceKey   // recorded beside what the suite and the plan name
	FindTypes             bool                 // see RunOptions
	Reference             *reference.Reference // of the workload; nil: none
	Functions             map[string]workload.Function
	Version               string // of Trommel, for the record
	Progress              progress.Listener
	Injector              []string // see Options
	DisruptionControllers []string // see Options
	Logger                *slog.Logger
	clusters              clusters
}

// UserError is a mistake in the plan or the suite.
type UserError struct{ Err error }

func (e *UserError) Error() string { return e.Err.Error() }
func (e *UserError) Unwrap() error { return e.Err }

// execute runs the plan and returns the record's metadata with the verdict. With an error the run could not be carried
// out: the metadata has the verdict error and the reason, and the record contains what there is. The teardown is
// complete when execute returns, even if ctx was cancelled.
func execute(ctx context.Context, config Config) (*record.Meta, error) {
	writer, err := record.Create(config.RecordDir)
	if err != nil {
		return nil, fmt.Errorf("create run record: %w", err)
	}
	suite, name := config.Plan.Within(config.Suite)
	config.Suite = suite
	r := &runner{Config: config, console: newConsole(config.Progress, config.RecordDir), workload: name, writer: writer,
		types: map[plan.ResourceKey]bool{},
		meta: record.Meta{
			Plan: config.Plan.TestName, PlanFile: config.Plan.File, Suite: config.Suite.File, Variant: config.Variant,
			Trommel: config.Version, Started: time.Now(), Phases: []record.Phase{},
			ActionsTotal: len(config.Plan.Actions),
		}}
	r.console.started(config.Plan, config.Variant)
	err = r.run(ctx)
	if err == nil && r.recordErr != nil {
		err = r.recordErr
	}
	if err != nil {
		r.meta.Verdict = record.Error
		r.meta.Reason = err.Error()
		if ctx.Err() != nil {
			err = fmt.Errorf("interrupted: %w", context.Cause(ctx))
			r.meta.Reason = "interrupted"
		}
	}
	r.meta.Ended = time.Now()
	if closeErr := r.close(); err == nil && closeErr != nil {
		err = closeErr
		r.meta.Verdict = record.Error
	}
	r.console.ended(&r.meta, config.RecordDir)
	return &r.meta, err
}

type runner struct {
	Config    // with what the plan has of its own merged into the suite
	console   *console
	workload  string
	writer    *record.Writer
	meta      record.Meta
	recordErr error

	lease       *lease
	cluster     cluster.Cluster
	logStart    map[string]int64 // offset of the run's part of each control plane log; missing: 0
	token       string           // with which instrumented processes authenticate
	monitor     *monitor.Monitor
	coordinator *coordinator.Coordinator
	objects     *objects.Client
	webhooks    *webhooks
	findings    []record.Finding
	completedMu sync.Mutex
	completed   []record.Action // in order of completion; guarded by completedMu
	eventsMu    sync.Mutex
	events      []record.Event                // writes and reconciles of the controllers; guarded by eventsMu
	types       map[plan.ResourceKey]bool     // with FindTypes: of reference.Types so far; guarded by eventsMu
	named       []plan.ResourceKey            // with FindTypes: the types that are recorded in any case
	listed      []plan.ResourceKey            // with FindTypes: the others that are recorded
	logCalm     map[string]int64              // length of each recorded log at Meta.Calm
	ended       bool                          // the plan has ended
	undone      bool                          // its effects are undone
	judged      bool                          // there is a verdict
	why         string                        // what the plan blocked when a workload step timed out
	cycles      *cycles                       // nil: nothing was prepared
	manifests   map[string]string             // of apply actions: path in the plan to path in the record
	undo        []func(context.Context) error // teardown, run in reverse order
	phase       string
	phaseStart  time.Time
}

func (r *runner) close() error {
	errs := []error{
		r.writer.Findings(r.findings),
		r.writer.Meta(r.meta),
		r.writer.Close(),
	}
	return errors.Join(errs...)
}

// enter ends the current phase and begins the named one; an empty name only ends the current one.
func (r *runner) enter(name string) {
	if r.phase != "" {
		r.meta.Phases = append(r.meta.Phases, record.Phase{Name: r.phase, Duration: time.Since(r.phaseStart)})
	}
	r.phase, r.phaseStart = name, time.Now()
	if name != "" {
		r.console.Phase(name)
	}
}

func (r *runner) add(findings ...record.Finding) {
	for _, f := range findings {
		r.findings = append(r.findings, f)
		if f.Severity == record.SeverityNote {
			r.note(f.Title)
			continue
		}
		r.console.Finding(f)
	}
}

func (r *runner) later(f func(context.Context) error) { r.undo = append(r.undo, f) }

// run executes the plan and tears down what it set up.
func (r *runner) run(ctx context.Context) (err error) {
	standstills := watchItself()
	defer func() {
		for _, text := range standstills() {
			r.note(text)
		}
	}()
	defer func() {
		r.countFired(ctx)
		r.enter("teardown")
		// The teardown also runs when ctx has ended.
		ctx := context.WithoutCancel(ctx)
		if r.coordinator != nil {
			// The plan's effects are always undone, while the coordinator still serves the processes.
			r.later(r.endPlan)
		}
		for _, f := range slices.Backward(r.undo) {
			if e := r.tearDown(ctx, f); e != nil {
				r.Logger.Debug("teardown", "error", e)
				e = fmt.Errorf("teardown: %w", e)
				if r.judged {
					r.trouble(e)
				} else {
					err = errors.Join(err, e)
				}
			}
		}
		if r.judged && r.meta.Verdict == record.Pass {
			r.meta.Verdict, r.meta.Reason = judge.Verdict(r.findings, true)
		}
		r.enter("")
	}()
	if err := r.writePlan(); err != nil {
		return err
	}
	if err := r.startCluster(ctx); err != nil {
		return err
	}
	if err := r.prepare(ctx); err != nil {
		return err
	}
	return r.exercise(ctx)
}

// tearDown runs one part of the teardown with a timeout of its own.
func (r *runner) tearDown(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, teardownTimeout)
	defer cancel()
	return f(ctx)
}

// keepManifests copies the manifests of the plan's apply actions into the record, from where the run applies them. It
// returns the plan for the record, which refers to these copies and to the record's copy of the suite.
func (r *runner) keepManifests() (*plan.Plan, error) {
	recorded := *r.Plan
	recorded.Suite, recorded.Variant = "", r.Variant
	recorded.Actions = slices.Clone(r.Plan.Actions)
	r.manifests = map[string]string{}
	for i := range recorded.Actions {
		a := &recorded.Actions[i]
		if a.ManifestFile == "" {
			continue
		}
		if _, ok := r.manifests[a.ManifestFile]; !ok {
			kept, err := r.keepManifest(a.ManifestFile, len(r.manifests)+1)
			if err != nil {
				return nil, &UserError{fmt.Errorf("%s: manifestFile of action %d: %w", r.Plan.File, i+1, err)}
			}
			r.manifests[a.ManifestFile] = kept
		}
		a.ManifestFile = r.manifests[a.ManifestFile]
	}
	return &recorded, nil
}

// keepManifest writes a manifest, or all objects of a directory, into the record and returns its path there.
func (r *runner) keepManifest(file string, number int) (string, error) {
	path := plan.Beside(r.Plan.File, file)
	list, err := manifests.Read(path)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	var data []byte
	name := filepath.Base(path)
	if info.IsDir() {
		data, err = objects.Encode(list)
		name += ".yaml"
	} else {
		data, err = os.ReadFile(path)
	}
	if err != nil {
		return "", err
	}
	kept := record.ManifestsDir + "/" + fmt.Sprintf("%d-%s", number, name)
	to := filepath.Join(r.RecordDir, filepath.FromSlash(kept))
	if err := os.MkdirAll(filepath.Dir(to), record.DirMode); err != nil {
		return "", fmt.Errorf("write run record: %w", err)
	}
	if err := os.WriteFile(to, data, record.FileMode); err != nil {
		return "", fmt.Errorf("write run record: %w", err)
	}
	return kept, nil
}

// countFired records how many actions have fired, however the run ends.
func (r *runner) countFired(ctx context.Context) {
	if r.coordinator == nil {
		return
	}
	if s, err := r.coordinator.Status(context.WithoutCancel(ctx)); err == nil {
		r.meta.ActionsFired = s.Fired
	}
}

func (r *runner) writePlan() error {
	recorded, err := r.keepManifests()
	if err != nil {
		return err
	}
	data, err := plan.Marshal(recorded)
	if err != nil {
		return fmt.Errorf("write plan: %w", err)
	}
	if err := os.WriteFile(filepath.Join(r.RecordDir, record.PlanFile), data, record.FileMode); err != nil {
		return fmt.Errorf("write run record: %w", err)
	}
	suite := r.Suite.Text()
	if suite == nil {
		if suite, err = os.ReadFile(r.Suite.File); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(r.RecordDir, record.SuiteFile), suite, record.FileMode); err != nil {
		return fmt.Errorf("write run record: %w", err)
	}
	return nil
}

func (r *runner) startCluster(ctx context.Context) error {
	r.enter("cluster")
	l, err := r.clusters.acquire(ctx, r.console)
	if err != nil {
		return err
	}
	r.later(l.release)
	r.lease, r.cluster, r.meta.Cluster = l, l.cluster, l.state
	if l.state != record.ClusterFresh {
		if err := r.skipLogs(ctx); err != nil {
			return err
		}
	}
	address, err := r.rendezvous()
	if err != nil {
		return err
	}
	r.monitor, err = monitor.Listen(monitor.Config{
		Address: address, Token: r.token, Logger: r.Logger, Limits: monitor.LimitsFor(r.Suite.Timeouts.Hold),
		AckTimeout: r.Suite.Timeouts.Acknowledge,
	})
	if err != nil {
		return err
	}
	r.later(func(context.Context) error { return r.monitor.Close() })
	return nil
}

// rendezvous returns the address at which instrumented processes look for the coordinator. A cluster without such an
// address gets a new one that no process knows.
func (r *runner) rendezvous() (address string, err error) {
	if c, ok := r.cluster.(cluster.Listener); ok {
		address, r.token = c.Rendezvous()
		return address, nil
	}
	dir, err := os.MkdirTemp("", "trommel-")
	if err != nil {
		return "", fmt.Errorf("listen for instrumented processes: %w", err)
	}
	r.later(func(context.Context) error { return os.RemoveAll(dir) })
	r.token = rand.Text()
	return "unix://" + filepath.Join(dir, "coordinator.sock"), nil
}

// prepare sets up everything that the workload needs.
func (r *runner) prepare(ctx context.Context) error {
	config, err := r.cluster.RESTConfig(r.steadyAPIServer())
	if err != nil {
		return err
	}
	unthrottle(config)
	if r.objects, err = objects.New(config); err != nil {
		return err
	}
	if err := r.checkServers(); err != nil {
		return err
	}
	if err := r.checkVersion(config); err != nil {
		return err
	}
	if err := r.checkRemovedAPIs(config); err != nil {
		return err
	}
	r.later(r.keepLogs)
	r.enter("manifests")
	if err := r.installCycles(ctx); err != nil {
		return err
	}
	own, err := r.installManifests(ctx)
	if err != nil {
		return err
	}
	if err := r.installDisruptions(ctx); err != nil {
		return err
	}
	resolve, err := r.resolveTypes(ctx)
	if err != nil {
		return err
	}
	r.meta.Controllers = r.describeControllers(own)
	r.cycles = &cycles{runner: r}
	r.later(r.cycles.close)
	r.warnOfStaleness()
	r.coordinator, err = coordinator.New(coordinator.Config{
		Plan: r.Plan, Monitor: r.monitor, Controllers: r.meta.Controllers,
		Tools: actions.Tools{
			Controllers: &controllers{runner: r}, APIServers: &apiServers{runner: r}, Objects: &planWrites{runner: r},
			Disruptions: &disruptions{runner: r}, Cycles: r.cycles,
		},
		Trace:   r.trace(),
		Resolve: resolve, Lookup: lookup{r.objects}, Hold: r.Suite.Timeouts.Hold,
		Recorder: r, Watcher: r.console, Logger: r.Logger,
	})
	if err != nil {
		return &UserError{err}
	}
	// The coordinator outlives ctx: the teardown needs it.
	serve, stop := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() { served <- r.coordinator.Run(serve) }()
	r.later(func(context.Context) error { stop(); return <-served })

	if err := r.waitForAPIServers(ctx); err != nil {
		return err
	}
	if err := r.warmWatchCaches(ctx); err != nil {
		return err
	}
	if keep := r.lease.keepPrepared; keep != nil {
		keep(ctx)
	}
	r.enter("controllers")
	if err := r.startDisruptions(ctx, config); err != nil {
		return err
	}
	if err := r.startCycles(ctx, config); err != nil {
		return err
	}
	if err := r.startControllers(ctx, own); err != nil {
		return err
	}
	if err := r.applyGroups(ctx); err != nil {
		return err
	}
	if keep := r.lease.keepCertificates; keep != nil && len(r.webhooks.declared) > 0 {
		keep(ctx)
	}
	return nil
}

// exercise runs the workload with the plan, then the judges.
func (r *runner) exercise(ctx context.Context) error {
	invariants, err := judge.Compile(r.Suite.Invariants)
	if err != nil {
		return &UserError{err}
	}
	recorder, err := r.startRecorder(ctx)
	if err != nil {
		return err
	}
	r.enter("workload")
	planCtx, cancel := context.WithTimeoutCause(ctx, r.Suite.Timeouts.Plan,
		fmt.Errorf("workload and plan took longer than the suite's timeouts.plan (%s)", r.Suite.Timeouts.Plan))
	defer cancel()
	if err := r.coordinator.Begin(planCtx); err != nil {
		return err
	}
	r.meta.WorkloadStart = time.Now()
	kubeconfig, err := r.kubeconfig()
	if err != nil {
		return err
	}
	config, err := r.cluster.RESTConfig(r.steadyAPIServer())
	if err != nil {
		return err
	}
	findings, err := workload.Run(planCtx, workload.Config{
		Suite: r.Suite, Workload: r.workload, Objects: r.objects, Kubeconfig: kubeconfig,
		REST: config, Functions: r.Functions,
		Progress: r.console.Info, Step: r.step, Log: r.workloadLog(), Outage: r.outage,
		Blocked: r.blocked, LetGo: r.letGo, Disturbed: r.disturbed, Note: r.note,
		Rest: r.pause(),
	})
	r.meta.WorkloadEnd = time.Now()
	timedOut := planCtx.Err() != nil && ctx.Err() == nil
	if err != nil && !timedOut {
		misused := new(workload.FunctionError)
		if errors.Is(err, objects.ErrNotServed) || errors.As(err, &misused) {
			err = &UserError{err}
		}
		return fmt.Errorf("workload: %w", err)
	}
	r.withLastErrors(ctx, findings)
	r.add(findings...)
	if err != nil && timedOut {
		r.add(record.Finding{
			Severity: record.SeverityInconclusive, Judge: record.JudgeTimeout,
			Title: "the workload did not finish: " + err.Error(), Detail: r.lastOutage(), Time: time.Now(),
		})
	}
	var stuck string
	switch {
	case timedOut:
		stuck = context.Cause(planCtx).Error()
	case len(findings) > 0:
		stuck = "the workload failed" // what the plan still waits for may never happen
	default:
		if stuck, err = r.awaitPlan(planCtx); err != nil {
			return err
		}
	}

	r.enter("oracles")
	return r.judge(ctx, recorder, invariants, stuck, len(findings) > 0)
}

// step notes that a step of the workload begins.
func (r *runner) step(number, of int, text string) {
	r.meta.Steps = append(r.meta.Steps, record.Step{Text: text, Started: time.Now()})
	r.console.step(number, of, text)
}

// judge gives the controllers time to settle, first as the plan has left things and again after its effects are undone;
// then it runs the judges. stuck says why the plan did not finish; failed, that the workload did. From here on a
// failure becomes another finding and cannot discard earlier ones. The error is that of ctx.
func (r *runner) judge(
	ctx context.Context, recorder *history.Recorder, invariants *judge.Invariants, stuck string, failed bool,
) error {
	troubled := func(err error) {
		if err != nil && ctx.Err() == nil {
			r.trouble(err)
		}
	}
	status, err := r.coordinator.Status(ctx)
	troubled(err)
	r.meta.ActionsFired = status.Fired
	if !failed && status.Stuck == "" && len(status.Down) == 0 {
		r.add(r.cycles.conclude(ctx)...) // controllers cannot settle while their nodes go
		status, err = r.coordinator.Status(ctx)
		troubled(err)
	}
	lasts := status.Stuck != "" || len(status.Down) > 0 || len(status.Lasting) > 0
	if !failed && !lasts {
		troubled(r.becalm(ctx))
	}
	// A controller that is still paused or killed cannot bring about what "eventually" asks for.
	settles := stuck == "" && !failed
	if settles {
		settled, err := r.settle(ctx)
		troubled(err)
		// A controller that did not settle will not settle later either, unless undoing the plan changes something for
		// it.
		settles = settled || status.Stuck != "" || len(status.Down) > 0
	}
	troubled(r.letGo(ctx))
	if !failed && lasts {
		troubled(r.becalm(ctx))
	}
	if settles {
		_, err := r.settle(ctx)
		troubled(err)
	}
	if !failed {
		if r.meta.GivenBack, err = await.Invariants(ctx, invariants, recorder, r.meta.WorkloadEnd); err != nil {
			return err
		}
	}
	if r.Reference != nil && !failed {
		troubled(await.Reference(ctx, r.Reference, r.Plan, recorder, r.meta.GivenBack, r.Suite.Timeouts))
	}
	last, err := r.coordinator.Status(ctx)
	troubled(err)
	r.add(last.Findings...)
	status.StaleReads, status.NoneStale, status.NoneFailed = last.StaleReads, last.NoneStale, last.NoneFailed
	evidence := r.evidence(ctx, recorder, invariants)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.add(judge.Hear(ctx, evidence, judge.Judges())...)
	r.conclude(status, stuck)
	return nil
}

// awaitPlan waits until every action has completed. It gives up, and returns the reason, when nothing that could
// advance the plan has happened for a while.
func (r *runner) awaitPlan(ctx context.Context) (stuck string, err error) {
	stuckAfter := r.Suite.Timeouts.Stuck
	for {
		changed, err := r.coordinator.Changed(ctx)
		if err != nil {
			return context.Cause(ctx).Error(), ignoreDeadline(ctx, err)
		}
		s, err := r.coordinator.Status(ctx)
		if err != nil {
			return context.Cause(ctx).Error(), ignoreDeadline(ctx, err)
		}
		if s.Completed == s.Total {
			return "", nil
		}
		idle := min(time.Since(s.LastEvent), time.Since(r.meta.WorkloadEnd))
		if !s.OnItsWay && idle >= stuckAfter {
			return "the workload is finished and nothing that the plan observes has happened since", nil
		}
		wait := stuckAfter - idle
		if s.OnItsWay {
			wait = stuckAfter
		}
		select {
		case <-changed:
		case <-time.After(wait):
		case <-ctx.Done():
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

// note records a note about the whole run.
func (r *runner) note(text string) {
	r.console.Info(text)
	r.meta.Notes = append(r.meta.Notes, text)
}

// blocked describes what the plan blocks now, for a workload step that is not satisfied.
func (r *runner) blocked(ctx context.Context) string {
	status, err := r.coordinator.Status(ctx)
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
		why = r.cycles.blocked()
	}
	r.why = why
	return why
}

// disturbed returns when the plan's last action completed; zero if none has.
func (r *runner) disturbed() (last time.Time) {
	r.completedMu.Lock()
	defer r.completedMu.Unlock()
	for _, a := range r.completed {
		if a.Done.After(last) {
			last = a.Done
		}
	}
	if at := r.cycles.disturbed(); at.After(last) {
		last = at
	}
	return last
}

// letGo is endPlan, and returns when no cycle of nodes goes on any more.
func (r *runner) letGo(ctx context.Context) error {
	if err := r.endPlan(ctx); err != nil {
		return err
	}
	r.add(r.cycles.conclude(ctx)...)
	return nil
}

// endPlan releases what the plan holds and undoes its effects, once.
func (r *runner) endPlan(ctx context.Context) error {
	if !r.ended {
		if err := r.coordinator.End(ctx); err != nil {
			return err
		}
		r.ended = true
	}
	if !r.undone {
		undo, cancel := context.WithTimeout(ctx, teardownTimeout)
		defer cancel()
		if err := r.coordinator.Undo(undo); err != nil {
			return err
		}
		r.undone = true
	}
	return nil
}

func (r *runner) conclude(s coordinator.Status, stuck string) {
	r.judged = true
	complete := s.Fired == s.Total && s.Completed == s.Total
	r.meta.StaleReads = s.StaleReads
	r.meta.Verdict, r.meta.Reason = judge.Verdict(r.findings, complete)
	if r.meta.Verdict == record.Pass && len(s.NoneStale) > 0 {
		r.add(judge.NoneStale(s.NoneStale))
		r.meta.Verdict, r.meta.Reason = judge.Verdict(r.findings, complete)
	}
	if r.meta.Verdict == record.Pass && len(s.NoneFailed) > 0 {
		r.add(judge.NoneFailed(s.NoneFailed)...)
		r.meta.Verdict, r.meta.Reason = judge.Verdict(r.findings, complete)
	}
	if complete {
		return
	}
	if s.Stuck == "" {
		s.Stuck = r.why
	}
	r.meta.Unfinished = unfinished(s, stuck)
	if r.meta.Verdict == record.Inconclusive {
		r.meta.Reason = r.meta.Unfinished
	}
	if text := r.meta.NotHappened(); text != "" {
		r.console.Info(text)
	}
}

// unfinished describes how far an incomplete plan came and what it waited for; see record.Meta.
func unfinished(s coordinator.Status, stuck string) string {
	text := fmt.Sprintf("%d of %d actions fired", s.Fired, s.Total)
	if s.Fired == s.Total {
		text = fmt.Sprintf("all actions fired, but %d of %d completed", s.Completed, s.Total)
	}
	if stuck != "" {
		text += ": " + stuck
	}
	for _, line := range s.Waiting {
		text += "\n" + line
	}
	if s.Stuck != "" {
		text += "\n" + s.Stuck
	}
	for _, line := range s.Electing {
		text += "\n" + line
	}
	return text
}

// Event implements coordinator.Recorder.
func (r *runner) Event(e record.Event) error {
	r.heard(e)
	return r.writer.Event(e)
}

// Action implements coordinator.Recorder.
func (r *runner) Action(a record.Action) error {
	r.completedMu.Lock()
	r.completed = append(r.completed, a)
	r.completedMu.Unlock()
	return r.writer.Action(a)
}

// kubeconfig writes a kubeconfig file for the workload's commands; the teardown deletes it.
func (r *runner) kubeconfig() (file string, err error) {
	config, err := r.cluster.RESTConfig(r.steadyAPIServer())
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "trommel-kubeconfig-")
	if err != nil {
		return "", fmt.Errorf("write a kubeconfig for the workload: %w", err)
	}
	r.later(func(context.Context) error { return os.RemoveAll(dir) })
	file = filepath.Join(dir, "kubeconfig")
	return file, cluster.WriteKubeconfig(file, r.cluster.Name(), config)
}

// steadyAPIServer returns an API server that the plan does not disturb, for the run's own requests; the first one if
// there is none.
func (r *runner) steadyAPIServer() string {
	disturbed := map[string]bool{}
	for _, a := range r.Plan.Actions {
		disturbed[a.Effects().Disturbs()] = true
	}
	for _, name := range r.cluster.APIServers() {
		if !disturbed[name] {
			return name
		}
	}
	return r.cluster.APIServers()[0]
}

func unthrottle(config *rest.Config) {
	config.QPS, config.Burst = -1, 0
}
