// Package injections sums up in a disruption's status what its chaos pods have done: the state of each kind on each
// target, the number of disrupted targets, the phase, the message for people, and whether the disruption is accepted.
// It only reads chaos pods. A pause and an end are reported when nothing is injected any more, not when they were
// decided. Changes leave events on the disruption and on the targets.
package injections

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/chaos/inject"
	"github.com/trommel-dev/trommel/internal/controllers"
)

// Reconciler is the controller.
type Reconciler struct {
	Env     *controller.Env
	metrics *metrics
}

// Add adds the controller to a manager.
func Add(mgr ctrl.Manager, env *controller.Env) error {
	r := &Reconciler{env, newMetrics()}
	if err := controllers.RegisterMetrics(r.metrics.collectors()...); err != nil {
		return err
	}
	building := ctrl.NewControllerManagedBy(mgr).Named("disruption-injections").For(&chaos.Disruption{})
	if !env.Config.Remote.WithoutLocal {
		building = building.
			Watches(&corev1.Pod{}, controller.FromChaosPods()).Watches(&corev1.Pod{}, controller.FromCleaners()).
			Watches(&corev1.Pod{}, r.metrics.ofChanges())
	}
	return building.Complete(r)
}

type own struct {
	Injections []chaos.Injection
	Phase      chaos.Phase
	Message    string
	Injected   int32
	Accepted   metav1.Condition
}

func fields(s *chaos.DisruptionStatus) own {
	return own{
		s.Injections, s.Phase, s.Message, s.Counts.Injected, controller.Condition(s, chaos.ConditionAccepted),
	}
}

// Reconcile sums up.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	d, err := controller.Get(ctx, r.Env.Client, req.NamespacedName)
	if d == nil || err != nil || d.Status.SpecHash == "" || r.Env.Config.ReportedRemotely(d) {
		return ctrl.Result{}, err
	}
	if r.Env.Config.Remote.WithoutLocal && !controller.SpecRefused(&d.Status) {
		return ctrl.Result{}, nil // it began before, and its chaos pods are not looked at
	}
	pods, cleaners, err := r.pods(ctx, d)
	if err != nil {
		return ctrl.Result{}, err
	}
	now := metav1.NewMicroTime(r.Env.Clock.Now())
	next := sum(d, pods, cleaners, now)
	age := now.Sub(d.CreationTimestamp.Time) // by the clocks of two machines
	if d.Status.Phase == "" && next.pending() && age >= -soon && age < soon {
		return ctrl.Result{RequeueAfter: min(soon-age, soon)}, nil
	}
	err = controller.UpdateStatus(ctx, r.Env, d, fields, func(s *chaos.DisruptionStatus) {
		s.Injections, s.Phase, s.Message, s.Counts.Injected = next.Injections, next.Phase, next.Message, next.Injected
		controller.SetAccepted(s)
	})
	if err != nil {
		return controller.Result(err)
	}
	r.tell(d, next)
	r.metrics.count(d, next)
	return ctrl.Result{}, nil
}

// pods lists the chaos pods and the cleaners of a disruption. Controllers that carry out nothing here keep no pods in
// their cache.
func (r *Reconciler) pods(ctx context.Context, d *chaos.Disruption) (chaosPods, cleaners []corev1.Pod, err error) {
	if r.Env.Config.Remote.WithoutLocal {
		return nil, nil, nil
	}
	if chaosPods, err = controller.ChaosPods(ctx, r.Env, d); err != nil {
		return nil, nil, err
	}
	cleaners, err = controller.CleanersOf(ctx, r.Env, client.ObjectKeyFromObject(d))
	return chaosPods, cleaners, err
}

// soon is the age from which a disruption reports that nothing is injected yet, if it has nothing else to report. Most
// are injected by then, and each write of the status delays the others.
const soon = 2 * time.Second

// pending reports whether nothing has happened so far.
func (o own) pending() bool {
	return o.Phase == chaos.NotInjected && o.Message == "" &&
		!slices.ContainsFunc(o.Injections, func(i chaos.Injection) bool { return i.State != chaos.InjectionPending })
}

// id identifies an injection of a disruption.
type id struct {
	target types.UID
	kind   chaos.Kind
}

