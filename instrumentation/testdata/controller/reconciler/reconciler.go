// Package reconciler holds the controller's work.
package reconciler

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Copier copies ConfigMaps.
type Copier struct {
	client.Client
	APIReader client.Reader
}

// Reconcile makes the copy of one ConfigMap.
func (c *Copier) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var from corev1.ConfigMap
	if err := c.Get(ctx, req.NamespacedName, &from); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if from.Labels["copy"] != "true" {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, c.copy(ctx, &from)
}

func (c *Copier) copy(ctx context.Context, from *corev1.ConfigMap) error {
	to := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: from.Namespace, Name: from.Name + "-copy"},
		Data:       from.Data,
	}
	var present corev1.ConfigMap
	err := c.APIReader.Get(ctx, client.ObjectKeyFromObject(to), &present)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if err != nil {
		return c.Create(ctx, to)
	}
	present.Data = from.Data
	return c.Update(ctx, &present)
}
