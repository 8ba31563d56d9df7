// Package controller has what the controllers of node cycling share: what they work with, their limits, the marks that
// they leave on Nodes, and how they write phases. The controllers are the packages request and status.
//
// They believe what the API server and the provider say now, rather than a cache: caches only wake them. Before they do
// something at the provider they write that they are going to, with the version of the object that they decided on.
package controller

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/trommel-dev/trommel/internal/clock/kube"
	"github.com/trommel-dev/trommel/internal/controllers"
	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
	"github.com/trommel-dev/trommel/nodes/provider"
)

// Finalizer keeps a CycleNodeRequest until its nodes are either healed or terminated, and a CycleNodeStatus until its
// request has taken note of how it ended.
const Finalizer = "nodes.trommel.dev/cycle"

// Annotations of Nodes.
const (
	// AnnotationClaim has the UID of the request that cycles nodes of the Node's group. It is written with the Node's
	// version, so that only one of two requests gets it.
	AnnotationClaim = "nodes.trommel.dev/claimed-by"
	// AnnotationDetached has the name of the group from which a request detached the Node's instance. It is written
	// before that is done, and stays until the instance is in the group again: no other instance is ever attached.
	AnnotationDetached = "nodes.trommel.dev/detached-from"
	// AnnotationCordoned has the UID of the request that cordoned the Node. It is not on Nodes that were cordoned
	// before.
	AnnotationCordoned = "nodes.trommel.dev/cordoned-by"
	// AnnotationSurplus is on Nodes that were started for a request which then failed: the desired capacity that the
	// Node's group had before, and the group's name, such as 4/workers. While the group is larger, a request with
	// restore may remove the Node, and no other.
	AnnotationSurplus = "nodes.trommel.dev/surplus-above"
)

// LabelRequest of a CycleNodeStatus has the UID of its request.
const LabelRequest = "nodes.trommel.dev/request-uid"

// Limits are how long the controllers wait for what. Their zero values mean the defaults.
type Limits struct {
	// Equilibrium is how long the provider's instances and Kubernetes' nodes may differ before a request begins, and
	// after its last node; default: 5 minutes.
	Equilibrium time.Duration
	// ScaleUp is how long detaching nodes and starting their replacements may take; default: 20 minutes.
	ScaleUp time.Duration
	// Cycling is how long waiting for pods and draining may take, unless the request says it; default: 3 hours.
	Cycling time.Duration
	// Termination is how long the deletion of a Node and the end of an instance may take, each; default: 20 minutes.
	Termination time.Duration
	// Healing is how long healing may fail before the request is Failed; default: 20 minutes.
	Healing time.Duration
	// Poll is the time between two looks at what does not tell its changes; default: 5 seconds.
	Poll time.Duration
	// OrphanAge is how long a Node whose instance does not exist must not have been Ready before it is deleted;
	// default: 1 minute.
	OrphanAge time.Duration
	// Share is the largest part of a group, in percent, that one request deletes or terminates because provider and
	// Kubernetes do not agree; one Node or instance it always may. Default: 10.
	Share int
	// Observe is the time between two looks at the groups of NodeGroups; default: 1 minute.
	Observe time.Duration
	// CheckTimeout limits one HTTP request of a check; default: 5 seconds.
	CheckTimeout time.Duration
}

// WithDefaults returns the limits with the defaults instead of zero values.
func (l Limits) WithDefaults() Limits {
	for field, value := range map[*time.Duration]time.Duration{
		&l.Equilibrium: 5 * time.Minute, &l.ScaleUp: 20 * time.Minute, &l.Cycling: 3 * time.Hour,
		&l.Termination: 20 * time.Minute, &l.Healing: 20 * time.Minute, &l.Poll: 5 * time.Second,
		&l.OrphanAge: time.Minute, &l.CheckTimeout: 5 * time.Second, &l.Observe: time.Minute,
	} {
		if *field == 0 {
			*field = value
		}
	}
	l.Share = cmp.Or(l.Share, 10)
	return l
}

// Few reports whether n of all are few enough to be an accident of theirs, rather than a mistake of ours.
func (l Limits) Few(n, all int) bool { return n <= 1 || 100*n <= l.Share*all }

