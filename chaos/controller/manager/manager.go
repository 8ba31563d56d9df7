// Package manager puts the controllers of disruptions together in one process.
package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/chaos/controller/chaospods"
	"github.com/trommel-dev/trommel/chaos/controller/cleanup"
	"github.com/trommel-dev/trommel/chaos/controller/cron"
	"github.com/trommel-dev/trommel/chaos/controller/finalizer"
	"github.com/trommel-dev/trommel/chaos/controller/injections"
	"github.com/trommel-dev/trommel/chaos/controller/lifetime"
	"github.com/trommel-dev/trommel/chaos/controller/remote"
	"github.com/trommel-dev/trommel/chaos/controller/rollout"
	"github.com/trommel-dev/trommel/chaos/controller/spechash"
	"github.com/trommel-dev/trommel/chaos/controller/targets"
	"github.com/trommel-dev/trommel/internal/controllers"
	"github.com/trommel-dev/trommel/internal/notify"
)

// Options of a manager.
type Options struct {
	controller.Config
	controllers.Options
	// Notify passes on the events of disruptions and their crons; nil: it does not.
	Notify *notify.Options
	Logger logr.Logger
	// Clock gives the controllers the time; nil: the machine's. It only gives the time: delays of the controllers pass
	// in real time.
	Clock clock.PassiveClock
}

// Controllers are the names of the controllers, each with the function that adds it, and the modes that leave it out.
// WithoutLocal leaves out those that are Local.
var Controllers = []struct {
	Name    string
	Add     func(ctrl.Manager, *controller.Env) error
	Local   bool
	Without []controller.Mode
}{
	{"finalizer", finalizer.Add, true, nil}, {"spechash", spechash.Add, false, nil},
	{"targets", targets.Add, true, nil}, {"lifetime", lifetime.Add, false, nil},
	{"chaospods", chaospods.Add, true, nil}, {"injections", injections.Add, false, nil},
	{"cleanup", cleanup.Add, true, nil}, {"cron", cron.Add, false, []controller.Mode{controller.ModeChild}},
	{"rollout", rollout.Add, false, []controller.Mode{controller.ModeChild}},
	{"remote", remote.Add, false, []controller.Mode{controller.ModeChild, controller.ModeSingle}},
}

// FieldManager is the name under which a controller writes: managed fields of a disruption show which one wrote what.
func FieldManager(controller string) string { return "disruption-" + controller }

// New makes a manager with all controllers. Its Start blocks until the context ends.
func New(to *rest.Config, o Options) (ctrl.Manager, error) {
	o.Mode = cmp.Or(o.Mode, controller.ModeSingle)
	if err := o.check(); err != nil {
		return nil, err
	}
	options := ctrl.Options{
		Logger: o.Logger, Controller: config.Controller{MaxConcurrentReconciles: 4},
		LeaderElectionID: "disruptions.chaos.trommel.dev", LeaderElectionNamespace: o.Namespace,
	}
	if o.Mode == controller.ModeParent {
		// Kubeconfigs are here.
		options.Cache.ByObject = map[client.Object]cache.ByObject{
			&corev1.Secret{}: {Namespaces: map[string]cache.Config{o.Namespace: {}}},
			// Watched only with an installer.
			&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{o.Namespace: {
				FieldSelector: fields.OneTermEqualSelector("metadata.name", remote.ChildValues),
			}}},
		}
	}
	return controllers.New(to, o.Options, options, chaos.AddToScheme, func(mgr ctrl.Manager) error {
		return add(mgr, o)
	})
}

// check returns why a mode does not have what is asked of it.
func (o *Options) check() error {
	switch {
	case o.Mode != controller.ModeSingle && o.Mode != controller.ModeParent && o.Mode != controller.ModeChild:
		return fmt.Errorf("mode %q: must be single, parent or child", o.Mode)
	case o.Mode == controller.ModeChild && o.Notify != nil:
		return errors.New("mode child sends no notifications: the parent does")
	case o.Mode != controller.ModeParent &&
		(o.Remote.WithoutLocal || o.Remote.WithoutAuthorization || o.Remote.Webhook != ""):
		return fmt.Errorf("mode %s knows no other clusters: only mode parent has settings for them", o.Mode)
	case o.Remote.WithoutAuthorization && o.Remote.Webhook != "":
		return errors.New("the webhook asks other clusters what users may: it does not go with authorization off")
	}
	return nil
}

func add(mgr ctrl.Manager, o Options) error {
	if o.Notify != nil {
		passed := *o.Notify
		// The events of targets are for their owners.
		passed.Kinds = []string{"Disruption", "DisruptionCron", "DisruptionRollout"}
		o.Notify = &passed
	}
	recorder, counts, err := notify.Of(mgr, "disruptions", o.Notify, o.Logger)
	if err != nil {
		return fmt.Errorf("notifications: %w", err)
	}
	if err := controllers.RegisterMetrics(append(counts, measures{mgr.GetCache()})...); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	env := &controller.Env{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: recorder, Clock: o.Clock, Config: o.Config,
	}
	if env.Clock == nil {
		env.Clock = clock.RealClock{}
	}
	// A cache that has not started adds an index at once.
	if err := controller.Index(context.Background(), mgr.GetFieldIndexer()); err != nil {
		return fmt.Errorf("index the cache: %w", err)
	}
	for _, c := range Controllers {
		if slices.Contains(c.Without, o.Mode) || c.Local && o.Remote.WithoutLocal {
			continue
		}
		own := *env
		own.Client = client.WithFieldOwner(env.Client, FieldManager(c.Name))
		if err := c.Add(mgr, &own); err != nil {
			return fmt.Errorf("controller %s: %w", c.Name, err)
		}
	}
	return nil
}
