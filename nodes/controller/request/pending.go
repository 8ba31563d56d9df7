package request

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
	"github.com/trommel-dev/trommel/nodes/controller"
	"github.com/trommel-dev/trommel/nodes/provider"
)

// pending waits for other requests of the groups, claims the groups' Nodes, waits until the provider and Kubernetes
// agree on them, and records the nodes that are to be cycled.
func (r *Reconciler) pending(ctx context.Context, q *nodes.CycleNodeRequest) (string, error) {
	others, err := r.reads().others(ctx, q)
	if err != nil {
		return "", err
	}
	for _, o := range others {
		if begun(o) || earlier(o, q) {
			if err := r.claims().releaseAll(ctx, q); err != nil {
				return "", err
			}
			return r.waitFor(ctx, q, o)
		}
	}
	if q.Status.EquilibriumWaitStarted == nil {
		return "", r.statuses().write(ctx, q, func(s *nodes.CycleNodeRequestStatus) {
			s.EquilibriumWaitStarted, s.Message = r.Env.Now(), "compares the provider's instances with the nodes"
		})
	}
	v, err := r.reads().look(ctx, q)
	if errors.Is(err, provider.ErrNotFound) {
		return "", &failure{reason: err.Error(), group: v.missing}
	} else if err != nil {
		return "", err
	}
	problems, written, err := r.disagreements(ctx, q, v)
	if written || err != nil {
		return "", err
	}
	if len(problems) > 0 {
		return controller.List(problems), nil
	}
	if len(v.members) == 0 {
		return "", failf("there are no nodes in %s", strings.Join(controller.GroupsOf(&q.Spec), ", "))
	}
	if other, err := r.claims().claim(ctx, q, v); err != nil {
		return "", err
	} else if other != nil {
		return r.waitFor(ctx, q, other)
	}
	chosen, err := r.chooseSome(ctx, q, v)
	if err != nil {
		return "", err
	}
	if err := r.drainable(ctx, q, chosen); err != nil {
		return "", err
	}
	if err := r.surplus().hasRoom(ctx, q, chosen); err != nil {
		return "", err
	}
	if done, err := r.oldHealthy(ctx, q, chosen); !done || err != nil {
		return "", err
	}
	err = r.statuses().to(ctx, q, nodes.RequestInitialised, func(s *nodes.CycleNodeRequestStatus) {
		s.NodesToTerminate, s.Groups, s.HealthChecks = chosen, nil, nil
		for _, name := range controller.GroupsOf(&q.Spec) {
			s.Groups = append(s.Groups, nodes.GroupRecord{
				Name: name, DesiredCapacity: int64(v.groups[name].DesiredCapacity)})
		}
		for _, id := range sorted(v.members) {
			s.HealthChecks = append(s.HealthChecks, nodes.HealthCheckStatus{ProviderID: id, Skip: true})
		}
		if len(chosen) == 0 {
			s.Message = "none of the named nodes is in the groups"
			if q.Spec.Restore {
				s.Message = nothingToRestore
			}
		}
	})
	for _, name := range controller.GroupsOf(&q.Spec) {
		// Attaching increases the desired capacity.
		if g := v.groups[name]; err == nil && g.MaxSize <= g.DesiredCapacity && !q.Spec.Restore {
			r.Env.Events.Eventf(q, nil, corev1.EventTypeWarning, "NoRoomToHeal", "Cycle",
				"node group %s has its maximal size, %d: if the request fails, detached nodes cannot be attached again",
				name, g.MaxSize)
		}
	}
	return "", err
}

// others lists the other requests that have a group in common with this one and have not ended.
func (r reads) others(ctx context.Context, q *nodes.CycleNodeRequest) ([]*nodes.CycleNodeRequest, error) {
	var list nodes.CycleNodeRequestList
	if err := r.env.Reader.List(ctx, &list); err != nil {
		return nil, err
	}
	var others []*nodes.CycleNodeRequest
	for i := range list.Items {
		o := &list.Items[i]
		// A new request of a namespace that these controllers do not serve may never be carried out. If other
		// controllers serve it, that is seen when they have begun, or have claimed the nodes.
		if o.Status.Phase == "" && !r.env.Serves(o.Namespace) {
			continue
		}
		if o.UID != q.UID && !controller.Ended(o.Status.Phase) && controller.ShareGroup(&o.Spec, &q.Spec) {
			others = append(others, o)
		}
	}
	return others, nil
}

// begun reports whether a request is beyond Pending.
func begun(q *nodes.CycleNodeRequest) bool {
	return q.Status.Phase != "" && q.Status.Phase != nodes.RequestPending
}

// earlier orders requests.
func earlier(a, b *nodes.CycleNodeRequest) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.UID < b.UID
}

