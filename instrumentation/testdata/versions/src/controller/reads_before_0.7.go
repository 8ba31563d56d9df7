package main

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// serve lets the test read and write through the manager. The state of an object is its label of that name.
func serve(mgr ctrl.Manager) {
	untyped := &unstructured.Unstructured{}
	untyped.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	cached, live := mgr.GetCache(), mgr.GetAPIReader()
	serveWays(map[string]way{
		"get-typed":   getWay(cached, &corev1.ConfigMap{}),
		"get-untyped": getWay(cached, untyped),
		"list-typed":  listWay(cached),
		"get-secret":  getWay(cached, &corev1.Secret{}),
		"get-live":    getWay(live, &corev1.ConfigMap{}),
		"list-live":   listWay(live),
		"write": func(ctx context.Context, name string) (string, error) {
			return "done", mgr.GetClient().Create(ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
		},
		"lease": func(ctx context.Context, name string) (string, error) {
			return "done", mgr.GetClient().Create(ctx, &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
		},
		"probe": func(context.Context, string) (string, error) { return "ok", nil },
	})
}

// getWay gets an object of the type that it is given one of.
func getWay(reader client.Reader, empty runtime.Object) way {
	return func(ctx context.Context, name string) (string, error) {
		object := empty.DeepCopyObject()
		err := reader.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, object)
		if apierrors.IsNotFound(err) {
			return "absent", nil
		}
		return object.(metav1.Object).GetLabels()["state"], err
	}
}

func listWay(reader client.Reader) way {
	return func(ctx context.Context, name string) (string, error) {
		var list corev1.ConfigMapList
		if err := reader.List(ctx, &list, client.InNamespace("default")); err != nil {
			return "", err
		}
		state := "absent"
		for _, m := range list.Items {
			if m.Name == name {
				state = m.Labels["state"]
			}
		}
		return state, nil
	}
}
