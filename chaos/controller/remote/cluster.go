package remote

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/internal/controllers"
)

// clusterReconciler connects to RemoteClusters, and writes their status.
type clusterReconciler struct {
	env *controller.Env
	all *clusters
}

// ofSecret lists the RemoteClusters whose kubeconfig a Secret may have.
func (r *clusterReconciler) ofSecret(ctx context.Context, o client.Object) []reconcile.Request {
	return r.about(ctx, o, func(c *chaos.RemoteCluster) bool { return c.Spec.KubeConfig.SecretRef.Name == o.GetName() })
}

// about lists the RemoteClusters that an object beside the controllers is about.
func (r *clusterReconciler) about(
	ctx context.Context, o client.Object, is func(*chaos.RemoteCluster) bool,
) []reconcile.Request {
	if o.GetNamespace() != r.env.Config.Namespace {
		return nil
	}
	var list chaos.RemoteClusterList
	if err := r.env.Client.List(ctx, &list); err != nil {
		return nil // the cache is closed
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if is(&list.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}

// Reconcile connects to a cluster, or ends its connection, and writes down what is known of it.
func (r *clusterReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	c := &chaos.RemoteCluster{}
	if err := r.env.Client.Get(ctx, req.NamespacedName, c); err != nil {
		if apierrors.IsNotFound(err) {
			r.all.remove(req.Name)
			r.all.wakeUsers(req.Name) // the disruptions say so
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if c.DeletionTimestamp != nil && !slices.Contains(c.Finalizers, Finalizer) {
		r.all.remove(req.Name)
		return ctrl.Result{}, nil
	}
	if c.DeletionTimestamp == nil && !slices.Contains(c.Finalizers, Finalizer) {
		return controller.Result(passing(controller.SetFinalizer(ctx, r.env, c, Finalizer, true)))
	}
	if err := r.connect(ctx, c); err != nil {
		return controller.Result(err)
	}
	if c.DeletionTimestamp == nil {
		if err := r.want(ctx, c); err != nil {
			return controller.Result(err)
		}
		return controller.Result(r.tell(ctx, c, nil))
	}
	return r.end(ctx, c)
}

// passing makes a patch whose test fails, since the object is not what was read, a conflict: its change wakes the
// controller.
func passing(err error) error {
	if apierrors.IsInvalid(err) {
		return controller.ErrOutdated
	}
	return err
}

// connect sees to the connection. What is wrong with the kubeconfig is in the status.
func (r *clusterReconciler) connect(ctx context.Context, c *chaos.RemoteCluster) error {
	text, wrong, err := kubeConfig(ctx, r.env, c)
	if err != nil {
		return err
	}
	if wrong != "" {
		return r.invalid(ctx, c, wrong)
	}
	to, err := restConfig(text)
	if err != nil {
		return r.invalid(ctx, c, "kubeconfig: "+strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	expected := ""
	if c.Status.ClusterID != "" {
		using, err := r.using(ctx, r.env.Client, c.Name)
		if err != nil {
			return err
		}
		if len(using) > 0 || r.installs(c) {
			expected = c.Status.ClusterID
		} else if r.all.known(c.Name).reachable.reason == reasonAnother {
			r.all.remove(c.Name) // it may be another one now
		}
	}
	sum := sha256.Sum256(append([]byte(c.Spec.Namespace+"\x00"+string(c.UID)+"\x00"), text...))
	return r.all.connect(ctx, target{
		name: c.Name, key: hex.EncodeToString(sum[:]), namespace: c.Spec.Namespace, expected: expected,
	}, to)
}

// kubeConfig reads the kubeconfig of a cluster. wrong says why there is none.
func kubeConfig(
	ctx context.Context, env *controller.Env, c *chaos.RemoteCluster,
) (text []byte, wrong string, err error) {
	of, secret := c.Spec.KubeConfig, &corev1.Secret{}
	err = env.Reader.Get(ctx, client.ObjectKey{Namespace: env.Config.Namespace, Name: of.SecretRef.Name}, secret)
	key := cmp.Or(of.Key, of.SecretRef.Key, "kubeconfig")
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Sprintf("there is no Secret %s/%s", env.Config.Namespace, of.SecretRef.Name), nil
	case err != nil:
		return nil, "", err
	case len(secret.Data[key]) == 0:
		return nil, fmt.Sprintf("Secret %s/%s has no key %q", secret.Namespace, secret.Name, key), nil
	}
	return secret.Data[key], "", nil
}

// invalid ends the connection: there is no usable kubeconfig.
func (r *clusterReconciler) invalid(ctx context.Context, c *chaos.RemoteCluster, wrong string) error {
	r.all.remove(c.Name)
	is := state{known: true, version: c.Status.CurrentVersion, clusterID: c.Status.ClusterID}
	is.reachable = no(reasonInvalid, "%s", wrong)
	is.installed, is.ready = no("Unknown", "there is no connection"), no("Unreachable", "there is no connection")
	if err := r.write(ctx, c, is, nil); err != nil {
		return err
	}
	r.all.wakeUsers(c.Name)
	return nil
}

// using lists the objects that use a cluster, as kind namespace/name.
func (r *clusterReconciler) using(ctx context.Context, reader client.Reader, name string) ([]string, error) {
	var all []string
	for _, u := range users {
		list := u.list.DeepCopyObject().(client.ObjectList)
		var which []client.ListOption
		if reader != r.env.Reader { // the API server has no index
			which = append(which, client.MatchingFields{indexCluster: name})
		}
		if err := reader.List(ctx, list, which...); err != nil {
			return nil, err
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			if o, ok := o.(client.Object); ok && clusterOf(o) == name {
				all = append(all, fmt.Sprintf("%s %s/%s", u.kind, o.GetNamespace(), o.GetName()))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// end lets a RemoteCluster go when it is not used any more, or when a user insists.
func (r *clusterReconciler) end(ctx context.Context, c *chaos.RemoteCluster) (ctrl.Result, error) {
	if forced(c) {
		if err := r.force(ctx, c); err != nil {
			return controller.Result(err)
		}
	} else {
		using, err := r.using(ctx, r.env.Client, c.Name)
		if err == nil && len(using) == 0 {
			using, err = r.using(ctx, r.env.Reader, c.Name)
		}
		if err != nil {
			return ctrl.Result{}, err
		}
		if len(using) > 0 {
			held := no("InUse", "%s", heldUp(c.Name, using))
			if err := r.tell(ctx, c, &held); err != nil {
				return controller.Result(err)
			}
			return ctrl.Result{RequeueAfter: r.all.lookEvery()}, nil // beside what wakes it
		}
		if held := r.uninstall(ctx, c); held != nil {
			if err := r.tell(ctx, c, held); err != nil {
				return controller.Result(err)
			}
			return ctrl.Result{RequeueAfter: r.all.lookEvery()}, nil
		}
	}
	r.all.remove(c.Name)
	return controller.Result(passing(controller.SetFinalizer(ctx, r.env, c, Finalizer, false)))
}

func forced(o client.Object) bool { return o.GetAnnotations()[chaos.AnnotationForceRemoval] == "true" }

func heldUp(name string, using []string) string {
	const some = 3
	text := strings.Join(using[:min(len(using), some)], ", ")
	if more := len(using) - some; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("in use by %s: delete them first. `kubectl annotate remotecluster %s %s=true` lets it go at "+
		"once: what is still disrupted there then ends by itself, when its duration is over", text, name,
		chaos.AnnotationForceRemoval)
}

// force deletes the children as far as the cluster can be reached, without waiting for their end.
func (r *clusterReconciler) force(ctx context.Context, c *chaos.RemoteCluster) error {
	connection := r.all.get(c.Name)
	if connection == nil || !connection.now().reachesIt() {
		return nil
	}
	var list chaos.DisruptionList
	if err := r.env.Client.List(ctx, &list, client.MatchingFields{indexCluster: c.Name}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var errs []error
	for i := range list.Items {
		child, err := connection.find(ctx, &list.Items[i])
		if err == nil && child != nil {
			err = controllers.Delete(ctx, connection.client, child)
		}
		errs = append(errs, err)
	}
	err := errors.Join(errs...)
	connection.failed(err)
	if err != nil && connection.now().reachesIt() {
		return err
	}
	return nil // the other clusters cannot be asked to delete them
}

// tell writes what is known, and what keeps a deleted RemoteCluster; nil: nothing is said about that.
func (r *clusterReconciler) tell(ctx context.Context, c *chaos.RemoteCluster, removable *verdict) error {
	connection := r.all.get(c.Name)
	if connection == nil {
		if removable == nil {
			return nil // connect has said why
		}
		return r.write(ctx, c, state{}, removable)
	}
	return r.write(ctx, c, connection.now(), removable)
}

func (r *clusterReconciler) write(ctx context.Context, c *chaos.RemoteCluster, is state, removable *verdict) error {
	return controller.UpdateWhole(ctx, r.env, c,
		func(c *chaos.RemoteCluster) *chaos.RemoteClusterStatus { return &c.Status },
		func(s *chaos.RemoteClusterStatus) { r.set(c, s, is, removable) })
}

func (r *clusterReconciler) set(
	c *chaos.RemoteCluster, s *chaos.RemoteClusterStatus, is state, removable *verdict,
) {
	generation := c.Generation
	if is.pending {
		generation = s.ObservedGeneration
	}
	condition := func(kind string, v verdict) {
		status := metav1.ConditionFalse
		if v.ok {
			status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: v.reason, Message: v.message, ObservedGeneration: generation,
		})
	}
	if is.known { // after a restart nothing is known for a moment, and nothing has changed
		if !is.pending {
			s.ObservedGeneration = c.Generation
		}
		s.CurrentVersion = is.version
		if is.clusterID != "" {
			s.ClusterID = is.clusterID
		}
		condition(chaos.ConditionReachable, is.reachable)
		installed := meta.FindStatusCondition(s.Conditions, chaos.ConditionInstalled)
		if !is.keep || installed == nil {
			condition(chaos.ConditionInstalled, is.installed)
		} else {
			is.installed = verdict{installed.Status == metav1.ConditionTrue, installed.Reason, installed.Message}
		}
		condition(chaos.ConditionReady, is.ready)
		s.Message = ""
		switch {
		case !is.reachable.ok:
			s.Message = is.reachable.message
			if is.reachable.reason == "Unreachable" {
				since := meta.FindStatusCondition(s.Conditions, chaos.ConditionReachable).LastTransitionTime
				s.Message = fmt.Sprintf("unreachable since %s: %s", since.UTC().Format(time.RFC3339), s.Message)
			}
		case !is.installed.ok && c.Spec.Install && !r.installs(c):
			s.Message = is.installed.message + "; these controllers install nothing: " + noInstaller
		case !is.installed.ok:
			s.Message = is.installed.message
		case !is.ready.ok:
			s.Message = is.ready.message
		case is.installed.reason != reasonInstalled:
			s.Message = is.installed.message
		case c.Spec.Install && !r.installs(c):
			s.Message = "these controllers do not install what spec.install wants: " + noInstaller
		}
	}
	if removable != nil {
		condition(chaos.ConditionRemovable, *removable)
		s.Message = removable.message
	}
}
