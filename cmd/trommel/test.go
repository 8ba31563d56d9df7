package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/disruptions"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/flags"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/planfiles"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/records"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/runsdir"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/workers"
	"github.com/trommel-dev/trommel/internal/buildinfo"
	"github.com/trommel-dev/trommel/internal/campaign"
	"github.com/trommel-dev/trommel/internal/campaign/pattern"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/campaign/shrink"
	"github.com/trommel-dev/trommel/internal/fleet"
	"github.com/trommel-dev/trommel/internal/judge"
	"github.com/trommel-dev/trommel/internal/progress"
	"github.com/trommel-dev/trommel/internal/report"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/internal/run/builds"
	"github.com/trommel-dev/trommel/internal/run/preflight"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// testOptions are the flags of the commands that learn workloads.
type testOptions struct {
	result.Settings
	dir      string
	anew     bool
	explain  bool
	format   output.Format // of the plans that are generated
	resume   string
	parallel int // 0: as many as fit
	// learnOnly: no plans are run, so that more clusters than workloads are not worth their start.
	learnOnly bool
	shard     string
	shrink    time.Duration
	fleet     workers.Flags
	outputs   records.Outputs
	progress  output.Flags
}

func newTestCommand(s output.Streams) *cobra.Command {
	var o testOptions
	c := &cobra.Command{
		Use:   "test [-c trommel.yaml]",
		Short: "Find bugs without writing plans",
		Long: `Test learns what the suite's workloads do without faults, generates plans that act at each moment of
them, and runs the plans. Plans with findings are run again: a finding is a bug if it comes every time, and not without
the plan's actions. Others are listed separately.

With --plans it runs the plans of a directory instead, in the same way.

A campaign that was interrupted or killed goes on with --resume DIR, where DIR is its --dir.

Patterns:
` + patternHelp() + `
Exit codes: 0 nothing found, 1 bugs found, 2 usage, 3 no result (no plan happened, or the budget ended before
a finding was confirmed; with --plans: a plan was not run or did not happen, or its finding was not confirmed), 4 could
not run.`,
		Example: `  trommel test
  trommel test -c database-operator --workload recreate --budget 10m
  trommel test --plans plans/
  trommel test --resume trommel-runs/test-20260102-150405
  trommel test --attach https://10.0.0.5:7443 --token-file token`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("parallel") && o.parallel < 1 {
				return exit.With(exit.Usage, fmt.Errorf("--parallel must be at least 1, not %d", o.parallel))
			}
			if err := o.fleet.Check(c.Flags()); err != nil {
				return exit.With(exit.Usage, err)
			}
			if o.fleet.Attach != "" {
				return o.fleet.Follow(c.Context(), s, &o.progress)
			}
			if o.resume != "" {
				if err := o.goOn(c); err != nil {
					return exit.With(exit.Usage, err)
				}
			}
			return testSuite(c.Context(), s, &o)
		},
	}
	o.register(c)
	o.registerPatterns(c)
	f := c.Flags()
	f.StringVar(&o.Plans, "plans", "", "run the plans of this `directory` instead of generated ones")
	f.DurationVar(&o.Budget, "budget", 0,
		"begin no run that is not expected to end within this `time`, which begins when everything is "+
			"built; learning counts (default: no limit)")
	f.BoolVar(&o.FailFast, "fail-fast", false, "stop after the first bug")
	f.IntVar(&o.Repeat, "repeat", 3, "how often a plan with findings is run; a bug must be found every time")
	f.IntVar(&o.parallel, "parallel", 0,
		"`number` of clusters that run plans side by side (default: one for each core, if there is memory for them)")
	f.StringVar(&o.shard, "shard", "", "run only one `part` of the plans, such as 1/4, the first of four")
	f.DurationVar(&o.shrink, "shrink", 0,
		"at the end, look for this `time` for a smaller plan for each group of bugs (default: not; see trommel shrink)")
	f.StringVar(&o.resume, "resume", "", "go on with the campaign in this `directory`, with its flags")
	o.fleet.Register(c)
	o.outputs.Register(f)
	return c
}

