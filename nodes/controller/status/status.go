// Package status is the controller of CycleNodeStatuses: each drains, deletes and terminates one node, which its
// request has detached from its group.
//
// The phases, with what makes a status enter and leave each:
//
//	Phase                 | Way in                            | Way out                                  | Timeout
//	----------------------|-----------------------------------|------------------------------------------|------------
//	(none)                | the request's controller makes it | Pending                                  | none
//	Pending               | it was seen                       | WaitingPods, RemovingLabelsFromPods,     | Cycling
//	                      |                                   | TerminatingNode, Failed                  |
//	WaitingPods           | the Node is there; method Wait    | RemovingLabelsFromPods, TerminatingNode, | Cycling
//	                      |                                   | Failed                                   |
//	RemovingLabelsFromPods| method Drain, or no pod is waited | DrainingPods, TerminatingNode, Failed    | Cycling
//	                      | for                               |                                          |
//	DrainingPods          | the labels are removed            | DeletingNode, TerminatingNode, Failed    | Cycling
//	DeletingNode          | no pod is left                    | TerminatingNode, Failed                  | Termination
//	TerminatingNode       | the Node is gone                  | Successful, Failed                       | Termination
//	Successful            | instance and Node do not exist    | none                                     | none
//	Failed                | a timeout, or it was given up     | none                                     | none
//
// Cycling is counted from when work on the node began, Termination from when the phase began. A status is given up when
// it is deleted, or when its request no longer wants its node to be cycled, but only before DeletingNode: from there on
// it finishes what it began. If someone else deletes the Node, the instance is terminated at once.
//
// Its finalizer keeps a status until its request has taken note of how it ended.
package status

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
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
	"github.com/trommel-dev/trommel/nodes/provider"
)

// Transitions are the phases that can follow each phase.
var Transitions = map[nodes.StatusPhase][]nodes.StatusPhase{
	"": {nodes.StatusPending},
	nodes.StatusPending: {nodes.StatusWaitingPods, nodes.StatusRemovingLabelsFromPods, nodes.StatusTerminatingNode,
		nodes.StatusFailed},
	nodes.StatusWaitingPods: {nodes.StatusRemovingLabelsFromPods, nodes.StatusTerminatingNode, nodes.StatusFailed},
	nodes.StatusRemovingLabelsFromPods: {nodes.StatusDrainingPods, nodes.StatusTerminatingNode,
		nodes.StatusFailed},
	nodes.StatusDrainingPods:    {nodes.StatusDeletingNode, nodes.StatusTerminatingNode, nodes.StatusFailed},
	nodes.StatusDeletingNode:    {nodes.StatusTerminatingNode, nodes.StatusFailed},
	nodes.StatusTerminatingNode: {nodes.StatusSuccessful, nodes.StatusFailed},
	nodes.StatusSuccessful:      {},
	nodes.StatusFailed:          {},
}

// Reconciler is the controller.
type Reconciler struct{ Env *controller.Env }

// Add adds the controller to a manager.
func Add(mgr ctrl.Manager, env *controller.Env) error {
	r := &Reconciler{env}
	return ctrl.NewControllerManagedBy(mgr).Named("cyclenodestatus").
		For(&nodes.CycleNodeStatus{}, builder.WithPredicates(controller.MoreThanMessages)).
		Watches(&corev1.Pod{}, r.wake(func(o client.Object) string { return o.(*corev1.Pod).Spec.NodeName })).
		Watches(&corev1.Node{}, r.wake(client.Object.GetName), builder.WithPredicates(controller.NodeChanges)).
		Watches(&nodes.CycleNodeRequest{}, handler.EnqueueRequestsFromMapFunc(r.ofRequest),
			builder.WithPredicates(controller.MoreThanMessages)).
		WithOptions(env.Options()).
		Complete(r)
}

// wake wakes the controller for the statuses of a node.
func (r *Reconciler) wake(node func(client.Object) string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		name := node(o)
		return r.matching(ctx, func(s *nodes.CycleNodeStatus) bool { return s.Spec.Node.Name == name })
	})
}

