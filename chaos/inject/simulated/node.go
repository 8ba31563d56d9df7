package simulated

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/inject"
	"github.com/trommel-dev/trommel/chaos/inject/fault"
)

// nodeFailure makes a simulated node look as if its machine had failed.
//
// notReady takes the node away from KWOK, which would repair it, and does what the node lifecycle controller does when
// heartbeats stop: the node's condition Ready is Unknown, and its pods are not ready. gone deletes the Node and creates
// it again at the end; pods on it are meanwhile deleted by Kubernetes, as with a machine that a cloud has taken away.
type nodeFailure struct {
	injection
	spec v1alpha1.NodeFailure
}

// nodeNotes are what must be known to repair the node.
type nodeNotes struct {
	KWOK string       `json:"kwok,omitempty"` // its annotation's value
	Node *corev1.Node `json:"node,omitempty"` // which is deleted
}

const gone = "gone"

// Check implements inject.Injection.
func (f *nodeFailure) Check(ctx context.Context) error {
	_, node, err := f.node(ctx)
	if err != nil {
		return err
	}
	if _, ok := node.Annotations[fault.AnnotationSimulated]; !ok {
		return inject.Unsupported("the node %s is not simulated by KWOK", node.Name)
	}
	if f.request.Target.NodeLevel && node.UID != f.request.Target.UID {
		return fmt.Errorf("the node %s is another one now", node.Name)
	}
	return nil
}

// Inject implements inject.Injection.
func (f *nodeFailure) Inject(ctx context.Context) error {
	client, node, err := f.node(ctx)
	if err != nil {
		return err
	}
	if f.spec.Mode == gone {
		if err := f.notes.Save(nodeNotes{Node: node}); err != nil {
			return err
		}
		return client.CoreV1().Nodes().Delete(ctx, node.Name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &node.UID}})
	}
	if err := f.notes.Save(nodeNotes{KWOK: node.Annotations[fault.AnnotationSimulated]}); err != nil {
		return err
	}
	if err := patchNode(ctx, client, node.Name, object{"metadata": object{
		"annotations": object{fault.AnnotationSimulated: nil, fault.AnnotationFailing: f.request.ID()},
	}}); err != nil {
		return fmt.Errorf("take the node away from KWOK: %w", err)
	}
	if err := setReady(ctx, client, node.Name, corev1.ConditionUnknown, "NodeStatusUnknown",
		"Kubelet stopped posting node status."); err != nil {
		return err
	}
	return f.markPods(ctx, client, corev1.ConditionTrue, "", corev1.ConditionFalse, f.mark())
}

// mark is the message of conditions that this injection has set.
func (f *nodeFailure) mark() string { return "the node fails: disruption " + f.request.Disruption }

func setReady(ctx context.Context, client kubernetes.Interface, node string, status corev1.ConditionStatus,
	reason, message string) error {
	now := metav1.Now()
	err := patchNode(ctx, client, node, object{"status": object{"conditions": []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: status, Reason: reason, Message: message, LastHeartbeatTime: now,
		LastTransitionTime: now,
	}}}}, "status")
	if err != nil {
		return fmt.Errorf("set the node's condition Ready: %w", err)
	}
	return nil
}

// markPods changes the condition Ready of the node's pods that have the given status and message.
func (f *nodeFailure) markPods(ctx context.Context, client kubernetes.Interface, from corev1.ConditionStatus,
	message string, to corev1.ConditionStatus, newMessage string) error {
	pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", f.request.Target.Node).String(),
	})
	if err != nil {
		return fmt.Errorf("list the node's pods: %w", err)
	}
	var errs []error
	for _, p := range pods.Items {
		for _, c := range p.Status.Conditions {
			if c.Type != corev1.PodReady || c.Status != from || message != "" && c.Message != message {
				continue
			}
			patch, err := json.Marshal(object{"metadata": object{"uid": p.UID}, "status": object{
				"conditions": []corev1.PodCondition{{
					Type: corev1.PodReady, Status: to, Message: newMessage, LastTransitionTime: metav1.Now(),
				}},
			}})
			if err != nil {
				return err
			}
			_, err = client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch,
				metav1.PatchOptions{}, "status")
			// A conflict: another pod has its name now.
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				errs = append(errs, fmt.Errorf("set the condition Ready of pod %s/%s: %w", p.Namespace, p.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Clean implements inject.Injection.
func (f *nodeFailure) Clean(ctx context.Context) error {
	var notes nodeNotes
	if saved, err := f.notes.Load(&notes); !saved || err != nil {
		return err
	}
	client, err := f.client()
	if err != nil {
		return err
	}
	if notes.Node != nil {
		return putBack(ctx, client, notes.Node)
	}
	name := f.request.Target.Node
	err = patchNode(ctx, client, name, object{
		"metadata": object{"annotations": object{fault.AnnotationSimulated: notes.KWOK, fault.AnnotationFailing: nil}},
	})
	if apierrors.IsNotFound(err) {
		return nil // another client has deleted it
	}
	if err != nil {
		return fmt.Errorf("give the node back to KWOK: %w", err)
	}
	if err := setReady(ctx, client, name, corev1.ConditionTrue, "KubeletReady", "simulated by KWOK"); err != nil {
		return err
	}
	return f.markPods(ctx, client, corev1.ConditionFalse, f.mark(), corev1.ConditionTrue, "")
}

// putBack creates a deleted node again.
func putBack(ctx context.Context, client kubernetes.Interface, old *corev1.Node) error {
	node := old.DeepCopy()
	node.ObjectMeta = metav1.ObjectMeta{
		Name: old.Name, Labels: old.Labels, Annotations: old.Annotations, Finalizers: old.Finalizers,
	}
	created, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		created, err = client.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
		if err == nil && created.UID == old.UID {
			if created.DeletionTimestamp != nil {
				return fmt.Errorf("the node %s is still being deleted", node.Name)
			}
			return nil // it was not deleted
		}
	}
	if err != nil {
		return fmt.Errorf("create the node again: %w", err)
	}
	status, err := json.Marshal(object{"status": node.Status})
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, status, metav1.PatchOptions{},
		"status")
	if err != nil {
		return fmt.Errorf("restore the status of the node %s (%s): %w", node.Name, created.UID, err)
	}
	return nil
}
