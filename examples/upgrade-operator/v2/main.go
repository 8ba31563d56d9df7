// Command v2 is the second version of an example's operator: the ConfigMap of a Site has another name than in version
// 1, and its Service has one more label.
package main

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const version = "2"

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "site-operator: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	ctrl.SetLogger(zap.New())
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	r := &reconciler{mgr.GetClient(), os.Getenv("FIX_LEFTOVERS") != ""}
	if err := ctrl.NewControllerManagedBy(mgr).For(newSite()).Owns(&corev1.Service{}).Complete(r); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

func newSite() *unstructured.Unstructured {
	site := &unstructured.Unstructured{}
	site.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.trommel.dev", Version: "v1", Kind: "Site"})
	return site
}

type reconciler struct {
	client.Client
	fixLeftovers bool // look for what version 1 has left, whatever the status says
}

// Reconcile makes what a Site needs, and says in its status by which version that was done.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	site := newSite()
	if err := r.Get(ctx, req.NamespacedName, site); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if site.GetDeletionTimestamp() != nil {
		return ctrl.Result{}, nil
	}
	page, _, _ := unstructured.NestedString(site.Object, "spec", "page")
	owner := metav1ac.OwnerReference().WithAPIVersion("example.trommel.dev/v1").WithKind("Site").
		WithName(site.GetName()).WithUID(site.GetUID())
	service := corev1ac.Service(site.GetName(), site.GetNamespace()).WithOwnerReferences(owner).
		WithLabels(map[string]string{"site": site.GetName(), "site-version": version}).
		WithSpec(corev1ac.ServiceSpec().WithPorts(corev1ac.ServicePort().WithPort(80)))
	if err := r.Apply(ctx, service, client.FieldOwner("site-operator"), client.ForceOwnership); err != nil {
		return ctrl.Result{}, err
	}
	settings := corev1ac.ConfigMap(site.GetName()+"-settings", site.GetNamespace()).WithOwnerReferences(owner).
		WithData(map[string]string{"page": page})
	if err := r.Apply(ctx, settings, client.FieldOwner("site-operator"), client.ForceOwnership); err != nil {
		return ctrl.Result{}, err
	}
	// The bug: version 1 writes the status last. An interrupted version 1 leaves a status without its version.
	by, _, _ := unstructured.NestedString(site.Object, "status", "version")
	if by == "1" || r.fixLeftovers {
		former := &corev1.ConfigMap{}
		former.Name, former.Namespace = site.GetName()+"-config", site.GetNamespace()
		if err := r.Delete(ctx, former); client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, r.report(ctx, site, page)
}

func (r *reconciler) report(ctx context.Context, site *unstructured.Unstructured, page string) error {
	former := site.DeepCopy()
	site.Object["status"] = map[string]any{"version": version, "page": page}
	return r.Status().Patch(ctx, site, client.MergeFrom(former))
}
