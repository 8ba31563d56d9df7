package controller

import (
	"context"
	"crypto/rand"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1alpha1 "github.com/trommel-dev/trommel/examples/database-operator/api/v1alpha1"
)

const port = 5432

func credentialsName(db *v1alpha1.Database) string { return db.Name + "-credentials" }

// reconcileAccess creates what clients need to reach the database: the superuser's password and the Service.
func (r *Reconciler) reconcileAccess(ctx context.Context, db *v1alpha1.Database) error {
	var secret corev1.Secret
	err := r.Get(ctx, client.ObjectKey{Namespace: db.Namespace, Name: credentialsName(db)}, &secret)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("read the credentials: %w", err)
	}
	if err == nil && !r.Fixes.InterruptedCreate {
		return nil // it exists already
	}
	if err != nil {
		log.FromContext(ctx).Info("Creating the credentials")
		if err := r.create(ctx, db, newSecret(db)); err != nil {
			return err
		}
	}

	var service corev1.Service
	err = r.Get(ctx, client.ObjectKeyFromObject(db), &service)
	if apierrors.IsNotFound(err) {
		log.FromContext(ctx).Info("Creating the Service")
		return r.create(ctx, db, newService(db))
	}
	return err
}

// create creates an object that the Database owns. An existing one stays as it is.
func (r *Reconciler) create(ctx context.Context, db *v1alpha1.Database, o client.Object) error {
	o.SetNamespace(db.Namespace)
	o.SetLabels(labels(db))
	if err := ctrl.SetControllerReference(db, o, r.Scheme()); err != nil {
		return err
	}
	if err := r.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
	}
	return nil
}

func newSecret(db *v1alpha1.Database) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: credentialsName(db)},
		StringData: map[string]string{"username": "admin", "password": rand.Text()},
	}
}

func newService(db *v1alpha1.Database) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: db.Name},
		Spec: corev1.ServiceSpec{
			Selector:  selector(db),
			ClusterIP: corev1.ClusterIPNone,
			Ports:     []corev1.ServicePort{{Name: "database", Port: port, TargetPort: intstr.FromInt32(port)}},
		},
	}
}

func selector(db *v1alpha1.Database) map[string]string {
	return map[string]string{labelInstance: db.Name, labelManagedBy: managedBy}
}
