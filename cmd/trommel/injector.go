package main

import (
	"os"

	"github.com/spf13/cobra"

	controllers "github.com/trommel-dev/trommel/chaos/command/controllers"
	"github.com/trommel-dev/trommel/chaos/command/injector"
)

// newInjectorCommand is for chaos pods on the process node, which must not need another program to be built.
func newInjectorCommand() *cobra.Command {
	c := injector.NewCommand()
	c.Hidden = true
	for _, sub := range c.Commands() {
		run := sub.RunE
		sub.RunE = func(c *cobra.Command, args []string) error {
			if err := run(c, args); err != nil {
				return &exitError{code: 1, err: err} // as the injector of images
			}
			return nil
		}
	}
	return c
}

// newDisruptionControllersCommand is for suites that install the controllers of disruptions, for the same reason.
func newDisruptionControllersCommand() *cobra.Command {
	c := controllers.NewCommand(injectorName)
	c.Use, c.Example, c.Hidden = controllersName, "", true
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := run(c, args); err != nil {
			return &exitError{code: 1, err: err} // as cmd/trommel-chaos
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

// disruptionControllersCommand runs this program as the controllers of disruptions; as injectorCommand.
func disruptionControllersCommand() []string {
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	return []string{self, controllersName}
}

// injectorCommand runs this program as an injector. It is empty if the program cannot find itself; a plan with a
// disruption then says that it has no injector.
func injectorCommand() []string {
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	return []string{self, injectorName}
}
