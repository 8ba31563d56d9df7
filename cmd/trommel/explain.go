package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/plan"
)

func newExplainCommand(s streams) *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:     "explain -p plan.yaml",
		Short:   "Say in plain sentences what a plan does",
		Long:    `Explain says for each action which process is stopped, killed or moved, where, and until when.`,
		Example: "  trommel explain -p plan.yaml",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
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
