// Command controller keeps a copy of every ConfigMap labelled copy=true. The tests build it with hooks.
package main

import (
	"os"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"example.com/controller/reconciler"
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
	mgr, err := ctrl.NewManager(config, ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	r := &reconciler.Copier{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader()}
	err = ctrl.NewControllerManagedBy(mgr).Named("copier").
		For(&corev1.ConfigMap{}, builder.WithPredicates(predicate.Funcs{CreateFunc: spoil})).Complete(r)
	if err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

// spoil does what no controller may do, and some do: it changes an object of its cache.
func spoil(e event.CreateEvent) bool {
	if m, ok := e.Object.(*corev1.ConfigMap); ok && m.Name == "first" {
		m.Data["spoiled"] = "yes"
	}
	return true
}
