// Package targets chooses the targets of disruptions and keeps them up to date: running pods or ready nodes that match
// both selectors and the filter, as many as count says, none that another disruption of the same kind has, and not more
// than the safety nets allow. A target does not cease to be one because of the disruption itself. The choice is random,
// but follows from the seed in the status and the candidates: a controller that has forgotten it makes the same one
// again.
package targets

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/chaos/kinds"
)

// Reconciler is the controller.
type Reconciler struct {
	Env *controller.Env
	reservations
}

// Add adds the controller to a manager.
func Add(mgr ctrl.Manager, env *controller.Env) error {
	r := &Reconciler{Env: env}
	return ctrl.NewControllerManagedBy(mgr).Named("disruption-targets").
		For(&chaos.Disruption{}, controller.WhenChanged(reads)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.concerned)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.concerned)).
		Watches(&chaos.Disruption{}, handler.EnqueueRequestsFromMapFunc(r.waiting), builder.WithPredicates(givesUp)).
		Complete(r)
}

// concerned lists the disruptions whose targets a pod or node is or may become.
func (r *Reconciler) concerned(ctx context.Context, o client.Object) []reconcile.Request {
	var list chaos.DisruptionList
	if err := r.Env.Client.List(ctx, &list, client.InNamespace(o.GetNamespace()),
		client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache is closed
	}
	_, isPod := o.(*corev1.Pod)
	var requests []reconcile.Request
	for i := range list.Items {
		d := &list.Items[i]
		spec := controller.SpecOf(d)
		if isPod != (spec.Level == chaos.LevelPod) || controller.Ending(d) || controller.IsRemote(d) {
			continue
		}
		s, err := controller.Selector(spec)
		if controller.HasTarget(d, o.GetUID()) || err == nil && s.Matches(labels.Set(o.GetLabels())) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(d)})
		}
	}
	return requests
}

// givesUp lets through when a disruption no longer has a target.
var givesUp = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*chaos.Disruption)
		after, ok2 := e.ObjectNew.(*chaos.Disruption)
		return ok && ok2 && (after.Status.Schedule.Over && !before.Status.Schedule.Over ||
			slices.ContainsFunc(before.Status.Targets, func(t chaos.Target) bool {
				return !slices.Contains(after.Status.Targets, t)
			}))
	},
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// waiting lists the disruptions that have fewer targets than they want, when another one has given some up.
func (r *Reconciler) waiting(ctx context.Context, o client.Object) []reconcile.Request {
	var list chaos.DisruptionList
	if err := r.Env.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache is closed
	}
	var requests []reconcile.Request
	for i := range list.Items {
		d := &list.Items[i]
		if d.UID != o.GetUID() && d.Status.Counts.Selected < d.Status.Counts.Desired && !controller.Ending(d) &&
			!controller.IsRemote(d) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(d)})
		}
	}
	return requests
}

type own struct {
	Targets                              []chaos.Target
	Matching, Ignored, Desired, Selected int32
	Found, Within                        metav1.Condition
}

func fields(s *chaos.DisruptionStatus) own {
	return own{
		s.Targets, s.Counts.Matching, s.Counts.Ignored, s.Counts.Desired, s.Counts.Selected,
		controller.Condition(s, chaos.ConditionTargetsFound), controller.Condition(s, chaos.ConditionWithinSafetyNets),
	}
}

type read struct {
	Ready   controller.Readiness
	Own     own
	Started *metav1.MicroTime
	Active  bool
}

func reads(d *chaos.Disruption) read {
	s := &d.Status
	return read{controller.ReadinessOf(d), fields(s), s.Schedule.StartedAt, s.Schedule.Active}
}

