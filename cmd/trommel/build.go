package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/internal/cluster/kind"
)

func newBuildCommand(s streams) *cobra.Command {
	var (
		config       instrumentation.BuildConfig
		controlPlane bool
		kubernetes   string
		explain      bool
		kindNode     bool
		show         progressOptions
	)
	cmd := &cobra.Command{
		Use:   "build [directory [package]]",
		Short: "Build a controller, another program, or the control plane, with hooks",
		Long: `Build a controller with hooks at all observation points. Its source, go.mod and go.sum stay as they
are.

The directory is one in the controller's module (default: the working directory). The package is its main package,
relative to the directory (default: the directory itself).

A program need not be a controller. Of one that does not use client-go nothing is observed, but in a pod on the process
node it finds the pod's files, address and names, and faults of files, connections and names reach it.`,
		Example: `  trommel build -o bin/manager ../my-operator ./cmd/manager
  trommel build --explain ../my-operator ./cmd/manager
  trommel build --control-plane -o bin/controlplane
  trommel build --control-plane --kubernetes-version 1.35
  trommel build --kind-node`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			console, s, err := show.open(s)
			if err != nil {
				return err
			}
			defer console.Close()
			config.Progress = func(text string) { console.Build("controller", text) }
			var result *instrumentation.Result
			if controlPlane || kindNode {
				if len(args) > 0 {
					return &exitError{exitUsage, errors.New("--control-plane and --kind-node take no directory")}
				}
				if len(config.Tags) > 0 || config.LDFlags != "" {
					return &exitError{exitUsage,
						errors.New("--tags and --ldflags are for controllers, not for --control-plane")}
				}
				if kindNode {
					if err := kind.CheckEngine(cmd.Context()); err != nil {
						return &exitError{exitCannotRun, err}
					}
				}
				result, err = instrumentation.BuildControlPlane(cmd.Context(), instrumentation.ControlPlaneConfig{
					KubernetesVersion: kubernetes, Output: config.Output,
					Progress: func(text string) { console.Build("control plane", text) }, Notice: console.Info,
				})
			} else {
				if cmd.Flags().Changed("kubernetes-version") {
					return &exitError{exitUsage, errors.New("--kubernetes-version is for --control-plane")}
				}
				if len(args) > 0 {
					config.Dir = args[0]
				}
				if len(args) > 1 {
					config.Package = args[1]
				}
				config.AnyProgram = true
				result, err = instrumentation.Build(cmd.Context(), config)
			}
			console.Built()
			if err != nil {
				var input *instrumentation.InputError
				if errors.As(err, &input) {
					return &exitError{exitUsage, err}
				}
				return &exitError{exitCannotRun, err}
			}
			if explain {
				return explainPoints(s.out, result)
			}
			if kindNode {
				image, err := kind.Prepare(cmd.Context(), result.Binary, console.Info)
				if err != nil {
					return &exitError{exitCannotRun, err}
				}
				_, err = fmt.Fprintln(s.out, image)
				return err
			}
			_, err = fmt.Fprintln(s.out, result.Binary)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVarP(&config.Output, "output", "o", "", "write the binary here (default: in the cache; "+
		"its path is printed)")
	f.StringSliceVar(&config.Tags, "tags", nil, "build tags")
	f.StringVar(&config.LDFlags, "ldflags", "", "flags for the linker, passed through")
	f.BoolVar(&controlPlane, "control-plane", false, "build the control plane instead of a controller")
	f.BoolVar(&kindNode, "kind-node", false, "make what clusters of type kind need, in the container engine and in "+
		"the cache; prints the name of the node's image")
	kubernetesVersionFlag(f, &kubernetes)
	show.register(f)
	fromSourceFlag(f)
	f.BoolVar(&explain, "explain", false, "list the points that were compiled in, with file and line")
	cmd.MarkFlagsMutuallyExclusive("kind-node", "output")
	cmd.MarkFlagsMutuallyExclusive("kind-node", "explain")
	return cmd
}

// kubernetesVersionFlag selects one of the control planes that can be built.
func kubernetesVersionFlag(f *pflag.FlagSet, version *string) {
	f.StringVar(version, "kubernetes-version", instrumentation.KubernetesVersion,
		"`version` of the control plane: "+strings.Join(instrumentation.KubernetesVersions(), ", ")+
			"; a minor version is enough")
}

// fromSourceFlag makes this process, and those that it starts, take no control plane from a release.
func fromSourceFlag(f *pflag.FlagSet) {
	f.BoolFunc("build", "build the control plane from source, even if the release has it", func(text string) error {
		on, err := strconv.ParseBool(text)
		if err != nil || !on {
			return err
		}
		return os.Setenv(instrumentation.EnvBuild, "1")
	})
}

// explainPoints lists what a build changed, and where.
func explainPoints(out io.Writer, result *instrumentation.Result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "POINT\tFUNCTION\tMODULE\tFILE")
	for _, p := range result.Points {
		what := string(p.Point)
		switch {
		case p.Name != "":
			what += " " + p.Name
		case what == "":
			what = "-"
		}
		function := p.Function
		if p.Receiver != "" {
			function = "(" + p.Receiver + ")." + function
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s:%d\n", what, function, strings.TrimSpace(p.Module+" "+p.Version), p.Path, p.Line)
	}
	fmt.Fprintf(w, "\nbinary: %s\n", result.Binary)
	return w.Flush()
}
