// The command trommel-nodes runs the controllers of node cycling with the simulated provider. With that of AWS it is in
// the module nodes/aws.
package main

import (
	"os"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/trommel-dev/trommel/nodes/command"
	"github.com/trommel-dev/trommel/nodes/simulated"
)

func main() {
	var simulate bool
	cmd := command.New(map[string]command.Provider{
		simulated.Name: {
			New: simulated.For,
			Flags: func(cmd *cobra.Command) {
				cmd.Flags().BoolVar(&simulate, "simulate", false,
					"also run the simulated cloud, whose nodes are KWOK's")
			},
			Add: func(mgr ctrl.Manager) error {
				if !simulate {
					return nil
				}
				return simulated.Add(mgr, simulated.Options{})
			},
		},
	})
	if err := cmd.Execute(); err != nil {
		os.Exit(1)
	}
}
