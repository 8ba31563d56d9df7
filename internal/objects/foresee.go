package objects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
)

// Write is a client's request that changes an object or deletes a collection.
type Write struct {
	Resource                     schema.GroupVersionResource
	Namespace, Name, Subresource string
	Operation                    wire.Operation
	PatchType                    wire.PatchType
	Patch                        []byte // of a patch or an apply
	Body                         []byte // of a create or an update: the object in JSON
	Query                        string // the URL query, encoded
}

func (c *Client) of(w Write) dynamic.ResourceInterface {
	r := c.dynamic.Resource(w.Resource)
	if w.Namespace == "" {
		return r
	}
	return r.Namespace(w.Namespace)
}

// Foresee returns what a write to an object would result in, without writing: old is the current state, new the state
// after the write, both in JSON and in the version of the request. Old is nil without an error if there is no object.
// New is nil for deletions, and also, with an error that says why, if it cannot be known. What the API server adds to a
// write, such as defaults or a new resource version, is in new only if the write is sent to the server as a dry run: an
// apply, or a write through a subresource other than status and scale.
func (c *Client) Foresee(ctx context.Context, w Write) (old, new []byte, err error) {
	for range foreseeAttempts {
		old, new, err = c.foresee(ctx, w)
		if !apierrors.IsConflict(err) { // another client has written the object before the dry run
			break
		}
	}
	return old, new, err
}

// foreseeAttempts is how often a forecast begins, if others write the object meanwhile.
const foreseeAttempts = 3

func (c *Client) foresee(ctx context.Context, w Write) (old, new []byte, err error) {
	present, err := c.of(w).Get(ctx, w.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		present = nil
	case err != nil:
		return nil, w.Body, fmt.Errorf("read the current state: %w", err)
	default:
		if old, err = present.MarshalJSON(); err != nil {
			return nil, w.Body, err
		}
	}
	if new, err = c.outcome(ctx, w, present); err != nil {
		return old, nil, fmt.Errorf("the effect of the %s is unknown: %w", w.Operation, err)
	}
	return old, new, nil
}

func (c *Client) outcome(ctx context.Context, w Write, present *unstructured.Unstructured) ([]byte, error) {
	if w.Operation == wire.Apply {
		return c.tryApply(ctx, w)
	}
	if w.Operation != wire.Update && w.Operation != wire.Patch {
		return nil, nil
	}
	if present == nil {
		return w.Body, nil // an update may create; a patch of nothing fails
	}
	before := present.Object
	if w.Subresource == "scale" {
		before = scaleOf(present.Object)
	}
	var after map[string]any
	if w.Operation == wire.Update {
		if err := json.Unmarshal(w.Body, &after); err != nil {
			return nil, fmt.Errorf("read the request: %w", err)
		}
	} else {
		data, err := json.Marshal(before)
		if err != nil {
			return nil, err
		}
		patched, err := patched(data, w.PatchType, w.Patch, present.GroupVersionKind(), w.Subresource)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(patched, &after); err != nil {
			return nil, fmt.Errorf("read the patched object: %w", err)
		}
	}
	switch w.Subresource {
	case "", "scale":
	case "status":
		if sameMetadata(present.Object, after) {
			break // by far the most frequent case, and the server keeps the status
		}
		kept, err := c.tryUpdate(ctx, w, present, after)
		if err != nil {
			return nil, err
		}
		after = withMetadataOf(after, kept)
	default:
		kept, err := c.tryUpdate(ctx, w, present, after)
		if err != nil {
			return nil, err
		}
		return json.Marshal(kept)
	}
	t, err := c.Resolve(ctx, plan.ResourceKey{Type: w.Resource.Resource, Group: w.Resource.Group})
	if err != nil {
		return nil, err
	}
	result, err := accepted(present.Object, after, w.Subresource, slices.Contains(t.Subresources, "status"))
	if err != nil {
		return nil, err
	}
	return json.Marshal(result)
}

// ofServer lists the metadata fields that clients' writes do not change.
var ofServer = []string{
	"uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "resourceVersion",
	"selfLink", "managedFields",
}

