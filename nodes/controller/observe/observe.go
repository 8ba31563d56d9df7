// Package observe is the controller of NodeGroups: it asks the provider, again and again, which instances are out of
// date, says so in the status, and, in the mode Cycle, makes a CycleNodeRequest that replaces their nodes.
//
// It is careful: a request is made only if all groups can be read, if no other request of one of the groups goes on,
// and if not too many of those that it has made have failed. A request's name is derived from the NodeGroup and the
// instances that are out of date, so that a controller that does not know that it has made it makes no other. What it
// makes is a request like one by hand: the admission policies hold for it, and it is waited for as for any other.
package observe

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
	"github.com/trommel-dev/trommel/nodes/controller"
	"github.com/trommel-dev/trommel/nodes/provider"
)

// LabelGroup of a CycleNodeRequest has the UID of the NodeGroup that it was made for.
const LabelGroup = "nodes.trommel.dev/node-group-uid"

// Reconciler is the controller.
type Reconciler struct{ Env *controller.Env }

// Add adds the controller to a manager.
func Add(mgr ctrl.Manager, env *controller.Env) error {
	r := &Reconciler{Env: env}
	return ctrl.NewControllerManagedBy(mgr).Named("nodegroup").
		For(&nodes.NodeGroup{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&nodes.CycleNodeRequest{}, handler.EnqueueRequestsFromMapFunc(r.all),
			builder.WithPredicates(controller.MoreThanMessages)).
		WithOptions(env.Options()).
		Complete(r)
}

// all wakes all NodeGroups: a request has begun or ended.
func (r *Reconciler) all(ctx context.Context, o client.Object) []reconcile.Request {
	if q := o.(*nodes.CycleNodeRequest); q.Status.Phase != "" && !controller.Ended(q.Status.Phase) {
		return nil
	}
	var list nodes.NodeGroupList
	if err := r.Env.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache is closed
	}
	var requests []reconcile.Request
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// Reconcile looks once, and makes a request if one is needed.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	g := &nodes.NodeGroup{}
	if err := r.Env.Reader.Get(ctx, req.NamespacedName, g); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if g.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	later := ctrl.Result{RequeueAfter: r.Env.Limits.Observe}
	seen, outdated, err := r.look(ctx, g)
	if err != nil {
		told := r.say(ctx, g, g.Status, err.Error()) // what was seen before stays
		if told != nil {
			return r.Env.Result(ctrl.Result{}, told)
		}
		return r.Env.Result(later, err)
	}
	message, err := r.act(ctx, g, &seen, outdated)
	if err != nil {
		return r.Env.Result(ctrl.Result{}, err)
	}
	return r.Env.Result(later, r.say(ctx, g, seen, message))
}

// instance is one that is out of date.
type instance struct{ providerID, node string }

// look asks the provider for the groups, and the API server for their Nodes.
func (r *Reconciler) look(ctx context.Context, g *nodes.NodeGroup) (
	seen nodes.NodeGroupStatus, outdated []instance, err error,
) {
	seen.Request = g.Status.Request
	selector, err := metav1.LabelSelectorAsSelector(&g.Spec.Request.Selector)
	if err != nil {
		return seen, nil, fmt.Errorf("selector: %w", err)
	}
	var list corev1.NodeList
	if err := r.Env.Reader.List(ctx, &list, client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return seen, nil, err
	}
	byID := map[string]string{}
	for _, n := range list.Items {
		if n.Spec.ProviderID != "" {
			byID[n.Spec.ProviderID] = n.Name
		}
	}
	for _, name := range controller.GroupsOf(&g.Spec.Request) {
		group, err := r.Env.Provider.Group(ctx, name)
		if err != nil {
			return seen, nil, err
		}
		seen.Instances += int64(len(group.Instances))
		for _, i := range group.Instances {
			// An instance without a selected Node is looked after by requests: it is none of this selector's.
			if node := byID[i.ProviderID]; i.OutOfDate && i.State == provider.InService && node != "" {
				outdated = append(outdated, instance{i.ProviderID, node})
			}
		}
	}
	slices.SortFunc(outdated, func(a, b instance) int { return strings.Compare(a.node, b.node) })
	seen.Outdated = int64(len(outdated))
	for _, i := range outdated[:min(len(outdated), 100)] {
		seen.OutdatedNodes = append(seen.OutdatedNodes, i.node)
	}
	return seen, outdated, nil
}

