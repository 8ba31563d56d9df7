package controller

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1alpha1 "github.com/trommel-dev/trommel/examples/database-operator/api/v1alpha1"
)

// finalize removes the objects of a deleted Database, the volumes last, and its finalizer when nothing is left.
func (r *Reconciler) finalize(ctx context.Context, db *v1alpha1.Database) error {
	if !controllerutil.ContainsFinalizer(db, finalizer) {
		return nil
	}
	log.FromContext(ctx).Info("Removing a deleted Database")
	for _, o := range []client.Object{
		&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: db.Namespace, Name: db.Name}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: db.Namespace, Name: db.Name}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: db.Namespace, Name: credentialsName(db)}},
	} {
		if err := r.remove(ctx, db, o); err != nil {
			return err
		}
	}

	claims, err := r.volumes(ctx, db, r.Fixes.StaleDeletion)
	if err != nil {
		return err
	}
	for i := range claims {
		claim := &claims[i]
		if !claim.DeletionTimestamp.IsZero() {
			continue
		}
		err := r.Delete(ctx, claim, client.Preconditions{UID: &claim.UID})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete volume %s: %w", claim.Name, err)
		}
	}
	if len(claims) > 0 {
		return nil // their removal triggers another reconcile
	}

	controllerutil.RemoveFinalizer(db, finalizer)
	if err := r.Update(ctx, db); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove the finalizer: %w", err)
	}
	return nil
}

// remove deletes one of the Database's objects; o has its name.
func (r *Reconciler) remove(ctx context.Context, db *v1alpha1.Database, o client.Object) error {
	options := []client.DeleteOption{client.PropagationPolicy(metav1.DeletePropagationBackground)}
	if r.Fixes.StaleDeletion {
		err := r.Get(ctx, client.ObjectKeyFromObject(o), o)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if !metav1.IsControlledBy(o, db) {
			return nil // the object with this name has another owner now
		}
		// The owner must not change between this check and the deletion either.
		options = append(options, client.Preconditions{UID: ptr.To(o.GetUID())})
	}
	if err := r.Delete(ctx, o, options...); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %T %s: %w", o, o.GetName(), err)
	}
	return nil
}