func idOf(pod *corev1.Pod) id {
	return id{types.UID(pod.Labels[controller.LabelTarget]), controller.KindOf(pod)}
}

// sum computes the controller's fields from the chaos pods and the cleaners.
func sum(d *chaos.Disruption, pods, cleaners []corev1.Pod, now metav1.MicroTime) own {
	s := &d.Status
	kinds := controller.Kinds(&d.Spec.Kinds)
	before := map[id]chaos.Injection{}
	for _, i := range s.Injections {
		before[id{i.Target, i.Kind}] = i
	}
	byID := map[id]*corev1.Pod{}
	for i := range pods {
		byID[idOf(&pods[i])] = &pods[i]
	}
	var next own
	// After a while without controllers the schedule may not say yet that it is over.
	over := controller.Ending(d) ||
		s.Schedule.StartedAt != nil && !now.Time.Before(controller.End(&d.Spec, s.Schedule))
	active := s.Schedule.Active && !over && !controller.Paused(d)
	expected := active || s.Schedule.Runs == 0 && !over
	paused := (s.Schedule.Paused || controller.Paused(d)) && !over
	left := 0
	add := func(of id, name string) (injected bool) {
		old, known := before[of]
		pod := byID[of]
		if pod != nil {
			left++
		}
		i := injection(old, pod, expected || paused && old.InjectedAt == nil)
		if pod == nil && known && cleans(cleaners, d, of) {
			i = old
			i.State = chaos.InjectionUnknown
			i.Error = "the chaos pod has gone without a report, and what it has injected is being removed"
		}
		if pod == nil && i.State == chaos.InjectionPending && known && old.State != chaos.InjectionPending {
			i.InjectedAt = nil
		}
		i.Target, i.Kind, i.Pod = of.target, of.kind, name
		if i.State == chaos.InjectionInjected && i.InjectedAt == nil {
			i.InjectedAt = &now
		}
		next.Injections = append(next.Injections, i)
		delete(byID, of)
		return i.State == chaos.InjectionInjected
	}
	some := false
	ever := int32(0) // targets that were disrupted completely
	for _, t := range s.Targets {
		all, were := true, true
		for _, k := range kinds {
			injected := add(id{t.UID, k}, controller.PodName(d.Spec.Level, d.Namespace, t.Name, k))
			all, some = all && injected, some || injected
			were = were && next.Injections[len(next.Injections)-1].InjectedAt != nil
		}
		if all {
			next.Injected++
		}
		if were {
			ever++
		}
	}
	// Those of former targets.
	for i := range pods {
		if former := idOf(&pods[i]); byID[former] != nil {
			add(former, pods[i].Name)
		}
	}
	slices.SortFunc(next.Injections, func(a, b chaos.Injection) int {
		return cmp.Or(strings.Compare(a.Pod, b.Pod), strings.Compare(string(a.Target), string(b.Target)))
	})
	has := func(what func(chaos.Injection) bool) bool { return slices.ContainsFunc(next.Injections, what) }
	next.Phase = phase(s.Phase, seen{
		active: active, over: over, left: left,
		complete: next.Injected > 0 && next.Injected >= s.Counts.Desired, some: some,
		possibly: has(func(i chaos.Injection) bool { return i.State == chaos.InjectionUnknown }),
		wereAll:  ever > 0 && ever >= s.Counts.Desired,
		wereSome: has(func(i chaos.Injection) bool { return i.InjectedAt != nil }),
	})
	next.Message = message(d, next.Injections)
	return next
}

// cleans reports whether a cleaner is at work after an injection of a disruption.
func cleans(cleaners []corev1.Pod, d *chaos.Disruption, of id) bool {
	name := inject.Request{DisruptionUID: d.UID, Kind: of.kind, Target: inject.Target{UID: of.target}}.ID()
	return slices.ContainsFunc(cleaners, func(p corev1.Pod) bool {
		return p.Annotations[controller.AnnotationInjection] == name && p.Status.Phase != corev1.PodSucceeded &&
			p.DeletionTimestamp == nil
	})
}

