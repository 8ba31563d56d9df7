package controller

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
)

// Some objects have disruptions made again and again, one at a time: a DisruptionCron at its times, a DisruptionRollout
// at new versions. Each disruption belongs to its object, and its name contains its place in the series, so that a
// controller which has forgotten that it created one does not create a second.

// CreateNext creates the disruption with that name in the owner's series, unless an earlier one has not ended, another
// owner has the name, or the API server refuses it: then skipped says so. One that is there already is not skipped.
func (e *Env) CreateNext(
	ctx context.Context, owner client.Object, kind, name string, spec *chaos.DisruptionSpec,
) (skipped string, err error) {
	var list chaos.DisruptionList
	if err := e.Client.List(ctx, &list, client.InNamespace(owner.GetNamespace())); err != nil {
		return "", err
	}
	for i := range list.Items {
		d := &list.Items[i]
		if metav1.IsControlledBy(d, owner) && !d.Status.Schedule.Over && d.Name != name {
			return fmt.Sprintf("disruption %s has not ended", d.Name), nil
		}
	}
	d := &chaos.Disruption{ObjectMeta: metav1.ObjectMeta{
		Namespace: owner.GetNamespace(), Name: name,
		OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(owner, chaos.GroupVersion.WithKind(kind)),
		},
	}}
	spec.DeepCopyInto(&d.Spec)
	if IsRemote(d) {
		// It may do there what the user may who has created the owner, or last changed it.
		for _, key := range []string{chaos.AnnotationUser, chaos.AnnotationGroups} {
			if value, ok := owner.GetAnnotations()[key]; ok {
				metav1.SetMetaDataAnnotation(&d.ObjectMeta, key, value)
			}
		}
	}
	err = e.Client.Create(ctx, d)
	switch {
	case apierrors.IsAlreadyExists(err): // perhaps created before a restart
		existing := &chaos.Disruption{}
		err = e.Reader.Get(ctx, client.ObjectKeyFromObject(d), existing)
		if err == nil && !metav1.IsControlledBy(existing, owner) {
			skipped = fmt.Sprintf("there is another disruption %s", name)
		}
	case apierrors.IsInvalid(err) || apierrors.IsForbidden(err):
		skipped, err = err.Error(), nil
	}
	return skipped, err
}
