package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/campaign"
	"github.com/trommel-dev/trommel/generate"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
	"github.com/trommel-dev/trommel/report"
	"github.com/trommel-dev/trommel/run"
)

type testOptions struct {
	suite     string
	variant   string
	workloads []string
	patterns  []string
	budget    time.Duration
	runs      int
	repeat    int
	dir       string
	explain   bool
	failFast  bool
	junit     string
}

func newTestCommand(s streams) *cobra.Command {
	var o testOptions
	c := &cobra.Command{
		Use:   "test [-c trommel.yaml]",
		Short: "Look for bugs without a plan",
		Long: `Test learns what the suite's workloads do without faults, generates plans that strike at each moment of
them, and runs the plans. Plans with findings are run again: a finding that does not come every time is not
confirmed, and is listed separately.

Patterns:
` + patternHelp() + `
Exit codes: 0 nothing found, 1 bugs found, 2 usage, 4 could not run.`,
		Example: `  trommel test
  trommel test -c database-operator --workload recreate --budget 10m`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return testSuite(c.Context(), s, &o) },
	}
	o.register(c)
	c.Flags().DurationVar(&o.budget, "budget", 0, "start no new plan after this `time` (default: no limit)")
	c.Flags().BoolVar(&o.failFast, "fail-fast", false, "stop after the first bug")
	c.Flags().StringVar(&o.junit, "junit", "", "write the verdicts of all plans to this `file` as JUnit XML")
	c.Flags().IntVar(&o.repeat, "repeat", 3, "how often a plan with findings is run; a bug must be found every time")
	return c
}

func newGenerateCommand(s streams) *cobra.Command {
	o := testOptions{repeat: 1}
	c := &cobra.Command{
		Use:   "generate [-c trommel.yaml]",
		Short: "Generate plans",
		Long: `Generate learns what the suite's workloads do without faults, and generates the plans that "trommel test" would run. It
writes them to plans/ in --dir and lists them, the most different ones first.

Patterns:
` + patternHelp(),
		Example: `  trommel generate
  trommel generate -c database-operator --workload recreate --pattern stale --explain`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return generatePlans(c.Context(), s, &o) },
	}
	o.register(c)
	c.Flags().BoolVar(&o.explain, "explain", false,
		"also list the candidates without a plan with the reason of each, and how many each rule dropped")
	return c
}

// register adds the flags of all commands that learn.
func (o *testOptions) register(c *cobra.Command) {
	f := c.Flags()
	f.StringVarP(&o.suite, "controller", "c", "",
		"the controller's `directory`, with its trommel.yaml, or the suite file (default: the current directory)")
	f.StringVar(&o.variant, "variant", "", "`name` of a variant of the suite")
	f.StringSliceVar(&o.workloads, "workload", nil, "`name` of a workload (default: all)")
	f.StringSliceVar(&o.patterns, "pattern", nil, "`name` of a pattern (default: all that need not be asked for)")
	f.IntVar(&o.runs, "runs", 3, "how often each workload is run without faults, to learn which fields differ anyway")
	f.StringVar(&o.dir, "dir", "",
		"`directory` for plans, references and run records (default: trommel-runs/<command>-<time>)")
}

func patternHelp() string {
	var text strings.Builder
	for _, p := range generate.Patterns() {
		request := ""
		if p.OnRequest {
			request = " (only with --pattern)"
		}
		fmt.Fprintf(&text, "  %-16s %s%s\n", p.Name, p.Finds, request)
	}
	return text.String()
}

func (o *testOptions) load() (*plan.Suite, error) {
	file := o.suite
	if file == "" {
		file = "."
	}
	as := runOptions{controller: file}
	if err := as.sieve(); err != nil {
		return nil, err
	}
	suite, err := plan.LoadSuite(as.suite)
	if err != nil {
		return nil, err
	}
	if suite, err = run.Choose(suite, o.variant); err != nil {
		return nil, err
	}
	for _, w := range o.workloads {
		if _, ok := suite.Workloads[w]; !ok {
			return nil, fmt.Errorf("unknown workload %q (the suite has: %s)", w,
				strings.Join(slices.Sorted(maps.Keys(suite.Workloads)), ", "))
		}
	}
	for _, p := range o.patterns {
		if !slices.ContainsFunc(generate.Patterns(), func(known generate.Pattern) bool { return known.Name == p }) {
			return nil, fmt.Errorf("unknown pattern %q (known:\n%s)", p, strings.TrimRight(patternHelp(), "\n"))
		}
	}
	if o.runs < 2 || o.repeat < 1 {
		return nil, errors.New("--runs must be at least 2, and --repeat at least 1")
	}
	return suite, nil
}

