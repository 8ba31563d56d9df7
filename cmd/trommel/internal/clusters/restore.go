package clusters

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/internal/cluster/existing"
)

func newClusterRestoreCommand(s output.Streams) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Clean up existing clusters after runs that were killed",
		Long: `Restore cleans up clusters of type existing after runs that were killed. It deletes the objects that
these runs have made, and restores those that they have replaced. Journals on this machine list both. Restore reaches
each cluster as the run did. The next run on the cluster does the same. Runs in progress are not affected.`,
		Example: `  trommel cluster restore
  trommel cluster restore --context staging`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return restoreClusters(cmd.Context(), s, name) },
	}
	cmd.Flags().StringVar(&name, "context", "", "only the cluster of this `context`")
	return cmd
}

func restoreClusters(ctx context.Context, s output.Streams, name string) error {
	all, err := existing.LeftBehind()
	if err != nil {
		return exit.With(exit.CannotRun, err)
	}
	found := false
	var errs []error
	for _, left := range all {
		if name != "" && left.Context() != name {
			continue
		}
		found = true
		what := fmt.Sprintf("context %s, namespaces %s", left.Context(), strings.Join(left.Namespaces(), ", "))
		config := left.Config()
		config.Progress = func(text string) { fmt.Fprintln(s.Err, text) }
		switch err := existing.Restore(ctx, config); {
		case errors.As(err, new(*existing.InUseError)):
			fmt.Fprintf(s.Err, "%s: %v\n", what, err)
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		default:
			fmt.Fprintf(s.Out, "%s: restored\n", what)
		}
	}
	if !found {
		fmt.Fprintln(s.Err, "no run has left anything behind")
	}
	if len(errs) > 0 {
		return exit.With(exit.CannotRun, errors.Join(errs...))
	}
	return nil
}
