// Command phase-operator does what depends on the phase of a loop. For each ConfigMap with the label job it makes a
// Secret of the same name, which stands for a child that finishes at once. Every 30 seconds from its start, a loop
// marks the ConfigMaps whose children have finished. Another part deletes each child 15 seconds after its creation. So
// whether a ConfigMap is marked depends on when the loop began.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const (
	looksEvery = 30 * time.Second
	childLives = 15 * time.Second
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "phase-operator: %v\n", err)
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
	r := &reconciler{mgr.GetClient()}
	if err := ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Owns(&corev1.Secret{}).Complete(r); err != nil {
		return err
	}
	if err := mgr.Add(manager.RunnableFunc(r.look)); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

type reconciler struct{ client.Client }

// Reconcile makes the child of a job, and deletes it when its time is over. It notes that before, so that no child is
// made a second time.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var job corev1.ConfigMap
	if err := r.Get(ctx, req.NamespacedName, &job); err != nil || job.Labels["job"] == "" {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	child := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name}}
	if job.Annotations["over"] != "" {
		return ctrl.Result{}, client.IgnoreNotFound(r.Delete(ctx, child))
	}
	switch err := r.Get(ctx, req.NamespacedName, child); {
	case apierrors.IsNotFound(err):
		return ctrl.Result{}, r.begin(ctx, &job, child)
	case err != nil:
		return ctrl.Result{}, err
	}
	if wait := time.Until(child.CreationTimestamp.Add(childLives)); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	return ctrl.Result{}, r.annotate(ctx, &job, "over") // which brings it back here
}

func (r *reconciler) begin(ctx context.Context, job *corev1.ConfigMap, child *corev1.Secret) error {
	if err := ctrl.SetControllerReference(job, child, r.Scheme()); err != nil {
		return err
	}
	if err := r.Create(ctx, child); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// look marks the jobs whose children have finished, again and again.
func (r *reconciler) look(ctx context.Context) error {
	tick := time.NewTicker(looksEvery)
	defer tick.Stop()
	for {
		var children corev1.SecretList
		if err := r.List(ctx, &children); err != nil {
			return err
		}
		for _, child := range children.Items {
			var job corev1.ConfigMap
			if err := r.Get(ctx, client.ObjectKeyFromObject(&child), &job); err != nil ||
				job.Annotations["succeeded"] != "" {
				continue
			}
			if err := r.annotate(ctx, &job, "succeeded"); err != nil {
				ctrl.LoggerFrom(ctx).Error(err, "it is tried again at the next look")
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (r *reconciler) annotate(ctx context.Context, job *corev1.ConfigMap, name string) error {
	before := job.DeepCopy()
	metav1.SetMetaDataAnnotation(&job.ObjectMeta, name, "true")
	return r.Patch(ctx, job, client.MergeFrom(before))
}
