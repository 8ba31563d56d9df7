package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/flags"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/planfiles"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/runsdir"
	"github.com/trommel-dev/trommel/internal/campaign"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/report"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/plan"
)

// verifyOptions are the flags of `trommel verify`.
type verifyOptions struct {
	testOptions
	fixed      string // directory of the fixed source
	neighbours int
}

func newVerifyCommand(s output.Streams) *cobra.Command {
	o := verifyOptions{}
	c := &cobra.Command{
		Use:   "verify PLAN... --fixed DIR",
		Short: "Check that a fix mends what plans show, and breaks nothing beside it",
		Long: `Verify runs plans against the suite's source and against a fixed one, which is another checkout of it. A
fix is good if each plan that shows a bug before shows none after, and if all others pass after. What the workloads do
without faults is learned from each of the two sources.

If a plan is one of a campaign's, up to --neighbours further plans of the campaign are run: those of the same workload
and pattern that passed, nearest to it. If the fixed source has a suite at the same path, that one is used with its
manifests; otherwise the suite is used with the fixed source's programs.

Exit codes: 0 the fix is good, 1 it is not, 2 usage, 3 no result (no plan shows a bug before, or a plan did not happen),
4 could not run.`,
		Example: `  trommel verify trommel-runs/test-20260102-150405/plans/create-intermediate-2.yaml --fixed ../fixed
  trommel verify plans/stale-deletion.yaml --fixed ../fixed --repeat 5`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return verify(c.Context(), s, &o, args) },
	}
	f := c.Flags()
	flags.Suite(f, &o.SuiteFile, &o.Variant)
	f.StringVar(&o.fixed, "fixed", "", "`directory` of the fixed source: another checkout of the repository (required)")
	f.IntVar(&o.neighbours, "neighbours", 10, "`number` of further plans of the campaign that are run, at most")
	f.IntVar(&o.Repeat, "repeat", 3,
		"how often a plan is run: before, to confirm what it shows, and after, to see nothing")
	f.IntVar(&o.Learn, "runs", 3, "how often each workload is run without faults, to learn which fields differ anyway")
	f.IntVar(&o.parallel, "parallel", 0,
		"`number` of clusters that run plans side by side (default: one for each core, if there is memory for them)")
	f.StringVar(&o.dir, "dir", "", "`directory` for plans and run records (default: trommel-runs/verify-<time>)")
	o.progress.Register(f)
	flags.FromSource(f)
	_ = c.MarkFlagRequired("fixed")
	return c
}

// side is the source before the fix, or after it.
type side struct {
	name  string // before or after
	suite *plan.Suite
	plans []*plan.Plan
	trace bool // see campaign.Config.Trace
	found *result.Result
}

// verify runs the plans on both sources.
func verify(ctx context.Context, s output.Streams, o *verifyOptions, args []string) error {
	if o.Repeat < 1 || o.Learn < 2 || o.neighbours < 0 {
		return exit.With(exit.Usage,
			errors.New("--runs must be at least 2, --repeat at least 1, and --neighbours at least 0"))
	}
	files, err := planfiles.Expand(args)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	chosen := len(files)
	if files, err = withNeighbours(files, o.neighbours); err != nil {
		return exit.With(exit.Usage, err)
	}
	before, after, err := o.sides(files, chosen)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	console, s, err := o.progress.Open(s)
	if err != nil {
		return err
	}
	defer console.Close()
	dir := cmp.Or(o.dir, filepath.Join(runsdir.Name, "verify-"+time.Now().Format("20060102-150405")))
	for _, which := range []*side{before, after} {
		if err := o.run(ctx, console, "verify "+which.name, which, dir); err != nil {
			return err
		}
	}
	v := verified{before: before.found, after: after.found, chosen: names(before.plans[:chosen]), runs: o.Repeat}
	if err := v.write(s.Out); err != nil {
		return exit.With(exit.CannotRun, err)
	}
	if !o.progress.Quiet {
		fmt.Fprintf(s.Err, "records: %s\n", dir)
	}
	if code := v.code(); code != exit.Pass {
		return exit.With(code, nil)
	}
	return nil
}

