package main

import (
	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/internal/run"
)

// subcommands lists the subcommands.
func subcommands(s streams) []*cobra.Command {
	return []*cobra.Command{
		newInitCommand(s),
		newInjectorCommand(),
		newDisruptionControllersCommand(),
		newRunCommand(s),
		newTestCommand(s),
		newWorkerCommand(s),
		newLearnCommand(s),
		newGenerateCommand(s),
		newListCommand(s),
		newProposeCommand(s),
		newShrinkCommand(s),
		newBuildCommand(s),
		newClusterCommand(s),
		newCacheCommand(s),
		newCycleCommand(s),
		newValidateCommand(s),
		newExplainCommand(s),
		newGraphCommand(s),
		newConvertCommand(s),
		newSchemaCommand(s),
		newReproCommand(s),
		newDiffCommand(s),
		newReplayCommand(s),
		newReportCommand(s),
		newVersionCommand(s),
		newReleaseCommand(s),
		newManCommand(s),
	}
}

// version returns the module version that `go install` recorded in the binary.
func version() string { return run.Version() }
