package request

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/trommel-dev/trommel/internal/controllers"
	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
	"github.com/trommel-dev/trommel/nodes/controller"
	"github.com/trommel-dev/trommel/nodes/provider"
)

// heal undoes what can be undone, and ends the request.
func (r *Reconciler) heal(ctx context.Context, q *nodes.CycleNodeRequest) (string, error) {
	states := map[string]nodes.NodeState{}
	for _, n := range inState(q, nodes.NodeDetaching, nodes.NodeDetached) {
		states[n.ProviderID] = nodes.NodeAttaching
	}
	active, busy := 0, []string(nil)
	for _, n := range inState(q, nodes.NodeCycling) {
		state, wait, err := r.cyclingNode(ctx, q, &n.NodeRef)
		if err != nil {
			return "", err
		}
		if state == nodes.NodeCycling {
			active++
			if wait != "" {
				busy = append(busy, fmt.Sprintf("node %s: %s", n.Name, wait))
			}
		} else {
			states[n.ProviderID] = state
		}
	}
	if len(states) > 0 {
		return "", r.statuses().write(ctx, q, func(s *nodes.CycleNodeRequestStatus) {
			setStates(s, states)
			s.HealingStarted = r.Env.Now() // the timeout is for what is undone now
		})
	}
	var waits []string
	for _, n := range inState(q, nodes.NodeAttaching) {
		state, wait, err := r.undo(ctx, q, &n.NodeRef)
		if err != nil {
			wait = fmt.Sprintf("node %s: %v", n.Name, err)
			if apierrors.IsConflict(err) || errors.Is(err, provider.ErrThrottled) {
				return "", err
			}
		}
		if wait != "" {
			waits = append(waits, wait) // the others go on
		} else {
			states[n.ProviderID] = state
		}
	}
	switch {
	case len(states) > 0:
		return "", r.statuses().write(ctx, q, func(s *nodes.CycleNodeRequestStatus) { setStates(s, states) })
	case active > 0:
		// They have timeouts of their own.
		return "", r.statuses().say(ctx, q, q.Status.Reason+"; "+untilDone(active, busy))
	case len(waits) > 0:
		return controller.List(waits), nil
	}
	if err := r.claims().releaseAll(ctx, q); err != nil {
		return "", err
	}
	extra, words, err := r.surplus().extra(ctx, q)
	if err != nil {
		return "", err
	}
	return "", r.failed(ctx, q, q.Status.Reason, extra, words)
}

// failed ends a request as Failed.
func (r *Reconciler) failed(
	ctx context.Context, q *nodes.CycleNodeRequest, reason string, extra int, words string,
) error {
	err := r.statuses().to(ctx, q, nodes.RequestFailed, func(s *nodes.CycleNodeRequestStatus) {
		s.Reason, s.ExtraInstances = reason, int64(extra)
		if words != "" {
			s.Message = reason + "; " + words
		}
	})
	if err == nil && words != "" {
		r.Env.Events.Eventf(q, nil, corev1.EventTypeWarning, "GroupEnlarged", "Cycle", "%s", words)
	}
	return err
}

// give ends a request that cannot be healed in time. The reason says what is left to do by hand.
func (r *Reconciler) give(ctx context.Context, q *nodes.CycleNodeRequest, reason string) error {
	if err := r.claims().releaseAll(ctx, q); err != nil {
		return err
	}
	extra, words, err := r.surplus().extra(ctx, q)
	if err != nil {
		extra, words = 0, "" // what cannot be asked cannot be said
	}
	return r.failed(ctx, q, fmt.Sprintf("%s; it could not be undone: %s", q.Status.Reason, reason), extra, words)
}

// cyclingNode is the state of a node that has, or may have, a CycleNodeStatus, and what that waits for. If the request
// is deleted, the status is given up; it decides itself whether it still can be.
func (r *Reconciler) cyclingNode(ctx context.Context, q *nodes.CycleNodeRequest, ref *nodes.NodeRef) (
	state nodes.NodeState, wait string, err error,
) {
	s, err := r.reads().child(ctx, q, ref)
	if failed := (*failure)(nil); errors.As(err, &failed) {
		return nodes.NodeAttaching, "", nil // someone else's
	} else if err != nil {
		return "", "", err
	}
	switch {
	case s != nil && s.Status.Phase == nodes.StatusSuccessful:
		return nodes.NodeCycled, "", nil
	case s == nil || s.Status.Phase == nodes.StatusFailed:
		return nodes.NodeAttaching, "", nil
	case q.DeletionTimestamp != nil:
		return nodes.NodeCycling, s.Status.Message, r.abort(ctx, s)
	}
	return nodes.NodeCycling, s.Status.Message, nil
}

// abort asks for the end of a CycleNodeStatus.
func (r *Reconciler) abort(ctx context.Context, s *nodes.CycleNodeStatus) error {
	if s.DeletionTimestamp != nil || !slices.Contains(s.Finalizers, controller.Finalizer) {
		return nil
	}
	return controllers.Delete(ctx, r.Env.Client, s)
}

// undo attaches and uncordons a node. An instance whose Node is gone is terminated: no node would come of it. It
// returns the state in which the node is in the end, or what is waited for.
func (r *Reconciler) undo(ctx context.Context, q *nodes.CycleNodeRequest, ref *nodes.NodeRef) (
	nodes.NodeState, string, error,
) {
	// A status that was made while the request went to Healing gives up by itself, or was quicker.
	s, err := r.reads().child(ctx, q, ref)
	if failed := (*failure)(nil); err != nil && !errors.As(err, &failed) {
		return "", "", err
	}
	if s != nil && s.Status.Phase != nodes.StatusSuccessful && s.Status.Phase != nodes.StatusFailed {
		return "", fmt.Sprintf("node %s is still being cycled", ref.Name), r.abort(ctx, s)
	}
	node, err := r.Env.NodeOf(ctx, ref)
	if err != nil {
		return "", "", err
	}
	instance, err := r.Env.Instance(ctx, ref.ProviderID)
	if err != nil {
		return "", "", err
	}
	if instance == nil {
		switch {
		case node == nil:
			return nodes.NodeCycled, "", nil
		case controller.IsReady(node):
			return "", unknownButReady(node), nil
		}
		return "", fmt.Sprintf("Node %s still exists", ref.Name), r.deleteNode(ctx, node)
	}
	if instance.State == provider.Terminating {
		return "", fmt.Sprintf("the instance of node %s has not ended", ref.Name), nil
	}
	group, err := r.Env.Provider.Group(ctx, ref.NodeGroupName)
	if err != nil {
		return "", "", err
	}
	i := slices.IndexFunc(group.Instances, func(i provider.Instance) bool { return i.ProviderID == ref.ProviderID })
	in := i >= 0 && group.Instances[i].State != provider.Detaching
	switch {
	case !in && (node == nil || node.DeletionTimestamp != nil):
		return "", fmt.Sprintf("instance %s has no Node any more, and is being terminated", ref.ProviderID),
			r.Env.Provider.Terminate(ctx, ref.ProviderID)
	case !in && i >= 0:
		return "", fmt.Sprintf("node %s is being detached", ref.Name), nil
	case !in:
		if err := r.Env.Provider.Attach(ctx, ref.NodeGroupName, ref.ProviderID); err != nil {
			return "", "", err
		}
		return "", fmt.Sprintf("node %s is being attached to %s", ref.Name, ref.NodeGroupName), nil
	}
	if node != nil {
		if err := r.Env.Back(ctx, node, q.UID); err != nil {
			return "", "", err
		}
	}
	return nodes.NodeAttached, "", nil
}