// Env is what a controller works with.
type Env struct {
	Client   client.Client // reads from the cache
	Reader   client.Reader // reads from the API server
	Provider provider.Provider
	Events   events.EventRecorder
	Clock    clock.PassiveClock
	// NewQueue makes the queues of the controllers; nil: the usual ones.
	NewQueue kube.NewQueue
	Limits   Limits
	// Namespaces whose requests are carried out; empty: all.
	Namespaces []string
	// CheckEndpoints are URLs that checks may ask beside nodes and pods; see checks.Client.
	CheckEndpoints []string
	// Getenv finds the certificates of checks.
	Getenv func(string) string
	// PhaseEnded receives how long a request or status ("CycleNodeRequest", "CycleNodeStatus") was in a phase.
	PhaseEnded func(kind, phase string, after time.Duration)
	// NodesCycled receives how many nodes of a group were cycled.
	NodesCycled func(group string, n int)
}

// Options are those of all controllers.
func (e *Env) Options() ctrlcontroller.Options { return ctrlcontroller.Options{NewQueue: e.NewQueue} }

// Now is the time as it is written into statuses.
func (e *Env) Now() *metav1.MicroTime {
	// A time that is read back has no more precision.
	return &metav1.MicroTime{Time: e.Clock.Now().Truncate(time.Microsecond)}
}

// Over reports whether the limit has passed since a time; unknown times have just begun.
func (e *Env) Over(since *metav1.MicroTime, limit time.Duration) bool {
	return since != nil && e.Clock.Since(since.Time) >= limit
}

// Later asks for another look after Poll.
func (e *Env) Later() ctrl.Result { return ctrl.Result{RequeueAfter: e.Limits.Poll} }

// Result turns what a reconcile came to into its result. Conflicts are looked at again soon, a provider that is asked
// too often when it wants to be; other errors are returned, and are tried again more and more seldom.
func (e *Env) Result(result ctrl.Result, err error) (ctrl.Result, error) {
	if errors.Is(err, provider.ErrThrottled) {
		if failed := (*provider.Error)(nil); errors.As(err, &failed) && failed.RetryAfter > 0 {
			return ctrl.Result{RequeueAfter: failed.RetryAfter}, nil
		}
	}
	if err != nil {
		return controllers.Result(err)
	}
	return result, nil
}

// Serves reports whether requests of the namespace are carried out.
func (e *Env) Serves(namespace string) bool {
	return len(e.Namespaces) == 0 || slices.Contains(e.Namespaces, namespace)
}

