// Package protection is the controller of Nodes that requests have protected from autoscalers. A request removes these
// annotations when it ends. If it was deleted without that, because its finalizer was removed, this controller does it.
package protection

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
	"github.com/trommel-dev/trommel/nodes/controller"
)

// Reconciler is the controller.
type Reconciler struct{ Env *controller.Env }

// Add adds the controller to a manager.
func Add(mgr ctrl.Manager, env *controller.Env) error {
	r := &Reconciler{Env: env}
	return ctrl.NewControllerManagedBy(mgr).Named("nodeprotection").
		For(&corev1.Node{}, builder.WithPredicates(marksChange)).
		Watches(&nodes.CycleNodeRequest{}, handler.EnqueueRequestsFromMapFunc(r.protectedBy),
			builder.WithPredicates(ends)).
		WithOptions(env.Options()).
		Complete(r)
}

// marksChange leaves out changes of Nodes without marks, and heartbeats.
var marksChange = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return len(marks(e.Object)) > 0 },
	UpdateFunc: func(e event.UpdateEvent) bool {
		now := marks(e.ObjectNew)
		return len(now) > 0 && !slices.Equal(marks(e.ObjectOld), now)
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

func marks(o client.Object) []types.UID {
	if n, ok := o.(*corev1.Node); ok {
		return controller.ProtectedBy(n)
	}
	return nil
}

// ends leaves out changes of requests that go on.
var ends = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		q, ok := e.ObjectNew.(*nodes.CycleNodeRequest)
		return ok && controller.Ended(q.Status.Phase)
	},
}

// protectedBy wakes the Nodes that a request has protected.
func (r *Reconciler) protectedBy(ctx context.Context, o client.Object) []reconcile.Request {
	var list corev1.NodeList
	if err := r.Env.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache is closed
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if n := &list.Items[i]; slices.Contains(controller.ProtectedBy(n), o.GetUID()) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(n)})
		}
	}
	return requests
}

// Reconcile removes what requests have left behind.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	node := &corev1.Node{}
	if err := r.Env.Reader.Get(ctx, req.NamespacedName, node); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if len(controller.ProtectedBy(node)) == 0 {
		return ctrl.Result{}, nil
	}
	// After the Node: a request is older than its marks. All namespaces: other controllers may serve some of them.
	var list nodes.CycleNodeRequestList
	if err := r.Env.Reader.List(ctx, &list); err != nil {
		return ctrl.Result{}, err
	}
	return r.Env.Result(ctrl.Result{}, r.Env.Unprotect(ctx, node, func(request types.UID) bool {
		return !slices.ContainsFunc(list.Items, func(q nodes.CycleNodeRequest) bool {
			return q.UID == request && !controller.Ended(q.Status.Phase)
		})
	}))
}
