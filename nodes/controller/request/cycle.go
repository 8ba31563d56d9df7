package request

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trommel-dev/trommel/internal/controllers"
	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
	"github.com/trommel-dev/trommel/nodes/controller"
	"github.com/trommel-dev/trommel/nodes/provider"
)

// child reads the CycleNodeStatus of a node; nil: there is none.
func (r reads) child(ctx context.Context, q *nodes.CycleNodeRequest, ref *nodes.NodeRef) (
	*nodes.CycleNodeStatus, error,
) {
	s := &nodes.CycleNodeStatus{}
	key := client.ObjectKey{Namespace: q.Namespace, Name: controller.StatusName(q, ref.ProviderID)}
	if err := r.env.Reader.Get(ctx, key, s); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if s.Spec.RequestUID != q.UID || s.Spec.Node.ProviderID != ref.ProviderID {
		return nil, failf("CycleNodeStatus %s belongs to request %s (%s) and instance %s", s.Name, s.Spec.Request,
			s.Spec.RequestUID, s.Spec.Node.ProviderID)
	}
	return s, nil
}

// children makes the CycleNodeStatuses of nodes that are to be cycled, and takes note of those that have ended. It
// reports whether it has written something, and what the others wait for.
func (r *Reconciler) children(ctx context.Context, q *nodes.CycleNodeRequest) (
	written bool, waits []string, err error,
) {
	states := map[string]nodes.NodeState{}
	var failed []string
	for _, n := range inState(q, nodes.NodeCycling) {
		s, err := r.reads().child(ctx, q, &n.NodeRef)
		if err != nil {
			return false, nil, err
		}
		switch {
		case s == nil:
			gone, err := r.reads().gone(ctx, &n.NodeRef)
			if err != nil {
				return false, nil, err
			}
			if gone {
				states[n.ProviderID] = nodes.NodeCycled // its status was deleted afterwards
			} else if err := r.create(ctx, q, &n.NodeRef); err != nil {
				return false, nil, err
			}
		case s.Status.Phase == nodes.StatusSuccessful:
			states[n.ProviderID] = nodes.NodeCycled
		case s.Status.Phase == nodes.StatusFailed:
			failed = append(failed, fmt.Sprintf("node %s: %s", n.Name, s.Status.Message))
		case s.Status.Message != "":
			waits = append(waits, fmt.Sprintf("node %s: %s", n.Name, s.Status.Message))
		}
	}
	if len(failed) > 0 {
		return true, nil, r.statuses().to(ctx, q, nodes.RequestHealing, func(s *nodes.CycleNodeRequestStatus) {
			setStates(s, states)
			s.Reason = strings.Join(failed, "; ")
		})
	}
	if len(states) > 0 {
		return true, nil, r.statuses().write(ctx, q, func(s *nodes.CycleNodeRequestStatus) { setStates(s, states) })
	}
	return false, waits, nil
}

// gone reports whether neither instance nor Node exist.
func (r reads) gone(ctx context.Context, ref *nodes.NodeRef) (bool, error) {
	node, err := r.env.NodeOf(ctx, ref)
	if node != nil || err != nil {
		return false, err
	}
	instance, err := r.env.Instance(ctx, ref.ProviderID)
	return instance == nil, err
}

// create makes a CycleNodeStatus.
func (r *Reconciler) create(ctx context.Context, q *nodes.CycleNodeRequest, ref *nodes.NodeRef) error {
	s := &nodes.CycleNodeStatus{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: q.Namespace, Name: controller.StatusName(q, ref.ProviderID),
			GenerateName: controller.StatusPrefix(q, ref.ProviderID), // shows readers that the rest has no meaning
			Labels:       map[string]string{controller.LabelRequest: string(q.UID)},
			Finalizers:   []string{controller.Finalizer},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(q, nodes.GroupVersion.WithKind("CycleNodeRequest")),
			},
		},
		Spec: nodes.CycleNodeStatusSpec{
			Request: q.Name, RequestUID: q.UID, Node: *ref, CycleSettings: q.Spec.CycleSettings,
			Restore: q.Spec.Restore,
		},
	}
	err := r.Env.Client.Create(ctx, s)
	if apierrors.IsAlreadyExists(err) {
		_, err = r.reads().child(ctx, q, ref) // ours: an answer was lost
	}
	return err
}

