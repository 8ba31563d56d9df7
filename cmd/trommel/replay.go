package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/coordinator/machine"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

func newReplayCommand(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "replay DIR",
		Short: "Replay a run record's observations through the state machine, offline",
		Long: `Replay feeds the recorded events of a run to the state machine, without a cluster, and compares the
resulting actions with those that the run carried out. Exit code 1: they differ.`,
		Example: "  trommel replay trommel-runs/stale-deletion-20260102-150405.000",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			r, err := record.Open(args[0])
			if err != nil {
				return &exitError{exitUsage, err}
			}
			p, err := recordedPlan(r)
			if err != nil {
				return &exitError{exitUsage, err}
			}
			fires, _, err := machine.Replay(p, r.Meta.Controllers, r.Events)
			if err != nil {
				return &exitError{exitCannotRun, err}
			}
			if err := machine.CompareReplay(fires, r.Actions); err != nil {
				return &exitError{exitBug, fmt.Errorf("replay of %s: %w", args[0], err)}
			}
			fmt.Fprintf(s.out, "%s: %d events lead to the same %d actions\n", args[0], len(r.Events), len(fires))
			return nil
		},
	}
}

// recordedPlan reads the plan of a record. It is complete: it contains every default of the suite. It gets no file
// name, so that no files are looked for beside it: a record may lack its manifests.
func recordedPlan(r *record.Run) (*plan.Plan, error) {
	p, err := plan.Parse(r.Plan, "")
	if err != nil {
		return nil, fmt.Errorf("the plan in %s: %w", filepath.Join(r.Dir, record.PlanFile), err)
	}
	return p, nil
}
