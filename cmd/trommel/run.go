package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/disruptions"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/flags"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/planfiles"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/records"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/runsdir"
	"github.com/trommel-dev/trommel/internal/buildinfo"
	"github.com/trommel-dev/trommel/internal/campaign"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/report"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/internal/run/dryrun"
	"github.com/trommel-dev/trommel/internal/run/preflight"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// runOptions are the flags of `trommel run`, which `trommel` itself has too.
type runOptions struct {
	time      flags.Time
	plans     []string
	suite     string
	variant   string
	cluster   string
	context   string
	dryRun    bool
	recordDir string
	baseline  string
	progress  output.Flags
	trace     bool
	outputs   records.Outputs

	// The flags of Sieve's command line.
	controller string
	stage      string
	mode       string
}

func (o *runOptions) register(c *cobra.Command) {
	f := c.Flags()
	f.StringArrayVarP(&o.plans, "plan", "p", nil,
		"plan `file` to run, a directory of plans, or a pattern such as 'plans/stale-*'; may be given more than once")
	flags.EitherSuite(f, &o.controller, &o.suite, "that of the plan, or the nearest trommel.yaml above it")
	f.StringVarP(&o.stage, "stage", "s", "", "`stage`, for compatibility with Sieve: only test")
	f.StringVarP(&o.mode, "mode", "m", "", "`mode`, for compatibility with Sieve: only test")
	f.StringVar(&o.variant, "variant", "", "`name` of a variant of the suite, instead of the plan's")
	o.time.Register(f)
	f.StringVar(&o.cluster, "cluster", "",
		"run on the cluster of this `name`, started by `trommel cluster up` (default: a new one for the run)")
	f.StringVar(&o.context, "context", "", "`context` of the kubeconfig, for a suite whose cluster exists already; "+
		"it comes before the suite's")
	f.BoolVar(&o.dryRun, "dry-run", false, "on a cluster that exists already: only list what the runs would create, "+
		"replace and delete")
	f.StringVar(&o.recordDir, "record", "", "`directory` for the run record (default: trommel-runs/<plan>-<time>)")
	o.outputs.Register(f)
	f.StringVar(&o.baseline, "baseline", "", "also compare with what the workload does without faults, which is "+
		"learned in this `directory` if it is not known (see trommel learn)")
	f.BoolVar(&o.trace, "trace", false, "record everything that can be observed, not only what the plan needs")
	o.progress.Register(f)
	flags.FromSource(f)
}

func newRunCommand(s output.Streams) *cobra.Command {
	var o runOptions
	c := &cobra.Command{
		Use:   "run [plan.yaml...]",
		Short: "Run plans and give a verdict",
		Long: `Run builds the suite's controllers with hooks, starts a control plane, runs the plan against them and
gives a verdict.

Exit codes: 0 pass, 1 bug, 2 bad plan or usage, 3 inconclusive (not all actions fired), 4 could not run. All plans are
read before the first one runs: if one is bad, none is run (2). Otherwise the exit code is the most severe: could not
run, bad plan, bug, inconclusive, pass. Plans of one suite and variant run one after the other on one cluster, which is
reset between them. The arguments are plans, as those of --plan are: files, directories and patterns.

Sieve's command line works too: -c names the controller's directory (or its suite); -s test and -m test have no
effect.`,
		Example: `  trommel run plans/stale-deletion.yaml plans/interrupted-create.yaml
  trommel run -p plans/stale-deletion.yaml
  trommel run -p plans/stale-deletion.yaml --variant fixed
  trommel run -p plans/ --junit out/junit.xml
  trommel run plans/stale-deletion.yaml --context staging --dry-run
  trommel run -c examples/zookeeper-operator -m test -p plan.yaml`,
		RunE: func(c *cobra.Command, args []string) error {
			o.plans = append(o.plans, args...)
			return runPlans(c.Context(), s, &o)
		},
	}
	o.register(c)
	return c
}

// sieve applies the flags of Sieve's command line.
func (o *runOptions) sieve() (err error) {
	for _, f := range []struct{ name, value string }{{"-s (--stage)", o.stage}, {"-m (--mode)", o.mode}} {
		if f.value != "" && f.value != "test" {
			return fmt.Errorf("%s: %q: trommel supports only test", f.name, f.value)
		}
	}
	o.suite, err = flags.NamedSuite(o.controller, o.suite)
	return err
}

