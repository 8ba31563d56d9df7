// Command copy-operator is an example's operator of two clusters: it copies ConfigMaps that ask for it by a label from
// the cluster in which it runs to another one.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

const (
	// copyLabel is the label of a ConfigMap that is copied.
	copyLabel = "example.trommel.dev/copy"
	// pinned is the annotation of a copy that outlives what it is a copy of.
	pinned = "example.trommel.dev/pinned"
	// finalizer keeps a ConfigMap until its copy is deleted.
	finalizer = "example.trommel.dev/copy"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "copy-operator: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	var r copier
	to := flag.String("to", "", "kubeconfig of the cluster with the copies")
	flag.BoolVar(&r.fixMarker, "fix-marker", false, "do not take the finalizer for a sign that there is a copy")
	flag.BoolVar(&r.fixStale, "fix-stale", false, "delete a copy only if it is still what was read")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	namespace := cache.Options{DefaultNamespaces: map[string]cache.Config{metav1.NamespaceDefault: {}}}
	mgr, err := ctrl.NewManager(config, ctrl.Options{Metrics: server.Options{BindAddress: "0"}, Cache: namespace})
	if err != nil {
		return err
	}
	remote, err := clientcmd.BuildConfigFromFlags("", *to)
	if err != nil {
		return err
	}
	other, err := cluster.New(remote, func(o *cluster.Options) { o.Cache = namespace })
	if err != nil {
		return err
	}
	if err := mgr.Add(other); err != nil {
		return err
	}
	r.from, r.to = mgr.GetClient(), other.GetClient()
	copies := source.Kind(other.GetCache(), &corev1.ConfigMap{},
		&handler.TypedEnqueueRequestForObject[*corev1.ConfigMap]{})
	err = ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).WatchesRawSource(copies).Complete(&r)
	if err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

type copier struct {
	from, to            client.Client
	fixMarker, fixStale bool
}

// Reconcile makes, or deletes, the copy of a ConfigMap.
func (r *copier) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var original corev1.ConfigMap
	if err := r.from.Get(ctx, req.NamespacedName, &original); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	switch {
	case original.Labels[copyLabel] != "true":
		return ctrl.Result{}, nil
	case original.DeletionTimestamp == nil:
		return ctrl.Result{}, r.copy(ctx, &original)
	case controllerutil.ContainsFinalizer(&original, finalizer):
		return ctrl.Result{}, r.remove(ctx, &original)
	}
	return ctrl.Result{}, nil
}

func (r *copier) copy(ctx context.Context, original *corev1.ConfigMap) error {
	if controllerutil.AddFinalizer(original, finalizer) {
		if err := r.from.Update(ctx, original); err != nil {
			return err
		}
	} else if !r.fixMarker {
		return nil // the bug: the operator may have been killed before it made the copy
	}
	var copied corev1.ConfigMap
	if err := r.to.Get(ctx, client.ObjectKeyFromObject(original), &copied); !apierrors.IsNotFound(err) {
		return err
	}
	copied = corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: original.Namespace, Name: original.Name}, Data: original.Data,
	}
	if err := r.to.Create(ctx, &copied); !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

func (r *copier) remove(ctx context.Context, original *corev1.ConfigMap) error {
	var copied corev1.ConfigMap
	err := r.to.Get(ctx, client.ObjectKeyFromObject(original), &copied)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if err == nil && copied.Annotations[pinned] != "true" {
		// The bug: the cache may not have seen yet that the copy was pinned.
		var unless client.Preconditions
		if r.fixStale {
			unless = client.Preconditions{UID: &copied.UID, ResourceVersion: &copied.ResourceVersion}
		}
		if err := r.to.Delete(ctx, &copied, unless); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	controllerutil.RemoveFinalizer(original, finalizer)
	return r.from.Update(ctx, original)
}
