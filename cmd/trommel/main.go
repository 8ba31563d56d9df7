// Command trommel runs declarative test plans against Kubernetes controllers.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/completion"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal starts a teardown, a second one exits at once; the program's processes exit with it.
	context.AfterFunc(ctx, stop)
	code := withoutKustomize(func(s output.Streams) int { return execute(ctx, os.Args[1:], s) })
	stop()
	os.Exit(code)
}

// discardLogs drops log messages of client-go. They are not for the user, above all those while a plan kills API
// servers. It sets klog's logger only once: klog does not protect it, and requests of other goroutines read it.
var discardLogs = sync.OnceFunc(func() { klog.SetLogger(logr.Discard()) })

// execute runs the program and returns its exit code.
func execute(ctx context.Context, args []string, s output.Streams) int {
	discardLogs()
	root := newRootCommand(s)
	root.SetArgs(args)
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exit.Pass
	}
	var ee *exit.Error
	if !errors.As(err, &ee) {
		// Errors of cobra itself are usage errors.
		ee = &exit.Error{Code: exit.Usage, Err: err}
	}
	if ee.Err != nil {
		fmt.Fprintf(s.Err, "trommel: %v\n", ee.Err)
	}
	return ee.Code
}

// today returns the present name of a flag. Former names work for one more version.
func today(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	if name == "reference" {
		name = "baseline"
	}
	return pflag.NormalizedName(name)
}

func newRootCommand(s output.Streams) *cobra.Command {
	var o runOptions
	root := &cobra.Command{
		Use:   "trommel -p plan.yaml",
		Short: "Test Kubernetes controllers with faults at exact moments",
		Long: `Trommel runs declarative test plans against Kubernetes controllers: "when the API server has seen this
and the controller has not yet done that, pause, kill, restart, reconnect". It needs Go, but neither Docker nor root.

trommel -p plan.yaml is short for trommel run -p plan.yaml.`,
		Example:       "  trommel -p plans/stale-deletion.yaml",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().NFlag() == 0 {
				return c.Help()
			}
			return runPlans(c.Context(), s, &o)
		},
	}
	root.SetGlobalNormalizationFunc(today)
	o.register(root)
	root.AddCommand(subcommands(s)...)
	completion.Register(root)
	return root
}
