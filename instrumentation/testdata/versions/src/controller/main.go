// Command versions is a controller on controller-runtime. It copies the ConfigMaps whose label copy is its own name.
package main

import (
	"context"
	"os"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type reconciler struct {
	client.Client
	live client.Reader
}

func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	return ctrl.Result{}, r.sync(ctx, req.NamespacedName)
}

func (r *reconciler) sync(ctx context.Context, key client.ObjectKey) error {
	var m corev1.ConfigMap
	if err := r.Get(ctx, key, &m); err != nil || m.Labels["copy"] != os.Getenv("COPIER") {
		return client.IgnoreNotFound(err)
	}
	to := &corev1.ConfigMap{}
	to.Namespace, to.Name = m.Namespace, m.Name+"-copy"
	if err := r.live.Get(ctx, client.ObjectKey{Namespace: to.Namespace, Name: to.Name},
		&corev1.ConfigMap{}); client.IgnoreNotFound(err) != nil || err == nil {
		return err
	}
	return r.Create(ctx, to)
}

func main() {
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), options())
	if err != nil {
		panic(err)
	}
	if err := ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(&reconciler{mgr.GetClient(),
		mgr.GetAPIReader()}); err != nil {
		panic(err)
	}
	if err := readOthers(mgr); err != nil {
		panic(err)
	}
	serve(mgr)
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		panic(err)
	}
}
