package plans

import (
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/internal/report"
	"github.com/trommel-dev/trommel/internal/report/display"
	"github.com/trommel-dev/trommel/plan"
)

// NewSchemaCommand returns `trommel schema`.
func NewSchemaCommand(s output.Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "schema plan|suite|runs|events",
		Short: "Print the JSON Schema of plans, suites, results or events",
		Long: `Schema prints a JSON Schema (2020-12) with which editors complete and check plan and suite files. In
VS Code with the YAML extension, for example, they take the schema from the first line of the files that "trommel init"
and other commands write. Where the network is not to be used, save the schema and begin a plan with the line

  # yaml-language-server: $schema=./plan.schema.json

The schema of runs is that of the JSON which "trommel run --json" and "trommel report -o json" write, the schema of
events that of each line which --events writes.`,
		Example:   "  trommel schema plan > plan.schema.json",
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: slices.Sorted(maps.Keys(schemas)),
		RunE: func(_ *cobra.Command, args []string) error {
			_, err := s.Out.Write(schemas[args[0]])
			return err
		},
	}
}

var schemas = map[string][]byte{
	"plan": plan.PlanJSONSchema, "suite": plan.SuiteJSONSchema, "runs": report.RunsJSONSchema,
	"events": display.EventJSONSchema,
}
