// The command trommel-chaos-parent is trommel-chaos with Helm: with --mode=parent it installs the controllers of
// RemoteClusters with spec.install.
package main

import (
	"fmt"
	"os"

	"github.com/trommel-dev/trommel/chaos/command/controllers"
	inject "github.com/trommel-dev/trommel/chaos/command/injector"
	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/chaos/controller/manager"
	"github.com/trommel-dev/trommel/chaos/helm"
)

func main() {
	installer, err := helm.New()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
	injector := inject.NewCommand()
	command := controllers.NewCommand(injector.Name(), func(o *manager.Options) {
		if o.Mode == controller.ModeParent {
			o.Remote.Installer = installer
		}
	})
	command.Use = "trommel-chaos-parent"
	command.AddCommand(injector)
	if err := command.Execute(); err != nil {
		os.Exit(1)
	}
}
