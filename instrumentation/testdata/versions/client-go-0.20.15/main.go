// Command versions is a controller of its time, built with hooks by the tests.
package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type reconciler struct{ client.Client }

func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var m corev1.ConfigMap
	if err := r.Get(ctx, req.NamespacedName, &m); err != nil || m.Labels["copy"] != "true" {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	to := &corev1.ConfigMap{}
	to.Namespace, to.Name = m.Namespace, m.Name+"-copy"
	return ctrl.Result{}, r.Create(ctx, to)
}

func main() {
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{MetricsBindAddress: "0"})
	if err != nil {
		panic(err)
	}
	_ = kubernetes.NewForConfigOrDie(mgr.GetConfig())
	if err := ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(&reconciler{mgr.GetClient()}); err != nil {
		panic(err)
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		panic(err)
	}
}