// ofRequest wakes the controller when a request no longer wants something, or has taken note of its end.
func (r *Reconciler) ofRequest(ctx context.Context, o client.Object) []reconcile.Request {
	return r.matching(ctx, func(s *nodes.CycleNodeStatus) bool { return s.Spec.RequestUID == o.GetUID() })
}

func (r *Reconciler) matching(ctx context.Context, ok func(*nodes.CycleNodeStatus) bool) []reconcile.Request {
	var list nodes.CycleNodeStatusList
	if err := r.Env.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache is closed
	}
	var requests []reconcile.Request
	for i := range list.Items {
		s := &list.Items[i]
		if ok(s) && (!controller.StatusEnded(s.Status.Phase) || slices.Contains(s.Finalizers, controller.Finalizer)) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s)})
		}
	}
	return requests
}

// Reconcile makes a step.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := &nodes.CycleNodeStatus{}
	if err := r.Env.Reader.Get(ctx, req.NamespacedName, s); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	result, err := r.step(ctx, s)
	if err != nil && !apierrors.IsConflict(err) && ctx.Err() == nil && !controller.StatusEnded(s.Status.Phase) {
		// The timeouts hold for what cannot be asked or done, too.
		if failed, message := r.timedOut(s); failed {
			return r.Env.Result(ctrl.Result{}, r.to(ctx, s, nodes.StatusFailed, message+": "+err.Error()))
		}
		if told := r.say(ctx, s, err.Error()); told != nil {
			return r.Env.Result(ctrl.Result{}, told)
		}
	}
	return r.Env.Result(result, err)
}

// timedOut reports whether the phase's time is over.
func (r *Reconciler) timedOut(s *nodes.CycleNodeStatus) (bool, string) {
	limit, since := r.limit(s), s.Status.StartedTimestamp
	switch s.Status.Phase {
	case "", nodes.StatusSuccessful, nodes.StatusFailed:
		return false, ""
	case nodes.StatusDeletingNode, nodes.StatusTerminatingNode:
		limit, since = r.Env.Limits.Termination, s.Status.PhaseStarted
	}
	return r.Env.Over(since, limit), fmt.Sprintf("%s for more than %s", s.Status.Phase, limit)
}

func (r *Reconciler) limit(s *nodes.CycleNodeStatus) time.Duration {
	if d := s.Spec.CycleSettings.CyclingTimeout.Duration(); d > 0 {
		return d
	}
	return r.Env.Limits.Cycling
}

// wait says what is waited for, unless the phase's time is over.
func (r *Reconciler) wait(ctx context.Context, s *nodes.CycleNodeStatus, message string) (ctrl.Result, error) {
	if failed, reason := r.timedOut(s); failed {
		return ctrl.Result{}, r.to(ctx, s, nodes.StatusFailed, reason+": "+message)
	}
	return r.Env.Later(), r.say(ctx, s, message)
}

// say writes the message if it is another.
func (r *Reconciler) say(ctx context.Context, s *nodes.CycleNodeStatus, message string) error {
	if s.Status.Message == message {
		return nil
	}
	s = s.DeepCopy()
	s.Status.Message = message
	return client.IgnoreNotFound(r.Env.Client.Status().Update(ctx, s))
}

// to writes the next phase.
func (r *Reconciler) to(ctx context.Context, s *nodes.CycleNodeStatus, phase nodes.StatusPhase, message string) error {
	from, began, now := s.Status.Phase, s.Status.PhaseStarted, r.Env.Now()
	if !slices.Contains(Transitions[from], phase) {
		return fmt.Errorf("no way from phase %q to %q", from, phase)
	}
	s = s.DeepCopy()
	s.Status.Phase, s.Status.Message, s.Status.PhaseStarted = phase, message, now
	if s.Status.StartedTimestamp == nil {
		s.Status.StartedTimestamp = now
	}
	if controller.StatusEnded(phase) {
		s.Status.FinishedAt = now
	}
	if err := r.Env.Client.Status().Update(ctx, s); err != nil {
		return client.IgnoreNotFound(err)
	}
	kind := corev1.EventTypeNormal
	if phase == nodes.StatusFailed {
		kind = corev1.EventTypeWarning
	}
	note := "node " + s.Spec.Node.Name
	if message != "" {
		note += ": " + message
	}
	r.Env.Events.Eventf(s, nil, kind, string(phase), "Cycle", "%s", note)
	if began != nil {
		r.Env.PhaseEnded("CycleNodeStatus", string(from), now.Sub(began.Time))
	}
	return nil
}

