package records

import (
	"errors"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/runsdir"
	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/campaign/learn"
	"github.com/trommel-dev/trommel/internal/report"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// NewDiffCommand returns `trommel diff`.
func NewDiffCommand(s output.Streams) *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "diff RECORD RECORD",
		Short: "Show where two runs differ",
		Long: `Diff compares two run records: what they were run with (also in which fields their plans and suites
differ), the first observation that differs, the actions, the findings and the objects at the end. Times, resource
versions, UIDs and generated names do not count, nor does what differs between runs of the workload without faults,
if these are known: see "trommel learn". Observations are compared for each object at each point of a process,
because their order among those always differs.

Exit codes: 0 no difference, 1 they differ, 2 usage.`,
		Example: "  trommel diff trommel-runs/stale-deletion-20260102-150405.000 \\\n" +
			"    trommel-runs/stale-deletion-20260102-151020.000",
		Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, dirs []string) error {
			var runs [2]*record.Run
			for i, dir := range dirs {
				r, err := record.Open(dir)
				if err != nil {
					return exit.With(exit.Usage, err)
				}
				runs[i] = r
			}
			known, err := baselineOf(dir, runs[0])
			if err != nil {
				return exit.With(exit.Usage, err)
			}
			d, err := report.Compare(runs[0], runs[1], known)
			if err != nil {
				return exit.With(exit.Usage, err)
			}
			if err := d.Text(s.Out, runs[0], runs[1]); err != nil {
				return exit.With(exit.CannotRun, err)
			}
			if !d.Same() {
				return exit.With(exit.Bug, nil)
			}
			return nil
		},
	}
	c.Flags().StringVar(&dir, "baseline", "",
		"`directory` with what the workload does without faults (default: where trommel test has it)")
	return c
}

// baselineOf returns the baseline of a run's workload from a directory of baselines. If no directory is named and
// there is none where it would be, it is nil.
func baselineOf(dir string, r *record.Run) (*baseline.Baseline, error) {
	named := dir != ""
	if !named {
		if r.Meta.Suite == "" {
			return nil, nil
		}
		var err error
		if dir, err = runsdir.Baselines(&plan.Suite{File: r.Meta.Suite}, r.Meta.Variant); err != nil {
			return nil, err
		}
	}
	p, err := Plan(r)
	if err != nil {
		return nil, err
	}
	workload := learn.WorkloadOf(p)
	ref, err := baseline.Read(learn.BaselineFile(dir, workload))
	if errors.Is(err, fs.ErrNotExist) && !named {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	edited, err := baseline.ReadMasks(learn.MaskFile(dir, workload))
	if err != nil {
		return nil, err
	}
	ref.Override(edited)
	return ref, nil
}
