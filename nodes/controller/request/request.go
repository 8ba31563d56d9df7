// Package request is the controller of CycleNodeRequests: each replaces the nodes of groups, some at a time. It
// detaches nodes, so that their groups start others in their place, waits until these are Ready, cordons the old ones,
// and makes a CycleNodeStatus for each, which drains, deletes and terminates it.
//
// The phases, with what makes a request enter and leave each:
//
//	Phase              | Way in                             | Way out                        | Timeout
//	-------------------|------------------------------------|--------------------------------|------------------------
//	(none)             | a user makes it                    | Pending, Healing               | none
//	Pending            | it is valid                        | Initialised, Healing           | Equilibrium, waitPeriod
//	Initialised        | nodes are recorded; or few are     | ScalingUp, WaitingTermination, | ScaleUp, Equilibrium
//	                   | cycled now                         | Successful, Healing            |
//	ScalingUp          | nodes are detached                 | CordoningNode, Healing         | ScaleUp, waitPeriod
//	CordoningNode      | their replacements are Ready and   | WaitingTermination, Healing    | waitPeriod
//	                   | healthy                            |                                |
//	WaitingTermination | the pre-termination checks of each | Initialised, Healing           | those of the statuses
//	                   | are passed                         |                                |
//	Successful         | all instances and Nodes are gone,  | none                           | none
//	                   | the groups full                    |                                |
//	Healing            | a timeout, a failed status, an     | Failed                         | Healing
//	                   | invalid request, or it is deleted  |                                |
//	Failed             | nothing is left to be undone, or   | none                           | none
//	                   | the timeout                        |                                |
//
// Pending: a request waits, without timeout, for others of the same groups: for those that have begun, and for those
// that were made earlier. It claims all Nodes of its groups. Then the Equilibrium timeout limits how long the groups'
// instances and the selected Nodes may differ; a few Nodes without an instance are deleted, instances that a request
// detached are attached, and a few that have lost their Nodes are replaced. Initialised: the ScaleUp timeout begins
// with detaching, and goes on in ScalingUp; the Equilibrium timeout holds for the last look before Successful. Healing:
// nodes whose pods may still be there are uncordoned and attached; nodes that are being cycled are waited for, if the
// request is deleted only those that are beyond draining; instances whose Node is gone are terminated.
//
// Each step writes first what it is going to do (NodeState), and does it then, so that a controller that begins again
// does it again; all of it can be done twice. What was done is taken from the provider and the API server, never from
// memory.
package request

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trommel-dev/trommel/internal/controllers"
	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
	"github.com/trommel-dev/trommel/nodes/controller"
	"github.com/trommel-dev/trommel/nodes/controller/checks"
	"github.com/trommel-dev/trommel/nodes/provider"
)

// Transitions are the phases that can follow each phase.
var Transitions = map[nodes.RequestPhase][]nodes.RequestPhase{
	"":                   {nodes.RequestPending, nodes.RequestHealing},
	nodes.RequestPending: {nodes.RequestInitialised, nodes.RequestHealing},
	nodes.RequestInitialised: {
		nodes.RequestScalingUp, nodes.RequestWaitingTermination, nodes.RequestSuccessful, nodes.RequestHealing},
	nodes.RequestScalingUp: {nodes.RequestCordoningNode, nodes.RequestHealing},
	nodes.RequestCordoningNode: {
		nodes.RequestWaitingTermination, nodes.RequestHealing},
	nodes.RequestWaitingTermination: {nodes.RequestInitialised, nodes.RequestHealing},
	nodes.RequestSuccessful:         {},
	nodes.RequestHealing:            {nodes.RequestFailed},
	nodes.RequestFailed:             {},
}

// Reconciler is the controller.
type Reconciler struct{ Env *controller.Env }

// checks makes the HTTP requests of checks.
func (r *Reconciler) checks() checks.Client {
	return checks.Client{
		Getenv: r.Env.Getenv, Timeout: r.Env.Limits.CheckTimeout, Allowed: r.Env.CheckEndpoints, IsPod: r.Env.IsPod,
	}
}

// The parts of the reconciler that are not about one phase. They have no state of their own.
type (
	reads    struct{ env *controller.Env } // read what is so now
	claims   struct{ env *controller.Env } // claim the Nodes of a request's groups, and release them
	statuses struct{ env *controller.Env } // write the status of a request
	surplus  struct{ env *controller.Env } // count, mark and choose Nodes that make groups larger than before
)

func (r *Reconciler) reads() reads       { return reads{r.Env} }
func (r *Reconciler) claims() claims     { return claims{r.Env} }
func (r *Reconciler) statuses() statuses { return statuses{r.Env} }
func (r *Reconciler) surplus() surplus   { return surplus{r.Env} }

