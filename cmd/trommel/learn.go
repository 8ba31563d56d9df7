package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/internal/campaign"
)

func newLearnCommand(s output.Streams) *cobra.Command {
	o := testOptions{learnOnly: true}
	o.Repeat = 1
	c := &cobra.Command{
		Use:   "learn [-c trommel.yaml]",
		Short: "Learn what workloads do without faults",
		Long: `Learn runs each of the suite's workloads without faults and writes its baseline: the end state, what
changed and who changed it, and the fields that never count because they differ anyway, in a file to edit. Runs with
faults are compared with it.

A baseline that is there is kept, unless the suite, a controller, the control plane, Trommel or --runs has changed
since. "trommel test" and "trommel generate" use the same baselines, and learn those that are missing.

Exit codes: 0 all learned, 2 usage, 4 a workload could not be learned or ends differently each time.`,
		Example: `  trommel learn
  trommel learn -c database-operator --workload recreate --anew`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return learnAll(c.Context(), s, &o) },
	}
	o.register(c)
	c.Flags().BoolVar(&o.anew, "anew", false, "learn also what has not changed")
	return c
}

func learnAll(ctx context.Context, s output.Streams, o *testOptions) error {
	console, s, err := o.progress.Open(s)
	if err != nil {
		return err
	}
	defer console.Close()
	return o.inSession(ctx, console, "learn", func(config campaign.Config) error {
		all, err := campaign.Learn(ctx, config)
		if err != nil {
			return err
		}
		failed := false
		for _, l := range all {
			fmt.Fprint(s.Out, l.Text())
			failed = failed || l.Err != nil
		}
		if failed {
			return exit.With(exit.CannotRun, nil)
		}
		return nil
	})
}
