// The command trommel-chaos runs the controllers of disruptions.
package main

import (
	"os"

	inject "github.com/trommel-dev/trommel/chaos/inject/cli"
	"github.com/trommel-dev/trommel/chaos/manager/cli"
)

func main() {
	injector := inject.NewCommand()
	command := cli.NewCommand(injector.Name())
	command.AddCommand(injector)
	if err := command.Execute(); err != nil {
		os.Exit(1)
	}
}
