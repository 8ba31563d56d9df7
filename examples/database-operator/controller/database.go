// Package controller reconciles Databases.
//
// It is an example to run Trommel against: an ordinary operator that passes an ordinary end-to-end test, with three
// bugs of kinds that such tests do not find. A field of [Fixes] fixes each; the comments there describe the bugs.
package controller

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1alpha1 "github.com/trommel-dev/trommel/examples/database-operator/api/v1alpha1"
)

// finalizer keeps a deleted Database until its volumes are gone: they have no owner, so nothing else removes them.
const finalizer = "example.trommel.dev/volumes"

const (
	labelInstance  = "app.kubernetes.io/instance"
	labelManagedBy = "app.kubernetes.io/managed-by"
	labelUID       = "example.trommel.dev/database-uid" // distinguishes a Database from a later one with the same name
	managedBy      = "database-operator"
)

// Fixes turns the example's bugs off, one by one.
type Fixes struct {
	// StaleDeletion: without it a deleted Database's objects are deleted by name. A controller with a stale cache,
	// because it has just started at a stale API server, acts on the old Database's deletion and deletes the objects of
	// the new Database with the same name. It also scales to a size that the Database had, and deletes the volumes of
	// the members that this removes; and it creates the StatefulSet of a Database that is gone, whose volumes stay.
	StaleDeletion bool
	// InterruptedCreate: without it the Service is created only together with the Secret. A controller that is
	// killed between the two never creates the Service.
	InterruptedCreate bool
	// MissedScale: without it the volumes of removed members are deleted when the controller sees the smaller
	// StatefulSet at rest. If it is scaled up again before that, the new member starts with the old one's data.
	MissedScale bool
}

// Reconciler reconciles Databases. Client reads from the cache, APIReader from the API server.
type Reconciler struct {
	client.Client
	APIReader client.Reader
	Fixes     Fixes
}

// SetupWithManager registers the reconciler.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.Database{}).
		Owns(&appsv1.StatefulSet{}).
		Owns(&corev1.Service{}).
		Owns(&corev1.Secret{}).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(databaseOfVolume)).
		WithLogConstructor(func(req *reconcile.Request) logr.Logger {
			l := mgr.GetLogger().WithName("database")
			if req != nil {
				l = l.WithValues("database", req.NamespacedName)
			}
			return l
		}).
		Complete(r)
}

func databaseOfVolume(_ context.Context, o client.Object) []reconcile.Request {
	name := o.GetLabels()[labelInstance]
	if name == "" || o.GetLabels()[labelManagedBy] != managedBy {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
}

// Reconcile brings a Database's objects closer to its spec.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var db v1alpha1.Database
	if err := r.Get(ctx, req.NamespacedName, &db); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !db.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.finalize(ctx, &db)
	}
	if controllerutil.AddFinalizer(&db, finalizer) {
		return ctrl.Result{}, r.Update(ctx, &db)
	}

	if err := r.reconcileAccess(ctx, &db); err != nil {
		return ctrl.Result{}, err
	}
	set, err := r.reconcileStatefulSet(ctx, &db)
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.updateStatus(ctx, &db, set)
}

// updateStatus writes the status if it has changed. The StatefulSet is nil if there is none.
func (r *Reconciler) updateStatus(ctx context.Context, db *v1alpha1.Database, set *appsv1.StatefulSet) error {
	before := db.DeepCopy()
	db.Status.ObservedGeneration = db.Generation
	db.Status.Credentials.Name = credentialsName(db)
	db.Status.ReadyReplicas = 0
	db.Status.Phase = v1alpha1.PhasePending
	if set != nil {
		db.Status.ReadyReplicas = set.Status.ReadyReplicas
		current := set.Status.ObservedGeneration == set.Generation && *set.Spec.Replicas == db.Spec.Replicas
		if current && set.Status.ReadyReplicas == db.Spec.Replicas && set.Status.Replicas == db.Spec.Replicas {
			db.Status.Phase = v1alpha1.PhaseReady
		}
	}
	if db.Status == before.Status {
		return nil
	}
	if db.Status.Phase != before.Status.Phase {
		log.FromContext(ctx).Info("Phase changed", "from", before.Status.Phase, "to", db.Status.Phase)
	}
	if err := r.Status().Patch(ctx, db, client.MergeFrom(before)); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("update the status: %w", err)
	}
	return nil
}

func labels(db *v1alpha1.Database) map[string]string {
	return map[string]string{
		"app.kubernetes.io/name": "database",
		labelInstance:            db.Name,
		labelManagedBy:           managedBy,
		labelUID:                 string(db.UID),
	}
}
