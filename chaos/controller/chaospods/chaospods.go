// Package chaospods keeps one chaos pod for each target and kind while a disruption is active, and deletes the others:
// also those whose disruption has gone, and those that have ended by themselves, for instance by eviction, which it
// replaces. A chaos pod's name follows from its target and kind, so that none is created twice. Before it creates or
// deletes any it asks the API server what the disruption is now: the cache may have newer pods than disruptions.
package chaospods

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

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
	"github.com/trommel-dev/trommel/chaos/inject"
	"github.com/trommel-dev/trommel/chaos/inject/fault"
	"github.com/trommel-dev/trommel/chaos/kinds"
	"github.com/trommel-dev/trommel/internal/controllers"
)

// Reconciler is the controller.
type Reconciler struct{ Env *controller.Env }

// Add adds the controller to a manager.
func Add(mgr ctrl.Manager, env *controller.Env) error {
	r := &Reconciler{env}
	return ctrl.NewControllerManagedBy(mgr).Named("disruption-chaospods").
		For(&chaos.Disruption{}, controller.WhenChanged(reads)).
		Watches(&corev1.Pod{}, controller.FromChaosPods()).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.fromTargets)).
		Complete(r)
}

type read struct {
	Ready   controller.Readiness
	Targets []chaos.Target
	Started *metav1.MicroTime
	Active  bool
	Own     metav1.Condition
}

func reads(d *chaos.Disruption) read {
	s := &d.Status
	return read{controller.ReadinessOf(d), s.Targets, s.Schedule.StartedAt, s.Schedule.Active, condition(s)}
}

// fromTargets wakes the controller when a target's containers have restarted.
func (r *Reconciler) fromTargets(ctx context.Context, o client.Object) []reconcile.Request {
	list, err := controller.DisruptionsAt(ctx, r.Env, o.GetUID())
	if err != nil {
		return nil // the cache is closed
	}
	var requests []reconcile.Request
	for i := range list {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list[i])})
	}
	return requests
}

// Reconcile creates and deletes chaos pods.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	d, err := controller.Get(ctx, r.Env.Client, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	// Also those of an earlier disruption of the name, which lost its finalizer before they went.
	if err := r.deleteOrphans(ctx, req.NamespacedName, d); d == nil || err != nil {
		return ctrl.Result{}, err
	}
	if controller.IsRemote(d) {
		return ctrl.Result{}, nil // its chaos pods are in the other cluster
	}
	pods, err := controller.ChaosPods(ctx, r.Env, d)
	if err != nil {
		return ctrl.Result{}, err
	}
	wanted, unwanted, err := r.differ(ctx, d, pods)
	if err != nil {
		return ctrl.Result{}, err
	}
	if len(wanted)+len(unwanted) > 0 {
		latest, err := controller.Get(ctx, r.Env.Reader, req.NamespacedName)
		if err != nil || latest == nil || latest.UID != d.UID {
			return ctrl.Result{}, err // the change wakes the controller
		}
		if latest.ResourceVersion != d.ResourceVersion {
			d = latest
			if wanted, unwanted, err = r.differ(ctx, d, pods); err != nil {
				return ctrl.Result{}, err
			}
		}
	}
	var errs []error
	for _, pod := range unwanted {
		errs = append(errs, controllers.Delete(ctx, r.Env.Client, pod))
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		errs = append(errs, r.create(ctx, d, wanted[name]))
	}
	failed := errors.Join(errs...)
	return controller.Result(errors.Join(failed, r.tell(ctx, d, failed)))
}

// differ returns the chaos pods to create, by name, and those to delete.
func (r *Reconciler) differ(
	ctx context.Context, d *chaos.Disruption, pods []corev1.Pod,
) (wanted map[string]*corev1.Pod, unwanted []*corev1.Pod, err error) {
	wanted, err = r.wanted(ctx, d)
	for i := range pods {
		pod := &pods[i]
		want := wanted[pod.Name]
		delete(wanted, pod.Name) // if it is being deleted, its end wakes the controller
		if pod.DeletionTimestamp == nil && (want == nil || ended(pod) ||
			pod.Labels[controller.LabelTarget] != want.Labels[controller.LabelTarget] ||
			pod.Annotations[controller.AnnotationContainers] != want.Annotations[controller.AnnotationContainers]) {
			unwanted = append(unwanted, pod)
		}
	}
	return wanted, unwanted, err
}

func condition(s *chaos.DisruptionStatus) metav1.Condition {
	return controller.Condition(s, chaos.ConditionChaosPods)
}

// tell says in the disruption what keeps chaos pods from being created or deleted. It is tried again, more and more
// seldom.
func (r *Reconciler) tell(ctx context.Context, d *chaos.Disruption, failed error) error {
	if failed != nil && controllers.Passing(failed) ||
		failed == nil && condition(&d.Status).Status != metav1.ConditionFalse {
		return nil
	}
	return controller.UpdateStatus(ctx, r.Env, d, condition, func(s *chaos.DisruptionStatus) {
		if failed != nil {
			controller.SetCondition(s, chaos.ConditionChaosPods, false, "Failed", failed.Error())
		} else {
			controller.SetCondition(s, chaos.ConditionChaosPods, true, "Done", "")
		}
	})
}

