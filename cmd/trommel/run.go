package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/trommel-dev/trommel/cluster"
	"github.com/trommel-dev/trommel/cluster/embedded"
	"github.com/trommel-dev/trommel/cluster/kubelet"
	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
	"github.com/trommel-dev/trommel/report"
	"github.com/trommel-dev/trommel/run"
)

// runOptions are the flags of `trommel run`, which stand on `trommel` itself too.
type runOptions struct {
	plans     []string
	suite     string
	variant   string
	cluster   string
	recordDir string
	junit     string
	verbose   bool

	// As Sieve's command line has them.
	controller string
	stage      string
	mode       string
}

func (o *runOptions) register(c *cobra.Command) {
	f := c.Flags()
	f.StringArrayVarP(&o.plans, "plan", "p", nil, "plan `file` to run; may be given more than once")
	f.StringVar(&o.suite, "suite", "", "suite `file` (default: the nearest trommel.yaml above the plan)")
	f.StringVarP(&o.controller, "controller", "c", "",
		"the controller's `folder`, with its trommel.yaml, or the suite file itself; the same as --suite")
	f.StringVarP(&o.stage, "stage", "s", "", "`stage`, as Sieve has it: only test, which is what running a plan is")
	f.StringVarP(&o.mode, "mode", "m", "", "`mode`, as Sieve has it: only test")
	f.StringVar(&o.variant, "variant", "", "`name` of a variant of the suite, instead of the plan's")
	f.StringVar(&o.cluster, "cluster", "", "run on the cluster of this `name`, started by `trommel cluster up` (default: one of the run's own)")
	f.StringVar(&o.recordDir, "record", "", "`folder` for the run record (default: trommel-runs/<plan>-<time>)")
	f.StringVar(&o.junit, "junit", "", "write the verdicts to this `file` as JUnit XML")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "log what the coordinator does")
}

func newRunCommand(s streams) *cobra.Command {
	var o runOptions
	c := &cobra.Command{
		Use:   "run -p plan.yaml",
		Short: "Run plans and give a verdict",
		Long: `Run builds the suite's controllers with hooks, starts a control plane, runs the plan against them and gives a verdict.

Exit codes: 0 pass, 1 bug, 2 bad plan or usage, 3 inconclusive (not all actions fired), 4 could not run.
With several plans, -p each, all are read before the first one runs: one bad plan, and none is run (2). Otherwise the
exit code is that of the gravest: could not run, bad plan, bug, inconclusive, pass.

A command line of Sieve works as it is: -c names the controller's folder (or its suite), and -s test and -m test say what
trommel does in any case.`,
		Example: `  trommel run -p plans/stale-deletion.yaml
  trommel run -p plans/stale-deletion.yaml --variant fixed
  trommel run -c examples/zookeeper-operator -m test -p plan.yaml`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return runPlans(c.Context(), s, &o) },
	}
	o.register(c)
	return c
}

// sieve takes what Sieve's command line says beside the plan.
func (o *runOptions) sieve() error {
	for _, f := range []struct{ name, value string }{{"-s (--stage)", o.stage}, {"-m (--mode)", o.mode}} {
		if f.value != "" && f.value != "test" {
			return fmt.Errorf("%s: %q: trommel runs plans; the only one is test", f.name, f.value)
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
		return fmt.Errorf("-c (--controller): %s: no such file or folder; it is the controller's folder or its suite",
			o.controller)
	}
	o.suite = o.controller
	if info.IsDir() {
		o.suite = filepath.Join(o.controller, plan.SuiteFile)
		if _, err := os.Stat(o.suite); err != nil {
			return fmt.Errorf("-c (--controller): there is no %s in %s; `trommel init` writes one", plan.SuiteFile, o.controller)
		}
	}
	return nil
}

// loaded is a plan with its suite, ready to run.
type loaded struct {
	plan    *plan.Plan
	suite   *plan.Suite
	variant string
}

// load reads and validates a plan; every error is the user's.
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
		// The plan's own mistakes are told with it; one that is not there has no other.
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
	if err := available(suite); err != nil {
		return nil, err
	}
	variant := o.variant
	if variant == "" {
		variant = p.Variant
	}
	if variant != "" {
		if suite, err = suite.WithVariant(variant); err != nil {
			return nil, err
		}
	}
	return &loaded{p, suite, variant}, nil
}

