package kube

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/plan"
)

// removal limits how long the deletion of the objects may take.
const removal = 30 * time.Second

// needed are the kinds of objects that a campaign outside of the cluster needs, because it has rights of its own. The
// others are for a campaign that runs in a pod.
var needed = []string{"Secret", "NetworkPolicy", "Job"}

// Create creates the workers. The caller calls remove to delete what is left of them. Errors of the deletion go to say.
func Create(ctx context.Context, client *objects.Client, c Config, say func(string)) (remove func(), err error) {
	list, err := Objects(c)
	if err != nil {
		return nil, err
	}
	clean, err := Unstructured(list)
	if err != nil {
		return nil, err
	}
	clean = slices.DeleteFunc(clean, func(u *unstructured.Unstructured) bool {
		return !slices.Contains(needed, u.GetKind())
	})
	remove = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removal)
		defer cancel()
		for _, u := range slices.Backward(clean) {
			if err := deleteObject(ctx, client, u); err != nil && !apierrors.IsNotFound(err) {
				say(fmt.Sprintf("delete %s %s: %v", u.GetKind(), u.GetName(), err))
			}
		}
	}
	for _, u := range clean {
		if _, err := client.WithFieldManager("trommel").Apply(ctx, u); err != nil {
			remove()
			return nil, fmt.Errorf("create %s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
		}
	}
	return remove, nil
}

func deleteObject(ctx context.Context, client *objects.Client, u *unstructured.Unstructured) error {
	t, err := client.ResolveKind(ctx, u.GroupVersionKind())
	if err != nil {
		return err
	}
	return client.Delete(ctx, plan.ResourceKey{
		Type: t.Singular, Group: t.Kind.Group, Namespace: u.GetNamespace(), Name: u.GetName(),
	}, objects.DeleteOptions{})
}
