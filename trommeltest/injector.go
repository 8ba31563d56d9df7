package trommeltest

import (
	"context"
	"os"

	"github.com/trommel-dev/trommel/chaos/command/injector"
)

// injectorArg, as the first argument, makes the executable of the tests an injector. Plans with the action disrupt
// start one on the process node, and there is no other executable that is sure to be there.
const injectorArg = "trommeltest-injector"

func init() {
	if len(os.Args) > 1 && os.Args[1] == injectorArg {
		os.Exit(injector.Run(context.Background(), os.Args[2:])) //nolint:forbidigo // this process is not a test
	}
}

// injectorCommand is the command of the injector. It is empty if the program cannot find itself; a plan with a
// disruption then says that it has no injector.
func injectorCommand() []string {
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	return []string{self, injectorArg}
}