// Add adds the controller to a manager.
func Add(mgr ctrl.Manager, env *controller.Env) error {
	r := &Reconciler{Env: env}
	return ctrl.NewControllerManagedBy(mgr).Named("cyclenoderequest").
		For(&nodes.CycleNodeRequest{}, builder.WithPredicates(controller.MoreThanMessages)).
		Owns(&nodes.CycleNodeStatus{}, builder.WithPredicates(controller.MoreThanMessages)).
		Watches(&nodes.CycleNodeRequest{}, handler.EnqueueRequestsFromMapFunc(r.waiting),
			builder.WithPredicates(controller.MoreThanMessages)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.all),
			builder.WithPredicates(controller.NodeChanges)).
		WithOptions(env.Options()).
		Complete(r)
}

// waiting wakes the requests that may wait for the changed one.
func (r *Reconciler) waiting(ctx context.Context, o client.Object) []reconcile.Request {
	return r.matching(ctx, func(q *nodes.CycleNodeRequest) bool {
		return q.UID != o.GetUID() && q.Status.Phase == nodes.RequestPending
	})
}

// all wakes all requests that have not ended.
func (r *Reconciler) all(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.matching(ctx, func(*nodes.CycleNodeRequest) bool { return true })
}

func (r *Reconciler) matching(ctx context.Context, ok func(*nodes.CycleNodeRequest) bool) []reconcile.Request {
	var list nodes.CycleNodeRequestList
	if err := r.Env.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache is closed
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if q := &list.Items[i]; !controller.Ended(q.Status.Phase) && ok(q) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(q)})
		}
	}
	return requests
}

// failure ends a request by way of Healing.
type failure struct {
	reason string
	group  string // the provider does not know it
}

func (f *failure) Error() string { return f.reason }

func failf(format string, args ...any) error { return &failure{reason: fmt.Sprintf(format, args...)} }

// Reconcile makes a step.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	q, err := r.Env.GetRequest(ctx, req.NamespacedName, "")
	if q == nil || err != nil {
		return ctrl.Result{}, err
	}
	if controller.Ended(q.Status.Phase) {
		return r.Env.Result(r.ended(ctx, q))
	}
	message, err := r.step(ctx, q)
	var failed *failure
	switch {
	case apierrors.IsConflict(err) || ctx.Err() != nil:
		return r.Env.Result(ctrl.Result{}, err)
	case errors.As(err, &failed):
		if failed.group != "" {
			q.Status.MissingGroup = failed.group // written with the phase
		}
		return r.Env.Result(r.Env.Later(), r.fail(ctx, q, failed.reason))
	case err != nil:
		message = err.Error() // the timeouts hold for what cannot be asked or done, too
	}
	if message != "" {
		if reason := r.timedOut(q); reason != "" {
			return r.Env.Result(r.Env.Later(), r.fail(ctx, q, reason+": "+message))
		}
		if told := r.statuses().say(ctx, q, message); told != nil {
			return r.Env.Result(ctrl.Result{}, told)
		}
	}
	return r.Env.Result(r.Env.Later(), err)
}

// ended removes the finalizer of a request that has ended, so that it can be deleted when no controllers run any more,
// and deletes it when it has been kept for long enough.
func (r *Reconciler) ended(ctx context.Context, q *nodes.CycleNodeRequest) (ctrl.Result, error) {
	if err := r.Env.SetFinalizer(ctx, q, false); err != nil {
		return ctrl.Result{}, err
	}
	ttl, at := q.Spec.TTLAfterFinished, q.Status.FinishedAt
	if ttl == "" || at == nil || q.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	if left := ttl.Duration() - r.Env.Clock.Since(at.Time); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	return ctrl.Result{}, controllers.Delete(ctx, r.Env.Client, q)
}

// timedOut says that the phase's time is over; empty: it is not. The wait periods of checks are looked after by them.
func (r *Reconciler) timedOut(q *nodes.CycleNodeRequest) string {
	since, limit := (*metav1.MicroTime)(nil), time.Duration(0)
	switch q.Status.Phase {
	case nodes.RequestPending:
		since, limit = q.Status.EquilibriumWaitStarted, r.Env.Limits.Equilibrium
	case nodes.RequestInitialised:
		since, limit = q.Status.PhaseStarted, r.Env.Limits.Equilibrium
		if len(inState(q, nodes.NodeDetaching)) > 0 {
			since, limit = q.Status.ScaleUpStarted, r.Env.Limits.ScaleUp
		}
	case nodes.RequestScalingUp:
		since, limit = q.Status.ScaleUpStarted, r.Env.Limits.ScaleUp
	case nodes.RequestHealing:
		since, limit = q.Status.HealingStarted, r.Env.Limits.Healing
	}
	if !r.Env.Over(since, limit) {
		return ""
	}
	return fmt.Sprintf("%s for more than %s", q.Status.Phase, limit)
}