// waitFor waits for another request. No timeout runs meanwhile.
func (r *Reconciler) waitFor(ctx context.Context, q, other *nodes.CycleNodeRequest) (string, error) {
	message := fmt.Sprintf("waits for request %s/%s of the same node group", other.Namespace, other.Name)
	if !r.Env.Serves(other.Namespace) {
		message += ", in a namespace that these controllers do not serve"
	}
	if q.Status.EquilibriumWaitStarted == nil && q.Status.Message == message {
		return "", nil
	}
	return "", r.statuses().write(ctx, q, func(s *nodes.CycleNodeRequestStatus) {
		s.EquilibriumWaitStarted, s.Message = nil, message
	})
}

// holder finds the request of a claim; nil: it has ended, so that the claim is void.
func (r reads) holder(ctx context.Context, uid types.UID) (*nodes.CycleNodeRequest, error) {
	var list nodes.CycleNodeRequestList
	if err := r.env.Reader.List(ctx, &list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if o := &list.Items[i]; o.UID == uid && !controller.Ended(o.Status.Phase) {
			return o, nil
		}
	}
	return nil, nil
}

// claim claims all Nodes of the groups. If another request has one, it returns that request. The other one gives its
// claims back if it is the later of the two.
func (r claims) claim(ctx context.Context, q *nodes.CycleNodeRequest, v *view) (*nodes.CycleNodeRequest, error) {
	for _, id := range sorted(v.members) {
		// Holders are looked up after the Node was read: a claim's request cannot be younger than the claim.
		if by := types.UID(v.nodes[id].Annotations[controller.AnnotationClaim]); by != "" && by != q.UID {
			other, err := reads(r).holder(ctx, by)
			if other != nil || err != nil {
				return other, err
			}
		}
		if err := r.env.Claim(ctx, v.nodes[id], q.UID); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// chooseSome lists the nodes that are to be cycled, in the order of their names, or those that are to be removed.
func (r *Reconciler) chooseSome(ctx context.Context, q *nodes.CycleNodeRequest, v *view) (
	[]nodes.CycleNodeRequestNode, error,
) {
	chosen, err := choose(q, v)
	if err != nil || !q.Spec.Restore {
		return chosen, err
	}
	return r.surplus().choose(ctx, v, chosen)
}

func choose(q *nodes.CycleNodeRequest, v *view) ([]nodes.CycleNodeRequestNode, error) {
	missing := slices.Clone(q.Spec.NodeNames)
	var chosen []nodes.CycleNodeRequestNode
	for id, i := range v.members {
		node := v.nodes[id]
		if len(q.Spec.NodeNames) > 0 && !slices.Contains(q.Spec.NodeNames, node.Name) {
			continue
		}
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == node.Name })
		chosen = append(chosen, nodes.CycleNodeRequestNode{
			NodeRef: controller.RefOf(node, i.group), State: nodes.NodeAvailable})
	}
	if len(missing) > 0 && !q.Spec.ValidationOptions.SkipMissingNamedNodes {
		return nil, failf("these named nodes are not in the groups: %s", controller.List(missing))
	}
	slices.SortFunc(chosen, func(a, b nodes.CycleNodeRequestNode) int { return strings.Compare(a.Name, b.Name) })
	return chosen, nil
}

// drainable looks for pods that draining would lose, before anything is done: as kubectl drain, a request fails at
// once.
func (r *Reconciler) drainable(
	ctx context.Context, q *nodes.CycleNodeRequest, chosen []nodes.CycleNodeRequestNode,
) error {
	settings := &q.Spec.CycleSettings
	if settings.Method == nodes.MethodEvictionRequest {
		if has, err := r.Env.HasEvictionRequests(); err != nil {
			return err
		} else if !has {
			return failf("%s", controller.NoEvictionRequests)
		}
	}
	if settings.Force && settings.DeleteEmptyDirData {
		return nil
	}
	var lost []string
	for _, n := range chosen {
		pods, err := r.Env.Pods(ctx, n.Name)
		if err != nil {
			return err
		}
		if settings.Method == nodes.MethodWait { // the others end by themselves
			pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return controller.WaitedFor(settings, &p) })
		}
		lost = append(lost, controller.Undrainable(settings, pods)...)
	}
	if len(lost) > 0 {
		return failf("these pods would be lost: %s; %s", controller.List(lost), controller.UndrainableAdvice)
	}
	return nil
}

// oldHealthy makes the health checks of the nodes that are to be cycled, and reports whether all have passed.
func (r *Reconciler) oldHealthy(
	ctx context.Context, q *nodes.CycleNodeRequest, chosen []nodes.CycleNodeRequestNode,
) (bool, error) {
	if len(q.Spec.HealthChecks) == 0 || q.Spec.SkipInitialHealthChecks {
		return true, nil
	}
	var at []nodes.NodeRef
	for _, n := range chosen {
		at = append(at, n.NodeRef)
	}
	return r.healthy(ctx, q, at)
}
