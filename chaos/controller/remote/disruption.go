package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/internal/controllers"
)

// disruptionReconciler has disruptions carried out in other clusters.
type disruptionReconciler struct {
	env *controller.Env
	all *clusters
}

// using lists the disruptions that use a RemoteCluster.
func (r *disruptionReconciler) using(ctx context.Context, o client.Object) []reconcile.Request {
	var list chaos.DisruptionList
	err := r.env.Client.List(ctx, &list, client.MatchingFields{indexCluster: o.GetName()}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil // the cache is closed
	}
	var requests []reconcile.Request
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

type own struct {
	Phase      chaos.Phase
	Message    string
	Targets    []chaos.Target
	Counts     chaos.Counts
	Injections []chaos.Injection
	Schedule   chaos.Schedule
	EndsAt     *metav1.Time
	Stuck      bool
	Remote     *chaos.RemoteStatus
	Conditions []metav1.Condition
}

func ownOf(s *chaos.DisruptionStatus) own {
	return own{
		s.Phase, s.Message, s.Targets, s.Counts, s.Injections, s.Schedule, s.EndsAt, s.IsStuckOnRemoval, s.Remote,
		s.Conditions,
	}
}

func (r *disruptionReconciler) write(
	ctx context.Context, d *chaos.Disruption, set func(*chaos.DisruptionStatus),
) error {
	return controller.UpdateStatus(ctx, r.env, d, ownOf, set)
}

// Reconcile creates the child of a disruption, copies its status, and ends it.
func (r *disruptionReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	d, err := controller.Get(ctx, r.env.Client, req.NamespacedName)
	if d == nil || err != nil || !controller.IsRemote(d) {
		return ctrl.Result{}, err
	}
	has := slices.Contains(d.Finalizers, Finalizer)
	if d.DeletionTimestamp != nil {
		if !has {
			return ctrl.Result{}, nil
		}
		return result(r.end(ctx, d))
	}
	if !has {
		return controller.Result(passing(controller.SetFinalizer(ctx, r.env, d, Finalizer, true)))
	}
	if d.Status.SpecHash == "" {
		return ctrl.Result{}, nil // it wakes the controller
	}
	if refusal := controller.Refusal(&d.Status); d.Status.Remote == nil && refusal != nil {
		return controller.Result(r.over(ctx, d, refusal.Message, nil))
	}
	if d.Status.Remote == nil || d.Status.Remote.UID == "" {
		if d.Status.Schedule.Over {
			return ctrl.Result{}, nil
		}
		return result(r.begin(ctx, d))
	}
	return result(r.follow(ctx, d))
}

func result(after time.Duration, err error) (ctrl.Result, error) {
	if err != nil || after == 0 {
		return controller.Result(err)
	}
	return ctrl.Result{RequeueAfter: after}, nil
}

// Reasons why a cluster is not connected.
const (
	reasonUnknown = "NotConnected"      // the cluster was not looked at yet
	reasonInvalid = "InvalidKubeConfig" // the cluster is not looked at
)

// invalid reports whether there is no connection to a cluster because its kubeconfig cannot be used.
func invalid(c *chaos.RemoteCluster) bool {
	reachable := meta.FindStatusCondition(c.Status.Conditions, chaos.ConditionReachable)
	return reachable != nil && reachable.Reason == reasonInvalid
}

// target looks for the cluster of a disruption. If it cannot be used, missing says why.
func (r *disruptionReconciler) target(
	ctx context.Context, d *chaos.Disruption, toBegin bool,
) (c *connection, exists bool, missing verdict, err error) {
	name := d.Spec.RemoteCluster.Cluster
	cluster := &chaos.RemoteCluster{}
	if err := r.env.Client.Get(ctx, client.ObjectKey{Name: name}, cluster); apierrors.IsNotFound(err) {
		return nil, false, no("NoRemoteCluster", "there is no RemoteCluster %s", name), nil
	} else if err != nil {
		return nil, false, verdict{}, err
	}
	c = r.all.get(name)
	is := r.all.known(name)
	switch {
	case toBegin && cluster.DeletionTimestamp != nil:
		missing = no("RemoteClusterDeleted", "RemoteCluster %s is being deleted", name)
	case c == nil && invalid(cluster):
		missing = no(reasonInvalid, "cluster %s is not connected: %s", name, cluster.Status.Message)
	case c == nil || !is.known:
		missing = no(reasonUnknown, "cluster %s is not connected yet", name)
	case !is.reachable.ok:
		missing = no("Unreachable", "cluster %s is unreachable", name)
		// The time is that of the RemoteCluster's status. If it is not written yet, its change wakes the controller.
		if was := meta.FindStatusCondition(cluster.Status.Conditions, chaos.ConditionReachable); was != nil &&
			was.Status == metav1.ConditionFalse {
			missing.message += " since " + was.LastTransitionTime.UTC().Format(time.RFC3339)
		}
	case !is.synced || toBegin && !is.ready.ok:
		missing = no("NotReady", "cluster %s is not ready: %s", name, is.ready.message)
		if !is.installed.ok {
			missing.message = fmt.Sprintf("cluster %s is not ready: %s", name, is.installed.message)
		}
	default:
		return c, true, verdict{ok: true}, nil
	}
	return c, true, missing, nil
}

// begin creates the child, once the cluster is ready, if the user may.
func (r *disruptionReconciler) begin(ctx context.Context, d *chaos.Disruption) (time.Duration, error) {
	name := d.Spec.RemoteCluster.Cluster
	now, deadline := r.env.Clock.Now(), controller.Deadline(d)
	c, _, missing, err := r.target(ctx, d, true)
	if err != nil {
		return 0, err
	}
	if !now.Before(deadline) {
		return 0, r.over(ctx, d, fmt.Sprintf("cluster %s was not ready in time", name), &missing)
	}
	if !missing.ok {
		return deadline.Sub(now), r.wait(ctx, d, missing)
	}
	// The cache may be behind: nothing begins that is deleted, or has begun.
	latest, err := controller.Get(ctx, r.env.Reader, client.ObjectKeyFromObject(d))
	if err != nil || latest == nil || latest.UID != d.UID || latest.DeletionTimestamp != nil {
		return 0, err // its change wakes the controller
	}
	if latest.Status.Remote != nil && latest.Status.Remote.UID != "" || latest.Status.Schedule.Over {
		return 0, controller.ErrOutdated
	}
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	child, err := controller.Get(asking, c.client, c.childKey(d))
	if err != nil {
		return r.again(ctx, d, c, err)
	}
	if child == nil {
		refused, err := r.authorize(asking, c, latest)
		if err != nil {
			return r.again(ctx, d, c, err)
		}
		if refused != "" {
			return 0, r.refuse(ctx, d, "NotAuthorized", refused)
		}
		child = newChild(c.target.parent, latest)
		err = c.client.Create(asking, child)
		switch {
		case apierrors.IsAlreadyExists(err):
			return 0, controller.ErrOutdated // it is found the next time
		case apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err):
			return 0, r.refuse(ctx, d, "Refused", fmt.Sprintf("cluster %s refuses it: %v", name, err))
		case err != nil:
			return r.again(ctx, d, c, err)
		}
		r.env.Events.Eventf(d, nil, corev1.EventTypeNormal, "Created", "Create",
			"disruption %s/%s in cluster %s", child.Namespace, child.Name, name)
	}
	if !isChild(c.target.parent, d, child) {
		return 0, r.refuse(ctx, d, "NameTaken", fmt.Sprintf("there is another disruption %s/%s in cluster %s",
			child.Namespace, child.Name, name))
	}
	return 0, r.write(ctx, d, func(s *chaos.DisruptionStatus) { *s = copied(d, child, nil) })
}

