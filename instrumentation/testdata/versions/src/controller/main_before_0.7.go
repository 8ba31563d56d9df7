// Command versions is a controller on a controller-runtime that gives reconcilers no context. It copies the ConfigMaps
// whose label copy is its own name.
package main

import (
	"context"
	"os"
	"runtime/pprof"
	"strconv"

	jsoniter "github.com/json-iterator/go"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
)

type reconciler struct {
	client.Client
	live client.Reader
}

func (r *reconciler) Reconcile(req ctrl.Request) (ctrl.Result, error) {
	return ctrl.Result{}, r.sync(req.NamespacedName)
}

func (r *reconciler) sync(key client.ObjectKey) error {
	var m corev1.ConfigMap
	if err := r.Get(context.TODO(), key, &m); err != nil || m.Labels["copy"] != os.Getenv("COPIER") {
		return client.IgnoreNotFound(err)
	}
	// The first one starts an informer.
	if err := r.Get(context.TODO(), key, &corev1.Secret{}); client.IgnoreNotFound(err) != nil {
		return err
	}
	// It walks over a map as no Go does any more.
	if _, err := jsoniter.Marshal(m.Labels); err != nil {
		return err
	}
	to := &corev1.ConfigMap{}
	to.Namespace, to.Name = m.Namespace, m.Name+"-copy"
	found := make(chan error)
	go func() {
		// These labels take the place of all others.
		pprof.Do(context.TODO(), pprof.Labels("step", "live"), func(ctx context.Context) {
			found <- r.live.Get(ctx, client.ObjectKey{Namespace: to.Namespace, Name: to.Name}, &corev1.ConfigMap{})
		})
	}()
	if err := <-found; client.IgnoreNotFound(err) != nil || err == nil {
		return err
	}
	return r.Create(context.TODO(), to)
}

func main() {
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), options())
	if err != nil {
		panic(err)
	}
	workers, _ := strconv.Atoi(os.Getenv("WORKERS")) // default 1
	if err := ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).WithOptions(
		controller.Options{MaxConcurrentReconciles: workers}).
		Complete(&reconciler{mgr.GetClient(), mgr.GetAPIReader()}); err != nil {
		panic(err)
	}
	serve(mgr)
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		panic(err)
	}
}
