package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/internal/report"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

func newExplainCommand(s streams) *cobra.Command {
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
					return &exitError{exitUsage,
						errors.New("a run record and --plan both say what to explain; give one of them")}
				}
				return explainRun(s, args[0])
			}
			p, suite, err := loadPlan(file, "")
			if err != nil {
				return err
			}
			fmt.Fprint(s.out, plan.Explain(p))
			for _, line := range staleness(p, suite) {
				fmt.Fprintln(s.out, line)
			}
			return nil
		},
	}
	c.Flags().StringVarP(&file, "plan", "p", "", "plan `file`")
	return c
}

func explainRun(s streams, dir string) error {
	dir, err := firstRun(dir)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	r, err := record.Open(dir)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	p, err := recordedPlan(r)
	if err != nil && !r.Truncated {
		return &exitError{exitUsage, err}
	}
	if err := report.Explain(s.out, r, p); err != nil {
		return &exitError{exitCannotRun, err}
	}
	return nil
}

// firstRun returns the record that a directory is, or the first of those in it if they are all one plan's, as in the
// runs of a campaign.
func firstRun(dir string) (string, error) {
	records, err := recordsIn([]string{dir})
	if err != nil {
		return "", err
	}
	for _, r := range records {
		if r != dir && filepath.Clean(filepath.Dir(r)) != filepath.Clean(dir) {
			return "", fmt.Errorf("%s has %s of several plans below it, such as %s: name one", dir,
				wording.Count(len(records), "run"), r)
		}
	}
	return records[0], nil
}