// loaded is a plan with its suite, ready to run.
type loaded struct {
	plan    *plan.Plan
	suite   *plan.Suite // without the variant
	variant string
	asked   int    // index among the plans that were asked for
	note    string // about how the suite was found, for the user; empty: nothing to say
}

// session is what the plans of one session have in common.
func (l *loaded) session() string { return l.suite.File + "\x00" + l.variant }

// bySession groups plans that share a session. Groups are in the order of their first plans.
func bySession(all []*loaded) [][]*loaded {
	var groups [][]*loaded
	at := map[string]int{}
	for _, l := range all {
		i, ok := at[l.session()]
		if !ok {
			i = len(groups)
			at[l.session()] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], l)
	}
	return groups
}

// load reads and validates a plan; every error is a mistake of the user.
func (o *runOptions) load(file string) (*loaded, error) {
	suiteFile := o.suite
	var suite *plan.Suite
	var err error
	if suiteFile == "" {
		suiteFile, err = plan.FindSuite(file)
	}
	if err == nil {
		suite, err = plan.LoadSuite(suiteFile)
	}
	if err != nil {
		// Report the plan's own mistakes too; a missing plan has none.
		_, planErr := plan.Load(file)
		if _, missing := os.Stat(file); missing != nil {
			return nil, planErr
		}
		return nil, errors.Join(planErr, err)
	}
	p, err := plan.LoadWith(file, suite)
	if err != nil {
		return nil, err
	}
	variant := o.variant
	if variant == "" {
		variant = p.Variant
	}
	if _, err := run.Choose(suite, variant); err != nil {
		return nil, err
	}
	o.time.Apply(suite)
	l := &loaded{plan: p, suite: suite, variant: variant}
	if o.suite == "" {
		l.note = planfiles.Moved(p, suiteFile)
	}
	return l, nil
}

func runPlans(ctx context.Context, s output.Streams, o *runOptions) error {
	if len(o.plans) == 0 {
		return exit.With(exit.Usage, errors.New("no plan given: trommel -p plan.yaml"))
	}
	if err := o.sieve(); err != nil {
		return exit.With(exit.Usage, err)
	}
	files, err := planfiles.Expand(o.plans)
	if err != nil {
		return exit.With(exit.Usage, fmt.Errorf("-p (--plan): %w", err))
	}
	if o.recordDir != "" && len(files) > 1 {
		return exit.With(exit.Usage,
			errors.New("--record takes one plan; without it every plan gets its own directory"))
	}
	if err := o.outputs.Prepare(); err != nil {
		return exit.With(exit.Usage, err)
	}
	console, s, err := o.progress.Open(s)
	if err != nil {
		return err
	}
	defer console.Close()
	r := &results{streams: s, asked: files, runs: make([]*record.Run, len(files))}
	all, err := o.loadAll(ctx, files, r)
	if err != nil {
		return exit.With(exit.Usage, errors.Join(err, r.write(&o.outputs)))
	}
	if o.dryRun {
		return o.listEffects(ctx, s, console, all)
	}
	for _, group := range bySession(all) {
		r.worst(runGroup(ctx, s, console, o, group, r))
		if ctx.Err() != nil {
			break
		}
	}
	for _, l := range all {
		if r.runs[l.asked] == nil {
			r.add(l.asked, l.unrun(record.NotRun, "interrupted"))
		}
	}
	if err := r.write(&o.outputs); err != nil {
		return exit.With(exit.CannotRun, err)
	}
	if r.code != exit.Pass {
		return exit.With(r.code, nil)
	}
	return nil
}

// results are what became of all plans that were asked for.
type results struct {
	streams     output.Streams
	asked       []string      // plan files
	runs        []*record.Run // of each plan that was asked for; nil: not yet
	code        int           // the most severe exit code
	annotations []report.Annotation
}

// severity orders exit codes from the least to the most severe.
var severity = map[int]int{exit.Pass: 0, exit.Inconclusive: 1, exit.Bug: 2, exit.Usage: 3, exit.CannotRun: 4}

func (r *results) worst(code int) {
	if severity[code] > severity[r.code] {
		r.code = code
	}
}