func newGenerateCommand(s output.Streams) *cobra.Command {
	o := testOptions{learnOnly: true}
	o.Repeat = 1
	c := &cobra.Command{
		Use:   "generate [-c trommel.yaml]",
		Short: "Generate plans",
		Long: `Generate learns what the suite's workloads do without faults, and generates the plans that "trommel test"
would run. It writes them to plans/ in --dir and lists them, the most different ones first.

Patterns:
` + patternHelp(),
		Example: `  trommel generate
  trommel generate -c database-operator --workload recreate --pattern stale --explain`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return generatePlans(c.Context(), s, &o) },
	}
	o.register(c)
	o.registerPatterns(c)
	o.format.Register(c)
	c.Flags().BoolVar(&o.explain, "explain", false,
		"also list the candidates without a plan with the reason of each, and how many each rule dropped")
	return c
}

// register adds the flags of all commands that learn.
func (o *testOptions) register(c *cobra.Command) {
	f := c.Flags()
	flags.Suite(f, &o.SuiteFile, &o.Variant)
	(*flags.Time)(&o.Time).Register(f)
	f.StringSliceVar(&o.Workloads, "workload", nil,
		"`name` of a workload; may be repeated, or a list with commas (default: all)")
	f.IntVar(&o.Learn, "runs", 3, "how often each workload is run without faults, to learn which fields differ anyway")
	f.StringVar(&o.Baselines, "baseline", "",
		"`directory` of the baselines (default: "+
			filepath.Join(runsdir.BaselinesDir, "<suite's directory>[-<variant>]")+")")
	f.StringVar(&o.dir, "dir", "", "`directory` for plans and run records (default: trommel-runs/<command>-<time>)")
	o.progress.Register(f)
	flags.FromSource(f)
}

// registerPatterns adds the flags of commands that generate plans.
func (o *testOptions) registerPatterns(c *cobra.Command) {
	c.Flags().StringSliceVar(&o.Patterns, "pattern", nil,
		"`name` of a pattern; may be repeated, or a list with commas (default: all that need not be asked for; with a "+
			"budget, order too)")
	c.Flags().StringVar((*string)(&o.Pace), "pace", "", "none: the steps of the workloads do not wait for rest; "+
		"finds races, and compares only what holds data (default: as they were learned)")
}

func patternHelp() string {
	var text strings.Builder
	for _, p := range pattern.Patterns() {
		request := ""
		switch {
		case p.Endless:
			request = " (only with --pattern or --budget)"
		case p.OnRequest:
			request = " (only with --pattern)"
		}
		fmt.Fprintf(&text, "  %-16s %s%s\n", p.Name, p.Finds, request)
	}
	return text.String()
}

// mayChange are the flags that --resume can be combined with.
var mayChange = slices.Concat([]string{"resume", "budget", "parallel", "fail-fast", "shrink"}, records.OutputFlagNames,
	output.FlagNames, workers.FlagNames)

// goOn takes the settings of the campaign that is resumed. A budget that is given counts from now on.
func (o *testOptions) goOn(c *cobra.Command) error {
	var wrong error
	c.Flags().Visit(func(f *pflag.Flag) {
		if !slices.Contains(mayChange, f.Name) {
			wrong = fmt.Errorf("--resume goes on with the flags that the campaign had: leave out --%s", f.Name)
		}
	})
	if wrong != nil {
		return wrong
	}
	state, err := campaign.ReadState(o.resume)
	if err != nil {
		return fmt.Errorf("--resume: %s holds no campaign: %w", o.resume, err)
	}
	if here, err := os.Getwd(); err != nil || here != state.WorkDir {
		return errors.Join(err, fmt.Errorf("--resume: the campaign was begun in %s: resume it there", state.WorkDir))
	}
	budget, failFast := o.Budget, o.FailFast
	o.Settings, o.dir = state.Settings, o.resume
	if c.Flags().Changed("budget") {
		o.Budget = budget + state.Spent
	}
	if c.Flags().Changed("fail-fast") {
		o.FailFast = failFast
	}
	return nil
}