// Reconcile chooses targets.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	d, err := controller.Get(ctx, r.Env.Client, req.NamespacedName)
	if d == nil || err != nil || !controller.Checked(d) || controller.Ending(d) || controller.IsRemote(d) {
		return ctrl.Result{}, err
	}
	now := r.Env.Clock.Now()
	if at := controller.NotBefore(d); d.Spec.Triggers != nil && now.Before(at) {
		return controller.After(now, at), nil
	}
	if d.Status.Schedule.StartedAt == nil && !now.Before(controller.Deadline(d)) {
		return ctrl.Result{}, nil // it is over
	}
	all, err := r.candidates(ctx, d)
	if err != nil {
		return ctrl.Result{}, err
	}
	occupied, err := r.occupied(ctx, d, all)
	if err != nil {
		return ctrl.Result{}, err
	}
	choice := choose(d, controller.Active(d, now), all, occupied)
	if late, err := r.behind(ctx, d, choice.targets); err != nil {
		return ctrl.Result{}, err
	} else if late {
		return ctrl.Result{RequeueAfter: catchUp}, nil
	}
	refused := ""
	if choice.adds(d) { // there may be fewer pods or nodes because of the disruption itself
		if refused, err = r.reserve(ctx, d, choice.targets); err != nil {
			return ctrl.Result{}, err
		}
	}
	if refused != "" {
		choice.targets = slices.DeleteFunc(slices.Clone(choice.targets), func(t chaos.Target) bool {
			return !controller.HasTarget(d, t.UID)
		})
	}
	err = controller.UpdateStatus(ctx, r.Env, d, fields, func(s *chaos.DisruptionStatus) {
		s.Targets = choice.targets
		s.Counts.Matching, s.Counts.Ignored = choice.matching, choice.ignored
		s.Counts.Desired, s.Counts.Selected = choice.desired, int32(len(choice.targets))
		reason, message := choice.found()
		if refused != "" {
			reason, message = "SafetyNet", refused
		}
		switch {
		case refused != "" && !begun(d):
			controller.SetCondition(s, chaos.ConditionWithinSafetyNets, false, "SafetyNet", refused)
		case len(s.Targets) > 0: // also if more are refused: it goes on with those that it has
			controller.SetCondition(s, chaos.ConditionWithinSafetyNets, true, "Within", "")
		}
		controller.SetCondition(s, chaos.ConditionTargetsFound, message == "", reason, message)
	})
	if err != nil {
		r.release(d.UID)
		return controller.Result(err)
	}
	r.tell(d, choice.targets)
	if refused == "" {
		return ctrl.Result{}, nil
	}
	if !begun(d) || controller.Condition(&d.Status, chaos.ConditionTargetsFound).Reason != "SafetyNet" {
		r.Env.Events.Eventf(d, nil, corev1.EventTypeWarning, "Refused", "Target", "%s", refused)
	}
	if !begun(d) {
		return ctrl.Result{}, nil
	}
	// Other pods and disruptions than those that wake it may make room.
	return ctrl.Result{RequeueAfter: lookAgain}, nil
}

// tell records an event for each new target of the disruption.
func (r *Reconciler) tell(d *chaos.Disruption, targets []chaos.Target) {
	note := ""
	if d.Spec.DryRun {
		note = " (dry run)"
	}
	for _, t := range targets {
		if !controller.HasTarget(d, t.UID) {
			target := controller.TargetObject(d, t.Name, t.UID)
			r.Env.Events.Eventf(target, d, corev1.EventTypeNormal, "Selected", "Target",
				"it is a target of disruption %s/%s%s", d.Namespace, d.Name, note)
		}
	}
}

// lookAgain is when a disruption that has fewer targets than it should, because of the safety nets, looks again.
const lookAgain = 5 * time.Second

// catchUp is what a cache that shows the past is given until it is looked at again.
const catchUp = time.Second

// behind reports whether the cache shows the past, since a target that would be given up is still as it must be: a
// controller that is restarted at an API server that is late would end a fault, and begin it again when it has caught
// up.
func (r *Reconciler) behind(ctx context.Context, d *chaos.Disruption, kept []chaos.Target) (bool, error) {
	if d.Spec.Level != chaos.LevelPod {
		return false, nil
	}
	s, err := controller.Selector(&d.Spec)
	if err != nil {
		return false, err
	}
	suits := func(t chaos.Target, in client.Reader) (bool, error) {
		p := &corev1.Pod{}
		if err := in.Get(ctx, client.ObjectKey{Namespace: d.Namespace, Name: t.Name}, p); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		return p.UID == t.UID && PodRunning(p) && s.Matches(labels.Set(p.Labels)), nil
	}
	for _, t := range d.Status.Targets {
		if has(kept, t.UID) {
			continue
		}
		cached, err := suits(t, r.Env.Client)
		if err != nil {
			return false, err
		}
		if cached {
			continue // it is given up for another reason
		}
		if latest, err := suits(t, r.Env.Reader); latest || err != nil {
			return latest, err
		}
	}
	return false, nil
}