// add takes what became of a plan and prints it.
func (r *results) add(asked int, done *record.Run) {
	r.runs[asked] = done
	shown := *done
	if done.Dir == "" {
		// The whole reason was on stderr.
		shown.Meta.Reason = wording.FirstLine(done.Meta.Reason)
	}
	if err := report.Text(r.streams.Out, &shown); err != nil {
		fmt.Fprintf(r.streams.Err, "trommel: %v\n", err)
		r.worst(exit.CannotRun)
	}
}

// write writes the files that were asked for.
func (r *results) write(o *records.Outputs) error {
	return o.Write(r.streams, records.Contents{
		JSON:        func(w io.Writer) error { return report.JSON(w, r.runs) },
		Markdown:    func(w io.Writer) error { return report.Markdown(w, r.runs) },
		Runs:        r.runs,
		Annotations: append(r.annotations, report.Annotations(r.runs)...),
	})
}

// loadAll reads all plans before the first one runs, so that a mistake in the last one is found at once, and before
// anything is built. If there are mistakes, r has a result for each plan.
func (o *runOptions) loadAll(ctx context.Context, files []string, r *results) ([]*loaded, error) {
	var all []*loaded
	var errs []error
	bad := make([]error, len(files))
	var read preflight.Suites
	for i, file := range files {
		l, err := o.load(file)
		if err == nil && o.cluster == "" { // a running cluster may have more
			err = read.CheckPlan(ctx, l.suite, l.plan)
		}
		if err != nil {
			bad[i] = err
			errs = append(errs, err)
			continue
		}
		l.asked = i
		all = append(all, l)
		if l.note != "" {
			fmt.Fprintln(r.streams.Err, l.note)
		}
	}
	if len(errs) == 0 {
		return all, nil
	}
	for i, err := range bad {
		if err == nil {
			continue
		}
		r.annotations = append(r.annotations, records.Mistakes(err, files[i])...)
		r.runs[i] = &record.Run{Meta: record.Meta{
			Plan: files[i], PlanFile: files[i], Verdict: record.Error, Reason: err.Error(),
		}}
	}
	for _, l := range all {
		r.runs[l.asked] = l.unrun(record.NotRun, "another plan has mistakes")
	}
	if len(files) > 1 { // otherwise the mistakes on stderr say it all
		for i, done := range r.runs {
			r.add(i, done)
		}
	}
	return nil, errors.Join(errs...)
}

// unrun stands for the run of a plan that has no record.
func (l *loaded) unrun(verdict record.Verdict, reason string) *record.Run {
	return &record.Run{Meta: record.Meta{
		Plan: l.plan.TestName, PlanFile: l.plan.File, Suite: l.suite.File, Variant: l.variant, Verdict: verdict,
		Reason: reason, Trommel: buildinfo.Version(), ActionsTotal: len(l.plan.Actions),
	}}
}

