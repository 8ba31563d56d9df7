package cleanup

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trommel-dev/trommel/chaos/controller"
)

// A node that is not ready, or that is unreachable, cannot be cleaned, and its kubelet does not report what chaos pods
// do. Their disruption does not wait for it: faults end by themselves, and a cleaner waits until the node is back.

// nodeDown reports whether the node of a pod is not ready, or unreachable.
func (r *Reconciler) nodeDown(ctx context.Context, pod *corev1.Pod) (bool, error) {
	node := &corev1.Node{}
	// The cache may be behind.
	err := r.Env.Reader.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, node)
	return err == nil && notReady(node), client.IgnoreNotFound(err)
}

// notReady reports whether a node said that it is not ready, or is silent. One that has said nothing so far is new.
func notReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
	})
}

// abandon lets a chaos pod go whose node is down, and leaves a cleaner to the node. Without a kubelet a pod goes only
// if it is deleted by force.
func (r *Reconciler) abandon(ctx context.Context, pod *corev1.Pod) error {
	if err := r.leaveCleaner(ctx, pod); err != nil {
		return err
	}
	uid := pod.UID
	err := r.Env.Client.Delete(ctx, pod.DeepCopy(), client.Preconditions{UID: &uid}, client.GracePeriodSeconds(0))
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if err := r.release(ctx, pod); err != nil {
		return err
	}
	key, _ := controller.OwnerOf(pod)
	d, err := controller.Get(ctx, r.Env.Client, key)
	if d == nil || err != nil {
		return err
	}
	r.Env.Events.Eventf(d, nil, corev1.EventTypeWarning, "NodeNotReady", "Clean",
		"chaos pod %s was removed because node %s is not ready; pod %s cleans there when it is back", pod.Name,
		pod.Spec.NodeName, cleanerName(pod))
	return nil
}

// leaveCleaner sees to it that there is a cleaner which does not go with its chaos pod.
func (r *Reconciler) leaveCleaner(ctx context.Context, pod *corev1.Pod) error {
	cleaner := newCleaner(pod)
	err := r.Env.Client.Create(ctx, cleaner.DeepCopy())
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	if err := r.Env.Reader.Get(ctx, client.ObjectKeyFromObject(cleaner), cleaner); err != nil {
		return err
	}
	if len(cleaner.OwnerReferences) == 0 {
		return nil
	}
	patch, err := controller.PatchIf(cleaner, controller.Operation{Op: "add", Path: "/metadata/ownerReferences"})
	if err != nil {
		return err
	}
	return r.Env.Client.Patch(ctx, cleaner, patch)
}