// again tries a request again after a while, if the cluster did not answer; the connection says when it does.
func (r *disruptionReconciler) again(
	ctx context.Context, d *chaos.Disruption, c *connection, err error,
) (time.Duration, error) {
	c.failed(err)
	if c.now().reachesIt() {
		return 0, err
	}
	_, _, missing, err := r.target(ctx, d, false)
	if err != nil || missing.ok {
		return 0, err
	}
	return 0, r.wait(ctx, d, missing)
}

// wait says what a disruption waits for.
func (r *disruptionReconciler) wait(ctx context.Context, d *chaos.Disruption, missing verdict) error {
	return r.write(ctx, d, func(s *chaos.DisruptionStatus) {
		s.Message = missing.message
		switch {
		case s.Remote != nil && s.Remote.UID != "":
			s.Message += "; the rest of the status is what was known before"
		case s.Phase == "":
			s.Phase = chaos.NotInjected
		}
		controller.SetCondition(s, chaos.ConditionRemote, false, missing.reason, missing.message)
	})
}

// refuse ends a disruption that has not begun.
func (r *disruptionReconciler) refuse(ctx context.Context, d *chaos.Disruption, reason, message string) error {
	err := r.write(ctx, d, func(s *chaos.DisruptionStatus) {
		controller.SetCondition(s, chaos.ConditionAcceptedRemotely, false, reason, message)
		r.ended(s, message)
	})
	if err == nil {
		r.env.Events.Eventf(d, nil, corev1.EventTypeWarning, "Refused", "Validate", "%s", message)
	}
	return err
}

