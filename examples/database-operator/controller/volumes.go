package controller

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1alpha1 "github.com/trommel-dev/trommel/examples/database-operator/api/v1alpha1"
)

const volumeName = "data"

// volumes lists the claims of the Database's members; ofUID leaves out those of another Database that had the same
// name.
func (r *Reconciler) volumes(ctx context.Context, db *v1alpha1.Database,
	ofUID bool) ([]corev1.PersistentVolumeClaim, error) {
	match := client.MatchingLabels(selector(db))
	if ofUID {
		match[labelUID] = string(db.UID)
	}
	reader := client.Reader(r.Client)
	if r.Fixes.MissedScale {
		reader = r.APIReader // the cache may not have a claim yet whose member was removed
	}
	var list corev1.PersistentVolumeClaimList
	if err := reader.List(ctx, &list, client.InNamespace(db.Namespace), match); err != nil {
		return nil, fmt.Errorf("list the volumes: %w", err)
	}
	return list.Items, nil
}

// ordinal returns the number of the member that a claim belongs to, or -1 if the claim is not named like a member's.
func ordinal(db *v1alpha1.Database, claim *corev1.PersistentVolumeClaim) int32 {
	suffix, ok := strings.CutPrefix(claim.Name, volumeName+"-"+db.Name+"-")
	if !ok {
		return -1
	}
	n, err := strconv.ParseInt(suffix, 10, 32)
	if err != nil {
		return -1
	}
	return int32(n)
}

// removeVolumes deletes the volumes of members that the StatefulSet no longer has. It returns how many still exist.
func (r *Reconciler) removeVolumes(ctx context.Context, db *v1alpha1.Database, set *appsv1.StatefulSet) (int, error) {
	claims, err := r.volumes(ctx, db, true)
	if err != nil {
		return 0, err
	}
	left, checked := 0, false
	for i := range claims {
		claim := &claims[i]
		if ordinal(db, claim) < *set.Spec.Replicas {
			continue
		}
		left++
		if !claim.DeletionTimestamp.IsZero() {
			continue
		}
		if !checked {
			// The cache may be older than our own last write, and deleted data cannot be restored.
			var live appsv1.StatefulSet
			if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(set), &live); err != nil {
				return left, fmt.Errorf("read the StatefulSet: %w", err)
			}
			if live.UID != set.UID || live.Generation != set.Generation {
				return left, nil // its event will arrive
			}
			checked = true
		}
		log.FromContext(ctx).Info("Deleting the volume of a removed member", "claim", claim.Name)
		if err := r.Delete(ctx, claim, client.Preconditions{UID: &claim.UID}); client.IgnoreNotFound(err) != nil {
			return left, fmt.Errorf("delete volume %s: %w", claim.Name, err)
		}
	}
	return left, nil
}

// tooSmall reports whether the volumes must grow.
func (r *Reconciler) tooSmall(db *v1alpha1.Database, set *appsv1.StatefulSet) bool {
	size := set.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests[corev1.ResourceStorage]
	return db.Spec.Storage.Cmp(size) > 0
}

// resize grows the volumes of the existing members. Then it removes the StatefulSet without its pods, because its
// template cannot be changed. The next reconcile creates it again with the new size, and it adopts the pods.
func (r *Reconciler) resize(ctx context.Context, db *v1alpha1.Database, set *appsv1.StatefulSet) error {
	claims, err := r.volumes(ctx, db, true)
	if err != nil {
		return err
	}
	for i := range claims {
		claim := &claims[i]
		if size := claim.Spec.Resources.Requests[corev1.ResourceStorage]; db.Spec.Storage.Cmp(size) <= 0 {
			continue
		}
		log.FromContext(ctx).Info("Growing a volume", "claim", claim.Name, "to", db.Spec.Storage.String())
		before := claim.DeepCopy()
		claim.Spec.Resources.Requests[corev1.ResourceStorage] = db.Spec.Storage
		if err := r.Patch(ctx, claim, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("grow volume %s: %w", claim.Name, err)
		}
	}
	log.FromContext(ctx).Info("Recreating the StatefulSet for its new volume size")
	err = r.Delete(ctx, set, client.PropagationPolicy(metav1.DeletePropagationOrphan),
		client.Preconditions{UID: &set.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove the StatefulSet for its new volume size: %w", err)
	}
	return nil
}