// fail goes to Healing, or from Healing to Failed.
func (r *Reconciler) fail(ctx context.Context, q *nodes.CycleNodeRequest, reason string) error {
	if q.Status.Phase == nodes.RequestHealing {
		return r.give(ctx, q, reason)
	}
	return r.statuses().to(ctx, q, nodes.RequestHealing, func(s *nodes.CycleNodeRequestStatus) { s.Reason = reason })
}

// say writes the message if it is another.
func (r statuses) say(ctx context.Context, q *nodes.CycleNodeRequest, message string) error {
	if q.Status.Message == message {
		return nil
	}
	return r.write(ctx, q, func(s *nodes.CycleNodeRequestStatus) { s.Message = message })
}

// write changes the status as it was read.
func (r statuses) write(
	ctx context.Context, q *nodes.CycleNodeRequest, change func(*nodes.CycleNodeRequestStatus),
) error {
	changed := q.DeepCopy()
	change(&changed.Status)
	changed.Status.CurrentNodes = nil
	cycled := 0
	for _, n := range changed.Status.NodesToTerminate {
		switch n.State {
		case nodes.NodeDetaching, nodes.NodeDetached, nodes.NodeCycling, nodes.NodeAttaching:
			changed.Status.CurrentNodes = append(changed.Status.CurrentNodes, n.NodeRef)
		case nodes.NodeCycled:
			cycled++
		}
	}
	var names []string
	for _, n := range changed.Status.CurrentNodes {
		names = append(names, n.Name)
	}
	changed.Status.CurrentNodeNames = controller.List(names)
	before := q.Status.NumNodesCycled
	changed.Status.NumNodesCycled = int64(cycled)
	changed.Status.ActiveChildren = int64(len(inState(changed, nodes.NodeCycling)))
	if len(changed.Status.NodesToTerminate) > 0 {
		changed.Status.Progress = fmt.Sprintf("%d/%d", cycled, len(changed.Status.NodesToTerminate))
	}
	if err := r.env.Client.Status().Update(ctx, changed); err != nil {
		return client.IgnoreNotFound(err)
	}
	if int64(cycled) != before {
		for _, n := range changed.Status.NodesToTerminate {
			if old := controller.FindNode(q, n.ProviderID); n.State == nodes.NodeCycled &&
				(old == nil || old.State != nodes.NodeCycled) {
				r.env.NodesCycled(n.NodeGroupName, 1)
			}
		}
	}
	return nil
}

// to writes the next phase, and what else changes with it.
func (r statuses) to(
	ctx context.Context, q *nodes.CycleNodeRequest, phase nodes.RequestPhase,
	change func(*nodes.CycleNodeRequestStatus),
) error {
	from, began, now, note := q.Status.Phase, q.Status.PhaseStarted, r.env.Now(), ""
	if !slices.Contains(Transitions[from], phase) {
		return fmt.Errorf("no way from phase %q to %q", from, phase)
	}
	err := r.write(ctx, q, func(s *nodes.CycleNodeRequestStatus) {
		s.Phase, s.PhaseStarted, s.Message = phase, now, ""
		if change != nil {
			change(s)
		}
		if s.Message == "" {
			s.Message = s.Reason
		}
		if controller.Ended(phase) {
			s.FinishedAt = now
		}
		note = s.Message
	})
	if err != nil {
		return err
	}
	kind := corev1.EventTypeNormal
	if phase == nodes.RequestHealing || phase == nodes.RequestFailed {
		kind = corev1.EventTypeWarning
	}
	if note == "" {
		note = "phase " + string(phase)
	}
	r.env.Events.Eventf(q, nil, kind, string(phase), "Cycle", "%s", note)
	if began != nil {
		r.env.PhaseEnded("CycleNodeRequest", string(from), now.Sub(began.Time))
	}
	return nil
}

// inState lists the recorded nodes that are in one of the states.
func inState(q *nodes.CycleNodeRequest, states ...nodes.NodeState) []nodes.CycleNodeRequestNode {
	var list []nodes.CycleNodeRequestNode
	for _, n := range q.Status.NodesToTerminate {
		if slices.Contains(states, n.State) {
			list = append(list, n)
		}
	}
	return list
}

// setStates changes the states of nodes, by provider ID.
func setStates(s *nodes.CycleNodeRequestStatus, states map[string]nodes.NodeState) {
	for i := range s.NodesToTerminate {
		n := &s.NodesToTerminate[i]
		if state, ok := states[n.ProviderID]; ok {
			n.State = state
			n.Detached = n.Detached || state == nodes.NodeDetached
		}
	}
}

