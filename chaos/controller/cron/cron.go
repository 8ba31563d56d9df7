// Package cron creates a disruption at each time of a DisruptionCron's schedule, unless one of its disruptions is still
// there or the time was missed by too much. A disruption's name follows from the cron's name and the time, so that a
// controller which has forgotten that it created one does not create a second; and before it creates one it asks the
// API server what the DisruptionCron is now. It writes only the status of DisruptionCrons; the disruptions belong to
// the cron, and are deleted with it.
package cron

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
)

// Reconciler is the controller.
type Reconciler struct{ Env *controller.Env }

// Add adds the controller to a manager.
func Add(mgr ctrl.Manager, env *controller.Env) error {
	return ctrl.NewControllerManagedBy(mgr).Named("disruption-cron").For(&chaos.DisruptionCron{}).
		Owns(&chaos.Disruption{}).Complete(&Reconciler{env})
}

// maxMissed limits the times that are looked through after a long interruption.
const maxMissed = 1000

// Reconcile handles the newest time of the schedule that has come.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	return r.from(ctx, r.Env.Client, req.NamespacedName)
}

// from handles it as the reader shows the DisruptionCron: the cache, or the API server.
func (r *Reconciler) from(ctx context.Context, reader client.Reader, key client.ObjectKey) (ctrl.Result, error) {
	c := &chaos.DisruptionCron{}
	if err := reader.Get(ctx, key, c); err != nil || c.DeletionTimestamp != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	schedule, err := parse(c.Spec.Schedule)
	if err != nil {
		message := "schedule: " + err.Error()
		if message == c.Status.Message {
			return ctrl.Result{}, nil // a change of the spec wakes it
		}
		err := r.write(ctx, c, func(s *chaos.DisruptionCronStatus) { s.Message = message })
		if err == nil {
			r.Env.Events.Eventf(c, nil, corev1.EventTypeWarning, "InvalidSchedule", "Schedule", "%s", message)
		}
		return controller.Result(err)
	}
	now := r.Env.Clock.Now().UTC()
	due, next := latest(schedule, since(c), now)
	if due.IsZero() || c.Spec.Suspend {
		return controller.After(now, next), r.write(ctx, c, func(s *chaos.DisruptionCronStatus) { s.Message = "" })
	}
	if reader != r.Env.Reader {
		return r.from(ctx, r.Env.Reader, key)
	}
	run := chaos.CronRun{Time: metav1.NewTime(due)}
	if t := c.Spec.DelayedStartTolerance; t != nil && now.Sub(due) > t.Duration() {
		run.Skipped = fmt.Sprintf("%s late, more than delayedStartTolerance", now.Sub(due).Round(time.Second))
	} else {
		name := c.Name + "-" + strconv.FormatInt(due.Unix(), 10)
		run.Skipped, err = r.Env.CreateNext(ctx, c, "DisruptionCron", name, &c.Spec.Disruption)
		if err != nil {
			return ctrl.Result{}, err
		}
		if run.Skipped == "" {
			run.Disruption = name
		}
	}
	if run.Skipped != "" {
		r.Env.Events.Eventf(c, nil, corev1.EventTypeWarning, "Skipped", "Schedule", "%s", run.Skipped)
	}
	err = r.write(ctx, c, func(s *chaos.DisruptionCronStatus) {
		s.Message, s.LastScheduleTime = run.Skipped, &run.Time
		s.History = append([]chaos.CronRun{run}, s.History...)
		if keep := history(c); len(s.History) > keep {
			s.History = s.History[:keep]
		}
	})
	if err != nil {
		return controller.Result(err)
	}
	return controller.After(now, next), nil
}

// parse reads a schedule. A time zone that nothing follows would make the library panic.
func parse(text string) (cron.Schedule, error) {
	if (strings.HasPrefix(text, "TZ=") || strings.HasPrefix(text, "CRON_TZ=")) && !strings.Contains(text, " ") {
		return nil, errors.New("there are no times after the time zone")
	}
	return cron.ParseStandard(text)
}

func history(c *chaos.DisruptionCron) int {
	if c.Spec.History == nil {
		return 5
	}
	return int(*c.Spec.History)
}

func since(c *chaos.DisruptionCron) time.Time {
	if c.Status.LastScheduleTime != nil {
		return c.Status.LastScheduleTime.UTC()
	}
	return c.CreationTimestamp.UTC()
}

// latest returns the newest time of the schedule after since and not after now (zero: none), and the next one.
func latest(s cron.Schedule, since, now time.Time) (due, next time.Time) {
	next = s.Next(since)
	for range maxMissed {
		if next.IsZero() || next.After(now) {
			return due, next
		}
		due, next = next, s.Next(next)
	}
	// Too many were missed; the newest is near the present.
	next = s.Next(now)
	for t := s.Next(now.Add(-next.Sub(now) - time.Second)); !t.IsZero() && !t.After(now); t = s.Next(t) {
		due = t
	}
	return due, next
}

// write writes the status, unless the time may have been handled meanwhile.
func (r *Reconciler) write(
	ctx context.Context, c *chaos.DisruptionCron, set func(*chaos.DisruptionCronStatus),
) error {
	return controller.UpdateWhole(ctx, r.Env, c,
		func(c *chaos.DisruptionCron) *chaos.DisruptionCronStatus { return &c.Status }, set)
}
