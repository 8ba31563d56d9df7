package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// readOthers has the manager read in all the ways that controllers read what they do not reconcile: types that nothing
// watches yet, objects without a Go type, metadata alone, by an index, in a cache of one's own. The manager ends with
// an error if one of them fails.
func readOthers(mgr ctrl.Manager) error {
	const index = "spec.type"
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &corev1.Service{}, index,
		func(o client.Object) []string {
			return []string{string(o.(*corev1.Service).Spec.Type)}
		})
	if err != nil {
		return err
	}
	second, err := cache.New(mgr.GetConfig(), cache.Options{Scheme: mgr.GetScheme()})
	if err != nil {
		return err
	}
	if err := mgr.Add(second); err != nil {
		return err
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		if !second.WaitForCacheSync(ctx) {
			return fmt.Errorf("the second cache did not start")
		}
		kind := corev1.SchemeGroupVersion.WithKind("Service")
		untyped, metadata := &unstructured.Unstructured{}, &metav1.PartialObjectMetadata{}
		untyped.SetGroupVersionKind(kind)
		metadata.SetGroupVersionKind(kind)
		kind.Kind = "ServiceList"
		untypedList, metadataList := &unstructured.UnstructuredList{}, &metav1.PartialObjectMetadataList{}
		untypedList.SetGroupVersionKind(kind)
		metadataList.SetGroupVersionKind(kind)

		key := client.ObjectKey{Namespace: "default", Name: "kubernetes"}
		here := client.InNamespace(key.Namespace)
		for _, reader := range []client.Reader{mgr.GetClient(), mgr.GetAPIReader(), second} {
			if err := reader.List(ctx, &corev1.ServiceAccountList{}, here); err != nil {
				return fmt.Errorf("list an unwatched type: %w", err)
			}
			for _, o := range []client.Object{&corev1.Service{}, untyped, metadata} {
				if err := reader.Get(ctx, key, o); err != nil || o.GetName() != key.Name {
					return fmt.Errorf("get a %T: %q, %w", o, o.GetName(), err)
				}
			}
			for _, l := range []client.ObjectList{&corev1.ServiceList{}, untypedList, metadataList} {
				if err := reader.List(ctx, l, here); err != nil {
					return fmt.Errorf("list a %T: %w", l, err)
				}
			}
		}
		var found corev1.ServiceList
		err := mgr.GetClient().List(ctx, &found, here,
			client.MatchingFields{index: string(corev1.ServiceTypeClusterIP)})
		if err != nil || len(found.Items) == 0 {
			return fmt.Errorf("list by an index: %d found, %w", len(found.Items), err)
		}
		return nil
	}))
}
