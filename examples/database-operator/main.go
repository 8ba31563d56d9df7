// Command database-operator runs the example's controller.
package main

import (
	"flag"
	"fmt"
	"os"

	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1alpha1 "github.com/trommel-dev/trommel/examples/database-operator/api/v1alpha1"
	"github.com/trommel-dev/trommel/examples/database-operator/controller"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "database-operator: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	var fixes controller.Fixes
	flag.BoolVar(&fixes.StaleDeletion, "fix-stale-deletion", false,
		"delete only what belongs to the deleted Database, not what has its name")
	flag.BoolVar(&fixes.InterruptedCreate, "fix-interrupted-create", false,
		"create the Service even if the Secret already exists")
	flag.BoolVar(&fixes.MissedScale, "fix-missed-scale", false,
		"remove the volumes of removed members before new members take their names")
	metricsAddress := flag.String("metrics-bind-address", "0", "`address` of the metrics; 0 turns them off")
	probeAddress := flag.String("health-probe-bind-address", "0", "`address` of /healthz and /readyz; 0 turns them off")
	elect := flag.Bool("leader-elect", false, "work only while holding the lease")
	electNamespace := flag.String("leader-election-namespace", "", "`namespace` of the lease; empty: the pod's")
	logs := zap.Options{Development: true, StacktraceLevel: zapcore.PanicLevel}
	logs.BindFlags(flag.CommandLine)
	flag.Parse()
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&logs)))

	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                  scheme,
		Metrics:                 metricsserver.Options{BindAddress: *metricsAddress},
		HealthProbeBindAddress:  *probeAddress,
		LeaderElection:          *elect,
		LeaderElectionID:        "database-operator.example.trommel.dev",
		LeaderElectionNamespace: *electNamespace,
	})
	if err != nil {
		return err
	}
	r := &controller.Reconciler{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Fixes: fixes}
	if err := r.SetupWithManager(mgr); err != nil {
		return err
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}
