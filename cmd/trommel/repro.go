package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/flags"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/runsdir"
	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/internal/atomicfile"
	"github.com/trommel-dev/trommel/internal/buildinfo"
	"github.com/trommel-dev/trommel/internal/report"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// reproOptions are the flags of `trommel repro`.
type reproOptions struct {
	runs     int
	cluster  string
	baseline string
	progress output.Flags
}

func newReproCommand(s output.Streams) *cobra.Command {
	var o reproOptions
	c := &cobra.Command{
		Use:   "repro RECORD",
		Short: "Run a recorded run's plan again, and compare the results",
		Long: `Repro runs the plan of a run record again, for real, with the recorded plan, manifests, suite and variant
and the same version of Kubernetes. It reports whether the same actions were carried out for the same reasons, with the
same verdict and findings. The controllers are built from their present sources, so after a fix it shows whether the bug
is gone. It also reports other changes since the run.

If a finding needs runs without faults to compare with, they are taken from --baseline, or learned there.

Exit codes: 0 the same came every time, 1 it did not, 2 usage, 4 could not run.`,
		Example: `  trommel repro trommel-runs/stale-deletion-20260102-150405.000
  trommel repro trommel-runs/stale-deletion-20260102-150405.000 --runs 5`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return repro(c.Context(), s, &o, args[0]) },
	}
	f := c.Flags()
	f.IntVar(&o.runs, "runs", 1, "how often to run it")
	f.StringVar(&o.cluster, "cluster", "", "run on the cluster of this `name`, started by `trommel cluster up`")
	f.StringVar(&o.baseline, "baseline", "", "`directory` with what the workload does without faults "+
		"(default: where trommel test has it, if the run has a finding that needs it)")
	o.progress.Register(f)
	flags.FromSource(f)
	return c
}

// recorded reads a record's plan, with its suite as it was then. The files that the suite names are those of today. The
// plan's file is that in the record, beside its manifests.
func recorded(s output.Streams, r *record.Run) (*loaded, error) {
	if r.Meta.Suite == "" || len(r.Plan) == 0 || len(r.Suite) == 0 {
		return nil, fmt.Errorf("%s: the run was killed before it had recorded what it was run with", r.Dir)
	}
	now, err := os.ReadFile(r.Meta.Suite)
	dir := filepath.Dir(r.Meta.Suite)
	switch info, dirErr := os.Stat(dir); {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist) && dirErr == nil && info.IsDir():
		fmt.Fprintf(s.Err, "there is no suite %s, such as one that was built in Go; the recorded one is used\n",
			r.Meta.Suite)
	default:
		return nil, fmt.Errorf("the run's suite, whose other files are needed: %w", err)
	}
	if err == nil && !bytes.Equal(now, r.Suite) {
		fmt.Fprintf(s.Err, "the suite %s has changed since the run; the recorded one is used\n", r.Meta.Suite)
	}
	suite, err := plan.ParseSuite(r.Suite, r.Meta.Suite)
	if err != nil {
		return nil, err
	}
	// The version is only named if it must be: it is a part of what baselines are known by.
	asked, err := instrumentation.ResolveKubernetesVersion(suite.Cluster.KubernetesVersion)
	if r.Meta.Kubernetes != "" && (err != nil || asked != r.Meta.Kubernetes) {
		suite.Cluster.KubernetesVersion = r.Meta.Kubernetes
	}
	if r.Meta.Trommel != buildinfo.Version() {
		fmt.Fprintf(s.Err, "the run was made by Trommel %s; this is %s\n", r.Meta.Trommel, buildinfo.Version())
	}
	p, err := plan.LoadWith(filepath.Join(r.Dir, record.PlanFile), suite)
	if err != nil {
		return nil, err
	}
	if _, err := run.Choose(suite, r.Meta.Variant); err != nil {
		return nil, err
	}
	return &loaded{plan: p, suite: suite, variant: r.Meta.Variant}, nil
}

