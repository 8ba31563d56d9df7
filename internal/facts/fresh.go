package facts

import (
	"maps"
	"slices"

	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/record"
)

// Asked lists what a field manager, such as that of workloads, asks for at the end of a run: the objects that it has
// created and that are still there, as it would create them now, in the order of their creation. Clusters has the
// cluster of each object. Not ok: the manager has also changed a status, or an object that another client has created.
func Asked(r *record.Run, manager string) (objects []map[string]any, clusters []string, ok bool, err error) {
	f, err := Follow(r)
	if err != nil {
		return nil, nil, false, err
	}
	var order []Key
	asked := map[Key]map[string]any{}
	for i := range f.changes {
		c := &f.changes[i]
		wrote := slices.ContainsFunc(c.writers, func(w record.FieldManager) bool { return w.Manager == manager })
		now := asked[c.Key]
		switch {
		case c.Cur == nil, c.Marked():
			delete(asked, c.Key)
			order = slices.DeleteFunc(order, func(k Key) bool { return k == c.Key })
		case !wrote:
		case slices.ContainsFunc(c.writers, func(w record.FieldManager) bool {
			return w.Manager == manager && w.Subresource != ""
		}), c.Event != record.Created && now == nil && !f.objects[c.Key].Existed():
			return nil, nil, false, nil
		case c.Event == record.Created || now == nil:
			order = append(order, c.Key)
			asked[c.Key] = Anew(c.Cur, metadata.Of(c.Cur))
		default:
			meta := maps.Clone(metadata.Of(now))
			for _, part := range []string{"labels", "annotations"} {
				meta[part] = merged(metadata.Of(now)[part], metadata.Of(c.Prev)[part], metadata.Of(c.Cur)[part])
			}
			asked[c.Key] = Anew(c.Cur, meta)
		}
	}
	for _, key := range order {
		objects, clusters = append(objects, asked[key]), append(clusters, key.Cluster())
	}
	return objects, clusters, len(objects) > 0, nil
}

// Anew is an object as it is created: with the metadata that its creator gives it, and without a status.
func Anew(object, meta map[string]any) map[string]any {
	all := maps.Clone(object)
	delete(all, "status")
	kept := map[string]any{}
	for _, field := range []string{"name", "namespace", "labels", "annotations", "finalizers"} {
		if v := meta[field]; v != nil {
			kept[field] = v
		}
	}
	all["metadata"] = kept
	if spec, _ := all["spec"].(map[string]any); all["kind"] == "Job" && spec["manualSelector"] != true {
		all["spec"] = withoutSelector(spec)
	}
	return all
}

// jobLabels are those that the API server gives the pods of a Job, beside a selector; it refuses a Job that is
// created with those of another one.
// https://kubernetes.io/docs/concepts/workloads/controllers/job/#specifying-your-own-pod-selector
var jobLabels = []string{
	"controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name",
}

// withoutSelector is the spec of a Job without what the API server has generated.
func withoutSelector(spec map[string]any) map[string]any {
	spec = maps.Clone(spec)
	delete(spec, "selector")
	at := spec
	for _, field := range []string{"template", "metadata", "labels"} {
		below, ok := at[field].(map[string]any)
		if !ok {
			return spec
		}
		below = maps.Clone(below)
		at[field], at = below, below
	}
	for _, label := range jobLabels {
		delete(at, label)
	}
	return spec
}

// merged is a mapping after the change from one state of it to another. Each may be nil.
func merged(is, prev, cur any) any {
	own, _ := is.(map[string]any)
	before, _ := prev.(map[string]any)
	after, _ := cur.(map[string]any)
	all := maps.Clone(own)
	if all == nil {
		all = map[string]any{}
	}
	for k := range before {
		if after[k] == nil {
			delete(all, k)
		}
	}
	for k, v := range after {
		if before[k] != v {
			all[k] = v
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}
