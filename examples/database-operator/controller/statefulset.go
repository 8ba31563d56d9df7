package controller

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1alpha1 "github.com/trommel-dev/trommel/examples/database-operator/api/v1alpha1"
)

// reconcileStatefulSet creates, scales or resizes the StatefulSet, one step per call: the change of a step triggers the
// next call. It returns the current StatefulSet, nil if there is none.
func (r *Reconciler) reconcileStatefulSet(ctx context.Context, db *v1alpha1.Database) (*appsv1.StatefulSet, error) {
	set := &appsv1.StatefulSet{}
	err := r.Get(ctx, client.ObjectKeyFromObject(db), set)
	if apierrors.IsNotFound(err) {
		if r.Fixes.StaleDeletion {
			// The volumes have no other owner: those made for an old Database would be the new one's, with old labels.
			if current, err := r.isCurrent(ctx, db); err != nil || !current {
				return nil, err // the Database's event will arrive
			}
		}
		log.FromContext(ctx).Info("Creating the StatefulSet", "replicas", db.Spec.Replicas)
		return nil, r.create(ctx, db, newStatefulSet(db))
	}
	if err != nil {
		return nil, fmt.Errorf("read the StatefulSet: %w", err)
	}
	if !metav1.IsControlledBy(set, db) {
		return nil, fmt.Errorf("StatefulSet %s has another owner", set.Name)
	}
	if !set.DeletionTimestamp.IsZero() {
		return set, nil // being resized: its removal triggers another reconcile
	}

	want, have := db.Spec.Replicas, *set.Spec.Replicas
	if want != have && r.Fixes.StaleDeletion {
		if current, err := r.isCurrent(ctx, db); err != nil || !current {
			return set, err // the Database's event will arrive
		}
	}
	atRest := set.Status.ObservedGeneration == set.Generation && set.Status.Replicas == have
	switch {
	case want < have:
		return set, r.scale(ctx, set, want)
	case want > have:
		if r.Fixes.MissedScale {
			// The StatefulSet records that it was smaller, whether or not the controller saw that.
			if left, err := r.removeVolumes(ctx, db, set); err != nil || left > 0 {
				return set, err
			}
		}
		return set, r.scale(ctx, set, want)
	case !atRest:
		return set, nil
	case r.tooSmall(db, set):
		return set, r.resize(ctx, db, set)
	}
	_, err = r.removeVolumes(ctx, db, set)
	return set, err
}

// isCurrent reports whether the Database is as in the cache. What is scaled down loses its data, and what is created
// makes volumes.
func (r *Reconciler) isCurrent(ctx context.Context, db *v1alpha1.Database) (bool, error) {
	var live v1alpha1.Database
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(db), &live); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return live.UID == db.UID && live.Generation == db.Generation, nil
}

func (r *Reconciler) scale(ctx context.Context, set *appsv1.StatefulSet, replicas int32) error {
	log.FromContext(ctx).Info("Scaling the StatefulSet", "from", *set.Spec.Replicas, "to", replicas)
	before := set.DeepCopy()
	set.Spec.Replicas = ptr.To(replicas)
	if err := r.Patch(ctx, set, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("scale the StatefulSet: %w", err)
	}
	return nil
}

func newStatefulSet(db *v1alpha1.Database) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: db.Name},
		Spec: appsv1.StatefulSetSpec{
			Replicas:            ptr.To(db.Spec.Replicas),
			ServiceName:         db.Name,
			PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector:            &metav1.LabelSelector{MatchLabels: selector(db)},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels(db)},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{{
						Name:  "database",
						Image: db.Spec.Image,
						Ports: []corev1.ContainerPort{{Name: "database", ContainerPort: port}},
						EnvFrom: []corev1.EnvFromSource{
							{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{
								Name: credentialsName(db)}}}},
						VolumeMounts: []corev1.VolumeMount{{Name: volumeName, MountPath: "/var/lib/database"}},
					}},
				},
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: volumeName, Labels: labels(db)},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					StorageClassName: db.Spec.StorageClassName,
					Resources: corev1.VolumeResourceRequirements{
						Requests: corev1.ResourceList{corev1.ResourceStorage: db.Spec.Storage},
					},
				},
			}},
		},
	}
}
