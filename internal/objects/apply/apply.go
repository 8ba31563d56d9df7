// Package apply applies manifests, in the order in which they need each other.
package apply

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/mistake"
	"github.com/trommel-dev/trommel/internal/objects"
)

// atOnce bounds the number of objects that are applied at the same time.
const atOnce = 8

// Applier applies manifests. It retries what fails because something else is not ready yet.
type Applier struct {
	Apply   func(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error)
	Timeout time.Duration // of one object
}

// All applies objects rank by rank, whatever their order in the files, so that what others need comes first. It applies
// objects of one rank concurrently.
func (a *Applier) All(ctx context.Context, list []*unstructured.Unstructured) error {
	byRank := map[int][]*unstructured.Unstructured{}
	for _, u := range list {
		byRank[rank(u)] = append(byRank[rank(u)], u)
	}
	for _, at := range slices.Sorted(maps.Keys(byRank)) {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(atOnce)
		for _, u := range byRank[at] {
			group.Go(func() error { return a.One(ctx, u) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// One applies an object.
func (a *Applier) One(ctx context.Context, u *unstructured.Unstructured) error {
	// Retry what fails because a webhook or a definition is not ready yet. A call in progress may take longer than
	// that: on a busy machine an API server takes its time for a large definition.
	retry, cancel := clock.WithTimeout(ctx, a.Timeout)
	defer cancel()
	if err := objects.Retry(retry, func(context.Context) error {
		_, err := a.Apply(ctx, u)
		return err
	}); err != nil {
		err = fmt.Errorf("apply %s %s: %w", u.GetKind(), u.GetName(), err)
		if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsNotFound(err) ||
			errors.Is(err, objects.ErrNotServed) {
			return &mistake.Error{Err: err}
		}
		return err
	}
	return nil
}

// Files applies manifests that are a part of this program.
func (a *Applier) Files(ctx context.Context, files fs.FS, names []string) error {
	var all []*unstructured.Unstructured
	for _, name := range names {
		list, err := Read(files, name)
		if err != nil {
			return err
		}
		all = append(all, list...)
	}
	return a.All(ctx, all)
}

// Read reads manifests that are a part of this program.
func Read(files fs.FS, name string) ([]*unstructured.Unstructured, error) {
	data, err := fs.ReadFile(files, name)
	if err != nil {
		return nil, err
	}
	return objects.Decode(data, name)
}

func rank(u *unstructured.Unstructured) int {
	switch u.GetKind() {
	case "Namespace":
		return 0
	case "CustomResourceDefinition":
		return 1
	case "ServiceAccount", "ClusterRole", "Role":
		return 2
	case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "APIService":
		return 4 // last: their servers do not run yet, and would be called for objects applied after them
	}
	return 3
}
