package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/campaign"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
	"github.com/trommel-dev/trommel/report"
	"github.com/trommel-dev/trommel/run"
)

// runOptions are the flags of `trommel run`, which `trommel` itself has too.
type runOptions struct {
	plans     []string
	suite     string
	variant   string
	cluster   string
	recordDir string
	junit     string
	reference string
	verbose   bool
	trace     bool

	// The flags of Sieve's command line.
	controller string
	stage      string
	mode       string
}

func (o *runOptions) register(c *cobra.Command) {
	f := c.Flags()
	f.StringArrayVarP(&o.plans, "plan", "p", nil, "plan `file` to run; may be given more than once")
	f.StringVar(&o.suite, "suite", "", "suite `file` (default: the nearest trommel.yaml above the plan)")
	f.StringVarP(&o.controller, "controller", "c", "",
		"the controller's `directory`, with its trommel.yaml, or the suite file itself; the same as --suite")
	f.StringVarP(&o.stage, "stage", "s", "", "`stage`, for compatibility with Sieve: only test")
	f.StringVarP(&o.mode, "mode", "m", "", "`mode`, for compatibility with Sieve: only test")
	f.StringVar(&o.variant, "variant", "", "`name` of a variant of the suite, instead of the plan's")
	f.StringVar(&o.cluster, "cluster", "",
		"run on the cluster of this `name`, started by `trommel cluster up` (default: a new one for the run)")
	f.StringVar(&o.recordDir, "record", "", "`directory` for the run record (default: trommel-runs/<plan>-<time>)")
	f.StringVar(&o.junit, "junit", "", "write the verdicts to this `file` as JUnit XML")
	f.StringVar(&o.reference, "reference", "", "also compare with what the workload does without faults, which is "+
		"learned in this `directory` if it is not known (see trommel learn)")
	f.BoolVar(&o.trace, "trace", false, "record everything that can be observed, not only what the plan needs")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "log what the coordinator does")
}

func newRunCommand(s streams) *cobra.Command {
	var o runOptions
	c := &cobra.Command{
		Use:   "run -p plan.yaml",
		Short: "Run plans and give a verdict",
		Long: `Run builds the suite's controllers with hooks, starts a control plane, runs the plan against them and
gives a verdict.

Exit codes: 0 pass, 1 bug, 2 bad plan or usage, 3 inconclusive (not all actions fired), 4 could not run. Several plans
need one -p each. All are read before the first one runs: if one is bad, none is run (2). Otherwise the exit code is
the most severe: could not run, bad plan, bug, inconclusive, pass. Plans of one suite and variant run one after the
other on one cluster, which is reset between them.

Sieve's command line works too: -c names the controller's directory (or its suite); -s test and -m test have no
effect.`,
		Example: `  trommel run -p plans/stale-deletion.yaml
  trommel run -p plans/stale-deletion.yaml --variant fixed
  trommel run -c examples/zookeeper-operator -m test -p plan.yaml`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return runPlans(c.Context(), s, &o) },
	}
	o.register(c)
	return c
}

// sieve applies the flags of Sieve's command line.
func (o *runOptions) sieve() error {
	for _, f := range []struct{ name, value string }{{"-s (--stage)", o.stage}, {"-m (--mode)", o.mode}} {
		if f.value != "" && f.value != "test" {
			return fmt.Errorf("%s: %q: trommel supports only test", f.name, f.value)
		}
	}
	if o.controller != "" && o.suite != "" {
		return errors.New("-c (--controller) and --suite both name the suite; give one of them")
	}
	if o.controller == "" {
		return nil
	}
	info, err := os.Stat(o.controller)
	if err != nil {
		return fmt.Errorf("-c (--controller): %s: no such file or directory; want the controller's directory "+
			"or its suite",
			o.controller)
	}
	o.suite = o.controller
	if info.IsDir() {
		o.suite = filepath.Join(o.controller, plan.SuiteFile)
		if _, err := os.Stat(o.suite); err != nil {
			return fmt.Errorf("-c (--controller): there is no %s in %s; `trommel init` writes one",
				plan.SuiteFile, o.controller)
		}
	}
	return nil
}

// loaded is a plan with its suite, ready to run.
type loaded struct {
	plan    *plan.Plan
	suite   *plan.Suite // without the variant
	variant string
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
	return &loaded{p, suite, variant}, nil
}

func runPlans(ctx context.Context, s streams, o *runOptions) error {
	if len(o.plans) == 0 {
		return &exitError{exitUsage, errors.New("no plan given: trommel -p plan.yaml")}
	}
	if err := o.sieve(); err != nil {
		return &exitError{exitUsage, err}
	}
	if o.recordDir != "" && len(o.plans) > 1 {
		return &exitError{exitUsage,
			errors.New("--record takes one plan; without it every plan gets its own directory")}
	}
	// All plans are read before the first one runs, so that a mistake in the last one is found at once.
	var all []*loaded
	var errs []error
	for _, file := range o.plans {
		l, err := o.load(file)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, l)
	}
	if err := errors.Join(errs...); err != nil {
		return &exitError{exitUsage, err}
	}
	worst := exitPass
	var runs []*record.Run
	for _, group := range bySession(all) {
		code, done := runGroup(ctx, s, o, group)
		if severity[code] > severity[worst] {
			worst = code
		}
		runs = append(runs, done...)
		if ctx.Err() != nil {
			break
		}
	}
	if o.junit != "" {
		if err := writeJUnit(o.junit, runs); err != nil {
			return &exitError{exitCannotRun, err}
		}
	}
	if worst != exitPass {
		return &exitError{code: worst}
	}
	return nil
}

