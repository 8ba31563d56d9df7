// Package cleanup takes the finalizer of a chaos pod that is being deleted away: when it has completed, never started,
// or its target cannot be cleaned any more. A chaos pod that failed although its target can be cleaned stays until a
// cleaner has undone by the journal what is left. If that does not work, or if a chaos pod runs long after its grace
// period, the disruption is stuck on removal and says what a person has to do. If other clients removed the finalizer
// of a chaos pod, its node is cleaned too.
package cleanup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/chaos/kinds"
)

// Reconciler is the controller.
type Reconciler struct {
	Env  *controller.Env
	lost lost
}

// Add adds the controller to a manager.
func Add(mgr ctrl.Manager, env *controller.Env) error {
	r := &Reconciler{Env: env}
	return ctrl.NewControllerManagedBy(mgr).Named("disruption-cleanup").
		For(&chaos.Disruption{}, controller.WhenChanged(func(d *chaos.Disruption) own { return fields(&d.Status) })).
		Watches(&corev1.Pod{}, controller.FromChaosPods()).
		Watches(&corev1.Pod{}, controller.FromCleaners()).
		Watches(&corev1.Pod{}, r.lost.handler()).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.ofTarget)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.ofTarget)).
		Complete(r)
}

// ofTarget wakes the controller when a target, or the node of chaos pods, has changed.
func (r *Reconciler) ofTarget(ctx context.Context, o client.Object) []reconcile.Request {
	pods, err := controller.PodsAt(ctx, r.Env, o.GetUID())
	if _, isNode := o.(*corev1.Node); isNode {
		var all corev1.PodList
		err = errors.Join(err, r.Env.Client.List(ctx, &all, client.InNamespace(r.Env.Config.Namespace),
			client.UnsafeDisableDeepCopy))
		for i := range all.Items {
			if all.Items[i].Spec.NodeName == o.GetName() {
				pods = append(pods, all.Items[i])
			}
		}
	}
	if err != nil {
		return nil // the cache is closed
	}
	var requests []reconcile.Request
	for i := range pods {
		pod := &pods[i]
		if pod.DeletionTimestamp == nil {
			continue
		}
		if owner, ok := controller.OwnerOf(pod); ok {
			if request := (reconcile.Request{NamespacedName: owner}); !slices.Contains(requests, request) {
				requests = append(requests, request)
			}
		}
	}
	return requests
}

type own struct {
	Removable metav1.Condition
	Stuck     bool
}

func fields(s *chaos.DisruptionStatus) own {
	return own{controller.Condition(s, chaos.ConditionRemovable), s.IsStuckOnRemoval}
}

// Reconcile lets chaos pods go.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pods, err := controller.PodsOf(ctx, r.Env, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	var stuck trouble
	var again time.Time // when the next chaos pod is overdue; zero: none will be
	var errs []error
	soon := func(at time.Time) {
		if again.IsZero() || at.Before(again) {
			again = at
		}
	}
	for i := range pods {
		pod := &pods[i]
		if pod.DeletionTimestamp == nil || !slices.Contains(pod.Finalizers, controller.PodFinalizer) {
			continue
		}
		verdict, err := r.judge(ctx, pod)
		var late time.Time
		if verdict == stays && err == nil {
			verdict, late, err = r.clean(ctx, pod)
			if verdict == waits {
				if !late.IsZero() {
					soon(late)
				}
				errs = append(errs, err)
				continue
			}
		}
		overdue := pod.DeletionTimestamp.Add(cmp.Or(r.Env.Config.Overdue, 30*time.Second))
		switch {
		case err != nil:
			errs = append(errs, err)
			continue
		case verdict == goes:
			errs = append(errs, r.release(ctx, pod))
			continue
		case verdict == waits && r.Env.Clock.Now().Before(overdue):
			soon(overdue)
			continue
		}
		down, err := r.nodeDown(ctx, pod)
		switch {
		case err != nil:
			errs = append(errs, err)
		case down && !kinds.Of(controller.KindOf(pod)).InAPI: // what is left in the API does not wait for the node
			errs = append(errs, r.abandon(ctx, pod))
		case verdict == stays:
			stuck.failed = append(stuck.failed, pod)
		default:
			stuck.overdue = append(stuck.overdue, pod)
		}
	}
	lost, late, err := r.cleanAfterLost(ctx, req.NamespacedName, pods)
	if stuck.lost = lost; !late.IsZero() {
		soon(late)
	}
	errs = append(errs, err, r.tell(ctx, req.NamespacedName, stuck))
	if err := errors.Join(errs...); err != nil || again.IsZero() {
		return controller.Result(err)
	}
	return controller.After(r.Env.Clock.Now(), again), nil
}

// trouble is what keeps a disruption from being removed.
type trouble struct {
	failed  []*corev1.Pod // chaos pods
	overdue []*corev1.Pod // chaos pods
	lost    []*corev1.Pod // cleaners of chaos pods that have gone
}

// message says what a person has to do; empty: nothing.
func (t *trouble) message(namespace string) (reason, message string) {
	switch {
	case len(t.failed) > 0:
		pod := t.failed[0]
		return "ChaosPodFailed", fmt.Sprintf("%d chaos pods failed while their targets still run, may have left "+
			"something in them, and their cleaners do not succeed: see `kubectl logs -n %s %s`. %s", len(t.failed),
			namespace, cleanerName(pod), remedy(pod))
	case len(t.overdue) > 0:
		pod := t.overdue[0]
		return "ChaosPodOverdue", fmt.Sprintf("%d chaos pods still run after their grace period: does the kubelet of "+
			"node %s work? They may have left something in their targets. If it does not come back, delete the Node, "+
			"or remove "+
			"the finalizer %s of pod %s/%s", len(t.overdue), pod.Spec.NodeName, controller.PodFinalizer, namespace,
			pod.Name)
	case len(t.lost) > 0:
		pod := t.lost[0]
		return "ChaosPodGone", fmt.Sprintf("%d chaos pods were removed by force, may have left something in their "+
			"targets, and their cleaners do not succeed: see `kubectl logs -n %s %s`. Restart the targets, or run "+
			"`%s %s` as root on node %s. Then delete the cleaner", len(t.lost), namespace, pod.Name, injectorOf(pod),
			strings.Join(pod.Spec.Containers[0].Args, " "), pod.Spec.NodeName)
	}
	return "", ""
}

