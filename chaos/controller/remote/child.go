package remote

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
)

// What a child carries. The label is for selecting; the annotations tell whose it is.
const (
	LabelParentCluster        = "chaos.trommel.dev/parent-cluster"
	AnnotationParentCluster   = "chaos.trommel.dev/parent-cluster" // ID: the UID of the namespace kube-system
	AnnotationParentNamespace = "chaos.trommel.dev/parent-namespace"
	AnnotationParentName      = "chaos.trommel.dev/parent-name"
	AnnotationParentUID       = "chaos.trommel.dev/parent-uid"
	// AnnotationPausedByParent distinguishes a pause that the parent has made from one that a user there has made.
	AnnotationPausedByParent = "chaos.trommel.dev/paused-by-parent"
)

// childName is the name of a disruption's child. No other disruption has one of this name.
func childName(parentCluster string, d *chaos.Disruption) string {
	sum := sha256.Sum256([]byte(parentCluster + "/" + string(d.UID)))
	const enough = 40 // to recognise it
	return strings.TrimRight(d.Name[:min(len(d.Name), enough)], "-.") + "-" + hex.EncodeToString(sum[:6])
}

// newChild is the child of a disruption.
func newChild(parentCluster string, d *chaos.Disruption) *chaos.Disruption {
	child := &chaos.Disruption{ObjectMeta: metav1.ObjectMeta{
		Namespace: d.Spec.RemoteCluster.Namespace, Name: childName(parentCluster, d),
		Labels: map[string]string{LabelParentCluster: parentCluster},
		Annotations: map[string]string{
			AnnotationParentCluster: parentCluster, AnnotationParentNamespace: d.Namespace,
			AnnotationParentName: d.Name, AnnotationParentUID: string(d.UID),
		},
	}}
	if user := d.Annotations[chaos.AnnotationUser]; user != "" {
		child.Annotations[chaos.AnnotationUser] = user // for those who look at it there
	}
	if controller.Paused(d) {
		child.Annotations[chaos.AnnotationPaused] = "true"
		child.Annotations[AnnotationPausedByParent] = "true"
	}
	d.Spec.DeepCopyInto(&child.Spec)
	child.Spec.RemoteCluster = nil
	return child
}

// isChild reports whether an object in another cluster is the child of this very disruption.
func isChild(parentCluster string, d, child *chaos.Disruption) bool {
	a := child.Annotations
	return a[AnnotationParentCluster] == parentCluster && a[AnnotationParentUID] == string(d.UID)
}

// parentOf is the name of a child's parent.
func parentOf(child *chaos.Disruption) types.NamespacedName {
	return types.NamespacedName{
		Namespace: child.Annotations[AnnotationParentNamespace], Name: child.Annotations[AnnotationParentName],
	}
}

// childKey is the name of a disruption's child.
func (c *connection) childKey(d *chaos.Disruption) types.NamespacedName {
	return types.NamespacedName{Namespace: d.Spec.RemoteCluster.Namespace, Name: childName(c.target.parent, d)}
}

// find asks the API server for the child of a disruption; nil: there is none.
func (c *connection) find(ctx context.Context, d *chaos.Disruption) (*chaos.Disruption, error) {
	child, err := controller.Get(ctx, c.client, c.childKey(d))
	if child != nil && err == nil && !isChild(c.target.parent, d, child) {
		return nil, nil
	}
	return child, err
}

// maxEvents is how many events a status keeps.
const maxEvents = 20

// eventsOf are the events of a child that the cache has, newest first.
func (c *connection) eventsOf(ctx context.Context, child *chaos.Disruption) ([]chaos.RemoteEvent, error) {
	var list corev1.EventList
	err := c.cache.List(ctx, &list, client.InNamespace(child.Namespace),
		client.MatchingFields{indexRegarding: string(child.UID)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	var all []chaos.RemoteEvent
	for i := range list.Items {
		e := &list.Items[i]
		const longest = 1024
		all = append(all, chaos.RemoteEvent{
			Time: metav1.NewTime(timeOf(e).Truncate(time.Second)), Type: e.Type, Reason: e.Reason,
			Message: strings.ToValidUTF8(e.Message[:min(len(e.Message), longest)], ""), Count: countOf(e),
		})
	}
	slices.SortFunc(all, func(a, b chaos.RemoteEvent) int {
		return cmp.Or(b.Time.Compare(a.Time.Time), strings.Compare(a.Reason, b.Reason),
			strings.Compare(a.Message, b.Message))
	})
	return all[:min(len(all), maxEvents)], nil
}

func timeOf(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}

func countOf(e *corev1.Event) int32 {
	if e.Series != nil {
		return e.Series.Count
	}
	return e.Count
}

// copied is the status of a disruption that its child has. What spechash says stays the parent's. Whether the child is
// accepted is a part of whether its parent is.
func copied(d, child *chaos.Disruption, events []chaos.RemoteEvent) chaos.DisruptionStatus {
	s := *child.Status.DeepCopy()
	s.SpecHash, s.Spec, s.Kinds = d.Status.SpecHash, d.Status.Spec, d.Status.Kinds
	to := d.Spec.RemoteCluster
	s.Remote = &chaos.RemoteStatus{
		Cluster: to.Cluster, Namespace: child.Namespace, Name: child.Name, UID: child.UID, Events: events,
	}
	controller.SetAccepted(&s) // a child of an older version may not say it
	there := controller.Condition(&s, chaos.ConditionAccepted)
	// In the order in which they are set, so that a copy of the same status is the same.
	for _, kind := range []string{
		chaos.ConditionSpecUnchanged, chaos.ConditionSpecAccepted, chaos.ConditionAcceptedRemotely,
		chaos.ConditionAccepted, chaos.ConditionRemote,
	} {
		meta.RemoveStatusCondition(&s.Conditions, kind)
		if own := meta.FindStatusCondition(d.Status.Conditions, kind); own != nil {
			s.Conditions = append(s.Conditions, *own)
		}
	}
	if there.Type != "" {
		controller.SetCondition(&s, chaos.ConditionAcceptedRemotely, there.Status == metav1.ConditionTrue, there.Reason,
			there.Message)
	}
	controller.SetAccepted(&s)
	controller.SetCondition(&s, chaos.ConditionRemote, true, "Copied", "this is the status of disruption "+
		child.Namespace+"/"+child.Name+" in cluster "+to.Cluster)
	return s
}
