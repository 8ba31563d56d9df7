// Package disruptions has the hidden commands with which this program is an injector and the controllers of
// disruptions.
package disruptions

import (
	"os"

	"github.com/spf13/cobra"

	controllers "github.com/trommel-dev/trommel/chaos/command/controllers"
	"github.com/trommel-dev/trommel/chaos/command/injector"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
)

// NewInjectorCommand returns the command for chaos pods on the process node, which must not need another program to be
// built.
func NewInjectorCommand() *cobra.Command {
	c := injector.NewCommand()
	c.Hidden = true
	for _, sub := range c.Commands() {
		run := sub.RunE
		sub.RunE = func(c *cobra.Command, args []string) error {
			if err := run(c, args); err != nil {
				return exit.With(1, err) // as the injector of images
			}
			return nil
		}
	}
	return c
}

// NewControllersCommand returns the command for suites that install the controllers of disruptions. The reason is the
// same.
func NewControllersCommand() *cobra.Command {
	c := controllers.NewCommand(injectorName)
	c.Use, c.Example, c.Hidden = controllersName, "", true
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := run(c, args); err != nil {
			return exit.With(1, err) // as cmd/trommel-chaos
		}
		return nil
	}
	return c
}

// Hidden subcommands.
const (
	injectorName    = "injector"
	controllersName = "disruption-controllers"
)

// Controllers runs this program as the controllers of disruptions; as [Injector].
func Controllers() []string {
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	return []string{self, controllersName}
}

// Injector runs this program as an injector. It is empty if the program cannot find itself; a plan with a
// disruption then says that it has no injector.
func Injector() []string {
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	return []string{self, injectorName}
}
