// Command type-operator makes a type of each ConfigMap that names a kind: it writes the type's
// CustomResourceDefinition, waits until it is established, and then creates one object of it for each name that the
// ConfigMap lists. It starts to watch the type only then. With a ConfigMap go its type and all objects of it.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

const (
	group     = "made.example.com"
	finalizer = group + "/definition"
	label     = group + "/config"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "type-operator: %v\n", err)
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
	r := &reconciler{Client: mgr.GetClient(), manager: mgr, watched: map[string]bool{}}
	r.controller, err = ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Build(r)
	if err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

type reconciler struct {
	client.Client
	manager    manager.Manager
	controller controller.Controller

	mu      sync.Mutex
	watched map[string]bool // kinds
}

func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var config corev1.ConfigMap
	if err := r.Get(ctx, req.NamespacedName, &config); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	kind := config.Data["kind"]
	if kind == "" {
		return ctrl.Result{}, nil
	}
	if !config.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.remove(ctx, &config, kind)
	}
	if controllerutil.AddFinalizer(&config, finalizer) {
		if err := r.Update(ctx, &config); err != nil {
			return ctrl.Result{}, err
		}
	}
	definition := definitionOf(kind)
	err := r.Create(ctx, definition)
	if client.IgnoreAlreadyExists(err) != nil {
		return ctrl.Result{}, err
	}
	// Not from a cache: what counts is whether the API server serves the type.
	if err := r.manager.GetAPIReader().Get(ctx, client.ObjectKeyFromObject(definition), definition); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !established(definition) {
		return ctrl.Result{RequeueAfter: 20 * time.Millisecond}, nil
	}
	for _, name := range strings.Fields(config.Data["names"]) {
		o := objectOf(kind)
		o.SetNamespace(config.Namespace)
		o.SetName(name)
		o.SetLabels(map[string]string{label: config.Name})
		o.Object["spec"] = map[string]any{"size": config.Data["size"]}
		var current = objectOf(kind)
		err := r.manager.GetAPIReader().Get(ctx, client.ObjectKeyFromObject(o), current)
		switch {
		case apierrors.IsNotFound(err):
			if err := r.Create(ctx, o); client.IgnoreAlreadyExists(err) != nil {
				return ctrl.Result{RequeueAfter: 20 * time.Millisecond}, client.IgnoreNotFound(err)
			}
		case err != nil:
			return ctrl.Result{}, err
		case size(current) != config.Data["size"]:
			current.Object["spec"] = o.Object["spec"]
			if err := r.Update(ctx, current); err != nil {
				return ctrl.Result{}, err
			}
		}
	}
	if config.Annotations[group+"/size"] == config.Data["size"] {
		return ctrl.Result{}, r.watch(kind)
	}
	metav1.SetMetaDataAnnotation(&config.ObjectMeta, group+"/size", config.Data["size"])
	if err := r.Update(ctx, &config); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.watch(kind)
}

// remove deletes the type, and with it its objects, before the ConfigMap goes.
func (r *reconciler) remove(ctx context.Context, config *corev1.ConfigMap, kind string) error {
	definition := definitionOf(kind)
	if err := client.IgnoreNotFound(r.Delete(ctx, definition)); err != nil {
		return err
	}
	if !controllerutil.RemoveFinalizer(config, finalizer) {
		return nil
	}
	return r.Update(ctx, config)
}

// watch lets what happens to objects of the kind wake their ConfigMap.
func (r *reconciler) watch(kind string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watched[kind] {
		return nil
	}
	r.watched[kind] = true
	return r.controller.Watch(source.Kind[client.Object](r.manager.GetCache(), objectOf(kind),
		handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			return []reconcile.Request{{NamespacedName: types.NamespacedName{
				Namespace: o.GetNamespace(), Name: o.GetLabels()[label],
			}}}
		})))
}

func objectOf(kind string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind})
	return o
}

func size(o *unstructured.Unstructured) string {
	size, _, _ := unstructured.NestedString(o.Object, "spec", "size")
	return size
}

func definitionOf(kind string) *unstructured.Unstructured {
	plural := strings.ToLower(kind) + "s"
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + "." + group},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced",
			"names": map[string]any{"kind": kind, "plural": plural},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object", "x-kubernetes-preserve-unknown-fields": true,
				}},
			}},
		},
	}}
}

func established(definition *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		if condition["type"] == "Established" && condition["status"] == "True" {
			return true
		}
	}
	return false
}
