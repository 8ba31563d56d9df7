// Package reconciler holds the controller's work.
package reconciler

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Copier copies ConfigMaps.
type Copier struct {
	client.Client
	APIReader client.Reader
}

// Reconcile copies one ConfigMap.
func (c *Copier) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var from corev1.ConfigMap
	if err := c.Get(ctx, req.NamespacedName, &from); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if from.Labels["verbs"] == "true" {
		return ctrl.Result{}, c.verbs(ctx, &from)
	}
	if from.Labels["copy"] != "true" {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, c.copy(ctx, &from)
}

func (c *Copier) copy(ctx context.Context, from *corev1.ConfigMap) error {
	to := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: from.Namespace, Name: from.Name + "-copy"},
		Data:       from.Data,
	}
	var present corev1.ConfigMap
	err := c.APIReader.Get(ctx, client.ObjectKeyFromObject(to), &present)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if err != nil {
		return c.Create(ctx, to)
	}
	present.Data = from.Data
	return c.Update(ctx, &present)
}

// verbs makes one write of each kind, in the order that the tests expect.
func (c *Copier) verbs(ctx context.Context, from *corev1.ConfigMap) error {
	generated := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: from.Namespace, GenerateName: "generated-",
		Labels: map[string]string{"generated": "true"}}}
	if err := c.Create(ctx, generated); err != nil {
		return err
	}
	if err := c.Patch(ctx, from.DeepCopy(), client.RawPatch("application/merge-patch+json",
		[]byte(`{"data":{"patched":"yes"}}`))); err != nil {
		return err
	}
	untyped := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": from.Namespace,
				"name": name},
		}}
	}
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(untyped("applied")),
		client.FieldOwner("copier")); err != nil {
		return err
	}
	if err := c.Create(ctx, untyped("untyped")); err != nil {
		return err
	}
	if err := c.Create(ctx, untyped("untyped")); client.IgnoreAlreadyExists(err) != nil {
		return err
	}
	if err := c.Delete(ctx, untyped("applied")); err != nil {
		return err
	}
	if err := c.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(from.Namespace),
		client.MatchingLabels{"generated": "true"}); err != nil {
		return err
	}
	if err := c.subresources(ctx, from.Namespace); err != nil {
		return err
	}
	for _, reader := range []client.Reader{c, c.APIReader} {
		if err := reader.List(ctx, &corev1.ConfigMapList{}, client.InNamespace(from.Namespace)); err != nil {
			return err
		}
	}
	// These calls belong to the reconcile if their context says so.
	for name, ctx := range map[string]context.Context{"in-goroutine": ctx, "without-context": context.Background()} {
		created := make(chan error)
		go func() { created <- c.Create(ctx, untyped(name)) }()
		if err := <-created; err != nil {
			return err
		}
	}
	return nil
}

func (c *Copier) subresources(ctx context.Context, namespace string) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "verbs"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	if err := c.Create(ctx, pod); err != nil {
		return err
	}
	pod.Status.Message = "seen"
	if err := c.Status().Update(ctx, pod); err != nil {
		return err
	}
	return c.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{})
}
