package request

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
	"github.com/trommel-dev/trommel/nodes/controller"
	"github.com/trommel-dev/trommel/nodes/provider"
)

// A request that fails leaves its groups larger: the old nodes are attached again, beside those that were started in
// their place. The latter are marked, and a later request with spec.restore removes marked ones, and no others.

// extra is by how many instances the groups are larger than when the request began, and what a person can do about it:
// attaching increases a group's desired capacity. Nodes that were started for the request are marked.
func (r surplus) extra(ctx context.Context, q *nodes.CycleNodeRequest) (extra int, words string, err error) {
	selected, err := reads(r).selected(ctx, q)
	if failed := (*failure)(nil); err != nil && !errors.As(err, &failed) {
		return 0, "", err
	}
	var each []string
	for _, record := range q.Status.Groups {
		g, err := r.env.Provider.Group(ctx, record.Name)
		if errors.Is(err, provider.ErrNotFound) {
			continue
		} else if err != nil {
			return 0, "", err
		}
		more := g.DesiredCapacity - int(record.DesiredCapacity)
		if more <= 0 {
			continue
		}
		extra += more
		marked, err := r.mark(ctx, q, g, &record, selected)
		if err != nil {
			return 0, "", err
		}
		advice := fmt.Sprintf("set its desired capacity to %d again when these are not needed", record.DesiredCapacity)
		if marked > 0 {
			advice = fmt.Sprintf("a request with restore (trommel cycle %s --restore) removes up to %d of them that "+
				"were started for this one, or ", g.Name, min(more, marked)) + advice
		}
		each = append(each, fmt.Sprintf("node group %s has now %d instances, %d more than when the request began: %s",
			g.Name, g.DesiredCapacity, more, advice))
	}
	return extra, controller.List(each), nil
}

// mark marks the Nodes of a group that were started for the request, and returns how many there are. The provider does
// not tell why it has started an instance: if there are more new ones than the request has detached, it is not known
// which are ours, and none is marked.
func (r surplus) mark(
	ctx context.Context, q *nodes.CycleNodeRequest, g *provider.Group, record *nodes.GroupRecord, list []corev1.Node,
) (marked int, err error) {
	detached := 0
	for _, n := range q.Status.NodesToTerminate {
		if n.NodeGroupName == g.Name && n.Detached {
			detached++
		}
	}
	var fresh []string
	for _, i := range g.Instances {
		before := slices.ContainsFunc(q.Status.HealthChecks, func(h nodes.HealthCheckStatus) bool {
			return h.ProviderID == i.ProviderID && h.Skip
		})
		if !before && controller.FindNode(q, i.ProviderID) == nil {
			fresh = append(fresh, i.ProviderID)
		}
	}
	if len(fresh) > detached || q.Spec.Restore {
		return 0, nil
	}
	for i := range list {
		if node := &list[i]; slices.Contains(fresh, node.Spec.ProviderID) {
			err := r.env.PatchNode(ctx, node, func(n *corev1.Node) bool {
				if _, _, ok := surplusAbove(n); ok {
					return false // an earlier request's, which was made when the group was smaller still
				}
				n.Annotations[controller.AnnotationSurplus] = fmt.Sprintf("%d/%s", record.DesiredCapacity, g.Name)
				return true
			})
			if err != nil {
				return 0, err
			}
			marked++
		}
	}
	return marked, nil
}

// surplusAbove reads the mark of a Node: the group that it was started in, and how large that was before.
func surplusAbove(node *corev1.Node) (group string, capacity int, ok bool) {
	before, group, ok := strings.Cut(node.Annotations[controller.AnnotationSurplus], "/")
	capacity, err := strconv.Atoi(before)
	return group, capacity, ok && err == nil && capacity >= 0 && group != ""
}

// nothingToRestore is what a request with restore says that finds nothing to do.
const nothingToRestore = "nothing to remove: no node of the groups was started for a request that failed, or the " +
	"groups are no larger than before it"

