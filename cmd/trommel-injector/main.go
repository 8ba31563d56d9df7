// Command trommel-injector injects one kind of fault of a Disruption into one target, and removes it again. It knows
// the process node and simulated nodes; the one in the module chaos/linux knows real nodes too.
package main

import (
	"context"
	"os"

	"github.com/trommel-dev/trommel/chaos/command/injector"
)

func main() { os.Exit(injector.Run(context.Background(), os.Args[1:])) }
