// Package rollout creates a disruption when the workload of a DisruptionRollout gets a new version: when its pod
// template has changed since it was last seen. The versions are counted, and a disruption's name follows from the
// number, so that a controller which has forgotten that it created one does not create a second. A version that looks
// new is read from the API server, as is the DisruptionRollout, before anything is done: the cache may show an old one.
// It writes only the status of DisruptionRollouts; the disruptions belong to them, and are deleted with them.
package rollout

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
)

// Reconciler is the controller.
type Reconciler struct{ Env *controller.Env }

// Add adds the controller to a manager.
func Add(mgr ctrl.Manager, env *controller.Env) error {
	r := &Reconciler{env}
	return ctrl.NewControllerManagedBy(mgr).Named("disruption-rollout").For(&chaos.DisruptionRollout{}).
		Owns(&chaos.Disruption{}).
		Watches(&appsv1.Deployment{}, r.of("Deployment")).Watches(&appsv1.StatefulSet{}, r.of("StatefulSet")).
		Watches(&appsv1.DaemonSet{}, r.of("DaemonSet")).Complete(r)
}

// of wakes the controller for the DisruptionRollouts of a changed workload.
func (r *Reconciler) of(kind string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		var list chaos.DisruptionRolloutList
		if err := r.Env.Client.List(ctx, &list, client.InNamespace(o.GetNamespace()),
			client.UnsafeDisableDeepCopy); err != nil {
			return nil // the cache is closed
		}
		var requests []reconcile.Request
		for i := range list.Items {
			if t := list.Items[i].Spec.Target; t.Kind == kind && t.Name == o.GetName() {
				key := client.ObjectKeyFromObject(&list.Items[i])
				requests = append(requests, reconcile.Request{NamespacedName: key})
			}
		}
		return requests
	})
}

// Reconcile compares the target's version with the one that was last seen.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	return controller.Result(r.from(ctx, r.Env.Client, req.NamespacedName))
}

// from does it as the reader shows both: the cache, or the API server.
func (r *Reconciler) from(ctx context.Context, reader client.Reader, key client.ObjectKey) error {
	o := &chaos.DisruptionRollout{}
	if err := reader.Get(ctx, key, o); err != nil || o.DeletionTimestamp != nil {
		return client.IgnoreNotFound(err)
	}
	version, err := version(ctx, reader, o)
	switch {
	case apierrors.IsNotFound(err):
		return r.write(ctx, o, func(s *chaos.DisruptionRolloutStatus) {
			s.Message = fmt.Sprintf("there is no %s %s", o.Spec.Target.Kind, o.Spec.Target.Name)
		})
	case err != nil:
		return err
	case version == o.Status.Version:
		return nil
	case reader != r.Env.Reader:
		return r.from(ctx, r.Env.Reader, key)
	case o.Status.Version == "":
		return r.write(ctx, o, func(s *chaos.DisruptionRolloutStatus) { s.Version, s.Message = version, "" })
	}
	changes := o.Status.Changes + 1
	skipped, created := "suspended", ""
	if !o.Spec.Suspend {
		name := o.Name + "-" + strconv.FormatInt(changes, 10)
		skipped, err = r.Env.CreateNext(ctx, o, "DisruptionRollout", name, &o.Spec.Disruption)
		if err != nil {
			return err
		}
		if skipped == "" {
			created = name
		}
	}
	err = r.write(ctx, o, func(s *chaos.DisruptionRolloutStatus) {
		s.Version, s.Changes, s.Message = version, changes, skipped
		if created != "" {
			s.LastDisruption = created
		}
	})
	if err == nil && skipped != "" {
		r.Env.Events.Eventf(o, nil, corev1.EventTypeWarning, "Skipped", "Rollout", "%s", skipped)
	}
	return err
}

// version identifies the pod template of the target.
func version(ctx context.Context, reader client.Reader, o *chaos.DisruptionRollout) (string, error) {
	var template *corev1.PodTemplateSpec
	var target client.Object
	switch o.Spec.Target.Kind {
	case "Deployment":
		d := &appsv1.Deployment{}
		target, template = d, &d.Spec.Template
	case "StatefulSet":
		s := &appsv1.StatefulSet{}
		target, template = s, &s.Spec.Template
	default:
		d := &appsv1.DaemonSet{}
		target, template = d, &d.Spec.Template
	}
	if err := reader.Get(ctx, client.ObjectKey{Namespace: o.Namespace, Name: o.Spec.Target.Name}, target); err != nil {
		return "", err
	}
	data, err := json.Marshal(template)
	sum := sha256.Sum256(append([]byte(o.Spec.Target.Kind+"/"+o.Spec.Target.Name+"/"), data...))
	return hex.EncodeToString(sum[:8]), err
}

// write writes the status, unless the version may have been handled meanwhile.
func (r *Reconciler) write(
	ctx context.Context, o *chaos.DisruptionRollout, set func(*chaos.DisruptionRolloutStatus),
) error {
	return controller.UpdateWhole(ctx, r.Env, o,
		func(o *chaos.DisruptionRollout) *chaos.DisruptionRolloutStatus { return &o.Status }, set)
}
