// Package lifetime writes a disruption's schedule: when it has started, is active and is over. It starts with its first
// targets. It is active at once or after its initial delay, in pulses if it has some, unless it is paused, until its
// duration is over or all runs are made. A disruption that is refused or unsupported, or whose spec is unknown, is over
// at once. One without targets is over when its duration is. Later, this controller deletes it. All times follow from
// the schedule, so that a restart makes nothing longer or shorter.
package lifetime

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/internal/controllers"
)

// Reconciler is the controller.
type Reconciler struct{ Env *controller.Env }

// Add adds the controller to a manager.
func Add(mgr ctrl.Manager, env *controller.Env) error {
	return ctrl.NewControllerManagedBy(mgr).Named("disruption-lifetime").
		For(&chaos.Disruption{}, controller.WhenChanged(reads)).Complete(&Reconciler{env})
}

type own struct {
	Schedule chaos.Schedule
	Ends     *metav1.Time
}

func fields(s *chaos.DisruptionStatus) own { return own{s.Schedule, s.EndsAt} }

type read struct {
	Ready       controller.Readiness
	Own         own
	HasTargets  bool
	Unsupported bool
}

func reads(d *chaos.Disruption) read {
	return read{controller.ReadinessOf(d), fields(&d.Status), len(d.Status.Targets) > 0, unsupported(d)}
}

// unsupported reports whether no target can be disrupted in any way.
func unsupported(d *chaos.Disruption) bool {
	return len(d.Status.Injections) > 0 && !slices.ContainsFunc(d.Status.Injections, func(i chaos.Injection) bool {
		return i.State != chaos.InjectionUnsupported
	})
}

const defaultKeepFor = 15 * time.Minute

// Reconcile moves the schedule on to the present.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	d, err := controller.Get(ctx, r.Env.Client, req.NamespacedName)
	if d == nil || err != nil || d.Status.SpecHash == "" || d.DeletionTimestamp != nil {
		return ctrl.Result{}, err
	}
	now := r.Env.Clock.Now()
	if d.Status.Schedule.Over {
		keep := r.Env.Config.KeepFor
		if keep == 0 {
			keep = defaultKeepFor
		}
		if at := d.Status.Schedule.Since.Add(keep); now.Before(at) {
			return controller.After(now, at), nil
		}
		return ctrl.Result{}, controllers.Delete(ctx, r.Env.Client, d)
	}
	if r.Env.Config.ReportedRemotely(d) {
		return ctrl.Result{}, nil // its schedule is that of the other cluster
	}
	if !controller.Checked(d) || unsupported(d) {
		return controller.Result(r.over(ctx, d, now))
	}
	if d.Status.Schedule.StartedAt == nil {
		at := controller.Deadline(d)
		if !now.Before(at) { // also if the controllers have not run since targets were chosen
			return controller.Result(r.over(ctx, d, now))
		}
		if len(d.Status.Targets) == 0 {
			return controller.After(now, at), nil // unless its targets wake it
		}
	}
	schedule, next := controller.AdvanceOf(d, now)
	// The API server keeps whole seconds of this time; rounded up, it is never too early.
	ends := metav1.NewTime(controller.End(&d.Spec, schedule).Add(time.Second - 1).Truncate(time.Second))
	err = controller.UpdateStatus(ctx, r.Env, d, fields, func(s *chaos.DisruptionStatus) {
		s.Schedule, s.EndsAt = schedule, &ends
	})
	if err != nil || next.IsZero() {
		return controller.Result(err)
	}
	return controller.After(now, next), nil
}

// over ends a disruption before its time.
func (r *Reconciler) over(ctx context.Context, d *chaos.Disruption, now time.Time) error {
	since := metav1.NewMicroTime(now.Truncate(time.Microsecond)) // as the API server keeps it
	return controller.UpdateStatus(ctx, r.Env, d, fields, func(s *chaos.DisruptionStatus) {
		s.Schedule.Active, s.Schedule.Over, s.Schedule.Since = false, true, &since
	})
}
