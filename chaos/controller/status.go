package controller

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
)

// Operation is one of a JSON patch.
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// PatchIf makes a patch of an object, for as long as it is this very object. The API server refuses it as invalid if a
// test fails. There is no version in it: so changes of other fields are not conflicts.
func PatchIf(o client.Object, operations ...Operation) (client.Patch, error) {
	same := Operation{Op: "test", Path: "/metadata/uid", Value: o.GetUID()}
	data, err := json.Marshal(append([]Operation{same}, operations...))
	return client.RawPatch(types.JSONPatchType, data), err
}

// SetFinalizer adds or removes a finalizer of an object. It does nothing if the object has gone. It returns an error of
// the kind Invalid if the finalizers are not those that were read.
func SetFinalizer(ctx context.Context, env *Env, o client.Object, finalizer string, present bool) error {
	const path = "/metadata/finalizers"
	old := o.GetFinalizers()
	if slices.Contains(old, finalizer) == present {
		return nil
	}
	test, write := Operation{Op: "test", Path: path}, Operation{Op: "add", Path: path}
	if len(old) > 0 {
		test.Value = old
	}
	if present {
		write.Value = append(slices.Clone(old), finalizer)
	} else {
		write.Value = slices.DeleteFunc(slices.Clone(old), func(f string) bool { return f == finalizer })
	}
	patch, err := PatchIf(o, test, write)
	if err != nil {
		return err
	}
	return client.IgnoreNotFound(env.Client.Patch(ctx, o.DeepCopyObject().(client.Object), patch))
}

// ErrOutdated is returned by UpdateStatus if the controller's own fields have changed since it read them.
var ErrOutdated = errors.New("the disruption's status was read from an outdated cache")

// UpdateStatus writes a controller's own fields of the status: set sets them, own returns them for comparison. What
// other controllers write at the same time stays. If the own fields themselves have changed, the controller had decided
// on an old state; it returns ErrOutdated. It does nothing if nothing changes, or if the disruption has gone.
func UpdateStatus[T any](
	ctx context.Context, env *Env, d *chaos.Disruption, own func(*chaos.DisruptionStatus) T,
	set func(*chaos.DisruptionStatus),
) error {
	object := d.DeepCopy()
	set(&object.Status)
	if equality.Semantic.DeepEqual(&d.Status, &object.Status) {
		return nil
	}
	patch, err := PatchIf(d, changes(&d.Status, &object.Status, own)...)
	if err != nil {
		return err
	}
	err = env.Client.Status().Patch(ctx, object, patch)
	if apierrors.IsInvalid(err) || apierrors.IsConflict(err) {
		err = updateNewest(ctx, env, d, own, set) // finds out why the patch cannot be applied
	}
	return client.IgnoreNotFound(err)
}

// updateNewest is UpdateStatus for a disruption whose state in the cache is not that of the API server.
func updateNewest[T any](
	ctx context.Context, env *Env, d *chaos.Disruption, own func(*chaos.DisruptionStatus) T,
	set func(*chaos.DisruptionStatus),
) error {
	changed := func(err error) bool { return apierrors.IsInvalid(err) || apierrors.IsConflict(err) }
	return retry.OnError(retry.DefaultBackoff, changed, func() error {
		newest := &chaos.Disruption{}
		if err := env.Reader.Get(ctx, client.ObjectKeyFromObject(d), newest); err != nil || newest.UID != d.UID {
			return err
		}
		if !equality.Semantic.DeepEqual(own(&newest.Status), own(&d.Status)) {
			return ErrOutdated
		}
		object := newest.DeepCopy()
		set(&object.Status)
		if equality.Semantic.DeepEqual(&newest.Status, &object.Status) {
			return nil
		}
		write := func(operations []Operation) error {
			if equality.Semantic.DeepEqual(&newest.Status, &chaos.DisruptionStatus{}) {
				// There may be a status without fields.
				operations[0] = Operation{Op: "test", Path: "/metadata/resourceVersion", Value: newest.ResourceVersion}
			}
			patch, err := PatchIf(newest, operations...)
			if err != nil {
				return err
			}
			return env.Client.Status().Patch(ctx, object.DeepCopy(), patch)
		}
		err := write(changes(&newest.Status, &object.Status, own))
		if apierrors.HasStatusCause(err, metav1.CauseTypeFieldValueRequired) {
			// Helm does not upgrade definitions. That of an older version requires all counts at once.
			whole := func(s *chaos.DisruptionStatus) chaos.DisruptionStatus { return *s }
			err = write(changes(&newest.Status, &object.Status, whole))
		}
		return err
	})
}