// suite reads the suite, checks the flags against it and completes them.
func (o *testOptions) suite() (suite *plan.Suite, plans []*plan.Plan, err error) {
	switch {
	case o.Learn < 2 || o.Repeat < 1:
		return nil, nil, errors.New("--runs must be at least 2, and --repeat at least 1")
	case o.Pace != "" && o.Pace != plan.PaceNone:
		return nil, nil, fmt.Errorf("--pace %q: the only value is none", o.Pace)
	case o.Plans != "" && o.Pace != "":
		return nil, nil, errors.New("--plans runs plans as they are: leave out --pace, and write pace: none in them")
	case o.Plans != "" && len(o.Patterns)+len(o.Workloads) > 0:
		return nil, nil, errors.New("--plans runs all plans of a directory: leave out --workload and --pattern")
	}
	o.Workloads, o.Patterns = once(o.Workloads), once(o.Patterns)
	if o.shard != "" {
		if o.Shard, err = result.ParseShard(o.shard); err != nil {
			return nil, nil, fmt.Errorf("--shard: %w", err)
		}
	}
	if o.fleet.Used() {
		o.parallel = cmp.Or(o.parallel, workers.Parallel)
	} else if o.parallel, err = o.parallelHere(); err != nil {
		return nil, nil, err
	}
	var files []string
	if o.Plans != "" {
		if files, err = planfiles.InDir(o.Plans); err != nil {
			return nil, nil, fmt.Errorf("--plans: %w", err)
		}
	}
	switch {
	case o.SuiteFile != "" || o.Plans == "":
		if o.SuiteFile, err = flags.SuiteFile(o.SuiteFile); err != nil {
			return nil, nil, err
		}
	default:
		if o.SuiteFile, err = plan.FindSuite(files[0]); err != nil {
			return nil, nil, err
		}
	}
	if suite, err = plan.LoadSuite(o.SuiteFile); err != nil {
		return nil, nil, err
	}
	if err := campaign.CheckSkips(suite); err != nil {
		return nil, nil, err
	}
	flags.Time(o.Time).Apply(suite)
	if plans, err = o.ownPlans(suite, files); err != nil {
		return nil, nil, err
	}
	if suite, err = run.Choose(suite, o.Variant); err != nil {
		return nil, nil, err
	}
	for _, w := range o.Workloads {
		if _, ok := suite.Workloads[w]; !ok {
			return nil, nil, fmt.Errorf("unknown workload %q (the suite has: %s)", w,
				strings.Join(slices.Sorted(maps.Keys(suite.Workloads)), ", "))
		}
	}
	if o.learnOnly {
		n := len(o.Workloads)
		if n == 0 {
			n = len(suite.Workloads)
		}
		o.parallel = min(o.parallel, max(1, n))
	}
	for _, p := range o.Patterns {
		if !slices.ContainsFunc(pattern.Patterns(), func(known pattern.Pattern) bool { return known.Name == p }) {
			return nil, nil, fmt.Errorf("unknown pattern %q (known:\n%s)", p, strings.TrimRight(patternHelp(), "\n"))
		}
	}
	if o.Baselines == "" {
		o.Baselines, err = runsdir.Baselines(suite, o.Variant)
	}
	return suite, plans, err
}

// parallelHere is how many clusters run plans side by side on this machine.
func (o *testOptions) parallelHere() (int, error) {
	parallel, err := campaign.Parallel(o.parallel)
	if err != nil {
		return 0, fmt.Errorf("--parallel %d: %w", o.parallel, err)
	}
	return parallel, nil
}

