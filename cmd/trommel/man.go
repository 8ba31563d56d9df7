package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/internal/buildinfo"
)

func newManCommand(s output.Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages to a directory",
		Long:  "Man writes a manual page for each command to a directory, which it makes.",
		Example: `  trommel man ~/.local/share/man/man1
  man trommel-run`,
		Args:   cobra.ExactArgs(1),
		Hidden: true, // for those who package Trommel
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return exit.With(exit.Usage, err)
			}
			root := c.Root()
			root.DisableAutoGenTag = true
			header := &doc.GenManHeader{Section: "1", Source: "Trommel " + buildinfo.Version(), Manual: "Trommel"}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return exit.With(exit.CannotRun, err)
			}
			fmt.Fprintln(s.Out, args[0])
			return nil
		},
	}
}