// injection is the state of an injection by its chaos pod.
func injection(old chaos.Injection, pod *corev1.Pod, expected bool) chaos.Injection {
	next := old
	if pod == nil {
		next.Error = ""
		switch {
		case expected:
			next.State = chaos.InjectionPending
		case old.State == chaos.InjectionUnsupported:
			return old // nothing was touched, and why stays interesting
		default:
			next.State = chaos.InjectionRemoved
		}
		return next
	}
	reported := inject.Reported(pod)
	next.Error = reported.Error
	switch {
	case reported.State == chaos.InjectionFailed || reported.State == chaos.InjectionUnsupported ||
		reported.State == chaos.InjectionStuck || reported.State == chaos.InjectionRemoved:
		next.State = reported.State
	case pod.Status.Phase == corev1.PodFailed && old.InjectedAt != nil:
		next.State = chaos.InjectionUnknown
		next.Error = "the injector was killed, and what it has injected is being removed: " + reason(pod)
	case pod.Status.Phase == corev1.PodFailed:
		next.State = chaos.InjectionFailed
		next.Error = "the chaos pod has failed: " + reason(pod)
	case pod.Status.Phase == corev1.PodSucceeded:
		next.State = chaos.InjectionRemoved
	case controller.PodReady(pod):
		next.State = chaos.InjectionInjected
	case pod.DeletionTimestamp == nil:
		next.State = chaos.InjectionPending
		next.Error = waiting(pod)
	}
	if next.State == "" {
		next.State = chaos.InjectionPending
	}
	return next
}

func reason(pod *corev1.Pod) string {
	for _, c := range pod.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil {
			return exit(t)
		}
	}
	return strings.TrimSpace(pod.Status.Reason + " " + pod.Status.Message)
}

// waiting is why a pod is not ready yet, as far as it is known.
func waiting(pod *corev1.Pod) string {
	for _, c := range pod.Status.ContainerStatuses {
		if t := c.LastTerminationState.Terminated; t != nil && t.ExitCode != 0 {
			return fmt.Sprintf("the injector has failed: %s", exit(t))
		}
		if w := c.State.Waiting; w != nil && w.Message != "" {
			return w.Message
		}
	}
	return ""
}

// exit describes the end of an injector by its report, or by the last line of its log.
func exit(t *corev1.ContainerStateTerminated) string {
	if reported := inject.StateOf(t); reported.State != "" {
		return strings.TrimSpace(fmt.Sprintf("exit code %d %s", t.ExitCode, reported.Error))
	}
	lines := strings.Split(strings.TrimSpace(t.Message), "\n")
	last := lines[len(lines)-1]
	if strings.HasPrefix(last, "time=") {
		last = "" // a line for those who read the log, which says what it did before it was killed
	}
	return strings.TrimSpace(fmt.Sprintf("exit code %d %s", t.ExitCode, last))
}

// seen is what the phase depends on.
type seen struct {
	active, over bool
	// left is the number of chaos pods that still exist.
	left int
	// complete is whether as many targets as desired are disrupted completely, some whether anything is.
	complete, some bool
	// possibly is whether an injector was killed and its fault has not been cleaned up.
	possibly bool
	// wereAll and wereSome are as complete and some, for all of the past.
	wereAll, wereSome bool
}

// phase is the state machine of phases.
func phase(old chaos.Phase, s seen) chaos.Phase {
	if old == "" {
		old = chaos.NotInjected
	}
	switch {
	case s.active && s.complete:
		return chaos.Injected
	case s.possibly:
		return chaos.PossiblyInjected
	case s.active && s.some:
		return chaos.PartiallyInjected
	case s.active && (old == chaos.Injected || old == chaos.PartiallyInjected || old == chaos.PossiblyInjected):
		return chaos.NotInjected
	case s.active:
		return old // NotInjected, or a pause that is about to end
	case s.left == 0:
	case s.complete:
		return chaos.Injected // still, although this may be seen only now
	case s.some && old != chaos.Injected:
		return chaos.PartiallyInjected
	default:
		return old
	}
	if (old == chaos.NotInjected || old == chaos.PossiblyInjected) && s.wereSome {
		// The controllers were away while it was.
		old = chaos.PartiallyInjected
		if s.wereAll {
			old = chaos.Injected
		}
	}
	table := pauses
	if s.over {
		table = ends
	}
	if next, ok := table[old]; ok {
		return next
	}
	return old
}

