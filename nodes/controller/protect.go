package controller

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Annotations that keep autoscalers from removing a Node.
const (
	AnnotationScaleDownDisabled = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	AnnotationDoNotDisrupt      = "karpenter.sh/do-not-disrupt"
)

// Marks of these annotations: the UID of the request that set the annotation. An annotation without its mark is not a
// request's, and is never removed.
const (
	AnnotationScaleDownDisabledBy = "nodes.trommel.dev/scale-down-disabled-by"
	AnnotationDoNotDisruptBy      = "nodes.trommel.dev/do-not-disrupt-by"
)

var protections = []struct{ annotation, mark string }{
	{AnnotationScaleDownDisabled, AnnotationScaleDownDisabledBy},
	{AnnotationDoNotDisrupt, AnnotationDoNotDisruptBy},
}

// protected is the value of the annotations.
const protected = "true"

// Protect keeps autoscalers from removing a Node that was started for a request, until the request releases it. An
// annotation that is there already stays as it is, and one that was removed meanwhile is not set again.
func (e *Env) Protect(ctx context.Context, node *corev1.Node, request types.UID) error {
	return e.PatchNode(ctx, node, func(n *corev1.Node) bool {
		changed := false
		for _, p := range protections {
			by := n.Annotations[p.mark]
			if _, there := n.Annotations[p.annotation]; by == string(request) || there && by == "" {
				continue
			}
			n.Annotations[p.annotation], n.Annotations[p.mark] = protected, string(request)
			changed = true
		}
		return changed
	})
}

// Unprotect removes the annotations that requests have set, of those requests for which over is true.
func (e *Env) Unprotect(ctx context.Context, node *corev1.Node, over func(request types.UID) bool) error {
	return e.PatchNode(ctx, node, func(n *corev1.Node) bool { return unprotect(n, over) })
}

func unprotect(n *corev1.Node, over func(request types.UID) bool) bool {
	changed := false
	for _, p := range protections {
		by, marked := n.Annotations[p.mark]
		if !marked || !over(types.UID(by)) {
			continue
		}
		if n.Annotations[p.annotation] == protected { // otherwise another client has changed it
			delete(n.Annotations, p.annotation)
		}
		delete(n.Annotations, p.mark)
		changed = true
	}
	return changed
}

// ProtectedBy lists the UIDs of the requests that keep autoscalers from removing a Node.
func ProtectedBy(n *corev1.Node) []types.UID {
	var list []types.UID
	for _, p := range protections {
		if by, marked := n.Annotations[p.mark]; marked && !slices.Contains(list, types.UID(by)) {
			list = append(list, types.UID(by))
		}
	}
	return list
}