// begun reports whether a disruption has had targets. Its start may still be to be written.
func begun(d *chaos.Disruption) bool {
	return d.Status.Schedule.StartedAt != nil || len(d.Status.Targets) > 0
}

// candidates are what a disruption can choose from.
type candidates struct{ healthy, unhealthy []chaos.Target }

func (r *Reconciler) candidates(ctx context.Context, d *chaos.Disruption) (*candidates, error) {
	s, err := controller.Selector(&d.Spec)
	if err != nil {
		return nil, err
	}
	c := &candidates{}
	add := func(o client.Object, healthy bool, node string) {
		for k, v := range filter(&d.Spec) {
			if o.GetAnnotations()[k] != v {
				return
			}
		}
		target := chaos.Target{UID: o.GetUID(), Name: o.GetName(), Node: node}
		switch {
		case o.GetLabels()[controller.LabelDisruption] != "" ||
			o.GetAnnotations()[controller.AnnotationIgnore] == "true":
		case !healthy:
			c.unhealthy = append(c.unhealthy, target)
		default:
			c.healthy = append(c.healthy, target)
		}
	}
	which := []client.ListOption{client.UnsafeDisableDeepCopy, client.MatchingLabelsSelector{Selector: s}}
	if d.Spec.Level == chaos.LevelNode {
		var nodes corev1.NodeList
		if err := r.Env.Client.List(ctx, &nodes, which...); err != nil {
			return nil, err
		}
		for i := range nodes.Items {
			n := &nodes.Items[i]
			add(n, nodeReady(n), n.Name)
		}
		return c, nil
	}
	var pods corev1.PodList
	if err := r.Env.Client.List(ctx, &pods, append(which, client.InNamespace(d.Namespace))...); err != nil {
		return nil, err
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		add(p, PodRunning(p), p.Spec.NodeName)
	}
	return c, nil
}

func filter(spec *chaos.DisruptionSpec) map[string]string {
	if spec.Filter == nil {
		return nil
	}
	return spec.Filter.Annotations
}

// PodRunning reports whether a pod can be a target: it runs and is not being deleted.
func PodRunning(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil
}

