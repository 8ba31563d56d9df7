package main

import (
	"fmt"
	"runtime"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/internal/buildinfo"
)

func newVersionCommand(s output.Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of everything",
		Long: "Version prints the versions of Trommel and of the Go that it was built with, of the protocol that " +
			`hooks speak, of
the control planes that it can build, which of them are built already and which it would download prebuilt, and of the
libraries whose controllers it can observe.`,
		Example: "  trommel version",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			planes, err := instrumentation.ControlPlanes()
			if err != nil {
				return exit.With(exit.CannotRun, err)
			}
			w := tabwriter.NewWriter(s.Out, 0, 0, 2, ' ', 0)
			fmt.Fprintf(w, "trommel\t%s\n", buildinfo.Version())
			fmt.Fprintf(w, "go\t%s %s/%s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH)
			fmt.Fprintf(w, "protocol\t%d\n", instrumentation.ProtocolVersion)
			for _, c := range planes {
				var notes string
				if c.Kubernetes == instrumentation.KubernetesVersion {
					notes += ", default"
				}
				if c.Built {
					notes += ", built"
				} else if c.Prebuilt {
					notes += ", prebuilt"
				}
				fmt.Fprintf(w, "kubernetes\t%s (etcd %s, KWOK %s%s)\n", c.Kubernetes, c.Etcd, c.KWOK, notes)
			}
			clientGo, controllerRuntime, newest := instrumentation.Observable()
			fmt.Fprintf(w, "client-go\t%s to %s\n", clientGo, newest)
			fmt.Fprintf(w, "controller-runtime\t%s or newer\n", controllerRuntime)
			return w.Flush()
		},
	}
}
