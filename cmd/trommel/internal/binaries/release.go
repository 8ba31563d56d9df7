package binaries

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/internal/atomicfile"
)

// releasePlatforms are those for which a release has control planes.
var releasePlatforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64"}

// NewReleaseCommand returns `trommel release`, which is for the workflow that releases Trommel.
func NewReleaseCommand(s output.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:    "release",
		Short:  "Prepare a release of Trommel",
		Hidden: true,
	}
	cmd.AddCommand(newReleaseControlPlaneCommand(s), newReleaseIndexCommand(s))
	return cmd
}

func newReleaseControlPlaneCommand(s output.Streams) *cobra.Command {
	var (
		out       string
		versions  []string
		platforms []string
		show      output.Flags
	)
	cmd := &cobra.Command{
		Use:   "controlplane --out DIR",
		Short: "Build control planes, and write each into an archive",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			console, s, err := show.Open(s)
			if err != nil {
				return err
			}
			defer console.Close()
			for _, platform := range platforms {
				for _, version := range versions {
					packed, err := instrumentation.PackControlPlane(cmd.Context(), instrumentation.ControlPlaneConfig{
						KubernetesVersion: version, Platform: platform, Notice: console.Info,
						Progress: func(text string) { console.Build(version+" "+platform, text) },
					}, out)
					console.Built()
					if err != nil {
						return exit.With(exit.CannotRun, err)
					}
					fmt.Fprintln(s.Out, packed)
				}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&out, "out", "", "`directory` for the archives")
	f.StringSliceVar(&versions, "kubernetes-version", instrumentation.KubernetesVersions(), "versions to build")
	f.StringSliceVar(&platforms, "platform", releasePlatforms, "platforms to build for")
	show.Register(f)
	_ = cmd.MarkFlagRequired("out")
	return cmd
}

func newReleaseIndexCommand(s output.Streams) *cobra.Command {
	var (
		out, release        string
		versions, platforms []string
	)
	cmd := &cobra.Command{
		Use:   "index --release VERSION DIR",
		Short: "Write the index of the archives in a directory, which a release's trommel contains",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			index, err := instrumentation.IndexControlPlanes(release, args[0], versions, platforms)
			if err != nil {
				return exit.With(exit.CannotRun, err)
			}
			if out == "-" {
				_, err = s.Out.Write(index)
			} else {
				err = atomicfile.Write(out, index, 0o644)
			}
			if err != nil {
				return exit.With(exit.CannotRun, err)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&release, "release", "", "`version` of the release, such as v0.1.0")
	f.StringVarP(&out, "output", "o", "instrumentation/prebuilt.json", "`file` to write; - is stdout")
	f.StringSliceVar(&versions, "kubernetes-version", instrumentation.KubernetesVersions(),
		"versions that there must be")
	f.StringSliceVar(&platforms, "platform", releasePlatforms, "platforms that there must be")
	_ = cmd.MarkFlagRequired("release")
	return cmd
}