// initialised detaches nodes; when none is left, it looks whether all is as it should be.
func (r *Reconciler) initialised(ctx context.Context, q *nodes.CycleNodeRequest) (string, error) {
	v, err := r.reads().look(ctx, q)
	if err != nil {
		return "", err
	}
	if detaching := inState(q, nodes.NodeDetaching); len(detaching) > 0 {
		return r.detach(ctx, q, v, detaching)
	}
	active, available := len(inState(q, nodes.NodeDetached, nodes.NodeCycling)), inState(q, nodes.NodeAvailable)
	found, err := r.reads().existing(ctx, ids(available))
	if err != nil {
		return "", err
	}
	states := map[string]nodes.NodeState{}
	var strange []string
	picked := 0
	for _, n := range available {
		if _, ok := found[n.ProviderID]; !ok {
			if node := v.nodes[n.ProviderID]; node != nil && controller.IsReady(node) {
				strange = append(strange, unknownButReady(node))
			}
			states[n.ProviderID] = nodes.NodeMissing
		} else if active+picked < concurrency(q) {
			states[n.ProviderID] = nodes.NodeDetaching
			picked++
		}
	}
	switch {
	case len(strange) > 0:
		return controller.List(strange), nil
	case len(states) > 0:
		return "", r.statuses().write(ctx, q, func(s *nodes.CycleNodeRequestStatus) {
			setStates(s, states)
			s.ScaleUpStarted, s.Message = r.Env.Now(), ""
		})
	case active > 0:
		return "", r.statuses().to(ctx, q, nodes.RequestWaitingTermination, nil)
	}
	return r.finish(ctx, q, v)
}

// unknownButReady says that provider and Kubernetes contradict each other about a Node. It is never deleted: the
// provider may have been asked at the wrong place.
func unknownButReady(node *corev1.Node) string {
	return fmt.Sprintf("node %s is Ready, but the provider knows no instance of it", node.Name)
}

// detach detaches nodes from their groups.
func (r *Reconciler) detach(
	ctx context.Context, q *nodes.CycleNodeRequest, v *view, detaching []nodes.CycleNodeRequestNode,
) (string, error) {
	// Another request's claim can be there only if someone removed ours.
	for _, n := range detaching {
		if node := v.nodes[n.ProviderID]; node != nil {
			if by := node.Annotations[controller.AnnotationClaim]; by != string(q.UID) {
				if other, err := r.claims().claimOne(ctx, q, node); err != nil {
					return "", err
				} else if other != "" {
					return "", failf("node %s was claimed by request %s", n.Name, other)
				}
			}
		}
	}
	called := false
	for _, n := range detaching {
		i, ok := v.members[n.ProviderID]
		if !ok || i.State == provider.Detaching || i.State == provider.Terminating {
			continue
		}
		called = true
		takeOut := r.Env.Provider.Detach
		if q.Spec.Restore {
			if wait, err := r.surplus().stillSurplus(ctx, q, v, &n); wait != "" || err != nil {
				return wait, err
			}
			takeOut = r.Env.Provider.Remove
		}
		if node := v.nodes[n.ProviderID]; node != nil {
			if err := r.Env.MarkDetached(ctx, node, n.NodeGroupName); err != nil {
				return "", err
			}
		}
		err := takeOut(ctx, n.NodeGroupName, n.ProviderID)
		switch {
		case errors.Is(err, provider.ErrConflict):
			return "", failf("%v", err)
		case err != nil && !errors.Is(err, provider.ErrNotFound): // below it is seen what was not found
			return "", err
		}
	}
	if called {
		var err error
		if v, err = r.reads().look(ctx, q); err != nil {
			return "", err
		}
	}
	found, err := r.reads().existing(ctx, ids(detaching))
	if err != nil {
		return "", err
	}
	states := map[string]nodes.NodeState{}
	var left []string
	for _, n := range detaching {
		i, in := v.members[n.ProviderID]
		instance, exists := found[n.ProviderID]
		switch {
		case !exists || instance.State == provider.Terminating:
			// Someone else ended it. A status sees to it that all of it is gone.
			states[n.ProviderID] = nodes.NodeDetached
		case !in || i.State == provider.Detaching:
			states[n.ProviderID] = nodes.NodeDetached
		default:
			left = append(left, n.Name)
		}
	}
	if len(left) > 0 {
		return "waits until these nodes are detached: " + controller.List(left), nil
	}
	return "", r.statuses().to(ctx, q, nodes.RequestScalingUp, func(s *nodes.CycleNodeRequestStatus) {
		setStates(s, states)
	})
}