func concurrency(q *nodes.CycleNodeRequest) int {
	all := len(q.Status.NodesToTerminate)
	if q.Spec.Restore {
		return 1 // no two nodes take the same room elsewhere
	}
	if c := q.Spec.CycleSettings.Concurrency; c > 0 && c < int64(all) {
		return int(c)
	}
	return all
}

// step makes a step. It returns what is waited for; a *failure ends the request.
func (r *Reconciler) step(ctx context.Context, q *nodes.CycleNodeRequest) (waits string, err error) {
	phase, deleted := q.Status.Phase, q.DeletionTimestamp != nil
	switch {
	case deleted && phase == "":
		return "", r.Env.SetFinalizer(ctx, q, false) // nothing was done
	case phase == nodes.RequestHealing:
		return r.heal(ctx, q)
	case deleted:
		return "", failf("the request was deleted")
	case !slices.Contains(q.Finalizers, controller.Finalizer):
		return "", r.Env.SetFinalizer(ctx, q, true)
	case phase == "":
		if err := r.validate(q); err != nil {
			return "", err
		}
		return "", r.statuses().to(ctx, q, nodes.RequestPending, nil)
	case phase == nodes.RequestPending:
		return r.pending(ctx, q)
	}
	written, children, err := r.children(ctx, q)
	if written || err != nil {
		return "", err
	}
	switch phase {
	case nodes.RequestInitialised:
		return r.initialised(ctx, q)
	case nodes.RequestScalingUp:
		return r.scalingUp(ctx, q)
	case nodes.RequestCordoningNode:
		return r.cordoning(ctx, q)
	}
	return r.waitingTermination(ctx, q, children)
}

func (r *Reconciler) validate(q *nodes.CycleNodeRequest) error {
	if both := q.Spec.BothNames(); len(both) > 0 {
		return failf("two names of the same field are given: %s", controller.List(both))
	}
	if _, err := metav1.LabelSelectorAsSelector(&q.Spec.Selector); err != nil {
		return failf("selector: %v", err)
	}
	if err := r.checks().Validate(&q.Spec); err != nil {
		return failf("%v", err)
	}
	return nil
}

// view is what is so now.
type view struct {
	groups  map[string]*provider.Group
	members map[string]member       // instances in the groups, by provider ID
	nodes   map[string]*corev1.Node // those that the selector selects, by provider ID
	unnamed []*corev1.Node          // those without a provider ID
	missing string                  // the group that could not be read
}

type member struct {
	provider.Instance
	group string
}

// look asks the provider for the groups, and the API server for the selected nodes.
func (r reads) look(ctx context.Context, q *nodes.CycleNodeRequest) (*view, error) {
	v := &view{groups: map[string]*provider.Group{}, members: map[string]member{}, nodes: map[string]*corev1.Node{}}
	for _, name := range controller.GroupsOf(&q.Spec) {
		g, err := r.env.Provider.Group(ctx, name)
		if err != nil {
			return &view{missing: name}, err
		}
		v.groups[name] = g
		for _, i := range g.Instances {
			v.members[i.ProviderID] = member{i, name}
		}
	}
	list, err := r.selected(ctx, q)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if id := list[i].Spec.ProviderID; id != "" {
			v.nodes[id] = &list[i]
		} else {
			v.unnamed = append(v.unnamed, &list[i])
		}
	}
	return v, nil
}

// selected lists the Nodes that the selector selects.
func (r reads) selected(ctx context.Context, q *nodes.CycleNodeRequest) ([]corev1.Node, error) {
	selector, err := metav1.LabelSelectorAsSelector(&q.Spec.Selector)
	if err != nil {
		return nil, failf("selector: %v", err)
	}
	var list corev1.NodeList
	err = r.env.Reader.List(ctx, &list, client.MatchingLabelsSelector{Selector: selector})
	return list.Items, err
}

// existing asks the provider which of the instances exist.
func (r reads) existing(ctx context.Context, ids []string) (map[string]provider.Instance, error) {
	found := map[string]provider.Instance{}
	if len(ids) == 0 {
		return found, nil
	}
	list, err := r.env.Provider.Instances(ctx, ids...)
	for _, i := range list {
		found[i.ProviderID] = i
	}
	return found, err
}

func ids(list []nodes.CycleNodeRequestNode) []string {
	var all []string
	for _, n := range list {
		all = append(all, n.ProviderID)
	}
	return all
}

// releaseAll removes the request's marks from all Nodes of its groups.
func (r claims) releaseAll(ctx context.Context, q *nodes.CycleNodeRequest) error {
	list, err := reads(r).selected(ctx, q)
	if failed := (*failure)(nil); errors.As(err, &failed) {
		return nil // it never claimed anything
	} else if err != nil {
		return err
	}
	for i := range list {
		if err := r.env.Release(ctx, &list[i], q.UID); err != nil {
			return err
		}
	}
	return nil
}
