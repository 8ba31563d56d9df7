package actions

import (
	"context"

	"github.com/trommel-dev/trommel/plan"
)

func init() {
	Register(plan.ApplyObject, func(a *plan.Action, t Tools) Action {
		return &applyObject{objects: t.Objects, object: a.Manifest, file: a.ManifestFile}
	})
	Register(plan.PatchObject, func(a *plan.Action, t Tools) Action {
		return &patchObject{
			objects: t.Objects, key: a.ResourceKey, subresource: a.Subresource, patchType: a.PatchType, patch: a.Patch,
		}
	})
	Register(plan.DeleteObject, func(a *plan.Action, t Tools) Action {
		return &deleteObject{objects: t.Objects, key: a.ResourceKey}
	})
}

// applyObject, patchObject and deleteObject write as another client at the exact moment. They return when the API
// server has answered.
type applyObject struct {
	objects Objects
	object  map[string]any
	file    string
}

func (a *applyObject) Do(ctx context.Context) (string, error) {
	if a.file != "" {
		return "", a.objects.ApplyFile(ctx, a.file)
	}
	return "", a.objects.Apply(ctx, a.object)
}

func (a *applyObject) Undo(context.Context) error { return nil }

type patchObject struct {
	objects     Objects
	key         plan.ResourceKey
	subresource string
	patchType   string
	patch       any
}

func (a *patchObject) Do(ctx context.Context) (string, error) {
	return "", a.objects.Patch(ctx, a.key, a.subresource, a.patchType, a.patch)
}

func (a *patchObject) Undo(context.Context) error { return nil }

type deleteObject struct {
	objects Objects
	key     plan.ResourceKey
}

func (a *deleteObject) Do(ctx context.Context) (string, error) {
	return "", a.objects.Delete(ctx, a.key)
}
func (a *deleteObject) Undo(context.Context) error { return nil }