// run runs the plans of one side, and keeps their records in a directory of its name.
func (o *verifyOptions) run(ctx context.Context, console *output.Console, title string, which *side, dir string) error {
	part := o.testOptions
	part.SuiteFile, part.Plans = which.suite.File, dir
	part.dir = filepath.Join(dir, which.name)
	part.Baselines = filepath.Join(part.dir, "baselines")
	return part.inSessionOf(ctx, console, title, which.suite, which.plans, func(c campaign.Config) (err error) {
		c.Trace = which.trace
		which.found, err = campaign.Run(ctx, c)
		return err
	})
}

func names(plans []*plan.Plan) (all []string) {
	for _, p := range plans {
		all = append(all, p.TestName)
	}
	return all
}

// withNeighbours adds to plans of a campaign the passed ones of the same workload and pattern that are nearest.
func withNeighbours(files []string, most int) ([]string, error) {
	all := slices.Clone(files)
	var found []string
	for _, file := range files {
		dir := filepath.Dir(filepath.Dir(file))
		state, err := campaign.ReadState(dir)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(state.Outcomes, func(o *result.Outcome) bool {
			return filepath.Base(o.File) == filepath.Base(file)
		})
		if at < 0 {
			continue
		}
		for _, i := range outwards(at, len(state.Outcomes)) {
			n := state.Outcomes[i]
			near := filepath.Join(dir, "plans", filepath.Base(n.File))
			if n.Status == result.Passed && n.Workload == state.Outcomes[at].Workload &&
				n.Pattern == state.Outcomes[at].Pattern && len(found) < most && !slices.Contains(all, near) {
				found, all = append(found, near), append(all, near)
			}
		}
	}
	return all, nil
}

// outwards are the numbers below n but for one, the nearest to that first.
func outwards(from, n int) (all []int) {
	for d := 1; d < n; d++ {
		for _, i := range []int{from - d, from + d} {
			if i >= 0 && i < n {
				all = append(all, i)
			}
		}
	}
	return all
}

// sides are the suite with its plans before and after the fix. The first plans are run several times after it. If no
// fixed source is given, after is nil.
func (o *verifyOptions) sides(files []string, chosen int) (before, after *side, err error) {
	if o.SuiteFile == "" {
		o.SuiteFile, err = plan.FindSuite(files[0])
	} else {
		o.SuiteFile, err = flags.SuiteFile(o.SuiteFile)
	}
	if err != nil {
		return nil, nil, err
	}
	if o.parallel, err = o.parallelHere(); err != nil {
		return nil, nil, err
	}
	load := func(name, file string) (*side, error) {
		suite, err := plan.LoadSuite(file)
		if err != nil {
			return nil, err
		}
		plans, err := o.ownPlans(suite, files)
		if err != nil {
			return nil, err
		}
		suite, err = run.Choose(suite, o.Variant)
		return &side{name: name, suite: suite, plans: plans}, err
	}
	if before, err = load("before", o.SuiteFile); err != nil {
		return nil, nil, err
	}
	if o.fixed == "" {
		return before, nil, nil
	}
	root, err := repository(filepath.Dir(o.SuiteFile))
	if err != nil {
		return nil, nil, err
	}
	moved, err := relocated(root, o.fixed, o.SuiteFile)
	if err != nil {
		return nil, nil, err
	}
	if _, none := os.Stat(moved); none == nil {
		after, err = load("after", moved)
	} else if after, err = load("after", o.SuiteFile); err == nil {
		err = moveSources(after.suite, root, o.fixed)
	}
	if err != nil {
		return nil, nil, err
	}
	after.repeat(chosen, o.Repeat)
	return before, after, nil
}

// repeat adds n-1 more runs of the first plans.
func (s *side) repeat(first, n int) {
	for _, p := range s.plans[:first] {
		for i := 2; i <= n; i++ {
			again := *p
			again.TestName = result.Again(p.TestName, i)
			s.plans = append(s.plans, &again)
		}
	}
}

// repository is the root of the repository that a directory is in, or of the outermost module if there is none.
func repository(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	module := ""
	for up := dir; ; up = filepath.Dir(up) {
		if _, err := os.Stat(filepath.Join(up, ".git")); err == nil {
			return up, nil
		}
		if _, err := os.Stat(filepath.Join(up, "go.mod")); err == nil {
			module = up
		}
		if up == filepath.Dir(up) {
			return cmp.Or(module, dir), nil
		}
	}
}

// relocated is a path below the root, below another root.
func relocated(root, other, path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	rel, err := filepath.Rel(root, path)
	if err != nil || !filepath.IsLocal(rel) {
		return "", fmt.Errorf("%s is not in %s, so that --fixed has no path that corresponds to it", path, root)
	}
	return filepath.Abs(filepath.Join(other, rel))
}

