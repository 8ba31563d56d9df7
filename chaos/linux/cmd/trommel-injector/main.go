// Command trommel-injector is the injector for images: it also injects faults into pods of real nodes.
package main

import (
	"context"
	"os"

	"github.com/trommel-dev/trommel/chaos/command/injector"
	"github.com/trommel-dev/trommel/chaos/linux"
)

func main() {
	if code, isHelper := linux.Helper(os.Args); isHelper {
		os.Exit(code)
	}
	os.Exit(injector.Run(context.Background(), os.Args[1:], linux.FromEnvironment()))
}
