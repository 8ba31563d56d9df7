// Package controllers has what the managers of Trommel's controllers and their commands have in common.
package controllers

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// gracefulShutdown limits the end of a manager: without an API server, events are written again and again.
const gracefulShutdown = 5 * time.Second

// Options are for a manager that is a program in a cluster. The zero value suits one that is a part of another program.
type Options struct {
	// Metrics and Probes are the addresses of Prometheus metrics and of health probes; empty: none.
	Metrics, Probes string
	// LeaderElection lets only one of several replicas work.
	LeaderElection bool
}

// Scheme has Kubernetes' own types and those that add adds.
func Scheme(add func(*runtime.Scheme) error) (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	if err := scheme.AddToScheme(s); err != nil {
		return nil, err
	}
	return s, add(s)
}

// New makes a manager with what all managers have in common, beside what m has, and adds its types and controllers. Its
// Start blocks until the context ends. controller-runtime uses its logger from now on.
func New(
	to *rest.Config, o Options, m ctrl.Options, types func(*runtime.Scheme) error, add func(ctrl.Manager) error,
) (_ ctrl.Manager, err error) {
	ctrl.SetLogger(m.Logger)
	if to.QPS == 0 {
		// The default, 20, would delay work on many objects by seconds. API servers have limits of their own.
		to = rest.CopyConfig(to)
		to.QPS, to.Burst = 200, 400
	}
	if m.Scheme, err = Scheme(types); err != nil {
		return nil, err
	}
	yes, no, grace := true, false, gracefulShutdown
	m.Metrics, m.HealthProbeBindAddress = server.Options{BindAddress: cmp.Or(o.Metrics, "0")}, o.Probes
	m.LeaderElection, m.LeaderElectionReleaseOnCancel = o.LeaderElection, true
	m.GracefulShutdownTimeout = &grace
	// Several managers may run in one process, in tests and beside a run.
	m.Controller.SkipNameValidation = &yes
	// Before controller-runtime 0.25, a priority queue can block for ever when it is shut down, and its controller with
	// it: https://github.com/kubernetes-sigs/controller-runtime/issues/3538
	m.Controller.UsePriorityQueue = &no
	mgr, err := ctrl.NewManager(to, m)
	if err != nil {
		return nil, err
	}
	// Without a check a manager answers 404 to probes, and a kubelet restarts it again and again.
	for _, addCheck := range []func(string, healthz.Checker) error{mgr.AddHealthzCheck, mgr.AddReadyzCheck} {
		if err := addCheck("ping", healthz.Ping); err != nil {
			return nil, err
		}
	}
	return mgr, add(mgr)
}