func (r *Reconciler) step(ctx context.Context, s *nodes.CycleNodeStatus) (ctrl.Result, error) {
	phase := s.Status.Phase
	switch {
	case controller.StatusEnded(phase):
		return r.release(ctx, s)
	case phase == "":
		if !slices.Contains(s.Finalizers, controller.Finalizer) && s.DeletionTimestamp == nil {
			if err := r.Env.SetFinalizer(ctx, s, true); err != nil {
				return ctrl.Result{}, err
			}
		}
		return r.Env.Later(), r.to(ctx, s, nodes.StatusPending, "")
	case phase == nodes.StatusTerminatingNode:
		return r.terminate(ctx, s)
	case phase == nodes.StatusDeletingNode:
		return r.deleteNode(ctx, s)
	}
	unwanted, err := r.unwanted(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	if unwanted != "" {
		return r.Env.Later(), r.to(ctx, s, nodes.StatusFailed, unwanted)
	}
	node, err := r.Env.NodeOf(ctx, &s.Spec.Node)
	if err != nil {
		return ctrl.Result{}, err
	}
	if node == nil {
		return r.Env.Later(), r.to(ctx, s, nodes.StatusTerminatingNode, "someone else deleted the Node")
	}
	if err := r.Env.Cordon(ctx, node, s.Spec.RequestUID); err != nil {
		return ctrl.Result{}, err
	}
	switch phase {
	case nodes.StatusPending:
		return r.begin(ctx, s, node)
	case nodes.StatusWaitingPods:
		return r.waitForPods(ctx, s, node)
	case nodes.StatusRemovingLabelsFromPods:
		return r.removeLabels(ctx, s, node)
	}
	return r.drain(ctx, s, node)
}

// unwanted says why the node shall not be cycled; empty: it shall. A status that was made by a controller which did not
// know that its request had given up is found here.
func (r *Reconciler) unwanted(ctx context.Context, s *nodes.CycleNodeStatus) (string, error) {
	if s.DeletionTimestamp != nil {
		return "it was deleted", nil
	}
	request, err := r.Env.GetRequest(ctx, client.ObjectKey{Namespace: s.Namespace, Name: s.Spec.Request},
		s.Spec.RequestUID)
	if err != nil {
		return "", err
	}
	if request == nil {
		return "its request does not exist", nil
	}
	n := controller.FindNode(request, s.Spec.Node.ProviderID)
	if n == nil || n.State != nodes.NodeCycling || controller.Ended(request.Status.Phase) {
		return "its request does not want the node to be cycled", nil
	}
	return "", nil
}

// release lets an ended status go when its request has taken note.
func (r *Reconciler) release(ctx context.Context, s *nodes.CycleNodeStatus) (ctrl.Result, error) {
	if !slices.Contains(s.Finalizers, controller.Finalizer) {
		return ctrl.Result{}, nil
	}
	if err := r.Env.WithdrawEvictions(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	request, err := r.Env.GetRequest(ctx, client.ObjectKey{Namespace: s.Namespace, Name: s.Spec.Request},
		s.Spec.RequestUID)
	if err != nil {
		return ctrl.Result{}, err
	}
	if request != nil && !controller.Ended(request.Status.Phase) {
		if n := controller.FindNode(request, s.Spec.Node.ProviderID); n != nil && n.State == nodes.NodeCycling {
			return r.Env.Later(), nil
		}
	}
	return ctrl.Result{}, r.Env.SetFinalizer(ctx, s, false)
}

// begin stores what the node is.
func (r *Reconciler) begin(ctx context.Context, s *nodes.CycleNodeStatus, node *corev1.Node) (ctrl.Result, error) {
	s = s.DeepCopy()
	found := s.Spec.Node
	found.UID = node.UID
	s.Status.CurrentNode = &found
	next := nodes.StatusRemovingLabelsFromPods
	if s.Spec.CycleSettings.Method == nodes.MethodWait {
		next = nodes.StatusWaitingPods
	}
	return r.Env.Later(), r.to(ctx, s, next, "")
}

func names(pods []corev1.Pod) string {
	var list []string
	for _, p := range pods {
		list = append(list, p.Namespace+"/"+p.Name)
	}
	return controller.List(list)
}

// waitForPods waits until the pods have ended by themselves.
func (r *Reconciler) waitForPods(
	ctx context.Context, s *nodes.CycleNodeStatus, node *corev1.Node,
) (ctrl.Result, error) {
	pods, err := r.Env.Pods(ctx, node.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return !controller.WaitedFor(&s.Spec.CycleSettings, &p) })
	if len(pods) > 0 {
		return r.wait(ctx, s, "waits until these pods end: "+names(pods))
	}
	return r.Env.Later(), r.to(ctx, s, nodes.StatusRemovingLabelsFromPods, "")
}

// removeLabels removes labels from the pods, so that services send nothing more to them.
func (r *Reconciler) removeLabels(
	ctx context.Context, s *nodes.CycleNodeStatus, node *corev1.Node,
) (ctrl.Result, error) {
	if len(s.Spec.CycleSettings.LabelsToRemove) > 0 {
		pods, err := r.Env.Pods(ctx, node.Name)
		if err != nil {
			return ctrl.Result{}, err
		}
		for i := range pods {
			before := pods[i].DeepCopy()
			maps.DeleteFunc(pods[i].Labels, func(key, _ string) bool {
				return slices.Contains(s.Spec.CycleSettings.LabelsToRemove, key)
			})
			if len(before.Labels) == len(pods[i].Labels) {
				continue
			}
			// With the version, so that another pod of the same name keeps its labels.
			patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
			if err := r.Env.Client.Patch(ctx, &pods[i], patch); client.IgnoreNotFound(err) != nil {
				return ctrl.Result{}, fmt.Errorf("remove labels from pod %s/%s: %w", before.Namespace, before.Name, err)
			}
		}
	}
	return r.Env.Later(), r.to(ctx, s, nodes.StatusDrainingPods, "")
}

// drain evicts the pods, and goes on when none is left. As kubectl drain, it evicts none if one of them must not be
// lost.
func (r *Reconciler) drain(ctx context.Context, s *nodes.CycleNodeStatus, node *corev1.Node) (ctrl.Result, error) {
	pods, err := r.Env.Pods(ctx, node.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	if len(pods) == 0 {
		return r.Env.Later(), r.to(ctx, s, nodes.StatusDeletingNode, "")
	}
	if failed, _ := r.timedOut(s); failed && s.Status.Message != "" { // what the last attempt came to
		return r.wait(ctx, s, s.Status.Message)
	}
	if lost := controller.Undrainable(&s.Spec.CycleSettings, pods); len(lost) > 0 {
		return r.wait(ctx, s, "these pods are not evicted: "+controller.List(lost)+"; "+controller.UndrainableAdvice)
	}
	if s.Spec.Restore {
		without, err := r.Env.WithoutRoom(ctx, node.Name)
		if err != nil {
			return ctrl.Result{}, err
		}
		if len(without) > 0 {
			return r.wait(ctx, s, "these pods are not evicted: "+controller.List(without)+"; "+controller.RoomAdvice)
		}
	}
	evict := r.evict
	if s.Spec.CycleSettings.Method == nodes.MethodEvictionRequest {
		made, err := r.Env.EvictionRequests(ctx, s)
		if err != nil {
			return ctrl.Result{}, err
		}
		evict = func(ctx context.Context, s *nodes.CycleNodeStatus, p *corev1.Pod) (string, error) {
			return r.Env.RequestEviction(ctx, s, made, p)
		}
	}
	var refused []string
	for i := range pods {
		p := &pods[i]
		if p.DeletionTimestamp != nil {
			continue
		}
		refusal, err := evict(ctx, s, p)
		switch {
		case err == nil && refusal == "":
		case err == nil:
			refused = append(refused, fmt.Sprintf("%s/%s (%s)", p.Namespace, p.Name, refusal))
		case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
			// A conflict: another pod has the name now.
		case apierrors.ReasonForError(err) == metav1.StatusReasonUnknown:
			return ctrl.Result{}, fmt.Errorf("evict pod %s/%s: %w", p.Namespace, p.Name, err) // no answer
		default:
			refused = append(refused, fmt.Sprintf("%s/%s (%s)", p.Namespace, p.Name, why(err)))
		}
	}
	message := "waits until these pods end: " + names(pods)
	if len(refused) > 0 {
		message = "these pods cannot be evicted: " + controller.List(refused)
	}
	return r.wait(ctx, s, message)
}

// evict evicts a pod now.
func (r *Reconciler) evict(ctx context.Context, s *nodes.CycleNodeStatus, p *corev1.Pod) (refusal string, err error) {
	err = r.Env.Client.SubResource("eviction").Create(ctx, p, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}},
	})
	if err == nil {
		r.Env.WarnOfLoss(s, p)
	}
	return "", err
}

