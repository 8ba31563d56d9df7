package controller

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trommel-dev/trommel/internal/controllers"
	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
)

// EvictionRequests are an API of Kubernetes, alpha since 1.37: a request asks for the end of a pod, and others, such as
// the pod's own controller, take part in it. The API server has the API only with the feature gate EvictionRequestAPI
// and --runtime-config=lifecycle.k8s.io/v1alpha1=true. Kubernetes' controller of these requests is in 1.38.
var evictionRequests = schema.GroupVersionKind{
	Group: "lifecycle.k8s.io", Version: "v1alpha1", Kind: "EvictionRequest",
}

// requester is the name by which Kubernetes knows us.
const requester = "nodes.trommel.dev/node-cycling"

// LabelStatus of an EvictionRequest has the UID of the CycleNodeStatus that it was made for.
const LabelStatus = "nodes.trommel.dev/status-uid"

// NoEvictionRequests says why the API server has no EvictionRequests.
const NoEvictionRequests = "method EvictionRequest needs the API lifecycle.k8s.io/v1alpha1 of Kubernetes 1.37 or " +
	"newer: its feature gate EvictionRequestAPI, and --runtime-config=lifecycle.k8s.io/v1alpha1=true"

// HasEvictionRequests reports whether the API server has EvictionRequests.
func (e *Env) HasEvictionRequests() (bool, error) {
	_, err := e.Client.RESTMapper().RESTMapping(evictionRequests.GroupKind(), evictionRequests.Version)
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	return err == nil, err
}

// RequestEviction asks for the end of a pod, once. It returns what Kubernetes says about it; empty: it goes on.
func (e *Env) RequestEviction(
	ctx context.Context, s *nodes.CycleNodeStatus, made []unstructured.Unstructured, p *corev1.Pod,
) (problem string, err error) {
	i := slices.IndexFunc(made, func(o unstructured.Unstructured) bool {
		uid, _, _ := unstructured.NestedString(o.Object, "spec", "target", "pod", "uid")
		return uid == string(p.UID)
	})
	if i >= 0 {
		return refusal(&made[i]), nil
	}
	sum := sha256.Sum256([]byte(p.UID))
	o := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{
			"target":    map[string]any{"pod": map[string]any{"name": p.Name, "uid": string(p.UID)}},
			"requester": requester, "intent": "Eviction",
		},
	}}
	o.SetGroupVersionKind(evictionRequests)
	o.SetNamespace(p.Namespace)
	o.SetName(fmt.Sprintf("%s-%x", s.Name, sum[:5]))
	o.SetLabels(map[string]string{LabelRequest: string(s.Spec.RequestUID), LabelStatus: string(s.UID)})
	// It ends with the pod.
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID}})
	err = e.Client.Create(ctx, o)
	if apierrors.IsAlreadyExists(err) { // an answer was lost
		return "", nil
	}
	if err == nil {
		e.WarnOfLoss(s, p)
	}
	return "", err
}

// refusal says why an EvictionRequest does not end its pod; empty: it may.
func refusal(o *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		c, ok := c.(map[string]any)
		if ok && c["type"] == "Failed" && c["status"] == string(metav1.ConditionTrue) {
			return fmt.Sprintf("EvictionRequest %s has failed: %v: %v", o.GetName(), c["reason"], c["message"])
		}
	}
	if seen, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration"); seen == 0 {
		return fmt.Sprintf("no controller has seen EvictionRequest %s", o.GetName())
	}
	return ""
}

// EvictionRequests lists those that were made for a CycleNodeStatus.
func (e *Env) EvictionRequests(ctx context.Context, s *nodes.CycleNodeStatus) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(evictionRequests.GroupVersion().WithKind(evictionRequests.Kind + "List"))
	err := e.Reader.List(ctx, list, client.MatchingLabels{LabelStatus: string(s.UID)})
	return list.Items, err
}

// WithdrawEvictions deletes the EvictionRequests of a CycleNodeStatus, whose pods may then stay.
func (e *Env) WithdrawEvictions(ctx context.Context, s *nodes.CycleNodeStatus) error {
	if s.Spec.CycleSettings.Method != nodes.MethodEvictionRequest {
		return nil
	}
	made, err := e.EvictionRequests(ctx, s)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil // the API has been turned off
	}
	if err != nil {
		return err
	}
	for i := range made {
		if err := controllers.Delete(ctx, e.Client, &made[i]); err != nil {
			return err
		}
	}
	return nil
}
