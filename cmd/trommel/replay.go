package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/coordinator"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

func newReplayCommand(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "replay DIR",
		Short: "Walk a run record's observations through the state machine again, offline",
		Long: `Replay walks the recorded events of a run through the state machine, without a cluster, and compares the actions that it
decides on with those that the run carried out. Exit code 1: they differ.`,
		Example: "  trommel replay trommel-runs/stale-deletion-20260102-150405.000",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			r, err := record.Open(args[0])
			if err != nil {
				return &exitError{exitUsage, err}
			}
			// The recorded plan is complete: every default of the suite is written out in it. It gets no file, so that
			// nobody looks for files beside it: a replay applies nothing, and the record may have come without its
			// manifests.
			p, err := plan.Parse(r.Plan, "")
			if err != nil {
				return &exitError{exitUsage,
					fmt.Errorf("the plan in %s: %w", filepath.Join(args[0], record.PlanFile), err)}
			}
			fires, _, err := coordinator.Replay(p, r.Meta.Controllers, r.Events)
			if err != nil {
				return &exitError{exitCannotRun, err}
			}
			if err := coordinator.CompareReplay(fires, r.Actions); err != nil {
				return &exitError{exitBug, fmt.Errorf("replay of %s: %w", args[0], err)}
			}
			fmt.Fprintf(s.out, "%s: %d events lead to the same %d actions\n", args[0], len(r.Events), len(fires))
			return nil
		},
	}
}
