// Command claim-operator keeps a StatefulSet with a volume claim for each ConfigMap that says so, and notes at the
// StatefulSet that its volume is being filled and when that is done. When it starts, it throws away volumes that a
// crash has left half filled: it deletes the claim, by its name, and the pod. That is a bug, because what is in the
// volume may be all that there is. Without faults it has nothing to do with claims.
package main

import (
	"context"
	"fmt"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// state is the annotation that says how far a volume is.
const (
	state   = "claims.trommel.dev/volume"
	filling = "filling"
	filled  = "filled"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "claim-operator: %v\n", err)
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
	if err := mgr.Add(manager.RunnableFunc(r.cleanUp)); err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Owns(&appsv1.StatefulSet{}).Complete(r)
	if err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

type reconciler struct{ client.Client }

// cleanUp throws away the volumes that a crash has left half filled.
func (r *reconciler) cleanUp(ctx context.Context) error {
	var sets appsv1.StatefulSetList
	if err := r.List(ctx, &sets); err != nil {
		return err
	}
	for _, set := range sets.Items {
		if set.Annotations[state] != filling {
			continue
		}
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: "data-" + set.Name + "-0",
		}}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: set.Name + "-0"}}
		for _, o := range []client.Object{claim, pod} {
			if err := client.IgnoreNotFound(r.Delete(ctx, o)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var source corev1.ConfigMap
	if err := r.Get(ctx, req.NamespacedName, &source); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if source.Data["volume"] == "" {
		return ctrl.Result{}, nil
	}
	var set appsv1.StatefulSet
	err := r.Get(ctx, req.NamespacedName, &set)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	switch {
	case err != nil:
		made := wanted(&source)
		if err := ctrl.SetControllerReference(&source, made, r.Scheme()); err != nil {
			return ctrl.Result{}, err
		}
		return ctrl.Result{}, client.IgnoreAlreadyExists(r.Create(ctx, made))
	case set.Status.ReadyReplicas == 0:
		return ctrl.Result{}, nil
	case set.Annotations[state] == "":
		return ctrl.Result{}, r.note(ctx, &set, filling)
	case set.Annotations[state] == filling:
		return ctrl.Result{}, r.note(ctx, &set, filled)
	}
	return ctrl.Result{}, nil
}

func (r *reconciler) note(ctx context.Context, set *appsv1.StatefulSet, how string) error {
	before := set.DeepCopy()
	metav1.SetMetaDataAnnotation(&set.ObjectMeta, state, how)
	return r.Patch(ctx, set, client.MergeFrom(before))
}

func wanted(source *corev1.ConfigMap) *appsv1.StatefulSet {
	labels := map[string]string{"app": source.Name}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: source.Namespace, Name: source.Name},
		Spec: appsv1.StatefulSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "main", Image: "registry.example/volume:1",
					VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
				}}},
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
						corev1.ResourceStorage: resource.MustParse("1Gi"),
					}},
				},
			}},
		},
	}
}