// UpdateWhole writes a status that belongs to one controller as a whole. If it is no longer what was read, it returns
// ErrOutdated: what the new one was computed from may have been handled.
func UpdateWhole[O, S any, P interface {
	*O
	client.Object
	DeepCopy() *O
}](ctx context.Context, env *Env, o P, status func(P) *S, set func(*S)) error {
	changed := P(o.DeepCopy())
	if set(status(changed)); equality.Semantic.DeepEqual(status(o), status(changed)) {
		return nil
	}
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		latest := P(new(O))
		if err := env.Reader.Get(ctx, client.ObjectKeyFromObject(o), latest); err != nil ||
			latest.GetUID() != o.GetUID() {
			return err
		}
		if !equality.Semantic.DeepEqual(status(latest), status(o)) {
			return ErrOutdated
		}
		set(status(latest))
		return env.Client.Status().Update(ctx, latest)
	})
	return client.IgnoreNotFound(err)
}

// changes are the operations that make one status of another, if the fields that change and the controller's own ones
// are still the same. (A condition that does not exist is not among the latter.) They write no other fields, so that
// managed fields show who wrote what.
func changes[T any](before, after *chaos.DisruptionStatus, own func(*chaos.DisruptionStatus) T) []Operation {
	var operations []Operation
	read, probing := own(before), *before
	// It returns what it adds.
	var compare func(path string, before, after, probe reflect.Value) map[string]any
	compare = func(path string, before, after, probe reflect.Value) map[string]any {
		added := map[string]any{}
		for i := range before.NumField() {
			name, options, _ := strings.Cut(before.Type().Field(i).Tag.Get("json"), ",")
			path, old, now, probed := path+"/"+name, before.Field(i), after.Field(i), probe.Field(i)
			if old.Kind() == reflect.Struct {
				added[name] = compare(path, old, now, probed)
				continue
			}
			change(probed)
			owned := !equality.Semantic.DeepEqual(own(&probing), read)
			probed.Set(old)
			changed := !equality.Semantic.DeepEqual(old.Interface(), now.Interface())
			omit := func(v reflect.Value) bool { return v.IsZero() && options == "omitempty" }
			// The zero of a count is written by its controller, and may not have been yet: a test cannot allow both.
			unsure := owned && old.IsZero() && !omit(old)
			if (owned || changed) && !unsure {
				test := Operation{Op: "test", Path: path}
				if !omit(old) {
					test.Value = old.Interface()
				}
				operations = append(operations, test)
			}
			switch {
			case !changed && !unsure:
			case omit(now):
				operations = append(operations, Operation{Op: "remove", Path: path})
			default:
				added[name] = now.Interface()
				operations = append(operations, Operation{Op: "add", Path: path, Value: now.Interface()})
			}
		}
		return added
	}
	added := compare("/status", reflect.ValueOf(before).Elem(), reflect.ValueOf(after).Elem(),
		reflect.ValueOf(&probing).Elem())
	if equality.Semantic.DeepEqual(before, &chaos.DisruptionStatus{}) {
		// There may be no status to add fields to. The first one has all structures to which others add theirs.
		return []Operation{{Op: "test", Path: "/status"}, {Op: "add", Path: "/status", Value: added}}
	}
	return operations
}

// change makes a field different from what it was.
func change(field reflect.Value) {
	if !field.IsZero() {
		field.SetZero()
		return
	}
	switch field.Kind() {
	case reflect.Bool:
		field.SetBool(true)
	case reflect.String:
		field.SetString("x")
	case reflect.Int32:
		field.SetInt(1)
	case reflect.Pointer:
		field.Set(reflect.New(field.Type().Elem()))
	case reflect.Slice:
		field.Set(reflect.MakeSlice(field.Type(), 1, 1))
	}
}