// runGroup runs plans that share a session and returns the most severe exit code. It adds a result for each plan,
// unless it is interrupted.
func runGroup(
	ctx context.Context, s output.Streams, console *output.Console, o *runOptions, group []*loaded, r *results,
) (worst int) {
	options := o.session(s, console, group[0], len(group) > 1)
	console.Title(group[0].title())
	session, err := run.Open(ctx, group[0].suite, options)
	if err != nil {
		fmt.Fprintf(s.Err, "trommel: %v\n", err)
		for _, l := range group {
			r.add(l.asked, l.unrun(record.Error, err.Error()))
		}
		return codeOf(err)
	}
	worst = exit.Pass
	note := func(code int) {
		if severity[code] > severity[worst] {
			worst = code
		}
	}
	defer func() {
		if err := session.Close(context.WithoutCancel(ctx)); err != nil {
			fmt.Fprintf(s.Err, "trommel: %v\n", err)
			note(exit.CannotRun)
		}
	}()
	for i, l := range group {
		if i > 0 {
			console.Title(l.title())
		}
		how, err := o.howToRun(ctx, console, session, l)
		if err != nil {
			console.Failed(err)
			r.add(l.asked, l.unrun(record.Error, err.Error()))
			note(codeOf(err))
			continue
		}
		done, code := runPlan(ctx, s, console, session, l, o.recordFolder(l), how)
		r.add(l.asked, done)
		note(code)
		if done.Dir != "" && !o.progress.Quiet {
			fmt.Fprintf(s.Err, "run record: %s\n", done.Dir)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return worst
}

// listEffects lists what runs of the plans would do to a cluster that exists already.
func (o *runOptions) listEffects(ctx context.Context, s output.Streams, console *output.Console, all []*loaded) error {
	for _, l := range all {
		lines, err := dryrun.List(ctx, l.suite, l.plan, o.session(s, console, l, false))
		if err != nil {
			return exit.With(codeOf(err), err)
		}
		fmt.Fprintf(s.Out, "%s:\n", l.title())
		for _, line := range lines {
			fmt.Fprintf(s.Out, "  %s\n", line)
		}
	}
	return nil
}

// session returns how to open a session for a plan, and others if there are several.
func (o *runOptions) session(s output.Streams, console *output.Console, l *loaded, several bool) run.Options {
	level := slog.LevelError
	if o.progress.Verbose {
		level = slog.LevelDebug
	}
	return run.Options{
		Variant: l.variant, Cluster: o.cluster, Context: o.context, Fresh: !several && o.baseline == "",
		Trace:   o.trace,
		Version: buildinfo.Version(), Injector: disruptions.Injector(),
		DisruptionControllers: disruptions.Controllers(), Progress: console,
		Logger: slog.New(slog.NewTextHandler(s.Err, &slog.HandlerOptions{Level: level})),
	}
}

// title names the plan with its variant.
func (l *loaded) title() string {
	if l.variant == "" {
		return l.plan.TestName
	}
	return l.plan.TestName + " (" + l.variant + ")"
}

// howToRun takes or learns the baseline of a plan's workload, if runs are to be compared with it.
func (o *runOptions) howToRun(
	ctx context.Context, console *output.Console, session *run.Session, l *loaded,
) (run.RunOptions, error) {
	if o.baseline == "" {
		return run.RunOptions{Trace: o.trace}, nil
	}
	suite, err := run.Choose(l.suite, l.variant)
	if err != nil {
		return run.RunOptions{}, &run.UserError{Err: err}
	}
	binaries, controlPlane := session.Built()
	learned, err := campaign.Learn(ctx, campaign.Config{
		Settings: result.Settings{SuiteFile: suite.File, Variant: l.variant, Baselines: o.baseline},
		Plans:    []*plan.Plan{l.plan},
		Runners:  []run.Runner{session}, Suite: suite, Binaries: binaries, ControlPlane: controlPlane,
		Builds:  session.Builds(),
		Dir:     filepath.Join(runsdir.Name, "learn-"+time.Now().Format("20060102-150405.000")),
		Version: buildinfo.Version(), Progress: console,
	})
	if err == nil {
		err = learned[0].Err
	}
	if err != nil {
		return run.RunOptions{}, err
	}
	how := learned[0].Options()
	how.Trace = o.trace
	return how, nil
}

// codeOf returns the exit code for an error of a session.
func codeOf(err error) int {
	var user *run.UserError
	if errors.As(err, &user) {
		return exit.Usage
	}
	return exit.CannotRun
}

// recordFolder returns the directory for the record of a plan's run.
func (o *runOptions) recordFolder(l *loaded) string {
	if o.recordDir != "" {
		return o.recordDir
	}
	name := l.plan.TestName
	if l.variant != "" {
		name += "-" + l.variant
	}
	return filepath.Join(runsdir.Name, name+"-"+time.Now().Format("20060102-150405.000"))
}

// runPlan runs one plan and returns its record, or what stands for it if there is none, and the exit code.
func runPlan(
	ctx context.Context, s output.Streams, console *output.Console, session *run.Session, l *loaded, dir string,
	how run.RunOptions,
) (*record.Run, int) {
	meta, err := session.RunConfirmed(ctx, l.plan, dir, how)
	if meta == nil { // there is no record of this run; the directory may hold another one
		fmt.Fprintf(s.Err, "trommel: %v\n", err)
		return l.unrun(record.Error, err.Error()), codeOf(err)
	}
	if err != nil {
		console.Failed(err)
	}
	r, readErr := record.Open(dir)
	if readErr != nil {
		fmt.Fprintf(s.Err, "trommel: read run record: %v\n", readErr)
		return l.unrun(record.Error, readErr.Error()), exit.CannotRun
	}
	if err != nil {
		return r, codeOf(err)
	}
	switch meta.Verdict {
	case record.Pass:
		return r, exit.Pass
	case record.Bug:
		return r, exit.Bug
	case record.Inconclusive:
		return r, exit.Inconclusive
	}
	return r, exit.CannotRun
}
