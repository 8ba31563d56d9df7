// Package binaries has the commands about what is built: build, cache and release.
package binaries

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/flags"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/internal/cluster/kind"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/internal/run/builds"
	"github.com/trommel-dev/trommel/internal/run/preflight"
	"github.com/trommel-dev/trommel/plan"
)

// buildOptions are the flags of `trommel build`.
type buildOptions struct {
	config       instrumentation.BuildConfig // of the controller that the arguments name
	controller   string
	variant      string
	controlPlane bool
	kubernetes   string
	explain      bool
	kindNode     bool
	show         output.Flags
}

// NewBuildCommand returns `trommel build`.
func NewBuildCommand(s output.Streams) *cobra.Command {
	var o buildOptions
	cmd := &cobra.Command{
		Use:   "build [-c trommel.yaml | directory [package]]",
		Short: "Build controllers, another program, or the control plane, with hooks",
		Long: `Build a controller with hooks at all observation points. Its source, go.mod and go.sum stay as they
are.

With -c it builds the controllers of a suite, as a run would, and prints the path of each. Otherwise the directory is
one in the controller's module (default: the working directory). The package is its main package, relative to the
directory (default: the directory itself).

A program need not be a controller. Of one that does not use client-go nothing is observed, but in a pod on the process
node it finds the pod's files, address and names, and faults of files, connections and names reach it.`,
		Example: `  trommel build -c database-operator
  trommel build -o bin/manager ../my-operator ./cmd/manager
  trommel build --explain ../my-operator ./cmd/manager
  trommel build --control-plane -o bin/controlplane
  trommel build --control-plane --kubernetes-version 1.35
  trommel build --kind-node`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			console, s, err := o.show.Open(s)
			if err != nil {
				return err
			}
			defer console.Close()
			var results []*instrumentation.Result
			suite, err := o.suite(cmd.Flags(), args)
			switch {
			case err != nil:
				return exit.With(exit.Usage, err)
			case o.controlPlane || o.kindNode:
				if o.kindNode {
					if err := kind.CheckEngine(cmd.Context()); err != nil {
						return exit.With(exit.CannotRun, err)
					}
				}
				results = make([]*instrumentation.Result, 1)
				results[0], err = o.buildControlPlane(cmd.Context(), console)
			case suite != nil:
				results, err = o.buildSuite(cmd.Context(), console, suite)
			default:
				if len(args) > 0 {
					o.config.Dir = args[0]
				}
				if len(args) > 1 {
					o.config.Package = args[1]
				}
				o.config.AnyProgram = true
				o.config.Progress = func(text string) { console.Build("controller", text) }
				results = make([]*instrumentation.Result, 1)
				results[0], err = instrumentation.Build(cmd.Context(), o.config)
			}
			console.Built()
			if err != nil {
				var input *instrumentation.InputError
				if errors.As(err, &input) {
					return exit.With(exit.Usage, err)
				}
				return exit.With(exit.CannotRun, err)
			}
			if o.kindNode {
				image, err := kind.Prepare(cmd.Context(), results[0].Binary, console.Info)
				if err != nil {
					return exit.With(exit.CannotRun, err)
				}
				_, err = fmt.Fprintln(s.Out, image)
				return err
			}
			for _, result := range results {
				if o.explain {
					err = explainPoints(s.Out, result)
				} else {
					_, err = fmt.Fprintln(s.Out, result.Binary)
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	f := cmd.Flags()
	flags.Controller(f, &o.controller, "none, the arguments name what to build")
	f.StringVar(&o.variant, "variant", "", "`name` of a variant of the suite")
	f.StringVarP(&o.config.Output, "output", "o", "", "write the binary here (default: in the cache; "+
		"its path is printed)")
	f.StringSliceVar(&o.config.Tags, "tags", nil, "build tags")
	f.StringVar(&o.config.LDFlags, "ldflags", "", "flags for the linker, passed through")
	f.BoolVar(&o.controlPlane, "control-plane", false, "build the control plane instead of a controller; with -c "+
		"that of the suite")
	f.BoolVar(&o.kindNode, "kind-node", false, "make what clusters of type kind need, in the container engine and in "+
		"the cache; prints the name of the node's image")
	flags.KubernetesVersion(f, &o.kubernetes)
	o.show.Register(f)
	flags.FromSource(f)
	f.BoolVar(&o.explain, "explain", false, "list the points that were compiled in, with file and line")
	cmd.MarkFlagsMutuallyExclusive("kind-node", "output")
	cmd.MarkFlagsMutuallyExclusive("kind-node", "explain")
	return cmd
}

// suite checks the flags, and returns the suite that -c names, with its variant; nil: it names none.
func (o *buildOptions) suite(f *pflag.FlagSet, args []string) (suite *plan.Suite, err error) {
	cluster := o.controlPlane || o.kindNode
	switch {
	case cluster && len(args) > 0:
		return nil, errors.New("--control-plane and --kind-node take no directory")
	case cluster && (len(o.config.Tags) > 0 || o.config.LDFlags != ""):
		return nil, errors.New("--tags and --ldflags are for controllers, not for --control-plane")
	case !cluster && f.Changed("kubernetes-version"):
		return nil, errors.New("--kubernetes-version is for --control-plane")
	case o.controller == "" && o.variant != "":
		return nil, errors.New("--variant is one of the suite that -c names")
	case o.controller == "":
		return nil, nil
	case len(args) > 0:
		return nil, errors.New("-c names a suite, whose controllers are built; leave out the directory")
	case len(o.config.Tags) > 0 || o.config.LDFlags != "":
		return nil, errors.New("--tags and --ldflags are in the suite that -c names: tags and ldflags of its builds")
	}
	file, err := flags.NamedSuite(o.controller, "")
	if err == nil {
		suite, err = plan.LoadSuite(file)
	}
	if err == nil {
		suite, err = run.Choose(suite, o.variant)
	}
	if err != nil {
		return nil, err
	}
	if cluster && !f.Changed("kubernetes-version") {
		o.kubernetes = preflight.KubernetesOf(suite)
	}
	return suite, nil
}

func (o *buildOptions) buildControlPlane(
	ctx context.Context, console *output.Console,
) (*instrumentation.Result, error) {
	return instrumentation.BuildControlPlane(ctx, instrumentation.ControlPlaneConfig{
		KubernetesVersion: o.kubernetes, Output: o.config.Output,
		Progress: func(text string) { console.Build("control plane", text) }, Notice: console.Info,
	})
}

// buildSuite builds the controllers of a suite that are built from source.
func (o *buildOptions) buildSuite(
	ctx context.Context, console *output.Console, suite *plan.Suite,
) (all []*instrumentation.Result, err error) {
	var from []*plan.Controller
	for i := range suite.Controllers {
		switch c := &suite.Controllers[i]; {
		case c.Build == nil:
			console.Info(fmt.Sprintf("%s is not built: it is given by binary: %s", c.Name, c.Binary))
		case c.Build.ControlPlane != "":
			console.Info(fmt.Sprintf("%s is a part of the control plane, which --control-plane builds", c.Name))
		default:
			from = append(from, c)
		}
	}
	if o.config.Output != "" && len(from) != 1 {
		return nil, &instrumentation.InputError{Reason: fmt.Sprintf("-o is for one controller, and %s has %d to build",
			suite.File, len(from))}
	}
	for _, c := range from {
		config := builds.Config(suite, c)
		config.Output = o.config.Output
		config.Progress = func(text string) { console.Build(c.Name, text) }
		result, err := instrumentation.Build(ctx, config)
		if err != nil {
			return nil, fmt.Errorf("build controller %q: %w", c.Name, err)
		}
		all = append(all, result)
	}
	return all, nil
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
