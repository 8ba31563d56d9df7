// Package injector is the injector's command line.
package injector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/inject"
	"github.com/trommel-dev/trommel/chaos/inject/fault"
	"github.com/trommel-dev/trommel/chaos/inject/processnode"
	"github.com/trommel-dev/trommel/chaos/inject/simulated"
	"github.com/trommel-dev/trommel/chaos/kinds"
)

const (
	// DefaultReadyFile exists while the fault is in effect.
	DefaultReadyFile = "/tmp/readiness_probe"
	// DefaultJournal is the directory that controllers name by default.
	DefaultJournal = "/var/lib/trommel-chaos"
)

// NewCommand returns the command injector, to be run by itself or below another one. real, if there is one, is the
// backend for real nodes: without it their faults are unsupported.
func NewCommand(real ...inject.Backend) *cobra.Command {
	backends := append([]inject.Backend{simulated.New(apiServer), processnode.New(os.Getenv(fault.EnvSocket))}, real...)
	root := &cobra.Command{
		Use:   "injector",
		Short: "Inject one kind of fault into one target, and remove it again",
		Long: "An injector injects one kind of fault of a Disruption into one target. It runs in a chaos pod on the " +
			`target's
node. It removes the fault when it gets SIGTERM or SIGINT, or when the duration is over.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newInject(backends), newClean(backends), newReady())
	return root
}

func newInject(backends []inject.Backend) *cobra.Command {
	var o struct {
		request                        inject.Request
		spec, disruptionUID, targetUID string
		endsAt                         string
		duration, grace                time.Duration
		dryRun                         bool
		journal, ready, state          string
	}
	c := &cobra.Command{
		Use:   "inject KIND",
		Short: "Inject a fault until a signal comes or the duration is over",
		Example: `  injector inject apiFault --spec '{"verbs": ["update"], "delay": "3s"}' ` +
			`--disruption default/slow-api \
    --disruption-uid 1b4e28ba --target-namespace default --target-pod my-operator-0 --target-uid 9f3c7c1e \
    --target-node process-node --duration 1m --journal /var/lib/trommel`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGTERM, os.Interrupt)
			defer stop()
			o.request.Kind, o.request.Spec = v1alpha1.Kind(args[0]), json.RawMessage(o.spec)
			o.request.DisruptionUID, o.request.Target.UID = types.UID(o.disruptionUID), types.UID(o.targetUID)
			o.request.EndsAt = time.Now().Add(o.duration)
			if o.endsAt != "" {
				var err error
				if o.request.EndsAt, err = time.Parse(time.RFC3339, o.endsAt); err != nil {
					return fmt.Errorf("--ends-at: %w", err)
				}
			}
			config := inject.Config{
				Request: o.request, Backends: backends, Backend: choose(backends, o.request), Journal: o.journal,
				ReadyFile: o.ready, StateFile: o.state, DryRun: o.dryRun, Grace: o.grace,
				Logger: logger(c),
			}
			return inject.Run(ctx, config)
		},
	}
	f := c.Flags()
	f.StringVar(&o.spec, "spec", "{}", "the kind's fields as JSON")
	f.StringVar(&o.request.Disruption, "disruption", "", "namespace and name of the disruption, with a slash")
	f.StringVar(&o.disruptionUID, "disruption-uid", "", "UID of the disruption")
	f.StringVar(&o.request.Target.Namespace, "target-namespace", "", "namespace of the target pod")
	f.StringVar(&o.request.Target.Pod, "target-pod", "", "name of the target pod")
	f.BoolVar(&o.request.Target.NodeLevel, "target-node-level", false, "the target is the node itself")
	f.StringVar(&o.targetUID, "target-uid", "", "UID of the target")
	f.StringVar(&o.request.Target.Node, "target-node", "", "the target's node")
	f.StringArrayVar(&o.request.Target.Containers, "container", nil, "a container of the target pod; default: all")
	f.StringVar(&o.endsAt, "ends-at", "", "when the fault ends at the latest, such as 2026-01-02T03:04:05Z")
	f.DurationVar(&o.duration, "duration", 0, "time until the fault ends at the latest, from now on; for tries by "+
		"hand, since it begins anew when the injector is started again")
	f.DurationVar(&o.grace, "grace", time.Minute, "time for the clean-up, with all retries")
	f.BoolVar(&o.dryRun, "dry-run", false, "do everything but inject")
	f.StringVar(&o.journal, "journal", "", "directory with what must be undone")
	f.StringVar(&o.ready, "ready-file", DefaultReadyFile, "file that exists while the fault is in effect")
	f.StringVar(&o.state, "state-file", "", "file that gets the newest state, such as "+inject.DefaultStateFile)
	for _, required := range []string{"disruption", "disruption-uid", "target-uid", "target-node", "journal"} {
		if err := c.MarkFlagRequired(required); err != nil {
			panic(err) // a programming error
		}
	}
	c.MarkFlagsOneRequired("ends-at", "duration")
	c.MarkFlagsMutuallyExclusive("ends-at", "duration")
	c.MarkFlagsOneRequired("target-pod", "target-node-level")
	c.MarkFlagsMutuallyExclusive("target-pod", "target-node-level")
	return c
}

func newClean(backends []inject.Backend) *cobra.Command {
	var journal, id, ready string
	var every time.Duration
	c := &cobra.Command{
		Use:   "clean",
		Short: "Remove what dead injectors have left, according to their journal",
		Example: "  injector clean --journal " + DefaultJournal + `
  injector clean --journal ` + DefaultJournal + " --id 1b4e28ba.9f3c7c1e.network",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGTERM, os.Interrupt)
			defer stop()
			clean := func() (removed int, err error) {
				if id != "" {
					return inject.CleanOne(ctx, journal, id, backends, logger(c))
				}
				return inject.CleanAll(ctx, journal, backends, logger(c))
			}
			if every > 0 {
				return keepClean(ctx, every, ready, logger(c), clean)
			}
			removed, err := clean()
			fmt.Fprintf(c.OutOrStdout(), "removed: %d\n", removed)
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&journal, "journal", DefaultJournal, "directory with what must be undone")
	f.StringVar(&id, "id", "", "only this injection: the UIDs of disruption and target and the kind, with dots")
	f.DurationVar(&every, "every", 0, "clean again and again, with this time in between, until SIGTERM")
	f.StringVar(&ready, "ready-file", "", "with --every: file that exists while nothing is left")
	return c
}

// keepClean cleans until the context ends.
func keepClean(
	ctx context.Context, every time.Duration, readyFile string, log *slog.Logger, clean func() (int, error),
) error {
	for {
		removed, err := clean()
		if removed > 0 {
			log.Info("removed", "injections", removed)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			log.Error("clean", "error", err)
			err = os.Remove(readyFile)
		case readyFile != "":
			err = os.WriteFile(readyFile, nil, 0o644)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("say whether something is left: %w", err)
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return nil
		}
	}
}

func newReady() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:     "ready",
		Short:   "Succeed if the fault is in effect",
		Example: "  injector ready",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if _, err := os.Stat(file); err != nil {
				return errors.New("not ready")
			}
			return nil
		},
	}
	c.Flags().StringVar(&file, "ready-file", DefaultReadyFile, "file that exists while the fault is in effect")
	return c
}

func logger(c *cobra.Command) *slog.Logger {
	return slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil))
}

// choose returns the backend for a request: the process node's if there is one, which gives its pods the address of its
// socket, and otherwise the last one, which is for real nodes.
func choose(backends []inject.Backend, r inject.Request) string {
	switch {
	case kinds.Of(r.Kind).InAPI:
		return simulated.Name
	case os.Getenv(fault.EnvSocket) != "":
		return processnode.Name
	}
	return backends[len(backends)-1].Name()
}

// apiServer returns the way to the API server: KUBECONFIG, which the process node sets, or the pod's service account.
func apiServer() (*rest.Config, error) {
	if file := os.Getenv("KUBECONFIG"); file != "" {
		return clientcmd.BuildConfigFromFlags("", file)
	}
	return rest.InClusterConfig()
}

// Run runs the command of NewCommand as a program and returns its exit code.
func Run(ctx context.Context, args []string, real ...inject.Backend) int {
	c := NewCommand(real...)
	c.SetArgs(args)
	if err := c.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(c.ErrOrStderr(), "%s: %v\n", c.Name(), err)
		return 1
	}
	return 0
}