// act says what is so, and makes a request if one is needed.
func (r *Reconciler) act(
	ctx context.Context, g *nodes.NodeGroup, seen *nodes.NodeGroupStatus, outdated []instance,
) (message string, err error) {
	if len(outdated) == 0 {
		return "no instance is out of date", nil
	}
	message = fmt.Sprintf("%d of %d instances are out of date", len(outdated), seen.Instances)
	if g.Spec.Mode != nodes.ModeCycle {
		return message, nil
	}
	if !r.Env.Serves(g.Namespace) {
		return message + "; requests of this namespace are not carried out", nil
	}
	var list nodes.CycleNodeRequestList
	if err := r.Env.Reader.List(ctx, &list); err != nil {
		return "", err
	}
	var failed, ended []string
	for i := range list.Items {
		q := &list.Items[i]
		ours := q.Namespace == g.Namespace && q.Labels[LabelGroup] == string(g.UID)
		switch {
		case !controller.Ended(q.Status.Phase):
			if controller.ShareGroup(&q.Spec, &g.Spec.Request) {
				return fmt.Sprintf("%s; request %s/%s goes on", message, q.Namespace, q.Name), nil
			}
		case ours:
			if ended = append(ended, string(q.UID)); q.Status.Phase == nodes.RequestFailed {
				failed = append(failed, q.Name)
			}
		}
	}
	if most := max(int(g.Spec.MaxFailedRequests), 1); len(failed) >= most {
		return message + "; no request is made while there are failed ones: " + controller.List(failed), nil
	}
	q := request(g, outdated, ended)
	switch err := r.Env.Client.Create(ctx, q); {
	case apierrors.IsAlreadyExists(err):
		return fmt.Sprintf("%s; request %s exists already", message, q.Name), nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err): // by a policy, which may be changed
		return fmt.Sprintf("%s; a request was refused: %v", message, err), nil
	case err != nil:
		return "", err
	}
	seen.Request = q.Name
	r.Env.Events.Eventf(g, q, corev1.EventTypeNormal, "RequestMade", "Observe", "request %s replaces %d nodes: %s",
		q.Name, len(outdated), controller.List(slices.Clone(q.Spec.NodeNames)))
	return fmt.Sprintf("%s; request %s replaces them", message, q.Name), nil
}

// request is the request for the nodes. It has another name than those that have ended, of which some may have been
// deleted. Who deletes a NodeGroup does not end it: it has no owner.
func request(g *nodes.NodeGroup, outdated []instance, ended []string) *nodes.CycleNodeRequest {
	slices.Sort(ended)
	hash := sha256.New()
	fmt.Fprintf(hash, "%s/%s", g.UID, ended)
	var names []string
	for _, i := range outdated {
		fmt.Fprintf(hash, "/%s", i.providerID)
		names = append(names, i.node)
	}
	sum := hash.Sum(nil)
	for i := range sum {
		sum[i] &= 0x7f // SafeEncodeString takes in characters, of which others have several bytes
	}
	prefix := g.Name + "-"
	q := &nodes.CycleNodeRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: g.Namespace, Name: prefix + rand.SafeEncodeString(string(sum[:8])), GenerateName: prefix,
			Labels: map[string]string{LabelGroup: string(g.UID)},
		},
		Spec: *g.Spec.Request.DeepCopy(),
	}
	most := 1000 // as the definition says; the others are replaced by the next one
	q.Spec.NodeNames, q.Spec.ValidationOptions.SkipMissingNamedNodes = names[:min(len(names), most)], true
	return q
}

// say writes the status if it is another, and an event when something is out of date that was not.
func (r *Reconciler) say(ctx context.Context, g *nodes.NodeGroup, s nodes.NodeGroupStatus, message string) error {
	s.Message, s.ObservedGeneration = message, g.Generation
	if equality.Semantic.DeepEqual(s, g.Status) {
		return nil
	}
	before := g.Status
	changed := g.DeepCopy()
	changed.Status = s
	if err := r.Env.Client.Status().Update(ctx, changed); err != nil {
		return client.IgnoreNotFound(err)
	}
	if s.Outdated > before.Outdated {
		r.Env.Events.Eventf(g, nil, corev1.EventTypeWarning, "Outdated", "Observe", "%s: %s", message,
			controller.List(slices.Clone(s.OutdatedNodes)))
	}
	return nil
}
