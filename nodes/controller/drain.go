package controller

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
)

// Pods lists the pods of a Node that draining is about: neither those of a DaemonSet, nor mirror pods.
func (e *Env) Pods(ctx context.Context, node string) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := e.Reader.List(ctx, &list, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return !Drained(&p) }), nil
}

// Drained reports whether draining is about a pod: neither one of a DaemonSet, nor a mirror pod.
func Drained(p *corev1.Pod) bool {
	owner := metav1.GetControllerOf(p)
	return (owner == nil || owner.Kind != "DaemonSet") && p.Annotations[corev1.MirrorPodAnnotationKey] == ""
}

// Loss says what would be lost if a pod were evicted, and whether the settings accept that. Empty: nothing. The rules
// are those of kubectl drain (k8s.io/kubectl/pkg/drain, which would bring kubectl's command line with it): a pod
// without a controller is not made again, and the data of emptyDir volumes goes with the pod. A pod that has ended is
// not missed.
func Loss(s *nodes.CycleSettings, p *corev1.Pod) (loss string, accepted bool) {
	if p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return "", true
	}
	unmanaged := metav1.GetControllerOf(p) == nil
	local := slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.EmptyDir != nil })
	switch {
	case unmanaged && !s.Force:
		return "no controller would make it again", false
	case local && !s.DeleteEmptyDirData:
		return "the data of its emptyDir volumes would be lost", false
	case unmanaged && local:
		return "no controller makes it again, and the data of its emptyDir volumes is lost", true
	case unmanaged:
		return "no controller makes it again", true
	case local:
		return "the data of its emptyDir volumes is lost", true
	}
	return "", true
}

// Undrainable lists those of the pods that the settings do not allow to evict, each with the reason. If there is one,
// nothing of the node is evicted.
func Undrainable(s *nodes.CycleSettings, pods []corev1.Pod) []string {
	var list []string
	for i := range pods {
		if loss, accepted := Loss(s, &pods[i]); !accepted {
			list = append(list, fmt.Sprintf("%s/%s (%s)", pods[i].Namespace, pods[i].Name, loss))
		}
	}
	return list
}

// WarnOfLoss leaves an event if something is lost with an evicted pod.
func (e *Env) WarnOfLoss(s *nodes.CycleNodeStatus, p *corev1.Pod) {
	if loss, _ := Loss(&s.Spec.CycleSettings, p); loss != "" {
		e.Events.Eventf(s, p, corev1.EventTypeWarning, "Evicted", "Cycle", "pod %s/%s: %s", p.Namespace, p.Name, loss)
	}
}

// UndrainableAdvice is what can be done about undrainable pods.
const UndrainableAdvice = "move them, or accept the loss with cycleSettings.force or cycleSettings.deleteEmptyDirData"

// WaitedFor reports whether method Wait waits for the pod.
func WaitedFor(s *nodes.CycleSettings, p *corev1.Pod) bool {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed ||
		slices.Contains(s.IgnoreNamespaces, p.Namespace) ||
		s.WaitForAnnotation != "" && p.Annotations[s.WaitForAnnotation] != "true" {
		return false
	}
	for key, values := range s.IgnorePodsLabels {
		if value, ok := p.Labels[key]; ok && slices.Contains(values, value) {
			return false
		}
	}
	return true
}
