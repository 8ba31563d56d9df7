// Package finalizer gives each disruption its finalizer before anything else happens, and takes it away when the
// disruption is deleted and none of its chaos pods exists any more. It asks the API server, not the cache, before it
// lets a disruption go, and it writes nothing else. A chaos pod that is created afterwards, by a controller with an
// outdated cache, is removed by the controller of chaos pods.
package finalizer

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
)

// Reconciler is the controller.
type Reconciler struct{ Env *controller.Env }

// Add adds the controller to a manager.
func Add(mgr ctrl.Manager, env *controller.Env) error {
	return ctrl.NewControllerManagedBy(mgr).Named("disruption-finalizer").For(&chaos.Disruption{}).
		Watches(&corev1.Pod{}, controller.FromChaosPods()).Complete(&Reconciler{env})
}

// Reconcile adds or removes the finalizer.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	d, err := controller.Get(ctx, r.Env.Client, req.NamespacedName)
	if d == nil || err != nil {
		return ctrl.Result{}, err
	}
	has := slices.Contains(d.Finalizers, controller.Finalizer)
	deleted := d.DeletionTimestamp != nil
	if has != deleted {
		return ctrl.Result{}, nil
	}
	if deleted {
		pods, err := controller.ChaosPods(ctx, r.Env.Reader, r.Env, d.UID)
		if err != nil || len(pods) > 0 {
			return ctrl.Result{}, err // a change of the pods wakes it
		}
	}
	return controller.Result(r.write(ctx, d))
}

// write adds or removes the finalizer. The patch names only the finalizers, and the version that they were read at, so
// that those of others are not lost.
func (r *Reconciler) write(ctx context.Context, d *chaos.Disruption) error {
	change := controllerutil.AddFinalizer
	if d.DeletionTimestamp != nil {
		change = controllerutil.RemoveFinalizer
	}
	patch := func(from *chaos.Disruption) error {
		object := from.DeepCopy()
		if !change(object, controller.Finalizer) {
			return nil
		}
		return r.Env.Client.Patch(ctx, object, client.MergeFromWithOptions(from, client.MergeFromWithOptimisticLock{}))
	}
	err := patch(d)
	if apierrors.IsConflict(err) {
		latest := &chaos.Disruption{}
		if err := r.Env.Reader.Get(ctx, client.ObjectKeyFromObject(d), latest); err != nil || latest.UID != d.UID ||
			(latest.DeletionTimestamp != nil) != (d.DeletionTimestamp != nil) {
			return client.IgnoreNotFound(err) // its change wakes the controller
		}
		err = patch(latest)
	}
	return client.IgnoreNotFound(err)
}
