package request

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
	"github.com/trommel-dev/trommel/nodes/controller"
	"github.com/trommel-dev/trommel/nodes/provider"
)

// disagreements says in what the instances of the groups and the selected nodes differ. It deletes Nodes whose instance
// does not exist, attaches instances that a request detached, and replaces instances that have no Node. What never
// belonged to a group is left alone, and of all else only few are deleted or replaced: if more are wrong, something
// else is, such as the region in which the provider looks. It reports whether it has written the status.
func (r *Reconciler) disagreements(ctx context.Context, q *nodes.CycleNodeRequest, v *view) (
	problems []string, written bool, err error,
) {
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	var nodeless []string
	for _, id := range sorted(v.members) {
		i := v.members[id]
		switch {
		case i.State != provider.InService:
			add("instance %s of %s is %s", id, i.group, i.State)
		case v.nodes[id] == nil:
			nodeless = append(nodeless, id)
		}
	}
	more, written, err := r.withoutNode(ctx, q, v, nodeless, len(problems) == 0)
	if written || err != nil {
		return nil, written, err
	}
	problems = append(problems, more...)
	for _, n := range v.unnamed {
		add("node %s has no provider ID", n.Name)
	}
	var strange []string
	for _, id := range sorted(v.nodes) {
		if _, ok := v.members[id]; !ok {
			strange = append(strange, id)
		}
	}
	found, err := r.reads().existing(ctx, strange)
	if err != nil {
		return nil, false, err
	}
	var orphans []*corev1.Node
	for _, id := range strange {
		node := v.nodes[id]
		i, exists := found[id]
		switch {
		case !exists:
			orphans = append(orphans, node)
		case i.State != provider.Running:
			add("node %s is selected, but its instance is in none of the groups, and %s", node.Name, i.State)
		default:
			message, err := r.attachAgain(ctx, q, node)
			if err != nil {
				return nil, false, err
			}
			add("%s", message)
		}
	}
	more, err = r.withoutInstance(ctx, q, v, orphans)
	return append(problems, more...), false, err
}

// known reports whether a Node of the cluster belongs to an instance of the groups. A group of the same name in another
// region, or of another cluster, has none.
func (v *view) known() bool {
	for id := range v.members {
		if v.nodes[id] != nil {
			return true
		}
	}
	return false
}

// withoutInstance deletes Nodes whose instance does not exist, if they are few and have not been Ready for some time.
func (r *Reconciler) withoutInstance(
	ctx context.Context, q *nodes.CycleNodeRequest, v *view, orphans []*corev1.Node,
) (problems []string, err error) {
	if all := len(v.nodes); !r.Env.Limits.Few(len(orphans), all) {
		return []string{fmt.Sprintf("%d of %d selected nodes have no instance: none of them is deleted, since that is "+
			"more than one and more than %d %%; does the provider look in the right region?", len(orphans), all,
			r.Env.Limits.Share)}, nil
	}
	for _, node := range orphans {
		problem := fmt.Sprintf("node %s has no instance", node.Name)
		switch {
		case controller.IsReady(node):
			problem += ", although it is Ready: it is not deleted"
		case v.known() && strings.HasPrefix(node.Spec.ProviderID, r.Env.Provider.Name()+"://") &&
			node.DeletionTimestamp == nil && r.Env.NotReadyFor(node) >= r.Env.Limits.OrphanAge:
			err := r.Env.Client.Delete(ctx, node,
				client.Preconditions{UID: &node.UID, ResourceVersion: &node.ResourceVersion})
			if client.IgnoreNotFound(err) != nil {
				return nil, err
			}
			r.Env.Events.Eventf(q, node, corev1.EventTypeWarning, "OrphanDeleted", "Cycle",
				"Node %s was deleted: its instance %s does not exist, and it was not Ready", node.Name,
				node.Spec.ProviderID)
		}
		problems = append(problems, problem)
	}
	return problems, nil
}

