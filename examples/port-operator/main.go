// Command port-operator is an example's operator: it gives each Service that asks for one by an annotation a port of a
// load balancer outside of the cluster. A ConfigMap says which ports are taken, and by whom.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// The annotations of a Service: it wants a port, and has one.
const (
	wants = "example.trommel.dev/external"
	has   = "example.trommel.dev/external-port"
)

// The range of the load balancer's ports.
const first, last = 40000, 40999

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "port-operator: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	var r reconciler
	flag.BoolVar(&r.fixRetry, "fix-retry", false, "before a port is taken again, look whether one has been taken")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	r.Client, r.ports = mgr.GetClient(), mgr.GetAPIReader()
	if err := ctrl.NewControllerManagedBy(mgr).For(&corev1.Service{}).Complete(&r); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

type reconciler struct {
	client.Client
	ports    client.Reader // without a cache: what is taken must be known when a port is given away
	fixRetry bool
}

// Reconcile gives a Service its port.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var service corev1.Service
	if err := r.Get(ctx, req.NamespacedName, &service); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if service.Annotations[wants] == "" || service.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	port, err := r.port(ctx, req.String())
	if err != nil || service.Annotations[has] == port {
		return ctrl.Result{}, err
	}
	before := service.DeepCopy()
	service.Annotations[has] = port
	return ctrl.Result{}, r.Patch(ctx, &service, client.MergeFrom(before))
}

// port returns the port that the Service has, also if the operator died after it had taken it, or takes one.
func (r *reconciler) port(ctx context.Context, service string) (string, error) {
	ports, err := r.read(ctx)
	if err != nil {
		return "", err
	}
	port := takenBy(ports, service)
	if port != "" {
		return port, nil
	}
	// Another one may take the same port at the same time, and the API server may be busy.
	err = retry.OnError(retry.DefaultBackoff, func(error) bool { return ctx.Err() == nil }, func() error {
		if ports, err = r.read(ctx); err != nil {
			return err
		}
		// The bug, without fixRetry: an update whose answer was lost counts as failed, and has taken a port.
		if port = takenBy(ports, service); r.fixRetry && port != "" {
			return nil
		}
		if port, err = take(ports, service); err != nil {
			return err
		}
		return r.Update(ctx, ports)
	})
	return port, err
}

func (r *reconciler) read(ctx context.Context) (*corev1.ConfigMap, error) {
	var ports corev1.ConfigMap
	err := r.ports.Get(ctx, client.ObjectKey{Namespace: "port-system", Name: "ports"}, &ports)
	return &ports, err
}

// takenBy returns the port that the Service has, or "".
func takenBy(ports *corev1.ConfigMap, service string) string {
	for port, by := range ports.Data {
		if by == service {
			return port
		}
	}
	return ""
}

// take gives the first free port to the Service.
func take(ports *corev1.ConfigMap, service string) (string, error) {
	for n := first; n <= last; n++ {
		port := strconv.Itoa(n)
		if ports.Data[port] == "" {
			if ports.Data == nil {
				ports.Data = map[string]string{}
			}
			ports.Data[port] = service
			return port, nil
		}
	}
	return "", fmt.Errorf("no port is free for %s", service)
}
