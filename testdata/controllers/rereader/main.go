// Command rereader is a small controller on controller-runtime, for tests of Trommel: it counts every ConfigMap
// labelled count=true once, reads it again as it has just written it, and then makes a ConfigMap <name>-counted. Its
// client reads its own writes.
package main

import (
	"context"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	ctrl.SetLogger(zap.New())
	if err := run(); err != nil {
		ctrl.Log.Error(err, "stopped")
		os.Exit(1)
	}
}

func run() error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	yes := true
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"},
		Client:  client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: &yes}},
	})
	if err != nil {
		return err
	}
	if err := ctrl.NewControllerManagedBy(mgr).Named("rereader").For(&corev1.ConfigMap{}).Complete(
		&rereader{mgr.GetClient()}); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

type rereader struct{ client.Client }

// Reconcile counts one ConfigMap.
func (r *rereader) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var object corev1.ConfigMap
	if err := r.Get(ctx, req.NamespacedName, &object); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if object.Labels["count"] != "true" {
		return ctrl.Result{}, nil
	}
	if object.Data["count"] == "" {
		object.Data = map[string]string{"count": "1"}
		if err := r.Update(ctx, &object); err != nil {
			return ctrl.Result{}, err
		}
		if err := r.Get(ctx, req.NamespacedName, &object); err != nil {
			return ctrl.Result{}, err
		}
	}
	counted := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: object.Namespace, Name: object.Name +
		"-counted"}, Data: object.Data}
	return ctrl.Result{}, client.IgnoreAlreadyExists(r.Create(ctx, counted))
}
