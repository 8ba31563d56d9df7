package actions

import (
	"context"
	"fmt"

	"github.com/trommel-dev/trommel/plan"
)

func init() {
	Register(plan.ApplyObject, func(a *plan.Action, t Tools) Action {
		return &applyObject{objects: t.in(a.Cluster), object: a.Manifest, file: a.ManifestFile}
	})
	Register(plan.PatchObject, func(a *plan.Action, t Tools) Action {
		return &patchObject{
			target: target{key: a.ResourceKey, subresource: a.Subresource}, objects: t.in(a.Cluster),
			patchType: a.PatchType, patch: a.Patch,
		}
	})
	Register(plan.DeleteObject, func(a *plan.Action, t Tools) Action {
		return &deleteObject{target: target{key: a.ResourceKey}, objects: t.in(a.Cluster)}
	})
}

// in returns what writes objects in a cluster.
func (t Tools) in(cluster string) Objects {
	if objects, ok := t.ObjectsIn[cluster]; ok {
		return objects
	}
	return t.Objects
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

// target is the object that an action writes. Its name may be a pattern: then it is the object that has fired the
// action.
type target struct {
	key         plan.ResourceKey
	subresource string
}

func (t *target) PointTo(object plan.ResourceKey) string {
	if !t.key.HasWildcard() ||
		!t.key.Matches(object.Type, object.Group, object.Group != "", object.Namespace, object.Name) {
		return ""
	}
	t.key = object
	return (&plan.Action{Writing: plan.Writing{ResourceKey: object, Subresource: t.subresource}}).Written()
}

// object returns the object's name, or an error if it is not known.
func (t *target) object() (plan.ResourceKey, error) {
	if t.key.HasWildcard() {
		return t.key, fmt.Errorf("no object that matches %s has fired it", t.key)
	}
	return t.key, nil
}

type patchObject struct {
	target
	objects   Objects
	patchType string
	patch     any
}

func (a *patchObject) Do(ctx context.Context) (string, error) {
	key, err := a.object()
	if err != nil {
		return "", err
	}
	return "", a.objects.Patch(ctx, key, a.subresource, a.patchType, a.patch)
}

func (a *patchObject) Undo(context.Context) error { return nil }

type deleteObject struct {
	target
	objects Objects
}

func (a *deleteObject) Do(ctx context.Context) (string, error) {
	key, err := a.object()
	if err != nil {
		return "", err
	}
	return "", a.objects.Delete(ctx, key)
}

func (a *deleteObject) Undo(context.Context) error { return nil }