// choose lists those of the nodes that are to be removed: of those that are marked, as many as make their groups as
// large again as the marks say, those with the fewest pods first.
func (r surplus) choose(ctx context.Context, v *view, all []nodes.CycleNodeRequestNode) (
	[]nodes.CycleNodeRequestNode, error,
) {
	type candidate struct {
		nodes.CycleNodeRequestNode
		capacity, pods int
	}
	var candidates []candidate
	for _, n := range all {
		group, capacity, ok := surplusAbove(v.nodes[n.ProviderID])
		if !ok || group != n.NodeGroupName {
			continue
		}
		pods, err := r.env.Pods(ctx, n.Name)
		if err != nil {
			return nil, err
		}
		candidates = append(candidates, candidate{n, capacity, len(pods)})
	}
	slices.SortFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.capacity, a.capacity), cmp.Compare(a.pods, b.pods), strings.Compare(a.Name, b.Name))
	})
	desired := map[string]int{}
	for name, g := range v.groups {
		desired[name] = g.DesiredCapacity
	}
	var chosen []nodes.CycleNodeRequestNode
	for _, c := range candidates {
		if desired[c.NodeGroupName] > c.capacity {
			desired[c.NodeGroupName]--
			chosen = append(chosen, c.CycleNodeRequestNode)
		}
	}
	slices.SortFunc(chosen, func(a, b nodes.CycleNodeRequestNode) int { return strings.Compare(a.Name, b.Name) })
	return chosen, nil
}

// hasRoom looks whether the pods of nodes that are to be removed have room elsewhere, before anything is done.
func (r surplus) hasRoom(
	ctx context.Context, q *nodes.CycleNodeRequest, chosen []nodes.CycleNodeRequestNode,
) error {
	if !q.Spec.Restore || len(chosen) == 0 {
		return nil
	}
	var names []string
	for _, n := range chosen {
		names = append(names, n.Name)
	}
	without, err := r.env.WithoutRoom(ctx, names...)
	if err != nil {
		return err
	}
	if len(without) > 0 {
		return failf("these pods may have no other place: %s; %s", controller.List(without), controller.RoomAdvice)
	}
	return nil
}

// stillSurplus looks, immediately before a node is taken out of its group, whether it still may be. It returns what is
// waited for.
func (r surplus) stillSurplus(
	ctx context.Context, q *nodes.CycleNodeRequest, v *view, n *nodes.CycleNodeRequestNode,
) (wait string, err error) {
	node, g := v.nodes[n.ProviderID], v.groups[n.NodeGroupName]
	if node == nil || node.UID != n.UID {
		return "", failf("the Node of %s is not there any more, and with it the mark that says what may be removed",
			n.Name)
	}
	switch group, capacity, ok := surplusAbove(node); {
	case !ok || group != n.NodeGroupName:
		return "", failf("node %s is not marked any more as started for a request that failed", n.Name)
	case g.DesiredCapacity <= capacity && node.Annotations[controller.AnnotationDetached] == g.Name:
		// An earlier call of ours may have changed the one, and not yet the other, in the provider's answers.
		return fmt.Sprintf("node group %s has %d instances now: waits until node %s is out of it", g.Name,
			g.DesiredCapacity, n.Name), nil
	case g.DesiredCapacity <= capacity:
		return "", failf("node group %s has %d instances now: node %s is needed", g.Name, g.DesiredCapacity, n.Name)
	}
	if err := r.hasRoom(ctx, q, []nodes.CycleNodeRequestNode{*n}); err != nil {
		return "", err
	}
	g.DesiredCapacity-- // as it will be for the next one
	return "", nil
}

// unmark removes outdated marks, of groups that are not larger than before.
func (r surplus) unmark(ctx context.Context, v *view) error {
	for id, node := range v.nodes {
		group, capacity, ok := surplusAbove(node)
		if !ok || group != v.members[id].group || v.groups[group].DesiredCapacity > capacity {
			continue
		}
		err := r.env.PatchNode(ctx, node, func(n *corev1.Node) bool {
			delete(n.Annotations, controller.AnnotationSurplus)
			return true
		})
		if err != nil {
			return err
		}
	}
	return nil
}