func testSuite(ctx context.Context, s streams, o *testOptions) error {
	return o.inSession(ctx, s, "test", func(config campaign.Config) error {
		result, err := campaign.Run(ctx, config)
		summary(s, result)
		if o.junit != "" {
			err = errors.Join(err, o.writeJUnit(result.Records))
		}
		switch {
		case err != nil:
			return err
		case len(result.Findings) > 0:
			return &exitError{code: exitBug}
		case len(result.Unstable)+len(result.Failed) > 0:
			return &exitError{code: exitCannotRun}
		}
		return nil
	})
}

// writeJUnit writes the verdicts of recorded runs.
func (o *testOptions) writeJUnit(records []string) error {
	var runs []*record.Run
	for _, dir := range records {
		r, err := record.Open(dir)
		if err != nil {
			return err
		}
		runs = append(runs, r)
	}
	return writeJUnit(o.junit, runs)
}

func generatePlans(ctx context.Context, s streams, o *testOptions) error {
	return o.inSession(ctx, s, "generate", func(config campaign.Config) error {
		candidates, result, err := campaign.Generate(ctx, config)
		for _, c := range candidates {
			switch {
			case c.Plan != nil:
				fmt.Fprintf(s.out, "%s\n  %s\n", filepath.Join(o.dir, "plans", c.Plan.TestName+".yaml"), c.Why)
			case o.explain:
				fmt.Fprintf(s.out, "no plan (%s): %s\n  %s\n", c.Pattern, c.Dropped, c.Why)
			}
		}
		if o.explain {
			tally(s.out, candidates)
		}
		notTested(s, result)
		if err == nil && len(result.Unstable) > 0 {
			return &exitError{code: exitCannotRun}
		}
		return err
	})
}

// inSession calls what with a session for the suite. An error of its own is an exitError already.
func (o *testOptions) inSession(ctx context.Context, s streams, title string, what func(campaign.Config) error) error {
	suite, err := o.load()
	if err != nil {
		return &exitError{exitUsage, err}
	}
	if o.dir == "" {
		o.dir = filepath.Join("trommel-runs", title+"-"+time.Now().Format("20060102-150405"))
	}
	console := report.NewConsole(s.err)
	console.Title(title + " " + suite.File)
	session, err := run.Open(ctx, suite, run.Options{Version: version(), Progress: console.Progress})
	if err != nil {
		return &exitError{codeOf(err), err}
	}
	err = what(campaign.Config{
		Session: session, Suite: suite, Dir: o.dir, Workloads: o.workloads, Patterns: o.patterns,
		Learn: o.runs, Repeat: o.repeat, Budget: o.budget, FailFast: o.failFast,
		Progress: func(format string, args ...any) { console.Info(fmt.Sprintf(format, args...)) },
	})
	closeErr := session.Close(context.WithoutCancel(ctx))
	var exit *exitError
	switch {
	case errors.As(err, &exit):
		return err
	case err == nil:
		err = closeErr
	}
	if err != nil {
		return &exitError{codeOf(err), err}
	}
	return nil
}

// notTested says which workloads could not be learned.
func notTested(s streams, r *campaign.Result) {
	for _, err := range r.Unstable {
		fmt.Fprintf(s.out, "not tested: %v\n", err)
	}
}

// summary says what a campaign has found.
func summary(s streams, r *campaign.Result) {
	list := func(title string, findings []campaign.Finding) {
		if len(findings) == 0 {
			return
		}
		fmt.Fprintf(s.out, "%s\n", title)
		for _, f := range findings {
			fmt.Fprintf(s.out, "  %s (%d of %d)\n    %s\n", f.Candidate.Plan.TestName, f.Came, f.Of, f.Candidate.Why)
			for _, found := range f.Findings {
				fmt.Fprintf(s.out, "    %s: %s\n", found.Oracle, found.Title)
			}
			fmt.Fprintf(s.out, "    trommel -p %s\n", f.PlanFile)
		}
	}
	list("bugs", r.Findings)
	list("not confirmed", r.Unconfirmed)
	if len(r.Inconclusive) > 0 {
		fmt.Fprintln(s.out, "inconclusive")
		for _, o := range r.Inconclusive {
			reason, _, _ := strings.Cut(o.Reason, "\n")
			fmt.Fprintf(s.out, "  %s: %s\n", o.Candidate.Plan.TestName, reason)
		}
	}
	notTested(s, r)
	for _, err := range r.Failed {
		fmt.Fprintf(s.out, "could not run: %v\n", err)
	}
	fmt.Fprintf(s.out, "%d plans passed, %d with bugs, %d not confirmed, %d inconclusive, %d not run\n",
		r.Passed, len(r.Findings), len(r.Unconfirmed), len(r.Inconclusive), r.NotRun)
	for _, rule := range slices.Sorted(maps.Keys(r.Dropped)) {
		fmt.Fprintf(s.out, "  %d candidates without a plan: %s\n", r.Dropped[rule], rule)
	}
}