// GroupsOf lists the names of a request's groups, each once.
func GroupsOf(s *nodes.CycleNodeRequestSpec) []string {
	var names []string
	for _, name := range append([]string{s.NodeGroupName}, s.NodeGroupsList...) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// ShareGroup reports whether two requests have a group in common.
func ShareGroup(a, b *nodes.CycleNodeRequestSpec) bool {
	return slices.ContainsFunc(GroupsOf(a), func(g string) bool { return slices.Contains(GroupsOf(b), g) })
}

// Ended reports whether a request has ended.
func Ended(phase nodes.RequestPhase) bool {
	return phase == nodes.RequestSuccessful || phase == nodes.RequestFailed
}

// StatusEnded reports whether a CycleNodeStatus has ended.
func StatusEnded(phase nodes.StatusPhase) bool {
	return phase == nodes.StatusSuccessful || phase == nodes.StatusFailed
}

// StatusPrefix is what the name of the CycleNodeStatus for an instance begins with: the request's name, and the
// instance's place among the nodes to be cycled.
func StatusPrefix(r *nodes.CycleNodeRequest, providerID string) string {
	place := slices.IndexFunc(r.Status.NodesToTerminate, func(n nodes.CycleNodeRequestNode) bool {
		return n.ProviderID == providerID
	})
	return fmt.Sprintf("%s-%d-", r.Name, place)
}

// StatusName is the name of the CycleNodeStatus for an instance. It ends like a generated name, but it is always the
// same: a controller that does not know that it has made the object does not make another. An earlier request of the
// same name had other names.
func StatusName(r *nodes.CycleNodeRequest, providerID string) string {
	sum := sha256.Sum256([]byte(string(r.UID) + "/" + providerID))
	for i := range sum {
		sum[i] &= 0x7f // SafeEncodeString takes in characters, of which others have several bytes
	}
	return StatusPrefix(r, providerID) + rand.SafeEncodeString(string(sum[:5]))
}

// GetRequest reads a request from the API server; nil if there is none, or only another one of this name. An empty uid
// means any.
func (e *Env) GetRequest(ctx context.Context, key client.ObjectKey, uid types.UID) (*nodes.CycleNodeRequest, error) {
	r := &nodes.CycleNodeRequest{}
	if err := e.Reader.Get(ctx, key, r); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if uid != "" && r.UID != uid {
		return nil, nil
	}
	return r, nil
}

// FindNode returns the record of an instance; nil if there is none.
func FindNode(r *nodes.CycleNodeRequest, providerID string) *nodes.CycleNodeRequestNode {
	i := slices.IndexFunc(r.Status.NodesToTerminate, func(n nodes.CycleNodeRequestNode) bool {
		return n.ProviderID == providerID
	})
	if i < 0 {
		return nil
	}
	return &r.Status.NodesToTerminate[i]
}

// NodeOf reads the Node of an instance from the API server: the Node of the recorded name, if it is the instance's. It
// may be another object than the recorded one, if the kubelet registered it again. nil: there is none.
func (e *Env) NodeOf(ctx context.Context, ref *nodes.NodeRef) (*corev1.Node, error) {
	node := &corev1.Node{}
	if err := e.Reader.Get(ctx, client.ObjectKey{Name: ref.Name}, node); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if node.Spec.ProviderID != ref.ProviderID && node.UID != ref.UID {
		return nil, nil // another machine has the name now
	}
	return node, nil
}

// RefOf is how a Node of a group is recorded.
func RefOf(node *corev1.Node, group string) nodes.NodeRef {
	ref := nodes.NodeRef{Name: node.Name, UID: node.UID, ProviderID: node.Spec.ProviderID, NodeGroupName: group}
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP && ref.PrivateIP == "" {
			ref.PrivateIP = a.Address
		}
	}
	return ref
}

// Instance asks the provider for an instance; nil if it does not exist.
func (e *Env) Instance(ctx context.Context, providerID string) (*provider.Instance, error) {
	list, err := e.Provider.Instances(ctx, providerID)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].ProviderID == providerID {
			return &list[i], nil
		}
	}
	return nil, nil
}

// IsPod reports whether a pod has the IP address.
func (e *Env) IsPod(ctx context.Context, address string) (bool, error) {
	var list corev1.PodList
	err := e.Reader.List(ctx, &list, client.MatchingFields{"status.podIP": address}, client.Limit(1))
	return len(list.Items) > 0, err
}

// IsReady reports whether a Node is Ready and not being deleted.
func IsReady(node *corev1.Node) bool {
	return node.DeletionTimestamp == nil && slices.ContainsFunc(node.Status.Conditions,
		func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
}

// NotReadyFor is how long a Node has not been Ready; zero if it is.
func (e *Env) NotReadyFor(node *corev1.Node) time.Duration {
	since := node.CreationTimestamp.Time
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			if c.Status == corev1.ConditionTrue {
				return 0
			}
			if c.LastTransitionTime.After(since) {
				since = c.LastTransitionTime.Time
			}
		}
	}
	return e.Clock.Since(since)
}

// PatchNode changes a Node as it was read; it fails with a conflict if the Node has changed since. It does nothing if
// change returns false, or if the Node has gone.
func (e *Env) PatchNode(ctx context.Context, node *corev1.Node, change func(*corev1.Node) bool) error {
	changed := node.DeepCopy()
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	if !change(changed) {
		return nil
	}
	err := e.Client.Patch(ctx, changed, client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{}))
	if err == nil {
		*node = *changed
	}
	return client.IgnoreNotFound(err)
}

// Cordon cordons a Node for a request. A Node that is cordoned already is not marked: it stays so when the request
// fails.
func (e *Env) Cordon(ctx context.Context, node *corev1.Node, request types.UID) error {
	return e.PatchNode(ctx, node, func(n *corev1.Node) bool {
		if n.Spec.Unschedulable {
			return false
		}
		n.Spec.Unschedulable = true
		n.Annotations[AnnotationCordoned] = string(request)
		return true
	})
}