// why is the text of an API server's refusal, with its causes: they name the PodDisruptionBudget.
func why(err error) string {
	texts := []string{strings.TrimSpace(err.Error())}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, c := range status.Status().Details.Causes {
			if c.Message != "" && !strings.Contains(texts[0], c.Message) {
				texts = append(texts, c.Message)
			}
		}
	}
	return strings.Join(texts, " ")
}

// deleteNode deletes the Node and waits until it is gone.
func (r *Reconciler) deleteNode(ctx context.Context, s *nodes.CycleNodeStatus) (ctrl.Result, error) {
	node, err := r.Env.NodeOf(ctx, &s.Spec.Node)
	if err != nil {
		return ctrl.Result{}, err
	}
	if node == nil {
		return r.Env.Later(), r.to(ctx, s, nodes.StatusTerminatingNode, "")
	}
	if node.DeletionTimestamp == nil {
		// A kubelet that started again has registered it again, and pods could be scheduled to it.
		if err := r.Env.Cordon(ctx, node, s.Spec.RequestUID); err != nil {
			return ctrl.Result{}, err
		}
		if err := controllers.Delete(ctx, r.Env.Client, node); err != nil {
			return ctrl.Result{}, err
		}
		if node, err = r.Env.NodeOf(ctx, &s.Spec.Node); err != nil {
			return ctrl.Result{}, err
		}
		if node == nil { // it has no finalizers
			return r.Env.Later(), r.to(ctx, s, nodes.StatusTerminatingNode, "")
		}
	}
	return r.wait(ctx, s, "waits until the Node is gone") // its end wakes the controller
}

