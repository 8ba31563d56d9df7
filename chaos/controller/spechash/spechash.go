// Package spechash writes down which spec a disruption has, and whether the safety nets accept it, before the other
// controllers act on it. The API server refuses changes of the spec. If one gets through all the same, for instance
// because the definition's rules were removed, the hash does not match: the controller says so in a condition and an
// event, and the disruption ends.
package spechash

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
)

// Reconciler is the controller.
type Reconciler struct{ Env *controller.Env }

// Add adds the controller to a manager.
func Add(mgr ctrl.Manager, env *controller.Env) error {
	return ctrl.NewControllerManagedBy(mgr).Named("disruption-spechash").
		For(&chaos.Disruption{}, controller.WhenChanged(func(d *chaos.Disruption) own { return fields(&d.Status) })).
		Complete(&Reconciler{env})
}

type own struct {
	Hash, Kinds         string
	Unchanged, Accepted metav1.Condition
}

func fields(s *chaos.DisruptionStatus) own {
	return own{s.SpecHash, s.Kinds, controller.Condition(s, chaos.ConditionSpecUnchanged),
		controller.Condition(s, chaos.ConditionAccepted)}
}

// Reconcile writes the hash, or compares it.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	d, err := controller.Get(ctx, r.Env.Client, req.NamespacedName)
	if d == nil || err != nil || d.DeletionTimestamp != nil {
		return ctrl.Result{}, err
	}
	hash, err := controller.SpecHash(&d.Spec)
	if err != nil {
		return ctrl.Result{}, err
	}
	if d.Status.SpecHash == "" {
		reason, refused := "SafetyNet", r.Env.Config.Nets.Refuses(d)
		mode := r.Env.Config.Refuses(d)
		if mode != "" {
			reason, refused = "Mode", mode
		}
		if _, err := controller.Selector(&d.Spec); err != nil && refused == "" {
			reason, refused = "InvalidSelector", "selector: "+err.Error()
		}
		var kinds []string
		for _, kind := range controller.Kinds(&d.Spec.Kinds) {
			kinds = append(kinds, string(kind))
		}
		err := controller.UpdateStatus(ctx, r.Env, d, fields, func(s *chaos.DisruptionStatus) {
			s.SpecHash, s.Kinds = hash, strings.Join(kinds, ",")
			if refused != "" {
				controller.SetCondition(s, chaos.ConditionAccepted, false, reason, refused)
			}
			if mode != "" { // those who say so of others do not run
				since := metav1.NewMicroTime(r.Env.Clock.Now().Truncate(time.Microsecond)) // as the API server keeps it
				s.Phase, s.Message = chaos.PreviouslyNotInjected, mode
				s.Schedule.Over, s.Schedule.Since = true, &since
			}
		})
		if err == nil && refused != "" {
			r.Env.Events.Eventf(d, nil, corev1.EventTypeWarning, "Refused", "Validate", "%s", refused)
		}
		return controller.Result(err)
	}
	if d.Status.SpecHash == hash || controller.Condition(&d.Status, chaos.ConditionSpecUnchanged).Status ==
		metav1.ConditionFalse {
		return ctrl.Result{}, nil
	}
	const message = "the spec was changed although only its count can be; the disruption ends"
	err = controller.UpdateStatus(ctx, r.Env, d, fields, func(s *chaos.DisruptionStatus) {
		controller.SetCondition(s, chaos.ConditionSpecUnchanged, false, "Changed", message)
	})
	if err == nil {
		r.Env.Events.Eventf(d, nil, corev1.EventTypeWarning, "SpecChanged", "Validate", message)
	}
	return controller.Result(err)
}
