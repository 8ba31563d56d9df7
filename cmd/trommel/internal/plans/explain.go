package plans

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/records"
	"github.com/trommel-dev/trommel/internal/report"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// NewExplainCommand returns `trommel explain`.
func NewExplainCommand(s output.Streams) *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "explain -p plan.yaml | explain RECORD",
		Short: "Describe a plan or a run in plain sentences",
		Long: `Explain describes for each action of a plan which process is stopped, killed or moved, where, and until
when. For a run record it also describes the result of each action, the changes of the objects, who made them, and the
findings, causes before consequences. For the directory of a plan's runs in a campaign it describes the first run.`,
		Example: `  trommel explain -p plan.yaml
  trommel explain trommel-runs/stale-deletion-20260102-150405.000
  trommel explain trommel-runs/test-20260102-150405/runs/create-stale-7`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				if file != "" {
					return exit.With(exit.Usage,
						errors.New("a run record and --plan both say what to explain; give one of them"))
				}
				return explainRun(s, args[0])
			}
			p, suite, err := loadPlan(file, "")
			if err != nil {
				return err
			}
			fmt.Fprint(s.Out, plan.Explain(p))
			for _, line := range staleness(p, suite) {
				fmt.Fprintln(s.Out, line)
			}
			return nil
		},
	}
	c.Flags().StringVarP(&file, "plan", "p", "", "plan `file`")
	return c
}

func explainRun(s output.Streams, dir string) error {
	dir, err := firstRun(dir)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	r, err := record.Open(dir)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	p, err := records.Plan(r)
	if err != nil && !r.Truncated {
		return exit.With(exit.Usage, err)
	}
	if err := report.Explain(s.Out, r, p); err != nil {
		return exit.With(exit.CannotRun, err)
	}
	return nil
}

// firstRun returns the record that a directory is, or the first of those in it if they are all one plan's, as in the
// runs of a campaign.
func firstRun(dir string) (string, error) {
	names, err := records.In([]string{dir})
	if err != nil {
		return "", err
	}
	for _, r := range names {
		if r != dir && filepath.Clean(filepath.Dir(r)) != filepath.Clean(dir) {
			return "", fmt.Errorf("%s has %s of several plans below it, such as %s: name one", dir,
				wording.Count(len(names), "run"), r)
		}
	}
	return names[0], nil
}