// once returns names without blanks around them, each at its first place.
func once(names []string) []string {
	var all []string
	for _, name := range names {
		if name = strings.TrimSpace(name); !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// ownPlans reads the plans that --plans names. All mistakes in them are reported together. All plans are for one
// variant of one suite, because they run on the same cluster.
func (o *testOptions) ownPlans(suite *plan.Suite, files []string) ([]*plan.Plan, error) {
	var plans []*plan.Plan
	var errs []error
	byName := map[string]string{}
	for _, file := range files {
		p, err := plan.LoadWith(file, suite)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		own, err := plan.FindSuite(file)
		if p.Suite != "" && err == nil && planfiles.Moved(p, own) == "" && !sameFile(own, suite.File) {
			errs = append(errs, fmt.Errorf("%s: it is for the suite %s, and not for %s", file, own, suite.File))
		}
		if other, ok := byName[p.TestName]; ok {
			errs = append(errs, fmt.Errorf("%s: testName %s is that of %s too", file, p.TestName, other))
		}
		byName[p.TestName] = file
		if p.Variant != "" && o.Variant == "" && len(plans) == 0 {
			o.Variant = p.Variant
		}
		if p.Variant != "" && p.Variant != o.Variant {
			errs = append(errs, fmt.Errorf("%s: it is for the variant %s, others are not; a directory of plans is for "+
				"one variant", file, p.Variant))
		}
		plans = append(plans, p)
	}
	return plans, errors.Join(errs...)
}

// check finds what is wrong with the workloads and the plans, before anything is built. It writes the warnings.
func (o *testOptions) check(
	ctx context.Context, warnings io.Writer, suite *plan.Suite, plans []*plan.Plan,
) error {
	read := preflight.Suites{Warnings: warnings}
	var errs []error
	if o.Plans == "" {
		workloads := o.Workloads
		if len(workloads) == 0 {
			workloads = slices.Sorted(maps.Keys(suite.Workloads))
		}
		errs = append(errs, read.CheckWorkloads(ctx, suite, workloads))
	}
	for _, p := range plans {
		errs = append(errs, read.CheckPlan(ctx, suite, p))
	}
	return errors.Join(errs...)
}

func testSuite(ctx context.Context, s output.Streams, o *testOptions) error {
	if o.fleet.DryRun != "" {
		if o.dir == "" {
			return exit.With(exit.Usage, errors.New("--dry-run needs --dir, the directory of the campaign to come"))
		}
		return o.fleet.Print(s, o.dir, cmp.Or(o.parallel, workers.Parallel))
	}
	if _, err := campaign.ReadState(o.dir); o.dir != "" && o.resume == "" && err == nil {
		return exit.With(exit.Usage, fmt.Errorf("%s holds a campaign already: go on with `trommel test --resume %s`, "+
			"or choose another --dir", o.dir, o.dir))
	}
	if err := o.outputs.Prepare(); err != nil {
		return exit.With(exit.Usage, err)
	}
	console, s, err := o.progress.Open(s)
	if err != nil {
		return err
	}
	defer console.Close()
	return o.inSession(ctx, console, "test", func(config campaign.Config) error {
		found, err := campaign.Run(ctx, config)
		if ctx.Err() != nil {
			err = fmt.Errorf("interrupted; `trommel test --resume %s` goes on", o.dir)
			found.Stopped = "the campaign was interrupted"
		}
		var summary strings.Builder
		err = errors.Join(err, found.Text(io.MultiWriter(s.Out, &summary)))
		if !o.progress.Quiet {
			fmt.Fprintf(s.Err, "campaign: %s\n", o.dir)
		}
		err = errors.Join(err, o.writeOutputs(s, found))
		if err != nil {
			return err
		}
		code := exitCodeOf(found)
		o.fleet.Ended(summary.String(), code)
		if code != exit.Pass {
			return exit.With(code, nil)
		}
		return nil
	})
}

// exitCodeOf is the exit code of a campaign that came to its end.
func exitCodeOf(r *result.Result) int {
	n := func(s result.Status) int { return len(r.With(s)) }
	switch {
	case n(result.Bug) > 0:
		return exit.Bug
	case n(result.Failed) > 0, r.Plans == "" && len(r.Unlearned) > 0:
		return exit.CannotRun
	case r.Plans != "" && n(result.Inconclusive)+n(result.Unconfirmed)+n(result.OfWorkload) > 0,
		n(result.Passed) == 0 && n(result.Inconclusive) > 0, r.Undecided(), r.Plans != "" && len(r.NotRun) > 0:
		return exit.Inconclusive
	}
	return exit.Pass
}

// writeOutputs writes the files that were asked for.
func (o *testOptions) writeOutputs(s output.Streams, found *result.Result) error {
	runs, err := runsOf(found)
	return errors.Join(err, o.outputs.Write(s, records.Contents{
		JSON: found.JSON, Markdown: found.Markdown, Runs: runs, Annotations: annotationsOf(found, runs),
	}))
}

// runsOf returns what the campaign says of each plan, with the first run's record. A finding that was not confirmed is
// no bug. A record that cannot be read is an error, and its plan could not be run.
func runsOf(found *result.Result) ([]*record.Run, error) {
	var runs []*record.Run
	var errs []error
	unrun := func(plan, file string, v record.Verdict, reason string) *record.Run {
		return &record.Run{Meta: record.Meta{
			Plan: plan, PlanFile: file, Suite: found.SuiteFile, Variant: found.Variant, Verdict: v, Reason: reason,
		}}
	}
	bugs := map[string]string{} // the groups of the summary, by plan
	for i, g := range result.Groups(found.With(result.Bug)) {
		for _, o := range g.Plans {
			bugs[o.Plan] = fmt.Sprintf("bug %d: %s", i+1, report.Title(g.Finding))
		}
	}
	for _, o := range found.Outcomes {
		if o.Record == "" {
			runs = append(runs, unrun(o.Plan, o.File, record.Error, o.Reason))
			continue
		}
		r, err := record.Open(o.Record)
		if err != nil {
			errs = append(errs, err)
			runs = append(runs, unrun(o.Plan, o.File, record.Error, err.Error()))
			continue
		}
		switch o.Status {
		case result.Bug:
			judge.Confirm(r, o.Findings, bugs[o.Plan])
		case result.Unconfirmed, result.OfWorkload:
			why := fmt.Sprintf("%s: found in %d of %d runs", o.Status, o.Came, o.Of)
			if o.Reason != "" {
				why += "; " + o.Reason
			}
			judge.Unconfirmed(r, why)
		}
		runs = append(runs, r)
	}
	for _, name := range found.NotRun {
		runs = append(runs, unrun(name, "", record.NotRun, found.Stopped))
	}
	return runs, errors.Join(errs...)
}

// annotationsOf returns annotations for plans with bugs and for plans that could not be run. With --plans, it returns
// them for all plans that did not pass. Generated plans are not files of the repository, so what would be annotated
// there is annotated at the suite. If several plans found the same, only the simplest one has an annotation.
func annotationsOf(found *result.Result, runs []*record.Run) []report.Annotation {
	told := map[string]bool{}
	for _, g := range result.Groups(found.With(result.Bug)) {
		told[g.Plans[0].Plan] = true
	}
	var all []report.Annotation
	for i, o := range found.Outcomes {
		if o.Status == result.Bug && !told[o.Plan] ||
			o.Status != result.Bug && o.Status != result.Failed && found.Plans == "" {
			continue
		}
		for _, a := range report.Annotations(runs[i : i+1]) {
			if (o.Pattern != "" || o.Faultless) && a.File == runs[i].Meta.PlanFile {
				a.File, a.Line = found.SuiteFile, 0
			}
			a.Message += "\n" + found.Show(&o)
			all = append(all, a)
		}
	}
	return all
}

func generatePlans(ctx context.Context, s output.Streams, o *testOptions) error {
	console, s, err := o.progress.Open(s)
	if err != nil {
		return err
	}
	defer console.Close()
	return o.inSession(ctx, console, "generate", func(config campaign.Config) error {
		candidates, found, err := campaign.Generate(ctx, config)
		notes := s.Out
		if o.format == "" {
			showCandidates(s.Out, o, candidates)
		} else {
			notes = s.Err
			err = errors.Join(err, generated.Print(s.Out, o.format, o.listed(candidates)))
		}
		if o.explain && o.format == "" {
			tally(s.Out, candidates)
		}
		for _, u := range found.Unlearned {
			fmt.Fprintf(notes, "not tested: %s\n", u.Reason)
		}
		for _, suggestion := range found.Suggested {
			fmt.Fprintf(notes, "not tested: %s\n", suggestion)
		}
		if err == nil && len(found.Unlearned) > 0 {
			return exit.With(exit.CannotRun, nil)
		}
		return err
	})
}

// inSession calls what with sessions for the suite. An error of its own is an exit.Error already.
func (o *testOptions) inSession(
	ctx context.Context, console *output.Console, title string, what func(campaign.Config) error,
) (err error) {
	suite, plans, err := o.suite()
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	return o.inSessionOf(ctx, console, title, suite, plans, what)
}

// inSessionOf is inSession with a suite and plans that are loaded.
func (o *testOptions) inSessionOf(
	ctx context.Context, console *output.Console, title string, suite *plan.Suite, plans []*plan.Plan,
	what func(campaign.Config) error,
) (err error) {
	if err = o.check(ctx, console.Writer(), suite, plans); err != nil {
		return exit.With(exit.Usage, err)
	}
	if o.dir == "" {
		o.dir = filepath.Join(runsdir.Name, title+"-"+time.Now().Format("20060102-150405"))
	}
	heading := progress.Event{Time: time.Now(), Type: progress.Title, Text: title + " " + suite.File}
	console.Show(heading)
	options := run.Options{Version: buildinfo.Version(), Injector: disruptions.Injector(),
		DisruptionControllers: disruptions.Controllers(), Progress: progress.AsideOf(console),
		Portable: o.fleet.Used()}
	var runners []run.Runner
	var sessions []*run.Session
	defer func() {
		for _, session := range sessions {
			err = errors.Join(err, session.Close(context.WithoutCancel(ctx)))
		}
		var ended *exit.Error
		if err != nil && !errors.As(err, &ended) {
			err = exit.With(codeOf(err), err)
		}
	}()
	if err = o.fleet.Begin(ctx, console.Info); err != nil {
		return err
	}
	here := o.parallel
	if o.fleet.Used() {
		here = 1 // it only builds
	}
	for range here {
		session, err := run.Open(ctx, suite, options)
		if err != nil {
			return err
		}
		// The others run what the first one has built.
		options.Binaries, options.ControlPlane = session.Built()
		options.Builds = session.Builds()
		sessions = append(sessions, session)
		runners = append(runners, session)
	}
	if o.fleet.Used() {
		source := fleet.Source{
			Suite: suite, Variant: o.Variant, Time: o.Time, Plans: plans, Binaries: options.Binaries,
			ControlPlane: options.ControlPlane, Builds: map[string]*builds.Build{},
		}
		for _, name := range suite.BuildNames() {
			if source.Builds[name], err = options.Builds.Get(ctx, name); err != nil {
				return err
			}
		}
		var end func()
		if runners, end, err = o.fleet.Serve(ctx, console, heading, source, o.dir, o.parallel); err != nil {
			return err
		}
		defer end()
	}
	config := campaign.Config{
		Settings: o.Settings, Runners: runners, Suite: suite, Dir: o.dir, Plans: plans, Anew: o.anew,
		Binaries: options.Binaries, ControlPlane: options.ControlPlane, Builds: options.Builds,
		Version: buildinfo.Version(), Progress: o.fleet.Listener(console), Trace: true,
	}
	if o.shrink > 0 {
		config.Shrink = o.smaller(suite)
	}
	return what(config)
}

// smaller returns what looks for a smaller plan.
func (o *testOptions) smaller(
	suite *plan.Suite,
) func(context.Context, run.Runner, campaign.Shrinking) (bool, error) {
	return func(ctx context.Context, r run.Runner, s campaign.Shrinking) (bool, error) {
		if err := os.RemoveAll(s.Dir); err != nil { // of a campaign that was interrupted
			return false, err
		}
		result, err := shrink.Shrink(ctx, shrink.Config{
			Runner: r, Suite: suite, Plan: s.Plan, Finding: s.Finding,
			Baseline: s.Options.Baseline, History: s.Options.History, Dir: s.Dir, Budget: o.shrink,
		})
		if err != nil {
			return false, err
		}
		result.Plan.Variant = o.Variant
		return result.Alone, writePlan(result.Plan, s.Plan, suite, s.File)
	}
}