// claimOne claims a Node again whose claim is not ours; it returns the request that has it, if there is one.
func (r claims) claimOne(ctx context.Context, q *nodes.CycleNodeRequest, node *corev1.Node) (string, error) {
	v := &view{
		members: map[string]member{node.Spec.ProviderID: {}},
		nodes:   map[string]*corev1.Node{node.Spec.ProviderID: node},
	}
	other, err := r.claim(ctx, q, v)
	if other == nil || err != nil {
		return "", err
	}
	return other.Namespace + "/" + other.Name, nil
}

// full says what a group lacks: each needs as many instances in service as it strives for, but no more than when the
// request began, of which those that are new are Ready; they are returned. Nodes that are to be cycled do not count
// once they are being detached.
func full(q *nodes.CycleNodeRequest, v *view) (fresh []nodes.NodeRef, lacks []string) {
	for _, record := range q.Status.Groups {
		g, serving := v.groups[record.Name], 0
		for _, i := range g.Instances {
			old := false
			for _, h := range q.Status.HealthChecks {
				old = old || h.ProviderID == i.ProviderID && h.Skip
			}
			n := controller.FindNode(q, i.ProviderID)
			node := v.nodes[i.ProviderID]
			switch {
			case i.State != provider.InService || n != nil && n.State != nodes.NodeAvailable:
			case old:
				serving++
			case node != nil && controller.IsReady(node):
				serving++
				fresh = append(fresh, controller.RefOf(node, g.Name))
			}
		}
		if want := min(int(record.DesiredCapacity), g.DesiredCapacity); serving < want {
			lacks = append(lacks, fmt.Sprintf("node group %s has %d of %d nodes", g.Name, serving, want))
		}
	}
	return fresh, lacks
}

// scalingUp waits for replacements that are Ready and healthy.
func (r *Reconciler) scalingUp(ctx context.Context, q *nodes.CycleNodeRequest) (string, error) {
	v, err := r.reads().look(ctx, q)
	if err != nil {
		return "", err
	}
	for _, n := range inState(q, nodes.NodeDetached) {
		if i, ok := v.members[n.ProviderID]; ok && i.State != provider.Terminating {
			return fmt.Sprintf("waits until node %s is detached", n.Name), nil
		}
	}
	if err := protect(ctx, r.Env, q, v); err != nil {
		return "", err
	}
	fresh, lacks := full(q, v)
	if len(q.Spec.HealthChecks) > 0 {
		done, err := r.healthy(ctx, q, fresh)
		if err != nil {
			return "", err
		}
		if !done {
			return "waits until health checks of new nodes pass", nil
		}
	}
	if len(lacks) > 0 {
		return "waits for new nodes: " + controller.List(lacks), nil
	}
	return "", r.statuses().to(ctx, q, nodes.RequestCordoningNode, nil)
}

// protect keeps autoscalers from removing the nodes that were started since the request began. An admission policy that
// forbids it does not stop the request.
func protect(ctx context.Context, env *controller.Env, q *nodes.CycleNodeRequest, v *view) error {
	if q.Spec.Restore {
		return nil // it starts none
	}
	for _, id := range sorted(v.members) {
		node, before := v.nodes[id], slices.ContainsFunc(q.Status.HealthChecks, func(h nodes.HealthCheckStatus) bool {
			return h.ProviderID == id && h.Skip
		})
		if node == nil || before || controller.FindNode(q, id) != nil {
			continue
		}
		err := env.Protect(ctx, node, q.UID)
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
			env.Events.Eventf(q, node, corev1.EventTypeWarning, "NotProtected", "Cycle",
				"autoscalers may remove node %s: %v", node.Name, err)
			continue
		}
		if err != nil {
			return fmt.Errorf("protect node %s from autoscalers: %w", node.Name, err)
		}
	}
	return nil
}

