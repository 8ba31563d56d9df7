package main

import (
	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/binaries"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/clusters"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/cycle"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/disruptions"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/list"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/plans"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/records"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/workers"
)

// subcommands lists the subcommands.
func subcommands(s output.Streams) []*cobra.Command {
	return []*cobra.Command{
		plans.NewInitCommand(s),
		disruptions.NewInjectorCommand(),
		disruptions.NewControllersCommand(),
		newRunCommand(s),
		newTestCommand(s),
		workers.NewCommand(s),
		newLearnCommand(s),
		newGenerateCommand(s),
		list.NewCommand(s),
		newProposeCommand(s),
		newShrinkCommand(s),
		newVerifyCommand(s),
		newBugsCommand(s),
		binaries.NewBuildCommand(s),
		clusters.NewCommand(s),
		binaries.NewCacheCommand(s),
		cycle.NewCommand(s),
		plans.NewValidateCommand(s),
		plans.NewExplainCommand(s),
		plans.NewGraphCommand(s),
		plans.NewConvertCommand(s),
		plans.NewSchemaCommand(s),
		newReproCommand(s),
		records.NewDiffCommand(s),
		records.NewReplayCommand(s),
		records.NewReportCommand(s),
		newVersionCommand(s),
		binaries.NewReleaseCommand(s),
		newManCommand(s),
	}
}
