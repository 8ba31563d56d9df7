// Package command is the command that runs the controllers of node cycling, for any set of providers.
package command

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/trommel-dev/trommel/internal/controllers"
	"github.com/trommel-dev/trommel/internal/notify"
	"github.com/trommel-dev/trommel/nodes/controller/calls"
	"github.com/trommel-dev/trommel/nodes/controller/manager"
	"github.com/trommel-dev/trommel/nodes/provider"
)

// Provider is a provider that the command can use.
type Provider struct {
	// New makes it. The manager's client can be used once the manager runs.
	New func(ctrl.Manager) (provider.Provider, error)
	// Flags adds flags of its own; nil: none.
	Flags func(*cobra.Command)
	// Add adds a controller that the provider itself needs; nil: none.
	Add func(ctrl.Manager) error
}

// New makes the command. The providers are known by their names; there must be at least one.
func New(providers map[string]Provider) *cobra.Command {
	names := slices.Sorted(maps.Keys(providers))
	var o manager.Options
	var name string
	var namespaces []string
	var passed notify.Flags
	limits := calls.Options{Registerer: metrics.Registry}
	cmd := controllers.Command(&cobra.Command{
		Use:   "trommel-nodes",
		Short: "Run the controllers of node cycling (nodes.trommel.dev)",
		Example: fmt.Sprintf(`  trommel-nodes --provider %[1]s --leader-elect --metrics=:8080
  trommel-nodes --provider %[1]s --namespaces ops --kubeconfig ~/.kube/config`, names[0]),
		PreRunE: func(*cobra.Command, []string) error {
			if _, ok := providers[name]; !ok {
				return fmt.Errorf("unknown provider %q (known: %s)", name, strings.Join(names, ", "))
			}
			return nil
		},
	}, &o.Options, func(to *rest.Config, log logr.Logger) (_ ctrl.Manager, err error) {
		if o.Namespaces, err = served(namespaces, ownNamespace); err != nil {
			return nil, err
		}
		if o.Notify, err = passed.Options(); err != nil {
			return nil, err
		}
		o.Logger, o.Add = log, providers[name].Add
		o.Provider = func(mgr ctrl.Manager) (provider.Provider, error) {
			made, err := providers[name].New(mgr)
			if err != nil {
				return nil, err
			}
			return calls.Wrap(made, limits)
		}
		return manager.New(to, o)
	})
	f := cmd.Flags()
	f.StringVar(&name, "provider", names[0], "provider of the nodes: "+strings.Join(names, ", "))
	f.Float64Var(&limits.QPS, "provider-qps", 10, "largest number of calls of the provider per second")
	f.IntVar(&limits.Burst, "provider-burst", 20, "calls of the provider that may be made at once")
	f.DurationVar(&limits.Timeout, "provider-timeout", time.Minute, "limit of one call of the provider")
	f.StringSliceVar(&namespaces, "namespaces", nil,
		"namespaces whose requests are carried out; *: all (default: the pod's)")
	f.StringSliceVar(&o.CheckEndpoints, "check-endpoints", nil,
		"URLs that checks may ask, with all below them, beside the nodes and pods; *: all (default: none)")
	f.BoolVar(&o.Observe, "observe", false, "watch the groups of NodeGroups for instances that are out of date")
	passed.Register(f)
	f.StringVar(&o.Namespace, "lease-namespace", "", "namespace of the lease (default: the pod's)")
	l, d := &o.Limits, o.Limits.WithDefaults()
	f.DurationVar(&l.Equilibrium, "equilibrium-timeout", d.Equilibrium,
		"how long the provider's instances and the nodes may differ before a request begins")
	f.DurationVar(&l.ScaleUp, "scale-up-timeout", d.ScaleUp, "how long the replacements of nodes may take")
	f.DurationVar(&l.Cycling, "cycling-timeout", d.Cycling,
		"how long waiting for pods and draining may take, unless the request says it")
	f.DurationVar(&l.Termination, "termination-timeout", d.Termination,
		"how long the deletion of a Node and the end of an instance may take")
	f.DurationVar(&l.Healing, "healing-timeout", d.Healing, "how long healing may fail before a request is Failed")
	f.DurationVar(&l.Poll, "poll", d.Poll, "time between two looks at what does not tell its changes")
	f.DurationVar(&l.OrphanAge, "orphan-age", d.OrphanAge,
		"how long a Node without an instance must not have been Ready before it is deleted")
	f.IntVar(&l.Share, "share", d.Share, "largest part of a group, in percent, that a request deletes or terminates "+
		"because provider and Kubernetes do not agree; one node it always may")
	f.DurationVar(&l.Observe, "observe-every", d.Observe, "time between two looks at the groups of NodeGroups")
	f.DurationVar(&l.CheckTimeout, "check-timeout", d.CheckTimeout, "limit of one HTTP request of a check")
	for _, name := range names {
		if add := providers[name].Flags; add != nil {
			add(cmd)
		}
	}
	return cmd
}

// ownNamespace is where a pod finds its namespace.
const ownNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// served are the namespaces that a flag names, or else the pod's own; empty: all.
func served(named []string, own string) ([]string, error) {
	switch {
	case slices.Equal(named, []string{"*"}):
		return nil, nil
	case slices.Contains(named, "*"):
		return nil, fmt.Errorf("--namespaces %s: * means all of them", strings.Join(named, ","))
	case len(named) > 0:
		return named, nil
	}
	data, err := os.ReadFile(own)
	if err != nil {
		return nil, errors.New("outside of a pod, say whose requests are carried out: --namespaces NAMESPACE, or * " +
			"for those of all namespaces")
	}
	return []string{strings.TrimSpace(string(data))}, nil
}