// Release removes the marks of a request from a Node, and uncordons the Node if the request cordoned it.
func (e *Env) Release(ctx context.Context, node *corev1.Node, request types.UID) error {
	return e.PatchNode(ctx, node, func(n *corev1.Node) bool { return release(n, request) })
}

func release(n *corev1.Node, request types.UID) bool {
	changed := unprotect(n, func(by types.UID) bool { return by == request })
	if n.Annotations[AnnotationCordoned] == string(request) {
		delete(n.Annotations, AnnotationCordoned)
		n.Spec.Unschedulable = false
		changed = true
	}
	if n.Annotations[AnnotationClaim] == string(request) {
		delete(n.Annotations, AnnotationClaim)
		changed = true
	}
	return changed
}

// MarkDetached says on a Node that its instance is going to be detached from a group by a request.
func (e *Env) MarkDetached(ctx context.Context, node *corev1.Node, group string) error {
	return e.PatchNode(ctx, node, func(n *corev1.Node) bool {
		changed := n.Annotations[AnnotationDetached] != group
		n.Annotations[AnnotationDetached] = group
		return changed
	})
}

// Back is Release for a Node whose instance is in its group again.
func (e *Env) Back(ctx context.Context, node *corev1.Node, request types.UID) error {
	return e.PatchNode(ctx, node, func(n *corev1.Node) bool {
		_, changed := n.Annotations[AnnotationDetached]
		delete(n.Annotations, AnnotationDetached)
		return release(n, request) || changed
	})
}

// Claim marks a Node of a group as the request's. The marks of an earlier request, which has ended, are removed.
func (e *Env) Claim(ctx context.Context, node *corev1.Node, request types.UID) error {
	return e.PatchNode(ctx, node, func(n *corev1.Node) bool {
		_, changed := n.Annotations[AnnotationDetached]
		delete(n.Annotations, AnnotationDetached)
		changed = unprotect(n, func(by types.UID) bool { return by != request }) || changed
		if by := n.Annotations[AnnotationCordoned]; by != "" && by != string(request) {
			changed = release(n, types.UID(by)) || changed
		}
		if n.Annotations[AnnotationClaim] != string(request) {
			n.Annotations[AnnotationClaim] = string(request)
			changed = true
		}
		return changed
	})
}

// SetFinalizer adds or removes the controllers' finalizer from an object as it was read.
func (e *Env) SetFinalizer(ctx context.Context, object client.Object, present bool) error {
	before := object.DeepCopyObject().(client.Object)
	change := controllerutil.RemoveFinalizer
	if present {
		change = controllerutil.AddFinalizer
	}
	if !change(object, Finalizer) {
		return nil
	}
	return client.IgnoreNotFound(e.Client.Patch(ctx, object,
		client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
}

// MoreThanMessages leaves out changes of a request or status which only concern its messages: a message that is another
// each time must not wake its writer.
var MoreThanMessages = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return !equality.Semantic.DeepEqual(withoutMessage(e.ObjectOld), withoutMessage(e.ObjectNew))
}}

func withoutMessage(o client.Object) client.Object {
	o = o.DeepCopyObject().(client.Object)
	switch o := o.(type) {
	case *nodes.CycleNodeRequest:
		o.Status.Message = ""
	case *nodes.CycleNodeStatus:
		o.Status.Message = ""
	}
	o.SetManagedFields(nil)
	o.SetResourceVersion("")
	return o
}

// NodeChanges leaves out those changes of Nodes that no controller decides on, such as heartbeats.
var NodeChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*corev1.Node)
	after, ok2 := e.ObjectNew.(*corev1.Node)
	return !ok || !ok2 || before.UID != after.UID || IsReady(before) != IsReady(after) ||
		before.Spec.Unschedulable != after.Spec.Unschedulable || before.Spec.ProviderID != after.Spec.ProviderID ||
		!equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
		before.Annotations[AnnotationClaim] != after.Annotations[AnnotationClaim]
}}

// List lists items in a message: in order, and at most five of them.
func List(items []string) string {
	slices.Sort(items)
	if len(items) > 5 {
		return fmt.Sprintf("%s and %d more", strings.Join(items[:5], ", "), len(items)-5)
	}
	return strings.Join(items, ", ")
}