type verdict int

const (
	waits verdict = iota // its end wakes the controller
	goes
	stays
)

// judge decides about a chaos pod that is being deleted.
func (r *Reconciler) judge(ctx context.Context, pod *corev1.Pod) (verdict, error) {
	switch pod.Status.Phase {
	case corev1.PodSucceeded:
		return goes, nil
	case corev1.PodFailed:
		if failedBeforeItBegan(pod) {
			return goes, nil
		}
	case corev1.PodRunning:
		node := &corev1.Node{}
		key := types.NamespacedName{Name: pod.Spec.NodeName}
		err := r.Env.Client.Get(ctx, key, node)
		if apierrors.IsNotFound(err) { // unless the cache is behind
			err = r.Env.Reader.Get(ctx, key, node)
		}
		if client.IgnoreNotFound(err) != nil || err == nil {
			return waits, client.IgnoreNotFound(err)
		}
		// No process will end it.
	default:
		if !started(pod) {
			return goes, nil
		}
		return waits, nil
	}
	cleanable, err := r.cleanable(ctx, pod)
	if err != nil {
		return waits, err
	}
	if cleanable {
		return stays, nil
	}
	return goes, nil
}

func started(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Running != nil || c.State.Terminated != nil || c.RestartCount > 0
	})
}

// failedBeforeItBegan reports whether the injector of a pod that failed did not do anything.
func failedBeforeItBegan(pod *corev1.Pod) bool {
	if !started(pod) {
		// The kubelet did not take it. Of some pods that it has evicted it does not list the containers, either.
		return pod.Status.Reason != "Evicted" || strings.HasPrefix(pod.Status.Message, "Pod was rejected") ||
			strings.HasPrefix(pod.Status.Message, "The node had condition")
	}
	// From its first moment on it handles SIGTERM, and does not die of it.
	const diedOfSIGTERM = 128 + 15
	return !slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.RestartCount > 0 || c.State.Terminated == nil || c.State.Terminated.ExitCode != diedOfSIGTERM
	})
}

// hasBegun reports whether the injector of a chaos pod has removed what another one with the same fault had left, or
// what is left is removed after this one.
func hasBegun(pod *corev1.Pod) bool {
	switch pod.Status.Phase {
	case corev1.PodSucceeded:
		return true
	case corev1.PodFailed:
		return !failedBeforeItBegan(pod)
	}
	return controller.PodReady(pod)
}

// cleanable reports whether something that a chaos pod left in its target could still be removed.
func (r *Reconciler) cleanable(ctx context.Context, pod *corev1.Pod) (bool, error) {
	if kinds.Of(controller.KindOf(pod)).InAPI {
		return true, nil
	}
	name, uid := pod.Annotations[controller.AnnotationTarget], pod.Labels[controller.LabelTarget]
	if pod.Annotations[controller.AnnotationLevel] == string(chaos.LevelNode) {
		node := &corev1.Node{}
		err := r.Env.Reader.Get(ctx, types.NamespacedName{Name: name}, node)
		return err == nil && string(node.UID) == uid, client.IgnoreNotFound(err)
	}
	namespace, _, _ := strings.Cut(pod.Annotations[controller.AnnotationDisruption], "/")
	target := &corev1.Pod{}
	err := r.Env.Reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, target)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return string(target.UID) == uid && target.Status.Phase == corev1.PodRunning, nil
}

// release takes the finalizer away. If its finalizers have changed meanwhile, it is tried again.
func (r *Reconciler) release(ctx context.Context, pod *corev1.Pod) error {
	r.lost.releases(pod.UID, true)
	err := controller.SetFinalizer(ctx, r.Env, pod, controller.PodFinalizer, false)
	if err != nil {
		r.lost.releases(pod.UID, false)
	}
	if apierrors.IsInvalid(err) {
		return controller.ErrOutdated
	}
	return err
}

// tell says in the disruption whether it is stuck.
func (r *Reconciler) tell(ctx context.Context, key types.NamespacedName, stuck trouble) error {
	d, err := controller.Get(ctx, r.Env.Client, key)
	reason, message := stuck.message(r.Env.Config.Namespace)
	if d == nil && err == nil {
		for _, cleaner := range stuck.lost { // the only object that can carry the event
			r.Env.Events.Eventf(cleaner, nil, corev1.EventTypeWarning, "NotCleaned", "Clean", "%s", message)
		}
	}
	if d == nil || err != nil || (message == "" && !d.Status.IsStuckOnRemoval) {
		return err
	}
	err = controller.UpdateStatus(ctx, r.Env, d, fields, func(s *chaos.DisruptionStatus) {
		s.IsStuckOnRemoval = message != ""
		if message != "" {
			controller.SetCondition(s, chaos.ConditionRemovable, false, reason, message)
		} else {
			controller.SetCondition(s, chaos.ConditionRemovable, true, "Removable", "")
		}
	})
	if err == nil && message != "" && !d.Status.IsStuckOnRemoval {
		r.Env.Events.Eventf(d, nil, corev1.EventTypeWarning, "StuckOnRemoval", "Remove", "%s", message)
	}
	return err
}
