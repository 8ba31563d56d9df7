package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/disruptions"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/flags"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/runsdir"
	"github.com/trommel-dev/trommel/internal/buildinfo"
	"github.com/trommel-dev/trommel/internal/campaign/learn"
	"github.com/trommel-dev/trommel/internal/campaign/shrink"
	"github.com/trommel-dev/trommel/internal/progress"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

type shrinkOptions struct {
	plan       string
	controller string
	suite      string
	variant    string
	finding    string
	budget     time.Duration
	runs       int
	out        string
	dir        string
	// baseline is the directory of the baselines; empty: the plan's workload is learned.
	baseline string

	progress output.Flags
	written  *plan.Plan    // the plan as its author has written it; nil: unknown
	took     time.Duration // by the recorded run; 0: there is none
}

func newShrinkCommand(s output.Streams) *cobra.Command {
	var o shrinkOptions
	c := &cobra.Command{
		Use:   "shrink RECORD",
		Short: "Find the smallest plan that shows the same bug",
		Long: `Shrink makes the plan of a run that has found a bug as small as possible. You name the run's record, or a
plan file. Shrink leaves out actions, parts of triggers, waits, and steps and objects of the workload. It runs each
smaller plan, and keeps a plan that shows the same finding every time. Some findings come only from the comparison with
runs without faults. If possible, the plan gets an invariant that finds the same without the comparison.

The result is a plan file that you can commit. If you interrupt shrink, it writes the smallest plan so far.

Exit codes: 0 a plan was written, 2 usage, 3 the finding does not come every time, 4 could not run.`,
		Example: `  trommel shrink trommel-runs/test-20260102-150405/runs/create-intermediate-2/1
  trommel shrink -p plans/stale-deletion.yaml --budget 10m -o plans/smallest.yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return shrinkPlan(c.Context(), s, &o, args) },
	}
	f := c.Flags()
	f.StringVarP(&o.plan, "plan", "p", "", "plan `file`, instead of a run record")
	flags.EitherSuite(f, &o.controller, &o.suite, "that of the run or the plan, or the nearest trommel.yaml above it")
	f.StringVar(&o.variant, "variant", "", "`name` of a variant of the suite, instead of the plan's")
	f.StringVar(&o.finding, "finding", "",
		"a part of the `title` of the finding to keep "+
			"(default: the first bug, preferably one that needs no comparison)")
	f.DurationVar(&o.budget, "budget", 5*time.Minute,
		"begin no run that is not expected to end within this `time`, which begins when everything is "+
			"built; 0: no limit")
	f.IntVar(&o.runs, "runs", 2, "how often each plan must show the finding")
	f.StringVarP(&o.out, "output", "o", "", "plan `file` to write (default: <testName>-small.yaml)")
	f.StringVar(&o.dir, "dir", "", "`directory` for run records (default: trommel-runs/shrink-<time>)")
	f.StringVar(&o.baseline, "baseline", "",
		"`directory` with what the workload does without faults (default: where trommel test has it, if it is there "+
			"and the run has a finding that needs it; otherwise it is learned each time)")
	o.progress.Register(f)
	flags.FromSource(f)
	return c
}

// baselinesOf sets the directory of the baselines that the finding was judged with, if that has one of the workload.
func (o *shrinkOptions) baselinesOf(l *loaded, f record.Finding) error {
	if o.baseline != "" || f.Judge == "" || slices.Contains(needNoBaseline, f.Judge) {
		return nil
	}
	dir, err := runsdir.Baselines(l.suite, l.variant)
	if err != nil {
		return err
	}
	if _, err := os.Stat(learn.BaselineFile(dir, learn.WorkloadOf(l.plan))); err == nil {
		o.baseline = dir
	}
	return nil
}

// load reads the plan, with its suite, and the findings of its recorded run; every error is a mistake of the user.
func (o *shrinkOptions) load(s output.Streams, args []string) (*loaded, record.Finding, error) {
	suite, err := flags.NamedSuite(o.controller, o.suite)
	if err != nil {
		return nil, record.Finding{}, err
	}
	as := runOptions{suite: suite, variant: o.variant}
	switch {
	case len(args) == 1 && o.plan != "":
		return nil, record.Finding{}, errors.New("a run record and --plan both name the plan; give one of them")
	case len(args) == 0 && o.plan == "":
		return nil, record.Finding{}, errors.New("nothing to shrink: give a run record, or a plan with --plan")
	case o.runs < 1:
		return nil, record.Finding{}, errors.New("--runs must be at least 1")
	case o.plan != "" && o.finding != "":
		return nil, record.Finding{}, errors.New("--finding needs a run record, which has findings")
	case o.plan != "":
		l, err := as.load(o.plan)
		if err == nil && l.note != "" {
			fmt.Fprintln(s.Err, l.note)
		}
		return l, record.Finding{}, err
	}
	r, err := record.Open(args[0])
	if err != nil {
		return nil, record.Finding{}, err
	}
	f, err := o.choose(r)
	if err != nil {
		return nil, record.Finding{}, err
	}
	o.took = r.Meta.Took()
	if as.suite == "" {
		as.suite = r.Meta.Suite
	}
	if text, err := os.ReadFile(as.suite); err == nil && string(text) != string(r.Suite) {
		fmt.Fprintf(s.Err, "the suite %s has changed since the run\n", as.suite)
	}
	l, err := as.load(filepath.Join(args[0], record.PlanFile))
	if err != nil {
		return nil, f, err
	}
	o.written, err = writtenAs(l, r.Meta.PlanFile)
	return l, f, err
}

// writtenAs is a recorded plan as its author has written it: the record has its meaning only. It is nil if the file is
// not there any more, or has become another plan.
func writtenAs(l *loaded, file string) (*plan.Plan, error) {
	p, err := plan.LoadWith(file, l.suite)
	if err != nil {
		return nil, nil
	}
	// A record refers to copies of what its plan refers to.
	meaning := func(p *plan.Plan) ([]byte, error) {
		q := *p
		q.Suite, q.Variant = "", ""
		q.Actions = slices.Clone(p.Actions)
		for i := range q.Actions {
			q.Actions[i].ManifestFile = ""
		}
		return plan.Marshal(&q)
	}
	now, err := meaning(p)
	if err != nil {
		return nil, err
	}
	then, err := meaning(l.plan)
	if err != nil || !bytes.Equal(now, then) {
		return nil, err
	}
	return p, nil
}

// choose returns the finding of a record that is to be kept.
func (o *shrinkOptions) choose(r *record.Run) (record.Finding, error) {
	var titles []string
	chosen := record.Finding{}
	for _, f := range slices.SortedStableFunc(slices.Values(r.Findings), record.ByHarm) {
		if !f.IsBug() {
			continue
		}
		titles = append(titles, f.Title)
		switch {
		case !strings.Contains(f.Title, o.finding):
		case chosen.Judge == "", chosen.Judge == record.JudgeBaseline && f.Judge != record.JudgeBaseline:
			chosen = f
		}
	}
	switch {
	case len(titles) == 0:
		return chosen, fmt.Errorf("%s: the run has found no bug", r.Dir)
	case chosen.Judge == "":
		return chosen, fmt.Errorf("%s: no finding contains %q; it has:\n  %s", r.Dir, o.finding,
			strings.Join(titles, "\n  "))
	}
	return chosen, nil
}

func shrinkPlan(ctx context.Context, s output.Streams, o *shrinkOptions, args []string) error {
	l, finding, err := o.load(s, args)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	suite, err := run.Choose(l.suite, l.variant)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	l.plan.Variant = l.variant
	if err := o.baselinesOf(l, finding); err != nil {
		return exit.With(exit.Usage, err)
	}
	if o.out == "" {
		o.out = strings.TrimSuffix(l.plan.TestName, "-small") + "-small.yaml"
	}
	if o.dir == "" {
		o.dir = filepath.Join(runsdir.Name, "shrink-"+time.Now().Format("20060102-150405"))
	}
	console, s, err := o.progress.Open(s)
	if err != nil {
		return err
	}
	defer console.Close()
	console.Title("shrink " + l.plan.TestName)
	session, err := run.Open(ctx, suite, run.Options{
		Version: buildinfo.Version(), Injector: disruptions.Injector(),
		DisruptionControllers: disruptions.Controllers(), Progress: progress.AsideOf(console),
	})
	if err != nil {
		return exit.With(codeOf(err), err)
	}
	as := runOptions{baseline: o.baseline}
	how, err := as.howToRun(ctx, console, session, l)
	if err != nil {
		return exit.With(codeOf(err), errors.Join(err, session.Close(context.WithoutCancel(ctx))))
	}
	result, err := shrink.Shrink(ctx, shrink.Config{
		Runner: session, Suite: suite, Plan: l.plan, Written: o.written, Finding: finding,
		Dir: o.dir, Runs: o.runs, Budget: o.budget,
		Baseline: how.Baseline, History: how.History, Took: o.took,
		Progress: func(format string, args ...any) { console.Info(fmt.Sprintf(format, args...)) },
	})
	if closeErr := session.Close(context.WithoutCancel(ctx)); err == nil {
		err = closeErr
	}
	if result != nil {
		if writeErr := writePlan(result.Plan, cmp.Or(o.written, l.plan), suite, o.out); writeErr != nil {
			return exit.With(exit.CannotRun, errors.Join(err, writeErr))
		}
		describeShrunk(s, result, o.out)
	}
	var notShown *shrink.NotShownError
	switch {
	case errors.As(err, &notShown):
		return exit.With(exit.Inconclusive, err)
	case err != nil:
		return exit.With(codeOf(err), err)
	}
	return nil
}

// writePlan writes a plan to a file from which its suite and its manifests are found, like the plan that it was made
// from.
func writePlan(p, from *plan.Plan, suite *plan.Suite, file string) error {
	q := *p
	q.Suite = ""
	q.Actions = append([]plan.Action(nil), p.Actions...)
	var errs []error
	beside := func(path string) string {
		to, err := filepath.Abs(path)
		from, fromErr := filepath.Abs(filepath.Dir(file))
		if err == nil && fromErr == nil {
			path, err = filepath.Rel(from, to)
		}
		errs = append(errs, err, fromErr)
		return filepath.ToSlash(path)
	}
	for i := range q.Actions {
		if a := &q.Actions[i]; a.ManifestFile != "" {
			a.ManifestFile = beside(plan.Beside(p.File, a.ManifestFile))
		}
	}
	nearest, err := plan.FindSuite(filepath.Join(filepath.Dir(file), plan.SuiteFile))
	if err != nil || !sameFile(nearest, suite.File) {
		q.Suite = beside(suite.File)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	data, err := plan.MarshalLike(&q, from, suite)
	if err != nil {
		return err
	}
	if own, err := plan.Marshal(&q); err == nil && bytes.Equal(own, data) { // it has no style of its author's
		data = append([]byte(plan.EditorLine("TestPlan", buildinfo.Version())), data...)
	}
	return os.WriteFile(file, data, record.FileMode)
}

func sameFile(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

func describeShrunk(s output.Streams, r *shrink.Result, file string) {
	fmt.Fprintf(s.Out, "%s shows: %s\n", file, r.Finding.Title)
	fmt.Fprintf(s.Out, "  before: %s\n  after:  %s\n", r.Before, r.After)
	fmt.Fprintf(s.Out, "  %d plans tried, %d runs, %s\n", r.Tried, r.Runs, r.Took.Round(time.Second))
	if !r.Minimal {
		fmt.Fprintln(s.Out, "  not everything was tried; it may get smaller")
	}
	if r.Invariant != "" {
		fmt.Fprintf(s.Out, "  its invariant %s was derived from the finding\n", r.Invariant)
	}
	if r.Note != "" {
		fmt.Fprintf(s.Out, "  %s\n", r.Note)
	}
	fmt.Fprintf(s.Out, "  trommel -p %s\n", file)
}