// leftOut lists the metadata fields that an API server leaves out when they are empty: a patch that takes the last
// finalizer away may leave an empty list.
var leftOut = []string{"finalizers", "ownerReferences", "labels", "annotations"}

// sameMetadata reports whether an object and what a client sends agree in the metadata that a client may change.
func sameMetadata(old, sent map[string]any) bool {
	oldMeta, _ := old["metadata"].(map[string]any)
	sentMeta, _ := sent["metadata"].(map[string]any)
	return !slices.ContainsFunc(leftOut, func(key string) bool {
		x, y := oldMeta[key], sentMeta[key]
		return !(empty(x) && empty(y)) && !equality.Semantic.DeepEqual(x, y)
	})
}

// empty reports whether a field of the metadata has no value.
func empty(field any) bool {
	switch v := field.(type) {
	case nil:
		return true
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// withMetadataOf returns a copy of an object with the other object's metadata of leftOut.
func withMetadataOf(object, other map[string]any) map[string]any {
	result := maps.Clone(object)
	meta, _ := object["metadata"].(map[string]any)
	if meta = maps.Clone(meta); meta == nil {
		meta = map[string]any{}
	}
	from, _ := other["metadata"].(map[string]any)
	for _, key := range leftOut {
		delete(meta, key)
		if v := from[key]; !empty(v) {
			meta[key] = v
		}
	}
	result["metadata"] = meta
	return result
}

// accepted returns what an API server accepts of an object that a client sends: through the status subresource the
// status and the sent metadata of leftOut, which the caller has corrected, and otherwise everything except the status,
// if the type has that subresource.
func accepted(old, sent map[string]any, subresource string, hasStatus bool) (map[string]any, error) {
	// The decoded objects share their nested values; the result is only read.
	result := map[string]any{}
	copyFields := func(from map[string]any) {
		for k, v := range from {
			result[k] = v
		}
	}
	set := func(key string, value any, there bool) {
		delete(result, key)
		if there {
			result[key] = value
		}
	}
	switch subresource {
	case "status":
		copyFields(old)
		status, there := sent["status"]
		set("status", status, there)
		return withMetadataOf(result, sent), nil
	case "scale":
		replicas, there, err := unstructured.NestedFieldNoCopy(sent, "spec", "replicas")
		if err != nil || !there {
			replicas = int64(0) // a Scale omits zero
		}
		spec, ok := old["spec"].(map[string]any)
		if _, has := spec["replicas"]; !ok || !has {
			return nil, errors.New("the type does not keep its replicas in spec.replicas")
		}
		copyFields(old)
		scaled := map[string]any{}
		for k, v := range spec {
			scaled[k] = v
		}
		scaled["replicas"] = replicas
		result["spec"] = scaled
		return result, nil
	}
	copyFields(sent)
	for _, key := range []string{"apiVersion", "kind"} {
		set(key, old[key], true)
	}
	if subresource == "" && hasStatus {
		status, there := old["status"]
		set("status", status, there)
	}
	meta := map[string]any{}
	sentMeta, _ := sent["metadata"].(map[string]any)
	oldMeta, _ := old["metadata"].(map[string]any)
	for k, v := range sentMeta {
		meta[k] = v
	}
	for _, key := range ofServer {
		delete(meta, key)
		if v, there := oldMeta[key]; there {
			meta[key] = v
		}
	}
	for _, key := range leftOut {
		if empty(meta[key]) {
			delete(meta, key)
		}
	}
	result["metadata"] = meta
	return result, nil
}

// scaleOf returns the parts of an object's Scale that a patch needs.
func scaleOf(object map[string]any) map[string]any {
	replicas, _, _ := unstructured.NestedFieldNoCopy(object, "spec", "replicas")
	return map[string]any{
		"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": object["metadata"],
		"spec": map[string]any{"replicas": replicas},
	}
}

// patched applies a patch as an API server does.
func patched(object []byte, typ wire.PatchType, patch []byte, kind schema.GroupVersionKind,
	subresource string) ([]byte, error) {
	switch typ {
	case wire.MergePatch:
		return jsonpatch.MergePatch(object, patch)
	case wire.JSONPatch:
		operations, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			return nil, err
		}
		return operations.Apply(object)
	case wire.StrategicPatch:
		if subresource == "scale" {
			return jsonpatch.MergePatch(object, patch) // a Scale has no lists to merge
		}
		typed, err := scheme.Scheme.New(kind)
		if err != nil {
			return nil, fmt.Errorf("strategic merge patch: %w", err)
		}
		return strategicpatch.StrategicMergePatch(object, patch, typed)
	}
	return nil, fmt.Errorf("unknown patch type %q", typ)
}

// tryUpdate returns what the API server makes of an object that a client sends through a subresource, by a dry run:
// each type has its own rules. Most built-in types keep metadata that comes with the status, custom resources do not.
// The dry run is based on the present state, so that it does not fail for a conflict.
func (c *Client) tryUpdate(
	ctx context.Context, w Write, present *unstructured.Unstructured, sent map[string]any,
) (map[string]any, error) {
	sent = maps.Clone(sent)
	meta, _ := sent["metadata"].(map[string]any)
	if meta = maps.Clone(meta); meta == nil {
		meta = map[string]any{}
	}
	meta["name"], meta["uid"], meta["resourceVersion"] = present.GetName(), string(present.GetUID()),
		present.GetResourceVersion()
	delete(meta, "managedFields")
	if ns := present.GetNamespace(); ns != "" {
		meta["namespace"] = ns
	}
	sent["apiVersion"], sent["kind"], sent["metadata"] = present.GetAPIVersion(), present.GetKind(), meta
	u, err := FromMap(sent) // with the number types that the client requires
	if err != nil {
		return nil, err
	}
	answer, err := c.of(w).Update(ctx, u, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}, w.Subresource)
	if err != nil {
		return nil, fmt.Errorf("dry run: %w", err)
	}
	return answer.Object, nil
}