// terminate terminates the instance and waits until it does not exist.
func (r *Reconciler) terminate(ctx context.Context, s *nodes.CycleNodeStatus) (ctrl.Result, error) {
	instance, err := r.Env.Instance(ctx, s.Spec.Node.ProviderID)
	if err != nil {
		return ctrl.Result{}, err
	}
	if instance != nil {
		if instance.State != provider.Terminating {
			if err := r.Env.Provider.Terminate(ctx, s.Spec.Node.ProviderID); err != nil &&
				!errors.Is(err, provider.ErrNotFound) {
				return ctrl.Result{}, err
			}
		}
		return r.wait(ctx, s, "waits until the instance ends")
	}
	// A kubelet that started again in between has registered the Node again.
	node, err := r.Env.NodeOf(ctx, &s.Spec.Node)
	if err != nil {
		return ctrl.Result{}, err
	}
	if node == nil {
		return ctrl.Result{}, r.to(ctx, s, nodes.StatusSuccessful, "")
	}
	if err := r.Env.Cordon(ctx, node, s.Spec.RequestUID); err != nil {
		return ctrl.Result{}, err
	}
	if err := controllers.Delete(ctx, r.Env.Client, node); err != nil {
		return ctrl.Result{}, err
	}
	return r.wait(ctx, s, "waits until the Node is gone")
}