// severity orders exit codes from the least to the most severe.
var severity = map[int]int{exitPass: 0, exitInconclusive: 1, exitBug: 2, exitUsage: 3, exitCannotRun: 4}

func writeJUnit(file string, runs []*record.Run) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := report.JUnit(f, runs); err != nil {
		_ = f.Close()
		return fmt.Errorf("write %s: %w", file, err)
	}
	return f.Close()
}

// runGroup runs plans that share a session and returns the most severe exit code and the records.
func runGroup(ctx context.Context, s streams, o *runOptions, group []*loaded) (worst int, runs []*record.Run) {
	level := slog.LevelError
	if o.verbose {
		level = slog.LevelDebug
	}
	console := report.NewConsole(s.err)
	options := run.Options{
		Variant: group[0].variant, Cluster: o.cluster, Fresh: len(group) == 1 && o.reference == "", Trace: o.trace,
		Version: version(), Console: console, Progress: console.Progress,
		Logger: slog.New(slog.NewTextHandler(s.err, &slog.HandlerOptions{Level: level})),
	}
	worst = exitPass
	note := func(code int) {
		if severity[code] > severity[worst] {
			worst = code
		}
	}
	var session *run.Session
	defer func() {
		if session == nil {
			return
		}
		if err := session.Close(context.WithoutCancel(ctx)); err != nil {
			fmt.Fprintf(s.err, "trommel: %v\n", err)
			note(exitCannotRun)
		}
	}()
	for _, l := range group {
		title := l.plan.TestName
		if l.variant != "" {
			title += " (" + l.variant + ")"
		}
		console.Title(title)
		if session == nil {
			var err error
			if session, err = run.Open(ctx, l.suite, options); err != nil {
				fmt.Fprintf(s.err, "trommel: %v\n", err)
				note(codeOf(err))
				continue
			}
		}
		how, err := o.howToRun(ctx, console, session, l)
		if err != nil {
			console.Failed(err)
			note(codeOf(err))
			continue
		}
		dir := o.recordFolder(l)
		note(runPlan(ctx, s, console, session, l.plan, dir, how))
		if r, err := record.Open(dir); err == nil {
			runs = append(runs, r)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return worst, runs
}

// howToRun takes or learns the reference of a plan's workload, if runs are to be compared with it.
func (o *runOptions) howToRun(
	ctx context.Context, console *report.Console, session *run.Session, l *loaded,
) (run.RunOptions, error) {
	if o.reference == "" {
		return run.RunOptions{Trace: o.trace}, nil
	}
	suite, err := run.Choose(l.suite, l.variant)
	if err != nil {
		return run.RunOptions{}, &run.UserError{Err: err}
	}
	binaries, controlPlane := session.Built()
	learned, err := campaign.Learn(ctx, campaign.Config{
		Settings: campaign.Settings{SuiteFile: suite.File, Variant: l.variant, References: o.reference},
		Plans:    []*plan.Plan{l.plan},
		Runners:  []run.Runner{session}, Suite: suite, Binaries: binaries, ControlPlane: controlPlane,
		Dir:     filepath.Join("trommel-runs", "learn-"+time.Now().Format("20060102-150405.000")),
		Version: version(), Console: console,
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
		return exitUsage
	}
	return exitCannotRun
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
	return filepath.Join("trommel-runs", name+"-"+time.Now().Format("20060102-150405.000"))
}

// runPlan runs one plan, prints the result, and returns the exit code.
func runPlan(
	ctx context.Context, s streams, console *report.Console, session *run.Session, p *plan.Plan, dir string,
	how run.RunOptions,
) int {
	meta, err := session.RunWith(ctx, p, dir, how)
	if err != nil {
		if meta == nil {
			fmt.Fprintf(s.err, "trommel: %v\n", err)
		} else {
			console.Failed(err)
		}
		return codeOf(err)
	}
	r, err := record.Open(dir)
	if err != nil {
		fmt.Fprintf(s.err, "trommel: read run record: %v\n", err)
		return exitCannotRun
	}
	if err := report.Text(s.out, r); err != nil {
		fmt.Fprintf(s.err, "trommel: %v\n", err)
		return exitCannotRun
	}
	fmt.Fprintf(s.err, "run record: %s\n", dir)
	switch meta.Verdict {
	case record.Pass:
		return exitPass
	case record.Bug:
		return exitBug
	case record.Inconclusive:
		return exitInconclusive
	}
	return exitCannotRun
}