// withoutNode looks after instances in service of which no selected Node is known. One that has no Node at all is
// waited for; then it is terminated, so that its group replaces it. That is done once for each, only if they are few,
// and if nothing else is wrong with the groups.
func (r *Reconciler) withoutNode(
	ctx context.Context, q *nodes.CycleNodeRequest, v *view, ids []string, alone bool,
) (problems []string, written bool, err error) {
	if len(ids) == 0 {
		return nil, false, nil
	}
	var list corev1.NodeList // no selector
	if err := r.Env.Reader.List(ctx, &list); err != nil {
		return nil, false, err
	}
	names := map[string]string{}
	for _, n := range list.Items {
		names[n.Spec.ProviderID] = n.Name
	}
	affected := len(q.Status.Replaced)
	for _, id := range ids {
		if !slices.Contains(q.Status.Replaced, id) {
			affected++
		}
	}
	var replace []string
	for _, id := range ids {
		at := fmt.Sprintf("instance %s of %s ", id, v.members[id].group)
		switch name, limit := names[id], r.Env.Limits.Equilibrium; {
		case name != "":
			problems = append(problems, at+fmt.Sprintf("is node %s, which the selector does not select", name))
			alone = false
		case !v.known():
			problems = append(problems, at+
				"has no node: it is none of this cluster's groups, or all its nodes are gone")
		case slices.Contains(q.Status.Replaced, id):
			problems = append(problems, at+"has no node, and is being replaced")
			if err := r.Env.Provider.Terminate(ctx, id); err != nil && !errors.Is(err, provider.ErrNotFound) {
				return nil, false, err
			}
		case !r.Env.Limits.Few(affected, len(v.members)):
			problems = append(problems, at+"has no node; there are too many of them to be replaced: terminate them, "+
				"or let their nodes register")
		default:
			problems = append(problems,
				at+fmt.Sprintf("has no node: it is replaced if none registers within %s", limit))
			replace = append(replace, id)
		}
	}
	if len(replace) == 0 || !alone || !r.Env.Over(q.Status.EquilibriumWaitStarted, r.Env.Limits.Equilibrium) {
		return problems, false, nil
	}
	r.Env.Events.Eventf(q, nil, corev1.EventTypeWarning, "InstanceReplaced", "Cycle",
		"instances are terminated, so that their groups replace them, because they have no Node: %s",
		strings.Join(replace, ", "))
	// What is going to be done is written first. The replacements are waited for as long as these were.
	return nil, true, r.statuses().write(ctx, q, func(s *nodes.CycleNodeRequestStatus) {
		s.Replaced = append(s.Replaced, replace...)
		s.EquilibriumWaitStarted, s.Message = r.Env.Now(), "replaces instances that have no node: "+
			controller.List(replace)
	})
}

// attachAgain attaches an instance that a request detached, unless another request is at it.
func (r *Reconciler) attachAgain(ctx context.Context, q *nodes.CycleNodeRequest, node *corev1.Node) (string, error) {
	if by := types.UID(node.Annotations[controller.AnnotationClaim]); by != "" && by != q.UID {
		holder, err := r.reads().holder(ctx, by)
		if err != nil {
			return "", err
		}
		if holder != nil {
			return fmt.Sprintf(
				"node %s is being cycled by request %s/%s", node.Name, holder.Namespace, holder.Name), nil
		}
	}
	group := node.Annotations[controller.AnnotationDetached]
	switch {
	case group == "":
		return fmt.Sprintf("node %s is selected, but its instance is in none of the groups, and no request has "+
			"detached it: either the selector selects too much, or it must be attached by hand", node.Name), nil
	case !slices.Contains(controller.GroupsOf(&q.Spec), group):
		return fmt.Sprintf("node %s was detached from %s, which is none of the groups", node.Name, group), nil
	}
	err := r.Env.Provider.Attach(ctx, group, node.Spec.ProviderID)
	if errors.Is(err, provider.ErrConflict) {
		return fmt.Sprintf("node %s is detached: %v", node.Name, err), nil
	}
	return fmt.Sprintf("node %s was detached, and is being attached to %s", node.Name, group), err
}
