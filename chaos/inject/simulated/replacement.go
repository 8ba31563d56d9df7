package simulated

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/inject"
)

// podReplacement moves a pod to another node: cordon, delete its claims and the pod, wait for its replacement,
// uncordon.
type podReplacement struct {
	injection
	spec v1alpha1.PodReplacement
}

// annotationCordon on a node has the ID of the injection that has cordoned it.
const annotationCordon = "chaos.trommel.dev/cordoned-by"

// replacementTime is how long to wait for a replacement that is scheduled.
const replacementTime = time.Minute

// Check implements inject.Injection.
func (r *podReplacement) Check(ctx context.Context) error {
	client, node, err := r.node(ctx)
	if err != nil {
		return err
	}
	if _, ok := node.Labels[labelProcessNode]; ok {
		return inject.Unsupported("there is no other node for a pod that runs as a process")
	}
	_, err = r.pod(ctx, client)
	return err
}

// pod reads the target.
func (r *podReplacement) pod(ctx context.Context, client kubernetes.Interface) (*corev1.Pod, error) {
	t := r.request.Target
	pod, err := client.CoreV1().Pods(t.Namespace).Get(ctx, t.Pod, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if pod.UID != t.UID {
		return nil, fmt.Errorf("the pod %s/%s is another one now", t.Namespace, t.Pod)
	}
	return pod, nil
}

// Inject implements inject.Injection.
func (r *podReplacement) Inject(ctx context.Context) error {
	client, node, err := r.node(ctx)
	if err != nil {
		return err
	}
	pod, err := r.pod(ctx, client)
	if err != nil {
		return err
	}
	owner := metav1.GetControllerOf(pod)
	before, err := r.siblings(ctx, client, pod.Namespace, owner)
	if err != nil {
		return err
	}
	if !node.Spec.Unschedulable {
		if err := patchNode(ctx, client, node.Name, object{
			"metadata": object{
				"resourceVersion": node.ResourceVersion, "annotations": object{annotationCordon: r.request.ID()},
			},
			"spec": object{"unschedulable": true},
		}); err != nil {
			return fmt.Errorf("cordon the node %s: %w", node.Name, err)
		}
	}
	if r.spec.DeleteClaims {
		if err := r.deleteClaims(ctx, client, pod); err != nil {
			return err
		}
	}
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}
	if r.spec.GracePeriod != nil {
		seconds := int64(r.spec.GracePeriod.Duration().Seconds())
		options.GracePeriodSeconds = &seconds
	}
	err = client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete the pod: %w", err)
	}
	if owner == nil {
		return nil // it is not replaced; the node stays cordoned until the end
	}
	if err := r.awaitReplacement(ctx, client, pod.Namespace, owner, before); err != nil {
		return err
	}
	return r.Clean(ctx)
}

func (r *podReplacement) deleteClaims(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) error {
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		name := v.PersistentVolumeClaim.ClaimName
		err := client.CoreV1().PersistentVolumeClaims(pod.Namespace).Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete the claim %s: %w", name, err)
		}
	}
	return nil
}

// siblings lists the pods of an owner, by whether they are scheduled.
func (r *podReplacement) siblings(ctx context.Context, client kubernetes.Interface, namespace string,
	owner *metav1.OwnerReference) (map[types.UID]bool, error) {
	scheduled := map[types.UID]bool{}
	if owner == nil {
		return scheduled, nil
	}
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	for _, p := range pods.Items {
		if o := metav1.GetControllerOf(&p); o != nil && o.UID == owner.UID {
			scheduled[p.UID] = p.Spec.NodeName != ""
		}
	}
	return scheduled, nil
}

// awaitReplacement waits until the owner has a scheduled pod that was not there before.
func (r *podReplacement) awaitReplacement(ctx context.Context, client kubernetes.Interface, namespace string,
	owner *metav1.OwnerReference, before map[types.UID]bool) error {
	ctx, cancel := context.WithTimeout(ctx, replacementTime)
	defer cancel()
	for {
		watch, err := client.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("wait for a replacement: %w", err)
		}
		// Listed after the watch has begun, so that none is missed.
		for {
			now, err := r.siblings(ctx, client, namespace, owner)
			if err != nil {
				watch.Stop()
				return err
			}
			for uid, scheduled := range now {
				if _, old := before[uid]; !old && scheduled {
					watch.Stop()
					return nil
				}
			}
			if _, ok := <-watch.ResultChan(); !ok {
				break
			}
		}
		watch.Stop()
		if ctx.Err() != nil {
			return errors.New("no replacement is scheduled: is there another node for it?")
		}
	}
}

// Clean implements inject.Injection.
func (r *podReplacement) Clean(ctx context.Context) error {
	client, node, err := r.node(ctx)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if node.Annotations[annotationCordon] != r.request.ID() {
		return nil
	}
	err = patchNode(ctx, client, node.Name, object{
		"metadata": object{
			"resourceVersion": node.ResourceVersion, "annotations": object{annotationCordon: nil},
		},
		"spec": object{"unschedulable": nil},
	})
	if err != nil {
		return fmt.Errorf("uncordon the node %s: %w", node.Name, err)
	}
	return nil
}
