// Package spechash writes down which spec a disruption has, the seed of its choice of targets, and whether the spec is
// accepted, before the other controllers act on it. They carry out what is written down. The API server refuses changes
// of the spec. If one gets through all the same, for instance because the definition's rules were removed, the hash
// does not match: the controller says so in a condition and an event, and the change has no effect.
package spechash

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
	Spec                *runtime.RawExtension
	Seed                *int64
	Accepted, Unchanged metav1.Condition
}

func fields(s *chaos.DisruptionStatus) own {
	return own{s.SpecHash, s.Kinds, s.Spec, s.Seed, controller.Condition(s, chaos.ConditionSpecAccepted),
		controller.Condition(s, chaos.ConditionSpecUnchanged)}
}

// Reconcile writes the hash, or compares it.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	d, err := controller.GetAsWritten(ctx, r.Env.Client, req.NamespacedName)
	if d == nil || err != nil || d.DeletionTimestamp != nil {
		return ctrl.Result{}, err
	}
	spec, err := controller.KeepSpec(&d.Spec)
	if err != nil {
		return ctrl.Result{}, err
	}
	hash, err := controller.SpecHash(&d.Spec)
	if err != nil {
		return ctrl.Result{}, err
	}
	if d.Status.SpecHash == "" {
		reason, refused := r.refuses(d)
		var kinds []string
		for _, kind := range controller.Kinds(&d.Spec.Kinds) {
			kinds = append(kinds, string(kind))
		}
		seed := seed(d)
		err := controller.UpdateStatus(ctx, r.Env, d, fields, func(s *chaos.DisruptionStatus) {
			s.SpecHash, s.Spec, s.Seed, s.Kinds = hash, spec, seed, strings.Join(kinds, ",")
			controller.SetCondition(s, chaos.ConditionSpecAccepted, refused == "", reason, refused)
		})
		if err == nil && refused != "" {
			r.Env.Events.Eventf(d, nil, corev1.EventTypeWarning, "Refused", "Validate", "%s", refused)
		}
		return controller.Result(err)
	}
	return controller.Result(r.compare(ctx, d, hash, spec))
}

// compare says whether the spec that users have written is the one that is carried out.
func (r *Reconciler) compare(ctx context.Context, d *chaos.Disruption, hash string, spec *runtime.RawExtension) error {
	unchanged := controller.Condition(&d.Status, chaos.ConditionSpecUnchanged)
	set := func(ok bool, reason, message string) error {
		if ok == (unchanged.Status != metav1.ConditionFalse) && message == unchanged.Message {
			return nil
		}
		err := controller.UpdateStatus(ctx, r.Env, d, fields, func(s *chaos.DisruptionStatus) {
			controller.SetCondition(s, chaos.ConditionSpecUnchanged, ok, reason, message)
		})
		if err == nil && !ok {
			r.Env.Events.Eventf(d, nil, corev1.EventTypeWarning, "SpecChanged", "Validate", "%s", message)
		}
		return err
	}
	same, kept := d.Status.SpecHash == hash, controller.KeptSpec(&d.Status) != nil
	switch {
	case unchanged.Status == metav1.ConditionFalse && unchanged.Reason != controller.ReasonSpecChanged:
		return nil // it ends
	case same && !kept: // an earlier version did not write it down
		return controller.UpdateStatus(ctx, r.Env, d, fields, func(s *chaos.DisruptionStatus) { s.Spec = spec })
	case !kept:
		return set(false, controller.ReasonSpecLost,
			"the spec was changed, and the status does not have the one that was carried out; the disruption ends")
	case same:
		return set(true, controller.ReasonSpecRestored, "")
	}
	return set(false, controller.ReasonSpecChanged, fmt.Sprintf("the spec was changed (to the hash %s), which has no "+
		"effect: only count can be changed; create another disruption", hash))
}

// seed is the spec's seed, or a random one. If another cluster carries the disruption out, that one writes it. The
// random one is made of the UID, which is random: if the status is lost, the targets stay the same.
func seed(d *chaos.Disruption) *int64 {
	switch {
	case controller.IsRemote(d):
		return nil
	case d.Spec.Seed != nil:
		return d.Spec.Seed
	}
	sum := sha256.Sum256([]byte(d.UID))
	random := int64(binary.BigEndian.Uint32(sum[:])) // short enough to be copied by hand
	return &random
}

// refuses returns why a spec is refused; an empty message if it is not.
func (r *Reconciler) refuses(d *chaos.Disruption) (reason, message string) {
	if message := r.Env.Config.Refuses(d); message != "" {
		return "Mode", message
	}
	if message := r.Env.Config.Nets.Refuses(d); message != "" {
		return "SafetyNet", message
	}
	if _, err := controller.Selector(&d.Spec); err != nil {
		return "InvalidSelector", "selector: " + err.Error()
	}
	return "Accepted", ""
}
