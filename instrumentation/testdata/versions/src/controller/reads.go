package main

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// serve lets the test read and write through the manager. The state of an object is its label of that name.
func serve(mgr ctrl.Manager) {
	configMap, secret := corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.SchemeGroupVersion.WithKind("Secret")
	list := corev1.SchemeGroupVersion.WithKind("ConfigMapList")
	untyped, metadata := &unstructured.Unstructured{}, &metav1.PartialObjectMetadata{}
	untyped.SetGroupVersionKind(configMap)
	metadata.SetGroupVersionKind(configMap)
	untypedList, metadataList := &unstructured.UnstructuredList{}, &metav1.PartialObjectMetadataList{}
	untypedList.SetGroupVersionKind(list)
	metadataList.SetGroupVersionKind(list)
	untypedSecret := &unstructured.Unstructured{}
	untypedSecret.SetGroupVersionKind(secret)

	cached, live := mgr.GetCache(), mgr.GetAPIReader()
	serveWays(map[string]way{
		"get-typed":         getWay(cached, &corev1.ConfigMap{}),
		"get-untyped":       getWay(cached, untyped),
		"get-metadata":      getWay(cached, metadata),
		"list-typed":        listWay(cached, &corev1.ConfigMapList{}),
		"list-untyped":      listWay(cached, untypedList),
		"list-metadata":     listWay(cached, metadataList),
		"get-secret":        getWay(cached, &corev1.Secret{}),
		"get-untypedSecret": getWay(cached, untypedSecret),
		"get-live":          getWay(live, &corev1.ConfigMap{}),
		"list-live":         listWay(live, &corev1.ConfigMapList{}),
		"get-lister": func(ctx context.Context, name string) (string, error) {
			informer, err := cached.GetInformer(ctx, &corev1.ConfigMap{})
			if err != nil {
				return "", err
			}
			object, exists, err := informer.(toolscache.SharedIndexInformer).GetIndexer().GetByKey("default/" + name)
			if err != nil || !exists {
				return "absent", err
			}
			return object.(*corev1.ConfigMap).Labels["state"], nil
		},
		"synced": func(ctx context.Context, _ string) (string, error) {
			informer, err := cached.GetInformer(ctx, &corev1.ConfigMap{})
			if err != nil {
				return "", err
			}
			return fmt.Sprint(informer.HasSynced()), nil
		},
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
func getWay(reader client.Reader, empty client.Object) way {
	return func(ctx context.Context, name string) (string, error) {
		object := empty.DeepCopyObject().(client.Object)
		err := reader.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, object)
		if apierrors.IsNotFound(err) {
			return "absent", nil
		}
		return object.GetLabels()["state"], err
	}
}

func listWay(reader client.Reader, empty client.ObjectList) way {
	return func(ctx context.Context, name string) (string, error) {
		list := empty.DeepCopyObject().(client.ObjectList)
		if err := reader.List(ctx, list, client.InNamespace("default")); err != nil {
			return "", err
		}
		state := "absent"
		err := meta.EachListItem(list, func(object runtime.Object) error {
			if m, err := meta.Accessor(object); err == nil && m.GetName() == name {
				state = m.GetLabels()["state"]
			}
			return nil
		})
		return state, err
	}
}