// needNoBaseline are the judges that find bugs without comparing a run with runs without faults.
var needNoBaseline = []string{
	record.JudgeWorkload, record.JudgeInvariant, record.JudgeCrash, record.JudgePanic, record.JudgeFinalizer,
}

// baselinesOf returns the directory of the baselines that the run has been compared with, or empty if it was not.
func (o *reproOptions) baselinesOf(r *record.Run, l *loaded) (string, error) {
	if o.baseline != "" {
		return o.baseline, nil
	}
	for _, f := range r.Findings {
		if f.IsBug() && !slices.Contains(needNoBaseline, f.Judge) {
			return runsdir.Baselines(l.suite, l.variant)
		}
	}
	return "", nil
}

func repro(ctx context.Context, s output.Streams, o *reproOptions, dir string) error {
	if o.runs < 1 {
		return exit.With(exit.Usage, errors.New("--runs must be at least 1"))
	}
	first, err := record.Open(dir)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	l, err := recorded(s, first)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	as := runOptions{cluster: o.cluster, progress: o.progress}
	if as.baseline, err = o.baselinesOf(first, l); err != nil {
		return exit.With(exit.Usage, err)
	}
	console, s, err := o.progress.Open(s)
	if err != nil {
		return err
	}
	defer console.Close()
	options := as.session(s, console, l, o.runs > 1)
	title := "repro " + l.title()
	if o.runs > 1 {
		title = againTitle(l.title(), 0, o.runs, 0)
	}
	console.Title(title)
	session, err := run.Open(ctx, l.suite, options)
	if err != nil {
		return exit.With(codeOf(err), err)
	}
	defer func() {
		if err := session.Close(context.WithoutCancel(ctx)); err != nil {
			fmt.Fprintf(s.Err, "trommel: %v\n", err)
		}
	}()
	how, err := as.howToRun(ctx, console, session, l)
	if err != nil {
		return exit.With(codeOf(err), err)
	}
	same := 0
	var took time.Duration
	for i := range o.runs {
		if i > 0 {
			console.Title(againTitle(l.title(), i, o.runs, took))
		}
		again, code := runPlan(ctx, s, console, session, l, as.recordFolder(l), how)
		if code == exit.CannotRun || code == exit.Usage {
			return exit.With(code, nil) // the reason is on stderr
		}
		file := filepath.Join(again.Dir, record.SuiteFile)
		if err := atomicfile.Write(file, first.Suite, record.FileMode); err != nil {
			return exit.With(exit.CannotRun, err)
		}
		again.Suite = first.Suite
		ok, err := compareAgain(s, first, again)
		if err != nil {
			return exit.With(exit.CannotRun, err)
		}
		if ok {
			same++
		}
		took += again.Meta.Took()
	}
	if o.runs > 1 {
		fmt.Fprintf(s.Out, "the same in %d of %d runs\n", same, o.runs)
	}
	if same < o.runs {
		return exit.With(exit.Bug, nil)
	}
	return nil
}

// againTitle says which of several runs begins, and about how long those that are left take.
func againTitle(title string, ended, of int, took time.Duration) string {
	text := fmt.Sprintf("repro %s, run %d of %d", title, ended+1, of)
	if ended > 0 {
		text += fmt.Sprintf(", about %s left", wording.Roughly(took/time.Duration(ended)*time.Duration(of-ended)))
	}
	return text
}

// compareAgain prints a run and whether it is like the first one.
func compareAgain(s output.Streams, first, again *record.Run) (same bool, err error) {
	if err := report.Text(s.Out, again); err != nil {
		return false, err
	}
	d, err := report.Compare(first, again, nil)
	if err != nil {
		return false, err
	}
	fmt.Fprintf(s.Err, "run record: %s\n", again.Dir)
	return d.SameOutcome(), d.Again(s.Out, first, again)
}