func nodeReady(n *corev1.Node) bool {
	return n.DeletionTimestamp == nil && slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// occupied lists the kinds with which other disruptions have the candidates as targets.
func (r *Reconciler) occupied(
	ctx context.Context, d *chaos.Disruption, c *candidates,
) (map[types.UID][]chaos.Kind, error) {
	occupied := map[types.UID][]chaos.Kind{}
	for _, t := range c.healthy {
		list, err := controller.DisruptionsAt(ctx, r.Env, t.UID)
		if err != nil {
			return nil, err
		}
		for i := range list {
			if other := &list[i]; other.UID != d.UID && !other.Status.Schedule.Over {
				occupied[t.UID] = append(occupied[t.UID], controller.Kinds(&controller.SpecOf(other).Kinds)...)
			}
		}
	}
	return occupied, nil
}

// choice is the result of choosing.
type choice struct {
	targets                    []chaos.Target
	matching, ignored, desired int32
	unhealthy, occupied        int
	gone                       bool // all targets of a disruption that does not choose others
}

func has(list []chaos.Target, uid types.UID) bool {
	return slices.ContainsFunc(list, func(t chaos.Target) bool { return t.UID == uid })
}

// hold counts the present targets as healthy that may not be so because of the disruption: nodes that are not ready,
// and all that a kind takes away. Otherwise the disruption would end on them, and begin again when they have recovered.
func (c *candidates) hold(d *chaos.Disruption, active bool) {
	if !active {
		return
	}
	takesAway := slices.ContainsFunc(controller.Kinds(&d.Spec.Kinds), inAPI)
	deletesNodes := d.Spec.NodeFailure != nil && d.Spec.NodeFailure.Mode == "gone"
	for _, t := range d.Status.Targets {
		there := has(c.unhealthy, t.UID)
		again := slices.ContainsFunc(c.healthy, func(h chaos.Target) bool { return h.Name == t.Name })
		switch {
		case has(c.healthy, t.UID):
			continue
		case d.Spec.Level == chaos.LevelNode && (there || deletesNodes && !again):
		case d.Spec.Level == chaos.LevelPod && takesAway:
		default:
			continue
		}
		c.healthy = append(c.healthy, t)
		c.unhealthy = slices.DeleteFunc(c.unhealthy, func(u chaos.Target) bool { return u.UID == t.UID })
	}
}

// static reports whether no targets are added to those that are chosen. What takes the place of a pod that was taken
// away is not to be taken away, too.
func static(d *chaos.Disruption, active bool) bool {
	if d.Spec.StaticTargeting {
		return begun(d)
	}
	return active && d.Spec.Level == chaos.LevelPod && len(d.Status.Targets) > 0 &&
		slices.ContainsFunc(controller.Kinds(&d.Spec.Kinds), inAPI)
}

// choose keeps the targets that are still there and adds others, up to the count.
func choose(d *chaos.Disruption, active bool, c *candidates, occupied map[types.UID][]chaos.Kind) choice {
	c.hold(d, active)
	kinds := controller.Kinds(&d.Spec.Kinds)
	var free []chaos.Target
	result := choice{matching: int32(len(c.healthy)), unhealthy: len(c.unhealthy)}
	current := map[types.UID]bool{}
	for _, t := range d.Status.Targets {
		current[t.UID] = true
	}
	for _, t := range c.healthy {
		by := occupied[t.UID]
		if !current[t.UID] && len(by) > 0 && (!d.Spec.AllowDisruptedTargets ||
			slices.ContainsFunc(kinds, func(k chaos.Kind) bool { return slices.Contains(by, k) })) {
			result.occupied++
			continue
		}
		free = append(free, t)
	}
	result.ignored = int32(result.unhealthy + result.occupied)
	desired, _ := intstr.GetScaledValueFromIntOrPercent(count(d), len(c.healthy), true)
	result.desired = int32(min(desired, maxTargets))
	if static(d, active) {
		// Count can still make it fewer.
		result.targets = slices.DeleteFunc(slices.Clone(d.Status.Targets), func(t chaos.Target) bool {
			return !has(c.healthy, t.UID)
		})
		result.gone = len(result.targets) == 0 && result.desired > 0
		result.desired = min(result.desired, int32(len(result.targets)))
		result.targets = result.targets[:result.desired]
		return result
	}
	// The current ones come first, then an order that depends on the seed, not on the caller's memory.
	slices.SortFunc(free, func(a, b chaos.Target) int {
		if current[a.UID] != current[b.UID] {
			if current[a.UID] {
				return -1
			}
			return 1
		}
		return strings.Compare(controller.Rank(d, &a), controller.Rank(d, &b))
	})
	result.targets = free[:min(int(result.desired), len(free))]
	slices.SortFunc(result.targets, func(a, b chaos.Target) int {
		return strings.Compare(string(a.UID), string(b.UID))
	})
	return result
}

// adds reports whether there are targets that the disruption did not have.
func (c *choice) adds(d *chaos.Disruption) bool {
	return slices.ContainsFunc(c.targets, func(t chaos.Target) bool { return !controller.HasTarget(d, t.UID) })
}

// maxTargets is the limit of the status's list.
const maxTargets = 1000

func count(d *chaos.Disruption) *intstr.IntOrString {
	if d.Spec.Count != nil {
		return d.Spec.Count
	}
	all := intstr.FromString("100%")
	return &all
}

// found says why there are fewer targets than desired; an empty message if there are not.
func (c *choice) found() (reason, message string) {
	switch {
	case c.gone:
		return "TargetsGone", "the targets have gone, and no others are chosen (staticTargeting)"
	case c.matching == 0 && c.unhealthy > 0:
		return "NoneHealthy", fmt.Sprintf("none of the %d matches is running", c.unhealthy)
	case c.matching == 0:
		return "NoneMatches", "nothing matches the selector"
	case c.desired == 0:
		return "NoneWanted", "count is 0 targets"
	case len(c.targets) < int(c.desired) && c.occupied == 0:
		return "TooFew", fmt.Sprintf("%d of %d targets found: there are no more healthy matches", len(c.targets),
			c.desired)
	case len(c.targets) < int(c.desired):
		return "Occupied", fmt.Sprintf("%d of %d targets found; %d matches are targets of other disruptions",
			len(c.targets), c.desired, c.occupied)
	}
	return "Found", ""
}

func inAPI(kind chaos.Kind) bool { return kinds.Of(kind).InAPI }