// over ends a disruption whose child has gone, or that never had one.
func (r *disruptionReconciler) over(ctx context.Context, d *chaos.Disruption, message string, why *verdict) error {
	return r.write(ctx, d, func(s *chaos.DisruptionStatus) {
		if why != nil {
			controller.SetCondition(s, chaos.ConditionRemote, false, why.reason, why.message)
		}
		r.ended(s, message)
	})
}

// previously are the phases of disruptions that are over.
var previously = map[chaos.Phase]chaos.Phase{
	"": chaos.PreviouslyNotInjected, chaos.NotInjected: chaos.PreviouslyNotInjected,
	chaos.PartiallyInjected:       chaos.PreviouslyPartiallyInjected,
	chaos.PausedPartiallyInjected: chaos.PreviouslyPartiallyInjected,
	chaos.Injected:                chaos.PreviouslyInjected, chaos.PausedInjected: chaos.PreviouslyInjected,
}

// ended makes a status that of a disruption which is over.
func (r *disruptionReconciler) ended(s *chaos.DisruptionStatus, message string) {
	s.Message = message
	if !s.Schedule.Over {
		now := metav1.NewMicroTime(r.env.Clock.Now().Truncate(time.Microsecond)) // as the API server keeps it
		s.Schedule.Active, s.Schedule.Over, s.Schedule.Since = false, true, &now
	}
	if next, ok := previously[s.Phase]; ok {
		s.Phase = next
	}
	s.Injections, s.Counts.Injected, s.IsStuckOnRemoval = nil, 0, false
	controller.SetAccepted(s)
}

// follow copies the status of the child.
func (r *disruptionReconciler) follow(ctx context.Context, d *chaos.Disruption) (time.Duration, error) {
	name := d.Spec.RemoteCluster.Cluster
	c, exists, missing, err := r.target(ctx, d, false)
	if err != nil {
		return 0, err
	}
	if !missing.ok {
		if d.Status.Schedule.Over {
			return 0, nil
		}
		if !exists {
			message := fmt.Sprintf("RemoteCluster %s was removed: what is still disrupted there ends by itself, when "+
				"its duration is over", name)
			return 0, r.over(ctx, d, message, &missing)
		}
		if missing.reason == reasonUnknown {
			return 0, nil // for a moment after a restart
		}
		return 0, r.wait(ctx, d, missing)
	}
	child := &chaos.Disruption{}
	err = c.cache.Get(ctx, c.childKey(d), child)
	if apierrors.IsNotFound(err) || err == nil && child.UID != d.Status.Remote.UID {
		// The cache may not have it yet.
		asking, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		found, err := c.find(asking, d)
		if err != nil {
			return r.again(ctx, d, c, err)
		}
		if found == nil || found.UID != d.Status.Remote.UID {
			if d.Status.Schedule.Over {
				return 0, nil // it is deleted some time after its end
			}
			message := fmt.Sprintf("disruption %s/%s in cluster %s has gone: it was deleted there, which ends this one",
				d.Status.Remote.Namespace, d.Status.Remote.Name, name)
			gone := no("Deleted", "%s", message)
			if err := r.over(ctx, d, message, &gone); err != nil {
				return 0, err
			}
			r.env.Events.Eventf(d, nil, corev1.EventTypeWarning, "Deleted", "Follow", "%s", message)
			return 0, nil
		}
		child = found
	} else if err != nil {
		return 0, err
	}
	if !child.Status.Schedule.Over && (d.Status.Schedule.Over || controller.Ending(d)) {
		// It was decided here, while the cluster could not be reached, or because the spec is unknown.
		asking, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if err := controllers.Delete(asking, c.client, child.DeepCopy()); err != nil {
			return r.again(ctx, d, c, err)
		}
		if d.Status.Schedule.Over {
			return 0, nil
		}
	}
	if err := r.pause(ctx, d, c, child); err != nil {
		return r.again(ctx, d, c, err)
	}
	return 0, r.copy(ctx, d, c, child)
}

