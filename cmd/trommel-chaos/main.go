// The command trommel-chaos runs the controllers of disruptions.
package main

import (
	"os"

	"github.com/trommel-dev/trommel/chaos/command/controllers"
	inject "github.com/trommel-dev/trommel/chaos/command/injector"
)

func main() {
	injector := inject.NewCommand()
	command := controllers.NewCommand(injector.Name())
	command.AddCommand(injector)
	if err := command.Execute(); err != nil {
		os.Exit(1)
	}
}
