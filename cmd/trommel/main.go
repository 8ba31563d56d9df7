// Command trommel runs declarative test plans against Kubernetes controllers.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
)

// Exit codes, as the design fixes them.
const (
	exitPass         = 0
	exitBug          = 1
	exitUsage        = 2 // bad plan or usage
	exitInconclusive = 3
	exitCannotRun    = 4
)

// streams are what a command reads and writes: results go to out, progress to err.
type streams struct {
	in  io.Reader
	out io.Writer
	err io.Writer
}

// exitError carries an exit code to main. A nil err exits without a further message.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks for a teardown, a second one ends the program at once; its processes die with it.
	context.AfterFunc(ctx, stop)
	code := execute(ctx, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr})
	stop()
	os.Exit(code)
}

// execute is the whole program; it returns the exit code.
func execute(ctx context.Context, args []string, s streams) int {
	// What client-go has to say, above all while the plan kills API servers, is not for the user of a test tool.
	klog.SetLogger(logr.Discard())
	root := newRootCommand(s)
	root.SetArgs(args)
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitPass
	}
	var ee *exitError
	if !errors.As(err, &ee) {
		// Whatever cobra itself objects to is a matter of usage.
		ee = &exitError{code: exitUsage, err: err}
	}
	if ee.err != nil {
		fmt.Fprintf(s.err, "trommel: %v\n", ee.err)
	}
	return ee.code
}

func newRootCommand(s streams) *cobra.Command {
	var o runOptions
	root := &cobra.Command{
		Use:   "trommel -p plan.yaml",
		Short: "Tumble Kubernetes controllers through faults at exact moments",
		Long: `Trommel runs declarative test plans against Kubernetes controllers: "when the API server has seen this and the controller
has not yet done that, pause, kill, restart, reconnect". It needs Go, and neither Docker nor root.

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
	o.register(root)
	root.AddCommand(subcommands(s)...)
	return root
}