// tryApply returns the result of an apply, by a dry run.
func (c *Client) tryApply(ctx context.Context, w Write) ([]byte, error) {
	query, err := url.ParseQuery(w.Query)
	if err != nil {
		return nil, fmt.Errorf("parameters of the request: %w", err)
	}
	options := metav1.PatchOptions{FieldManager: query.Get("fieldManager"), DryRun: []string{metav1.DryRunAll}}
	if force := query.Get("force"); force != "" {
		options.Force = new(force == "true")
	}
	var subresources []string
	if w.Subresource != "" {
		subresources = append(subresources, w.Subresource)
	}
	u, err := c.of(w).Patch(ctx, w.Name, types.ApplyPatchType, w.Patch, options, subresources...)
	if err != nil {
		return nil, fmt.Errorf("dry run: %w", err)
	}
	return u.MarshalJSON()
}

// State reads the object of a write, as JSON in the version of the request; nil if it does not exist.
func (c *Client) State(ctx context.Context, w Write) ([]byte, error) {
	u, err := c.of(w).Get(ctx, w.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the state after the %s: %w", w.Operation, err)
	}
	return u.MarshalJSON()
}

// Collection reads the objects that the deletion of a collection would delete, each as JSON.
func (c *Client) Collection(ctx context.Context, w Write) ([][]byte, error) {
	query, err := url.ParseQuery(w.Query)
	if err != nil {
		return nil, fmt.Errorf("parameters of the request: %w", err)
	}
	list, err := c.of(w).List(ctx, metav1.ListOptions{
		LabelSelector: query.Get("labelSelector"), FieldSelector: query.Get("fieldSelector"),
	})
	if err != nil {
		return nil, fmt.Errorf("list what would be deleted: %w", err)
	}
	all := make([][]byte, 0, len(list.Items))
	for i := range list.Items {
		data, err := list.Items[i].MarshalJSON()
		if err != nil {
			return nil, err
		}
		all = append(all, data)
	}
	return all, nil
}