// ended reports whether a chaos pod is to be replaced. A pod that reported that it cannot inject is not replaced: the
// next one could not either.
func ended(pod *corev1.Pod) bool {
	switch pod.Status.Phase {
	case corev1.PodFailed:
		return true
	case corev1.PodSucceeded:
		reported := inject.Reported(pod).State
		return reported != chaos.InjectionFailed && reported != chaos.InjectionUnsupported
	}
	return false
}

// deleteOrphans deletes chaos pods whose disruption has gone: they were created while it went, or it went before they
// did, without its finalizer. present is the disruption that has the name now; nil if there is none.
func (r *Reconciler) deleteOrphans(ctx context.Context, key types.NamespacedName, present *chaos.Disruption) error {
	pods, err := controller.PodsOf(ctx, r.Env, key)
	if err != nil {
		return err
	}
	pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool {
		return p.DeletionTimestamp != nil ||
			present != nil && string(present.UID) == p.Labels[controller.LabelDisruption]
	})
	if len(pods) == 0 {
		return nil
	}
	latest, err := controller.Get(ctx, r.Env.Reader, key)
	if err != nil {
		return err
	}
	var errs []error
	for i := range pods {
		if latest == nil || string(latest.UID) != pods[i].Labels[controller.LabelDisruption] {
			errs = append(errs, controllers.Delete(ctx, r.Env.Client, &pods[i]))
		}
	}
	return errors.Join(errs...)
}

// create creates a chaos pod.
func (r *Reconciler) create(ctx context.Context, d *chaos.Disruption, pod *corev1.Pod) error {
	err := r.Env.Client.Create(ctx, pod)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	// Ours, newer than the cache; or one of a disruption that has not quite ended, or that was quicker.
	existing := &corev1.Pod{}
	err = r.Env.Reader.Get(ctx, client.ObjectKeyFromObject(pod), existing)
	if err == nil && existing.Labels[controller.LabelDisruption] != string(d.UID) {
		return fmt.Errorf("target %s has a chaos pod of the same kind of disruption %s",
			pod.Annotations[controller.AnnotationTarget], existing.Annotations[controller.AnnotationDisruption])
	}
	return client.IgnoreNotFound(err)
}

// wanted are the chaos pods that a disruption should have now, by name.
func (r *Reconciler) wanted(ctx context.Context, d *chaos.Disruption) (map[string]*corev1.Pod, error) {
	wanted := map[string]*corev1.Pod{}
	if !controller.Ready(d) || controller.Ending(d) || !controller.Active(d, r.Env.Clock.Now()) {
		return wanted, nil
	}
	for _, t := range d.Status.Targets {
		node, containers, err := r.place(ctx, d, &t)
		if err != nil {
			return nil, err
		}
		for _, kind := range controller.Kinds(&d.Spec.Kinds) {
			pod, err := r.pod(d, &t, kind, node)
			if err != nil {
				return nil, err
			}
			if !kinds.Of(kind).OutlivesContainers {
				pod.Annotations[controller.AnnotationContainers] = containers
			}
			wanted[pod.Name] = pod
		}
	}
	return wanted, nil
}

// place returns the node on which the chaos pods of a target run, and the IDs of its containers if a fault ends with
// them: on real nodes namespaces and cgroups belong to a container.
func (r *Reconciler) place(ctx context.Context, d *chaos.Disruption, t *chaos.Target) (string, string, error) {
	simulated := r.Env.Config.Simulated
	if simulated != "" {
		node := &corev1.Node{}
		err := r.Env.Client.Get(ctx, client.ObjectKey{Name: t.Node}, node)
		if client.IgnoreNotFound(err) != nil {
			return "", "", err
		}
		// The faults of the process node belong to a pod, not to its processes. A node that is gone may be so because
		// of the disruption.
		if t.Node == simulated || apierrors.IsNotFound(err) || fault.Simulated(node) {
			return simulated, "", nil
		}
	}
	if d.Spec.Level == chaos.LevelNode {
		return t.Node, "", nil
	}
	target := &corev1.Pod{}
	err := r.Env.Client.Get(ctx, client.ObjectKey{Namespace: d.Namespace, Name: t.Name}, target)
	if err != nil || target.UID != t.UID {
		return t.Node, "", client.IgnoreNotFound(err)
	}
	var ids []string
	for _, c := range target.Status.ContainerStatuses {
		if c.State.Running != nil && (len(d.Spec.Containers) == 0 || slices.Contains(d.Spec.Containers, c.Name)) {
			ids = append(ids, c.ContainerID)
		}
	}
	return t.Node, strings.Join(ids, ","), nil
}
