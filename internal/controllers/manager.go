package controllers

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
)

// gracefulShutdown limits the end of a manager: without an API server, events are written again and again.
const gracefulShutdown = 5 * time.Second

// Scheme has Kubernetes' own types and those that add adds.
func Scheme(add func(*runtime.Scheme) error) (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	if err := scheme.AddToScheme(s); err != nil {
		return nil, err
	}
	return s, add(s)
}

// Manager makes a manager without controllers. It completes o with what all managers have in common; without an address
// for metrics it serves none. controller-runtime uses the manager's logger.
func Manager(to *rest.Config, o ctrl.Options) (ctrl.Manager, error) {
	ctrl.SetLogger(o.Logger)
	if to.QPS == 0 {
		// The default, 20, would delay work on many objects by seconds. API servers have limits of their own.
		to = rest.CopyConfig(to)
		to.QPS, to.Burst = 200, 400
	}
	if o.Metrics.BindAddress == "" {
		o.Metrics.BindAddress = "0"
	}
	yes, no, grace := true, false, gracefulShutdown
	o.LeaderElectionReleaseOnCancel, o.GracefulShutdownTimeout = true, &grace
	// Several managers may run in one process, in tests and beside a run.
	o.Controller.SkipNameValidation = &yes
	// Before controller-runtime 0.25, a priority queue can block for ever when it is shut down, and its controller with it:
	// https://github.com/kubernetes-sigs/controller-runtime/issues/3538
	o.Controller.UsePriorityQueue = &no
	return ctrl.NewManager(to, o)
}
