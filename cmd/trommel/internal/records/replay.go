package records

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/coordinator/machine"
	"github.com/trommel-dev/trommel/record"
)

// NewReplayCommand returns `trommel replay`.
func NewReplayCommand(s output.Streams) *cobra.Command {
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
				return exit.With(exit.Usage, err)
			}
			p, err := Plan(r)
			if err != nil {
				return exit.With(exit.Usage, err)
			}
			fires, _, err := machine.Replay(p, r.Meta.Controllers, r.Events)
			if err != nil {
				return exit.With(exit.CannotRun, err)
			}
			if err := machine.CompareReplay(fires, r.Actions); err != nil {
				return exit.With(exit.Bug, fmt.Errorf("replay of %s: %w", args[0], err))
			}
			fmt.Fprintf(s.Out, "%s: %d events lead to the same %d actions\n", args[0], len(r.Events), len(fires))
			return nil
		},
	}
}