// available refuses what a suite may say and this version cannot do.
func available(suite *plan.Suite) error {
	if t := suite.Cluster.Type; t != "" && t != "embedded" {
		return fmt.Errorf("%s: cluster type %q cannot be used yet; this version of trommel runs plans on its embedded cluster", suite.File, t)
	}
	if _, err := instrumentation.ResolveKubernetesVersion(suite.Cluster.KubernetesVersion); err != nil {
		return fmt.Errorf("%s: kubernetesVersion: %w", suite.File, err)
	}
	return nil
}

func runPlans(ctx context.Context, s streams, o *runOptions) error {
	if len(o.plans) == 0 {
		return &exitError{exitUsage, errors.New("no plan given: trommel -p plan.yaml")}
	}
	if err := o.sieve(); err != nil {
		return &exitError{exitUsage, err}
	}
	if o.recordDir != "" && len(o.plans) > 1 {
		return &exitError{exitUsage, errors.New("--record takes one plan; without it every plan gets a folder of its own")}
	}
	// All plans are read before the first one runs: a mistake in the last one is known at once.
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
	for _, l := range all {
		code, dir := runPlan(ctx, s, o, l)
		if severity[code] > severity[worst] {
			worst = code
		}
		if r, err := record.Open(dir); err == nil {
			runs = append(runs, r)
		}
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

// severity orders exit codes from harmless to grave.
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

// runPlan runs one plan, says how it ended, and returns the exit code and the record's folder.
func runPlan(ctx context.Context, s streams, o *runOptions, l *loaded) (code int, dir string) {
	dir = o.recordDir
	if dir == "" {
		name := l.plan.TestName
		if l.variant != "" {
			name += "-" + l.variant
		}
		dir = filepath.Join("trommel-runs", name+"-"+time.Now().Format("20060102-150405.000"))
	}
	level := slog.LevelError
	if o.verbose {
		level = slog.LevelDebug
	}
	logger := slog.New(slog.NewTextHandler(s.err, &slog.HandlerOptions{Level: level}))
	console := report.NewConsole(s.err)
	title := l.plan.TestName
	if l.variant != "" {
		title += " (" + l.variant + ")"
	}
	console.Title(title)

	binaries, controlPlane, err := build(ctx, l.suite, o.cluster != "", console)
	if err != nil {
		code := exitCannotRun
		var input *instrumentation.InputError
		switch {
		case ctx.Err() != nil:
			err = errors.New("interrupted")
		case errors.As(err, &input):
			code = exitUsage
		}
		fmt.Fprintf(s.err, "trommel: %v\n", err)
		return code, dir
	}
	if err := checkPoints(l, binaries); err != nil {
		fmt.Fprintf(s.err, "trommel: %v\n", err)
		return exitUsage, dir
	}
	meta, err := run.Run(ctx, run.Config{
		Plan: l.plan, Suite: l.suite, Variant: l.variant, Binaries: binaries, RecordDir: dir, Version: version(),
		Console: console, Logger: logger,
		Cluster: func(ctx context.Context) (cluster.Cluster, error) {
			return openCluster(ctx, o.cluster, l.suite, binaries, controlPlane, console)
		},
	})
	if err != nil {
		console.Failed(err)
		var user *run.UserError
		if errors.As(err, &user) {
			return exitUsage, dir
		}
		return exitCannotRun, dir
	}
	r, err := record.Open(dir)
	if err != nil {
		fmt.Fprintf(s.err, "trommel: read run record: %v\n", err)
		return exitCannotRun, dir
	}
	if err := report.Text(s.out, r); err != nil {
		fmt.Fprintf(s.err, "trommel: %v\n", err)
		return exitCannotRun, dir
	}
	fmt.Fprintf(s.err, "run record: %s\n", dir)
	switch meta.Verdict {
	case record.Pass:
		return exitPass, dir
	case record.Bug:
		return exitBug, dir
	case record.Inconclusive:
		return exitInconclusive, dir
	}
	return exitCannotRun, dir
}

// build makes the controllers, and the control plane if the run needs its binary, or finds them made. A run that is
// attached to a running cluster needs it only for controllers that are components of it.
func build(ctx context.Context, suite *plan.Suite, attached bool, console *report.Console) ([]run.Binary, string, error) {
	console.Phase("build")
	if err := checkBinaries(suite); err != nil {
		return nil, "", err
	}
	controlPlane := &instrumentation.Result{}
	isComponent := func(c plan.Controller) bool { return c.Build != nil && c.Build.ControlPlane != "" }
	binaries := make([]run.Binary, len(suite.Controllers))
	group, groupCtx := errgroup.WithContext(ctx)
	// Two at once share the machine's cores and the Go build cache without harm.
	group.Go(func() error {
		if attached && !slices.ContainsFunc(suite.Controllers, isComponent) {
			return nil
		}
		var err error
		controlPlane, err = instrumentation.BuildControlPlane(groupCtx, instrumentation.ControlPlaneConfig{
			KubernetesVersion: suite.Cluster.KubernetesVersion,
			Progress:          func(text string) { console.Progress("control plane: " + text) },
		})
		if err != nil {
			return fmt.Errorf("build control plane: %w", err)
		}
		return nil
	})
	for i := range suite.Controllers {
		c := &suite.Controllers[i]
		if c.Build == nil || c.Build.ControlPlane != "" {
			continue
		}
		group.Go(func() error {
			var calls []instrumentation.AnnotatedCall
			for _, a := range c.AnnotatedCalls {
				calls = append(calls, instrumentation.AnnotatedCall{Name: a.Name, Package: a.Package, Receiver: a.Receiver, Function: a.Function})
			}
			result, err := instrumentation.Build(groupCtx, instrumentation.BuildConfig{
				Dir: plan.Beside(suite.File, c.Build.Dir), Package: c.Build.Package, Tags: c.Build.Tags,
				LDFlags: c.Build.LDFlags, Env: c.Build.Env, AnnotatedCalls: calls,
				Progress: func(text string) { console.Progress(c.Name + ": " + text) },
			})
			if err != nil {
				return fmt.Errorf("build controller %q: %w", c.Name, err)
			}
			binaries[i] = run.Binary{Path: result.Binary, Manifest: &result.Manifest}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, "", err
	}
	for i := range suite.Controllers {
		c := &suite.Controllers[i]
		switch {
		case c.Build == nil:
			abs, err := filepath.Abs(plan.Beside(suite.File, c.Binary))
			if err != nil {
				return nil, "", err
			}
			binaries[i] = run.Binary{Path: abs}
		case c.Build.ControlPlane != "":
			// The multi-call binary goes by its own name.
			path, err := component(controlPlane.Binary, c.Build.ControlPlane)
			if err != nil {
				return nil, "", fmt.Errorf("controller %q: %w", c.Name, err)
			}
			binaries[i] = run.Binary{Path: path, Manifest: &controlPlane.Manifest}
		}
	}
	return binaries, controlPlane.Binary, nil
}

// component gives a component of the control plane binary, which goes by the name it is called by, a name of its own.
func component(binary, name string) (string, error) {
	link := filepath.Join(filepath.Dir(binary), name)
	// Beside the binary, in the cache: whoever made it before made the same.
	if err := os.Symlink(filepath.Base(binary), link); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return link, nil
}

// openCluster attaches to a running cluster or starts one for this run.
func openCluster(
	ctx context.Context, name string, suite *plan.Suite, controllers []run.Binary, binary string, console *report.Console,
) (cluster.Cluster, error) {
	if name != "" {
		return embedded.Attach(ctx, name)
	}
	removed, _ := run.RemovedAPIs(suite, controllers)
	spec := suite.Cluster
	return embedded.Start(ctx, embedded.Config{
		Binary: binary, APIServers: spec.APIServers, Nodes: spec.Nodes, DisableControllers: spec.DisableControllers,
		FeatureGates: spec.FeatureGates, APIServerArgs: spec.APIServerArgs, ControllerManagerArgs: spec.ControllerManagerArgs,
		RemovedAPIs: removed,
		Answers:     answers(spec.Answers),
		Progress:    console.Info,
	})
}

// answers are the suite's, which has checked them.
func answers(list []plan.Answer) []kubelet.Answer {
	var all []kubelet.Answer
	for _, a := range list {
		answer := kubelet.Answer{
			Namespace: a.Namespace, Pod: a.Pod, Container: a.Container, Stdout: a.Stdout, Stderr: a.Stderr, ExitCode: a.ExitCode, Log: a.Log,
		}
		if a.Command != "" {
			answer.Command = regexp.MustCompile(a.Command)
		}
		all = append(all, answer)
	}
	return all
}
