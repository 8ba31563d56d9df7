// Package remote has disruptions carried out in other clusters. It keeps one connection for each RemoteCluster, and
// installs the controllers there if spec.install asks for it. A disruption with remoteCluster gets one child there,
// whose name follows from the parent's UID, so that none is created twice. The spec goes down once; the status and the
// events come up. The controller deletes only children of this cluster, and asks the API server there before it lets a
// parent go. Only what needs a cluster that does not answer waits for it.
package remote

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
)

// Finalizer keeps a RemoteCluster while objects use it, and a disruption while its child may exist.
const Finalizer = "chaos.trommel.dev/remote"

// indexCluster is the index of disruptions, crons and rollouts in the cache: the RemoteCluster that they use.
const indexCluster = "remoteCluster"

// Add adds the controllers to a manager.
func Add(mgr ctrl.Manager, env *controller.Env) error {
	all := &clusters{
		env: env, scheme: mgr.GetScheme(), connections: map[string]*connection{},
		installing: make(chan struct{}, maxInstalling),
	}
	if err := mgr.Add(all); err != nil {
		return err
	}
	for _, o := range users {
		err := mgr.GetFieldIndexer().IndexField(context.Background(), o.object, indexCluster,
			func(o client.Object) []string {
				if to := clusterOf(o); to != "" {
					return []string{to}
				}
				return nil
			})
		if err != nil {
			return fmt.Errorf("index the cache: %w", err)
		}
	}
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	ofClusters := &clusterReconciler{env, all}
	building := ctrl.NewControllerManagedBy(mgr).Named("remote-clusters").
		For(&chaos.RemoteCluster{}, builder.WithPredicates(predicate.Or[client.Object](
			predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, deletion))).
		WatchesMetadata(secret, handler.EnqueueRequestsFromMapFunc(ofClusters.ofSecret)).
		WatchesRawSource(all.queued(&all.ofClusters))
	if env.Config.Remote.Installer != nil {
		building = building.Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(ofClusters.ofValues))
	}
	for _, o := range users {
		building = building.Watches(o.object, handler.EnqueueRequestsFromMapFunc(usedBy), builder.WithPredicates(gone))
	}
	if err := building.Complete(ofClusters); err != nil {
		return err
	}
	if env.Config.Remote.Webhook != "" {
		if err := addWebhook(mgr, env); err != nil {
			return err
		}
	}
	of := &disruptionReconciler{env, all}
	return ctrl.NewControllerManagedBy(mgr).Named("disruption-remote").
		For(&chaos.Disruption{}, builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
			return clusterOf(o) != ""
		}))).
		Watches(&chaos.RemoteCluster{}, handler.EnqueueRequestsFromMapFunc(of.using),
			builder.WithPredicates(messageChanged)).
		WatchesRawSource(all.queued(&all.ofDisruptions)).Complete(of)
}

// messageChanged lets through the part of a RemoteCluster's status that disruptions repeat.
var messageChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*chaos.RemoteCluster)
	after, ok2 := e.ObjectNew.(*chaos.RemoteCluster)
	return ok && ok2 && before.Status.Message != after.Status.Message
}}

// users are the types of objects that use RemoteClusters.
var users = []struct {
	kind   string
	object client.Object
	list   client.ObjectList
}{
	{"disruption", &chaos.Disruption{}, &chaos.DisruptionList{}},
	{"disruptioncron", &chaos.DisruptionCron{}, &chaos.DisruptionCronList{}},
	{"disruptionrollout", &chaos.DisruptionRollout{}, &chaos.DisruptionRolloutList{}},
}

// clusterOf is the RemoteCluster that an object uses; empty: none.
func clusterOf(o client.Object) string {
	var to *chaos.RemoteTarget
	switch o := o.(type) {
	case *chaos.Disruption:
		to = controller.SpecOf(o).RemoteCluster
	case *chaos.DisruptionCron:
		to = o.Spec.Disruption.RemoteCluster
	case *chaos.DisruptionRollout:
		to = o.Spec.Disruption.RemoteCluster
	}
	if to == nil {
		return ""
	}
	return to.Cluster
}

// usedBy is the RemoteCluster that an object uses.
func usedBy(_ context.Context, o client.Object) []reconcile.Request {
	if to := clusterOf(o); to != "" {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: to}}}
	}
	return nil
}

// gone lets the end of an object through, and a change, after which it may use another cluster.
var gone = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool { return clusterOf(e.ObjectOld) != clusterOf(e.ObjectNew) },
}

// deletion lets through when an object is deleted, or its finalizers have changed.
var deletion = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return (e.ObjectOld.GetDeletionTimestamp() != nil) != (e.ObjectNew.GetDeletionTimestamp() != nil) ||
		len(e.ObjectOld.GetFinalizers()) != len(e.ObjectNew.GetFinalizers())
}}
