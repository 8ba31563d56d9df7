// Command later-operator does things later. For each ConfigMap with a mode it keeps a Secret of the same name:
//
//   - slow: it makes the Secret ten minutes after the ConfigMap.
//   - retry: it tries again after 30 seconds, whatever the error was.
//   - cleanup: if it cannot write to the ConfigMap that it has made the Secret, it deletes the Secret 20 seconds later,
//     which is a bug.
//   - spin: it tries again after 10 ms, whatever the error was, and goes on with that after it has made the Secret,
//     which is a bug.
//   - hot: it counts its attempts in the ConfigMap, which wakes it again, without end, which is a bug.
//   - poll: every ten seconds it counts its looks in the ConfigMap, for ever.
//   - expire: it makes the Secret at once, and deletes it after 20 seconds. It only remembers that in memory, which is a
//     bug: once started again, it never deletes the Secret.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "later-operator: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	ctrl.SetLogger(zap.New())
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	r := &reconciler{
		Client: mgr.GetClient(), failed: map[client.ObjectKey]time.Time{}, made: map[client.ObjectKey]time.Time{},
	}
	if err := ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(r); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

type reconciler struct {
	client.Client
	// Only one worker uses these.
	failed, made map[client.ObjectKey]time.Time
}

func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var source corev1.ConfigMap
	if err := r.Get(ctx, req.NamespacedName, &source); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: source.Namespace, Name: source.Name}}
	switch source.Data["mode"] {
	case "slow":
		if wait := time.Until(source.CreationTimestamp.Add(10 * time.Minute)); wait > 0 {
			return ctrl.Result{RequeueAfter: wait}, nil
		}
		return ctrl.Result{}, r.make(ctx, secret)
	case "retry":
		if err := r.make(ctx, secret); err != nil {
			return ctrl.Result{RequeueAfter: 30 * time.Second}, nil
		}
		return ctrl.Result{}, nil
	case "spin":
		if _, ok := r.made[req.NamespacedName]; !ok {
			if err := r.make(ctx, secret); err != nil {
				r.failed[req.NamespacedName] = time.Now()
			} else {
				r.made[req.NamespacedName] = time.Now()
			}
		}
		if _, ok := r.failed[req.NamespacedName]; ok {
			return ctrl.Result{RequeueAfter: 10 * time.Millisecond}, nil
		}
		return ctrl.Result{}, nil
	case "cleanup":
		return r.cleanUp(ctx, &source, secret)
	case "expire":
		return r.expire(ctx, secret)
	case "hot":
		return ctrl.Result{}, r.count(ctx, &source)
	case "poll":
		if wait := time.Until(r.made[req.NamespacedName].Add(10 * time.Second)); wait > 0 {
			return ctrl.Result{RequeueAfter: wait}, nil
		}
		r.made[req.NamespacedName] = time.Now()
		return ctrl.Result{RequeueAfter: 10 * time.Second}, r.count(ctx, &source)
	}
	return ctrl.Result{}, nil
}

func (r *reconciler) make(ctx context.Context, secret *corev1.Secret) error {
	if err := r.Create(ctx, secret); !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// count counts in an annotation of the object.
func (r *reconciler) count(ctx context.Context, source *corev1.ConfigMap) error {
	n, _ := strconv.Atoi(source.Annotations["count"])
	metav1.SetMetaDataAnnotation(&source.ObjectMeta, "count", strconv.Itoa(n+1))
	return client.IgnoreNotFound(r.Update(ctx, source))
}

func (r *reconciler) cleanUp(ctx context.Context, source *corev1.ConfigMap, secret *corev1.Secret) (ctrl.Result, error) {
	key := client.ObjectKeyFromObject(source)
	if at, ok := r.failed[key]; ok {
		if wait := time.Until(at.Add(20 * time.Second)); wait > 0 {
			return ctrl.Result{RequeueAfter: wait}, nil
		}
		return ctrl.Result{}, client.IgnoreNotFound(r.Delete(ctx, secret))
	}
	if source.Annotations["made"] != "" {
		return ctrl.Result{}, nil
	}
	if err := r.make(ctx, secret); err != nil {
		return ctrl.Result{}, err
	}
	before := source.DeepCopy()
	metav1.SetMetaDataAnnotation(&source.ObjectMeta, "made", "true")
	if err := r.Patch(ctx, source, client.MergeFrom(before)); err != nil {
		r.failed[key] = time.Now()
		return ctrl.Result{RequeueAfter: 20 * time.Second}, nil
	}
	return ctrl.Result{}, nil
}

func (r *reconciler) expire(ctx context.Context, secret *corev1.Secret) (ctrl.Result, error) {
	key := client.ObjectKeyFromObject(secret)
	if at, ok := r.made[key]; ok {
		if wait := time.Until(at.Add(20 * time.Second)); wait > 0 {
			return ctrl.Result{RequeueAfter: wait}, nil
		}
		return ctrl.Result{}, client.IgnoreNotFound(r.Delete(ctx, secret))
	}
	if err := r.Create(ctx, secret); err != nil {
		return ctrl.Result{}, client.IgnoreAlreadyExists(err) // the bug: it may have made the Secret before it was started
	}
	r.made[key] = time.Now()
	return ctrl.Result{RequeueAfter: 20 * time.Second}, nil
}