var (
	pauses = map[chaos.Phase]chaos.Phase{
		chaos.Injected: chaos.PausedInjected, chaos.PartiallyInjected: chaos.PausedPartiallyInjected,
	}
	ends = map[chaos.Phase]chaos.Phase{
		chaos.NotInjected:       chaos.PreviouslyNotInjected,
		chaos.PossiblyInjected:  chaos.PreviouslyNotInjected, // nothing was ever seen
		chaos.PartiallyInjected: chaos.PreviouslyPartiallyInjected,
		chaos.Injected:          chaos.PreviouslyInjected,

		chaos.PausedPartiallyInjected: chaos.PreviouslyPartiallyInjected,
		chaos.PausedInjected:          chaos.PreviouslyInjected,
	}
)

// message is the most important thing to say about a disruption.
func message(d *chaos.Disruption, injections []chaos.Injection) string {
	s := &d.Status
	for _, c := range []*metav1.Condition{
		meta.FindStatusCondition(s.Conditions, chaos.ConditionRemovable), controller.Refusal(s),
		meta.FindStatusCondition(s.Conditions, chaos.ConditionChaosPods),
	} {
		if c != nil && c.Status == metav1.ConditionFalse {
			return c.Message
		}
	}
	for _, i := range injections {
		if i.Error != "" {
			return fmt.Sprintf("%s on %s: %s", i.Kind, targetName(s, i.Target), i.Error)
		}
	}
	if c := controller.Condition(s, chaos.ConditionSpecUnchanged); c.Status == metav1.ConditionFalse {
		return c.Message
	}
	if c := controller.Condition(s, chaos.ConditionTargetsFound); c.Status == metav1.ConditionFalse &&
		(!controller.Ending(d) || s.Schedule.StartedAt == nil) {
		return c.Message
	}
	if controller.Paused(d) && !controller.Ending(d) {
		return "paused by the annotation " + chaos.AnnotationPaused
	}
	if d.Spec.DryRun {
		return "dry run: nothing is really injected"
	}
	return ""
}

func targetName(s *chaos.DisruptionStatus, uid types.UID) string {
	for _, t := range s.Targets {
		if t.UID == uid {
			return t.Name
		}
	}
	return string(uid)
}

// tell leaves events about what has changed.
func (r *Reconciler) tell(d *chaos.Disruption, next own) {
	if next.Phase != d.Status.Phase && next.Phase != chaos.NotInjected {
		note := ""
		if d.Spec.DryRun {
			note = " (dry run)"
		}
		r.Env.Events.Eventf(d, nil, corev1.EventTypeNormal, string(next.Phase), "Inject", "%d of %d targets%s",
			next.Injected, d.Status.Counts.Desired, note)
	}
	before := map[id]chaos.Injection{}
	for _, i := range d.Status.Injections {
		before[id{i.Target, i.Kind}] = i
	}
	for _, i := range next.Injections {
		old := before[id{i.Target, i.Kind}]
		if i.State == old.State {
			continue
		}
		target := controller.TargetObject(d, targetName(&d.Status, i.Target), i.Target)
		switch i.State {
		case chaos.InjectionInjected:
			if d.Spec.DryRun {
				r.Env.Events.Eventf(target, d, corev1.EventTypeNormal, "DryRun", "Inject",
					"disruption %s/%s would disrupt it: %s", d.Namespace, d.Name, i.Kind)
				continue
			}
			r.Env.Events.Eventf(target, d, corev1.EventTypeWarning, "Disrupted", "Inject", "%s of disruption %s/%s",
				i.Kind, d.Namespace, d.Name)
		case chaos.InjectionFailed, chaos.InjectionUnsupported, chaos.InjectionStuck, chaos.InjectionUnknown:
			r.Env.Events.Eventf(d, target, corev1.EventTypeWarning, string(i.State), "Inject", "%s on %s: %s", i.Kind,
				targetName(&d.Status, i.Target), i.Error)
		case chaos.InjectionRemoved:
			if old.InjectedAt != nil && !d.Spec.DryRun {
				r.Env.Events.Eventf(target, d, corev1.EventTypeNormal, "NoLongerDisrupted", "Remove",
					"%s of disruption %s/%s", i.Kind, d.Namespace, d.Name)
			}
		}
	}
}
