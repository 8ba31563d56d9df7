// Package finalizer gives each disruption its finalizer before anything else happens, and takes it away when the
// disruption is deleted, none of its chaos pods exists any more, and its status says so: the controller that reports
// the end of each injection needs the disruption for it. It asks the API server, not the cache, before it lets a
// disruption go, and it writes nothing else. A chaos pod that is created afterwards, by a controller with an outdated
// cache, is removed by the controller of chaos pods.
package finalizer

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
)

// Reconciler is the controller.
type Reconciler struct{ Env *controller.Env }

// Add adds the controller to a manager.
func Add(mgr ctrl.Manager, env *controller.Env) error {
	return ctrl.NewControllerManagedBy(mgr).Named("disruption-finalizer").
		For(&chaos.Disruption{}, controller.WhenChanged(func(d *chaos.Disruption) reads {
			return reads{d.Finalizers, injected(d)}
		})).
		Watches(&corev1.Pod{}, controller.FromChaosPods(), builder.WithPredicates(gone)).Complete(&Reconciler{env})
}

// reads is what the controller reads of a disruption.
type reads struct {
	Finalizers []string
	Injected   bool
}

// injected reports whether a status says that something is injected. One without a spec's hash is not kept up.
func injected(d *chaos.Disruption) bool {
	return d.Status.SpecHash != "" && slices.ContainsFunc(d.Status.Injections, func(i chaos.Injection) bool {
		return i.State == chaos.InjectionInjected
	})
}

// gone lets the end of a chaos pod through.
var gone = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(event.UpdateEvent) bool { return false },
}

// Reconcile adds or removes the finalizer.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	d, err := controller.Get(ctx, r.Env.Client, req.NamespacedName)
	if d == nil || err != nil || controller.IsRemote(d) {
		return ctrl.Result{}, err // a remote one has another finalizer
	}
	has := slices.Contains(d.Finalizers, controller.Finalizer)
	deleted := d.DeletionTimestamp != nil
	if has != deleted {
		return ctrl.Result{}, nil
	}
	if deleted {
		pods, err := controller.ChaosPods(ctx, r.Env, d)
		if err != nil || len(pods) > 0 {
			return ctrl.Result{}, err // a change of the pods wakes it
		}
		var left corev1.PodList
		if err := r.Env.Reader.List(ctx, &left, client.InNamespace(r.Env.Config.Namespace),
			client.MatchingLabels{controller.LabelDisruption: string(d.UID)}); err != nil || len(left.Items) > 0 {
			return ctrl.Result{}, err // as above: the cache is behind
		}
		if injected(d) {
			return ctrl.Result{}, nil // a change of the status wakes it
		}
	}
	return controller.Result(r.write(ctx, d))
}

// write adds or removes the finalizer, if the finalizers are those that were read.
func (r *Reconciler) write(ctx context.Context, d *chaos.Disruption) error {
	err := controller.SetFinalizer(ctx, r.Env, d, controller.Finalizer, d.DeletionTimestamp == nil)
	if !apierrors.IsInvalid(err) {
		return err
	}
	latest := &chaos.Disruption{}
	if err := r.Env.Reader.Get(ctx, client.ObjectKeyFromObject(d), latest); err != nil || latest.UID != d.UID ||
		(latest.DeletionTimestamp != nil) != (d.DeletionTimestamp != nil) {
		return client.IgnoreNotFound(err) // its change wakes the controller
	}
	return controller.SetFinalizer(ctx, r.Env, latest, controller.Finalizer, latest.DeletionTimestamp == nil)
}
