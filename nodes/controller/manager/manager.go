// Package manager puts the controllers of node cycling together in one process.
package manager

import (
	"fmt"
	"os"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/clock/kube"
	"github.com/trommel-dev/trommel/internal/controllers"
	"github.com/trommel-dev/trommel/internal/notify"
	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
	"github.com/trommel-dev/trommel/nodes/controller"
	"github.com/trommel-dev/trommel/nodes/controller/checks"
	"github.com/trommel-dev/trommel/nodes/controller/observe"
	"github.com/trommel-dev/trommel/nodes/controller/protection"
	"github.com/trommel-dev/trommel/nodes/controller/request"
	"github.com/trommel-dev/trommel/nodes/controller/status"
	"github.com/trommel-dev/trommel/nodes/provider"
)

// Options of a manager.
type Options struct {
	// Provider makes the provider of the machines; the manager's client can be used by it once the manager runs.
	Provider func(ctrl.Manager) (provider.Provider, error)
	// Limits are how long the controllers wait for what.
	Limits controller.Limits
	// Namespaces whose requests the manager carries out; empty: those of all namespaces.
	Namespaces []string
	// CheckEndpoints are URLs that checks may ask, with all below them, beside nodes and pods; "*": all. The
	// controllers ask them, with what they can reach.
	CheckEndpoints []string
	// Observe adds the controller of NodeGroups.
	Observe bool
	// Notify passes events on; nil: it does not.
	Notify *notify.Options
	// Namespace of the lease; needed only for LeaderElection outside of a cluster.
	Namespace string
	controllers.Options
	Logger logr.Logger
	// Clock is the run's, if the manager belongs to one; nil: the machine's.
	Clock *clock.Clock
	// Add adds something else to the manager, such as the simulated provider's own controller.
	Add func(ctrl.Manager) error
}

// New makes a manager with all controllers. Its Start blocks until the context ends.
func New(to *rest.Config, o Options) (ctrl.Manager, error) {
	cycles := cache.ByObject{}
	if len(o.Namespaces) > 0 {
		cycles.Namespaces = map[string]cache.Config{}
	}
	for _, namespace := range o.Namespaces {
		cycles.Namespaces[namespace] = cache.Config{}
	}
	objects := map[client.Object]cache.ByObject{
		// Pods only wake the controllers; those of a whole cluster would need much memory.
		&corev1.Pod{}: {Transform: onlyPlace}, &nodes.CycleNodeRequest{}: cycles, &nodes.CycleNodeStatus{}: cycles,
	}
	if o.Observe { // otherwise the cluster need not have the definition
		objects[&nodes.NodeGroup{}] = cycles
	}
	return controllers.New(to, o.Options, ctrl.Options{
		Logger: o.Logger, Controller: config.Controller{MaxConcurrentReconciles: 8},
		LeaderElectionID: "cycling.nodes.trommel.dev", LeaderElectionNamespace: o.Namespace,
		Cache: cache.Options{ByObject: objects},
	}, nodes.AddToScheme, o.add)
}

func (o *Options) add(mgr ctrl.Manager) error {
	if err := checks.ParseAllowed(o.CheckEndpoints); err != nil {
		return err
	}
	p, err := o.Provider(mgr)
	if err != nil {
		return fmt.Errorf("provider: %w", err)
	}
	m, err := register(mgr.GetClient())
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	recorder, counts, err := notify.Of(mgr, "node-cycling", o.Notify, o.Logger)
	if err == nil {
		err = controllers.RegisterMetrics(counts...)
	}
	if err != nil {
		return fmt.Errorf("notifications: %w", err)
	}
	env := &controller.Env{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Provider: p, Events: recorder,
		Clock: kube.Clock(o.Clock), NewQueue: kube.Queue(kube.Clock(o.Clock)), Limits: o.Limits.WithDefaults(),
		Getenv: os.Getenv, Namespaces: o.Namespaces, CheckEndpoints: o.CheckEndpoints,
		PhaseEnded: m.phaseEnded, NodesCycled: m.nodesCycled,
	}
	adds := []func(ctrl.Manager, *controller.Env) error{request.Add, status.Add, protection.Add}
	if o.Observe {
		adds = append(adds, observe.Add)
	}
	for _, add := range adds {
		if err := add(mgr, env); err != nil {
			return err
		}
	}
	if o.Add == nil {
		return nil
	}
	return o.Add(mgr)
}

// onlyPlace keeps of a pod what it is and where it is.
func onlyPlace(o any) (any, error) {
	if p, ok := o.(*corev1.Pod); ok {
		return &corev1.Pod{
			TypeMeta: p.TypeMeta,
			ObjectMeta: metav1.ObjectMeta{
				Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion,
				DeletionTimestamp: p.DeletionTimestamp,
			},
			Spec: corev1.PodSpec{NodeName: p.Spec.NodeName},
		}, nil
	}
	return o, nil
}