// copy writes the child's status into the parent's.
func (r *disruptionReconciler) copy(
	ctx context.Context, d *chaos.Disruption, c *connection, child *chaos.Disruption,
) error {
	events, err := c.eventsOf(ctx, child)
	if err != nil {
		return err
	}
	return r.write(ctx, d, func(s *chaos.DisruptionStatus) { *s = copied(d, child, events) })
}

// pause passes on a pause, and its end. A pause that another client has made there stays.
func (r *disruptionReconciler) pause(
	ctx context.Context, d *chaos.Disruption, c *connection, child *chaos.Disruption,
) error {
	paused := child.Annotations[AnnotationPausedByParent] == "true"
	if paused == controller.Paused(d) || child.DeletionTimestamp != nil {
		return nil
	}
	var value any // null: it is removed
	if !paused {
		value = "true"
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":         child.UID, // a later one of the name is not changed
		"annotations": map[string]any{chaos.AnnotationPaused: value, AnnotationPausedByParent: value},
	}})
	if err != nil {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return client.IgnoreNotFound(c.client.Patch(asking, child.DeepCopy(), client.RawPatch(types.MergePatchType, patch)))
}

// end deletes the child, and lets the parent go when it has gone.
func (r *disruptionReconciler) end(ctx context.Context, d *chaos.Disruption) (time.Duration, error) {
	c, exists, missing, err := r.target(ctx, d, false)
	if err != nil {
		return 0, err
	}
	insists := forced(d)
	if !missing.ok {
		if insists || !exists {
			// A RemoteCluster goes only if it is not used any more, or if a user insists.
			return 0, r.letGo(ctx, d)
		}
		if missing.reason == reasonUnknown {
			return 0, nil // for a moment after a restart
		}
		return 0, r.held(ctx, d, missing)
	}
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	child, err := c.find(asking, d)
	if err == nil && child != nil && child.DeletionTimestamp == nil {
		err = controllers.Delete(asking, c.client, child)
	}
	switch {
	case err != nil && insists:
		c.failed(err)
		return 0, r.letGo(ctx, d)
	case err != nil:
		c.failed(err)
		if !c.now().reachesIt() {
			return 0, nil // the connection's change wakes the controller
		}
		return 0, err
	case child == nil || insists:
		return 0, r.letGo(ctx, d)
	}
	if d.Status.Remote == nil || d.Status.Remote.UID == "" {
		return r.all.lookEvery(), nil // nothing was known of it
	}
	return 0, r.copy(ctx, d, c, child) // its end wakes the controller
}

// held says why a deleted disruption stays.
func (r *disruptionReconciler) held(ctx context.Context, d *chaos.Disruption, missing verdict) error {
	message := fmt.Sprintf("%s: nobody knows whether it is still disrupted there. It goes when the cluster answers; "+
		"`kubectl annotate disruption -n %s %s %s=true` lets it go at once", missing.message, d.Namespace, d.Name,
		chaos.AnnotationForceRemoval)
	return r.write(ctx, d, func(s *chaos.DisruptionStatus) {
		s.Message = message
		controller.SetCondition(s, chaos.ConditionRemote, false, missing.reason, missing.message)
		controller.SetCondition(s, chaos.ConditionRemovable, false, missing.reason, message)
	})
}

func (r *disruptionReconciler) letGo(ctx context.Context, d *chaos.Disruption) error {
	return passing(controller.SetFinalizer(ctx, r.env, d, Finalizer, false))
}