// cordoning cordons the detached nodes, makes their pre-termination checks, and lets those that pass be cycled.
func (r *Reconciler) cordoning(ctx context.Context, q *nodes.CycleNodeRequest) (string, error) {
	detached := inState(q, nodes.NodeDetached)
	var there []nodes.CycleNodeRequestNode
	states := map[string]nodes.NodeState{}
	for _, n := range detached {
		node, err := r.Env.NodeOf(ctx, &n.NodeRef)
		if err != nil {
			return "", err
		}
		if node == nil {
			states[n.ProviderID] = nodes.NodeCycling // nothing answers for it any more
			continue
		}
		if err := r.Env.Cordon(ctx, node, q.UID); err != nil {
			return "", err
		}
		there = append(there, n)
	}
	passed, checked, err := r.mayEnd(ctx, q, there)
	if err != nil {
		return "", err
	}
	for _, id := range passed {
		states[id] = nodes.NodeCycling
	}
	change := func(s *nodes.CycleNodeRequestStatus) {
		setStates(s, states)
		s.PreTerminationChecks = checked
	}
	if len(states) == len(detached) {
		// The nodes' statuses are made when this is written.
		return "", r.statuses().to(ctx, q, nodes.RequestWaitingTermination, change)
	}
	const message = "waits until pre-termination checks pass"
	if len(states) == 0 && equality.Semantic.DeepEqual(checked, q.Status.PreTerminationChecks) {
		return message, nil
	}
	return "", r.statuses().write(ctx, q, func(s *nodes.CycleNodeRequestStatus) { change(s); s.Message = message })
}

// waitingTermination waits until enough nodes are cycled for the next ones; waits is what these wait for.
func (r *Reconciler) waitingTermination(
	ctx context.Context, q *nodes.CycleNodeRequest, waits []string,
) (string, error) {
	active := len(inState(q, nodes.NodeCycling))
	if active == 0 || active <= concurrency(q)/2 && len(inState(q, nodes.NodeAvailable)) > 0 {
		return "", r.statuses().to(ctx, q, nodes.RequestInitialised, nil)
	}
	return untilDone(active, waits), nil
}

// untilDone says how many nodes are waited for, and what these wait for.
func untilDone(active int, waits []string) string {
	message := fmt.Sprintf("waits until %d nodes are drained and terminated", active)
	if len(waits) > 0 {
		message += ": " + controller.List(waits)
	}
	return message
}

// finish looks whether the request is Successful: each instance is terminated, its Node is gone, and the groups are
// full.
func (r *Reconciler) finish(ctx context.Context, q *nodes.CycleNodeRequest, v *view) (string, error) {
	var problems []string
	found, err := r.reads().existing(ctx, ids(q.Status.NodesToTerminate))
	if err != nil {
		return "", err
	}
	for _, n := range q.Status.NodesToTerminate {
		if _, ok := found[n.ProviderID]; ok {
			problems = append(problems, fmt.Sprintf("the instance of node %s still exists", n.Name))
			continue
		}
		node, err := r.Env.NodeOf(ctx, &n.NodeRef)
		if err != nil {
			return "", err
		}
		if node == nil {
			node = v.nodes[n.ProviderID]
		}
		switch {
		case node == nil:
			continue
		case controller.IsReady(node):
			problems = append(problems, unknownButReady(node))
			continue
		}
		problems = append(problems, fmt.Sprintf("Node %s still exists", node.Name))
		if err := r.deleteNode(ctx, node); err != nil {
			return "", err
		}
	}
	if _, lacks := full(q, v); len(lacks)+len(problems) > 0 {
		return controller.List(append(problems, lacks...)), nil
	}
	if err := r.claims().releaseAll(ctx, q); err != nil {
		return "", err
	}
	if err := r.surplus().unmark(ctx, v); err != nil {
		return "", err
	}
	return "", r.statuses().to(ctx, q, nodes.RequestSuccessful, func(s *nodes.CycleNodeRequestStatus) {
		s.Message = fmt.Sprintf("%d nodes cycled", s.NumNodesCycled)
		switch {
		case q.Spec.Restore && len(s.NodesToTerminate) == 0:
			s.Message = nothingToRestore
		case q.Spec.Restore:
			s.Message = fmt.Sprintf("%d nodes removed", s.NumNodesCycled)
		}
		if missing := len(inState(q, nodes.NodeMissing)); missing > 0 {
			s.Message += fmt.Sprintf(", %d ended by someone else", missing)
		}
	})
}

// deleteNode deletes the Node of an instance that does not exist.
func (r *Reconciler) deleteNode(ctx context.Context, node *corev1.Node) error {
	if node.DeletionTimestamp != nil {
		return nil
	}
	return controllers.Delete(ctx, r.Env.Client, node)
}
