package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// RoomAdvice is what can be done about pods without room.
const RoomAdvice = "make room, or drain the node by hand"

// WithoutRoom lists those pods of Nodes that draining is about for which no other Node is known to have room, each with
// the reason. Other Nodes are Ready ones to which pods may be scheduled. It knows requests, node selectors and node
// affinity, and taints; what depends on more, such as volumes or other pods, is taken as having no room.
func (e *Env) WithoutRoom(ctx context.Context, leaving ...string) ([]string, error) {
	var machines corev1.NodeList
	if err := e.Reader.List(ctx, &machines); err != nil {
		return nil, err
	}
	var pods corev1.PodList
	if err := e.Reader.List(ctx, &pods); err != nil {
		return nil, err
	}
	var rooms []*room
	for i := range machines.Items {
		n := &machines.Items[i]
		if IsReady(n) && !n.Spec.Unschedulable && !slices.Contains(leaving, n.Name) {
			rooms = append(rooms, &room{node: n, free: n.Status.Allocatable.DeepCopy()})
		}
	}
	var unbound, moving []*corev1.Pod
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		switch {
		case p.Spec.NodeName == "":
			if p.DeletionTimestamp == nil && len(p.Spec.SchedulingGates) == 0 {
				unbound = append(unbound, p)
			}
		case slices.Contains(leaving, p.Spec.NodeName):
			if p.DeletionTimestamp == nil && Drained(p) {
				moving = append(moving, p)
			}
		default:
			for _, r := range rooms {
				if r.node.Name == p.Spec.NodeName {
					r.take(p)
				}
			}
		}
	}
	// Those that wait for a node already, perhaps because they were evicted a moment ago, come first. That one of them
	// has no room has other reasons.
	for _, p := range largestFirst(unbound) {
		place(p, rooms)
	}
	var without []string
	for _, p := range largestFirst(moving) {
		reason := beyondRoom(p, pods.Items)
		if reason == "" && !place(p, rooms) {
			reason = "no other node has room"
		}
		if reason != "" {
			without = append(without, fmt.Sprintf("%s/%s (%s)", p.Namespace, p.Name, reason))
		}
	}
	return without, nil
}

// room is what is free on a Node.
type room struct {
	node *corev1.Node
	free corev1.ResourceList
}

// requests is what a pod asks for, never less than what the scheduler counts: containers and sidecars together, the
// largest of the other init containers beside them, what the pod as a whole asks for if that is more, and its overhead.
//
// k8s.io/component-helpers/resource counts exactly, but fits only the k8s.io/api of its own version, which users of
// trommeltest choose themselves.
func requests(p *corev1.Pod) corev1.ResourceList {
	all := corev1.ResourceList{}
	add := func(list corev1.ResourceList) {
		for name, quantity := range list {
			sum := all[name]
			sum.Add(quantity)
			all[name] = sum
		}
	}
	first := corev1.ResourceList{}
	atLeast := func(least, list corev1.ResourceList) {
		for name, quantity := range list {
			if has := least[name]; quantity.Cmp(has) > 0 {
				least[name] = quantity
			}
		}
	}
	for _, c := range p.Spec.Containers {
		add(c.Resources.Requests)
	}
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c.Resources.Requests)
			continue
		}
		atLeast(first, c.Resources.Requests)
	}
	add(first)
	if p.Spec.Resources != nil {
		atLeast(all, p.Spec.Resources.Requests)
	}
	add(p.Spec.Overhead)
	all[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return all
}

func (r *room) take(p *corev1.Pod) {
	for name, quantity := range requests(p) {
		free := r.free[name]
		free.Sub(quantity)
		r.free[name] = free
	}
}

// suits reports whether a pod may be scheduled to the Node and has room there.
func (r *room) suits(p *corev1.Pod) bool {
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(p).Match(r.node); !ok || err != nil {
		return false
	}
	_, refused := scheduling.FindMatchingUntoleratedTaint(klog.Background(), r.node.Spec.Taints, p.Spec.Tolerations,
		func(t *corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }, false)
	if refused {
		return false
	}
	for name, quantity := range requests(p) {
		if free := r.free[name]; !quantity.IsZero() && quantity.Cmp(free) > 0 {
			return false
		}
	}
	return true
}

// place takes the first room that suits a pod, and reports whether there is one.
func place(p *corev1.Pod, rooms []*room) bool {
	for _, r := range rooms {
		if r.suits(p) {
			r.take(p)
			return true
		}
	}
	return false
}

func largestFirst(pods []*corev1.Pod) []*corev1.Pod {
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		x, y := requests(a), requests(b)
		return cmp.Or(y.Cpu().Cmp(*x.Cpu()), y.Memory().Cmp(*x.Memory()),
			strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name))
	})
	return pods
}

// beyondRoom says what else than room a pod needs; empty: nothing.
func beyondRoom(p *corev1.Pod, others []corev1.Pod) string {
	s := &p.Spec
	switch {
	case s.SchedulerName != "" && s.SchedulerName != corev1.DefaultSchedulerName:
		return "scheduler " + s.SchedulerName + " decides on its place"
	case s.Affinity != nil && (s.Affinity.PodAffinity != nil &&
		len(s.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 || len(repels(p)) > 0):
		return "its place depends on other pods"
	case slices.ContainsFunc(s.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool {
		return c.WhenUnsatisfiable == corev1.DoNotSchedule
	}):
		return "its place depends on other pods"
	case slices.ContainsFunc(s.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil || v.Ephemeral != nil
	}):
		return "its place depends on its volumes"
	case len(s.ResourceClaims) > 0:
		return "its place depends on its resource claims"
	}
	for _, c := range slices.Concat(s.InitContainers, s.Containers) {
		if slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.HostPort != 0 }) {
			return "it needs a port of its node"
		}
	}
	for i := range others {
		if o := &others[i]; o.UID != p.UID && slices.ContainsFunc(repels(o), func(t corev1.PodAffinityTerm) bool {
			selector, err := metav1.LabelSelectorAsSelector(t.LabelSelector)
			return err != nil || selector.Matches(labels.Set(p.Labels))
		}) {
			return fmt.Sprintf("pod %s/%s refuses to be beside it", o.Namespace, o.Name)
		}
	}
	return ""
}

// repels are the pods that a pod must not be beside.
func repels(p *corev1.Pod) []corev1.PodAffinityTerm {
	if p.Spec.Affinity == nil || p.Spec.Affinity.PodAntiAffinity == nil {
		return nil
	}
	return p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}
