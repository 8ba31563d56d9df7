package main

import (
	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/plan"
)

func newSchemaCommand(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "schema plan|suite",
		Short: "Print the JSON Schema of plans or suites",
		Long: `Schema prints a JSON Schema (2020-12) with which editors complete and check plan and suite files. In
VS Code, for example, save it and begin a plan with the line

  # yaml-language-server: $schema=./plan.schema.json`,
		Example:   "  trommel schema plan > plan.schema.json",
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"plan", "suite"},
		RunE: func(_ *cobra.Command, args []string) error {
			text := plan.PlanJSONSchema
			if args[0] == "suite" {
				text = plan.SuiteJSONSchema
			}
			_, err := s.out.Write(text)
			return err
		},
	}
}