// moveSources has the suite's controllers built from another checkout.
func moveSources(suite *plan.Suite, root, fixed string) error {
	moved := 0
	for i := range suite.Controllers {
		b := suite.Controllers[i].Build
		if b == nil || b.ControlPlane != "" {
			continue
		}
		dir, err := relocated(root, fixed, plan.Beside(suite.File, b.Dir))
		if err != nil {
			return err
		}
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return fmt.Errorf("--fixed %s: it has no directory %s, from which the controller %s would be built",
				fixed, dir, suite.Controllers[i].Name)
		}
		build := *b
		build.Dir = dir
		suite.Controllers[i].Build = &build
		moved++
	}
	if moved == 0 {
		return errors.New("the suite builds no controller from source, so that there is nothing to fix")
	}
	return nil
}

// verified is what became of the plans before and after a fix.
type verified struct {
	before, after *result.Result
	chosen        []string // plans that the user has named
	runs          int      // of each of these after the fix
}

// pair is what became of one plan.
type pair struct {
	plan          string
	before, after *result.Outcome // nil: it was not run
	shown         int             // runs after the fix with a bug
	ran           int             // and all that have a result
}

func (v *verified) pairs() (all []pair) {
	outcome := func(r *result.Result, plan string) *result.Outcome {
		i := slices.IndexFunc(r.Outcomes, func(o result.Outcome) bool { return o.Plan == plan })
		if i < 0 {
			return nil
		}
		return &r.Outcomes[i]
	}
	for i := range v.before.Outcomes {
		b := &v.before.Outcomes[i]
		p := pair{plan: b.Plan, before: b}
		again := []string{b.Plan}
		if slices.Contains(v.chosen, b.Plan) {
			for n := 2; n <= v.runs; n++ {
				again = append(again, result.Again(b.Plan, n))
			}
		}
		for _, name := range again {
			a := outcome(v.after, name)
			if a == nil || a.Status == result.Inconclusive || a.Status == result.Failed {
				continue
			}
			p.ran++
			if a.Status == result.Bug || a.Status == result.Unconfirmed {
				p.shown++
				p.after = a
			}
			if p.after == nil {
				p.after = a
			}
		}
		all = append(all, p)
	}
	return all
}

// code is the exit code: the fix is good, it is not, or that is not known.
func (v *verified) code() int {
	code, shown := exit.Pass, false
	for _, p := range v.pairs() {
		shown = shown || p.before.Status == result.Bug
		switch {
		case p.shown > 0:
			return exit.Bug
		case p.ran == 0:
			code = exit.Inconclusive
		}
	}
	if !shown {
		return exit.Inconclusive
	}
	return code
}

// write says what became of each plan that showed a bug, or was named, and how many others pass.
func (v *verified) write(w io.Writer) error {
	var b strings.Builder
	others := 0
	for _, p := range v.pairs() {
		if p.before.Status != result.Bug && p.shown == 0 && p.ran > 0 && !slices.Contains(v.chosen, p.plan) {
			others++
			continue
		}
		before := string(p.before.Status)
		if p.before.Status == result.Bug {
			before = fmt.Sprintf("shown %d of %d", p.before.Came, p.before.Of)
		}
		after := fmt.Sprintf("%d of %d", p.shown, p.ran)
		if p.ran == 0 {
			after = "no result"
		}
		fmt.Fprintf(&b, "%s: %s before; %s after\n", p.plan, before, after)
		found(&b, "before", p.before)
		found(&b, "after", p.after)
	}
	switch {
	case others == 1:
		fmt.Fprintln(&b, "1 neighbouring plan passes before and after")
	case others > 1:
		fmt.Fprintf(&b, "%d neighbouring plans pass before and after\n", others)
	}
	switch v.code() {
	case exit.Pass:
		fmt.Fprintln(&b, "the fix is good")
	case exit.Bug:
		fmt.Fprintln(&b, "the fix is not good")
	default:
		fmt.Fprintln(&b, "no result: no plan shows a bug before, or a plan has no result after")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// found writes the worst that a plan has found.
func found(b *strings.Builder, when string, o *result.Outcome) {
	if o != nil && len(o.Findings) > 0 {
		fmt.Fprintf(b, "  %s: %s\n", when, report.Title(o.Findings[0]))
	}
}
