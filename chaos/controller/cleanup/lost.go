package cleanup

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/internal/controllers"
)

// lost are the cleaners of chaos pods that have gone although this controller did not let them go: their finalizer was
// removed by other clients. What they have injected may be left, whether their disruption is still there or not.
type lost struct {
	mu       sync.Mutex
	released map[types.UID]bool // chaos pods that this controller lets go
	cleaners map[types.UID]*corev1.Pod
}

// releases remembers that a chaos pod is let go, until it has gone.
func (l *lost) releases(uid types.UID, yes bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !yes {
		delete(l.released, uid)
		return
	}
	if l.released == nil {
		l.released = map[types.UID]bool{}
	}
	l.released[uid] = true
}

// of lists the cleaners that are to be created for a disruption.
func (l *lost) of(key types.NamespacedName) (list []*corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, uid := range slices.Sorted(maps.Keys(l.cleaners)) {
		if l.cleaners[uid].Annotations[controller.AnnotationDisruption] == key.String() {
			list = append(list, l.cleaners[uid])
		}
	}
	return list
}

func (l *lost) forget(cleaner *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.cleaners, types.UID(cleaner.Labels[controller.LabelCleans]))
}

func (l *lost) add(cleaner *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cleaners == nil {
		l.cleaners = map[types.UID]*corev1.Pod{}
	}
	l.cleaners[types.UID(cleaner.Labels[controller.LabelCleans])] = cleaner
}

// handler wakes the controller for the disruptions of chaos pods that have gone before their time.
func (l *lost) handler() handler.EventHandler {
	return handler.Funcs{DeleteFunc: func(
		_ context.Context, e event.DeleteEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request],
	) {
		pod, isPod := e.Object.(*corev1.Pod)
		owner, isChaosPod := controller.OwnerOf(e.Object)
		if !isPod || !isChaosPod {
			return
		}
		l.mu.Lock()
		released := l.released[pod.UID]
		delete(l.released, pod.UID)
		l.mu.Unlock()
		nothingLeft := pod.Status.Phase == corev1.PodSucceeded ||
			pod.Status.Phase == corev1.PodFailed && failedBeforeItBegan(pod) ||
			slices.Contains(pod.Spec.Containers[0].Args, "--dry-run")
		if released || nothingLeft || pod.Spec.NodeName == "" {
			return
		}
		l.add(newCleaner(pod))
		queue.Add(reconcile.Request{NamespacedName: owner})
	}}
}

// cleanAfterLost creates the cleaners of chaos pods that have gone before their time, and deletes those that have
// succeeded. pods are the chaos pods that there are. It returns the cleaners that need a person, and when the next one
// will.
func (r *Reconciler) cleanAfterLost(
	ctx context.Context, key types.NamespacedName, pods []corev1.Pod,
) (stuck []*corev1.Pod, next time.Time, err error) {
	cleaners, err := controller.CleanersOf(ctx, r.Env, key)
	if err != nil {
		return nil, next, err
	}
	there := map[string]bool{}
	// The injector of a pod that takes the place of the one that has gone cleans first, or is cleaned after, if it
	// begins: so the cleaner is not forgotten before. The one that has gone may be among the pods, too: they were
	// listed a moment ago.
	replaced := func(cleaner *corev1.Pod) (yes, begun bool) {
		for i := range pods {
			p := &pods[i]
			if injectionID(p) == cleaner.Annotations[controller.AnnotationInjection] &&
				string(p.UID) != cleaner.Labels[controller.LabelCleans] {
				yes, begun = true, begun || hasBegun(p)
			}
		}
		return yes, begun
	}
	var errs []error
	for i := range cleaners {
		cleaner := &cleaners[i]
		there[cleaner.Name] = true
		if len(cleaner.OwnerReferences) > 0 {
			continue
		}
		late := cleaner.CreationTimestamp.Add(cleanerTime)
		failing := controller.Failing(cleaner) || !r.Env.Clock.Now().Before(late)
		succeeded := cleaner.Status.Phase == corev1.PodSucceeded
		replaced, begun := replaced(cleaner)
		switch {
		case cleaner.DeletionTimestamp != nil && failing && !succeeded && !replaced:
			r.lost.forget(cleaner) // a person has cleaned, and deletes it
		case cleaner.DeletionTimestamp != nil:
		case cleaner.Status.Phase == corev1.PodFailed: // it was evicted, or its node did not take it
			r.lost.add(again(cleaner))
			errs = append(errs, controllers.Delete(ctx, r.Env.Client, cleaner))
		case succeeded, begun:
			r.lost.forget(cleaner)
			errs = append(errs, controllers.Delete(ctx, r.Env.Client, cleaner))
		case replaced: // it may fail as long as the other one runs, whose change wakes the controller
		case failing:
			down, err := r.nodeDown(ctx, cleaner)
			if errs = append(errs, err); err == nil && !down { // otherwise it runs when the node is back
				stuck = append(stuck, cleaner)
			}
		case next.IsZero() || late.Before(next):
			next = late
		}
	}
	for _, cleaner := range r.lost.of(key) {
		if !there[cleaner.Name] { // the end of one that did not succeed wakes the controller
			replaced, begun := replaced(cleaner)
			switch {
			case begun:
				r.lost.forget(cleaner)
			case !replaced:
				errs = append(errs, r.cleanLost(ctx, cleaner))
			}
		}
	}
	return stuck, next, errors.Join(errs...)
}

// cleanLost creates a cleaner, unless nothing can be left where it would clean. It is remembered until it has
// succeeded, because other clients may remove it, too.
func (r *Reconciler) cleanLost(ctx context.Context, cleaner *corev1.Pod) error {
	err := r.Env.Reader.Get(ctx, client.ObjectKey{Name: cleaner.Spec.NodeName}, &corev1.Node{})
	if apierrors.IsNotFound(err) {
		r.lost.forget(cleaner)
		return nil
	}
	if err == nil {
		err = r.Env.Client.Create(ctx, cleaner.DeepCopy())
	}
	if apierrors.IsAlreadyExists(err) {
		// The cache is behind. The owner of that one may be the pod that has gone; its end wakes the controller.
		return nil
	}
	return err
}
