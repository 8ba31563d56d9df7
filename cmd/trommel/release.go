package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/internal/atomicfile"
)

// releasePlatforms are those for which a release has control planes.
var releasePlatforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64"}

// newReleaseCommand is for the workflow that releases Trommel.
func newReleaseCommand(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:    "release",
		Short:  "Prepare a release of Trommel",
		Hidden: true,
	}
	cmd.AddCommand(newReleaseControlPlaneCommand(s), newReleaseIndexCommand(s))
	return cmd
}

func newReleaseControlPlaneCommand(s streams) *cobra.Command {
	var (
		out       string
		versions  []string
		platforms []string
		show      progressOptions
	)
	cmd := &cobra.Command{
		Use:   "controlplane --out DIR",
		Short: "Build control planes, and write each into an archive",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			console, s, err := show.open(s)
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
						return &exitError{exitCannotRun, err}
					}
					fmt.Fprintln(s.out, packed)
				}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&out, "out", "", "`directory` for the archives")
	f.StringSliceVar(&versions, "kubernetes-version", instrumentation.KubernetesVersions(), "versions to build")
	f.StringSliceVar(&platforms, "platform", releasePlatforms, "platforms to build for")
	show.register(f)
	_ = cmd.MarkFlagRequired("out")
	return cmd
}

func newReleaseIndexCommand(s streams) *cobra.Command {
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
				return &exitError{exitCannotRun, err}
			}
			if out == "-" {
				_, err = s.out.Write(index)
			} else {
				err = atomicfile.Write(out, index, 0o644)
			}
			if err != nil {
				return &exitError{exitCannotRun, err}
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
