package history

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/plan"
)

// origin is a cluster that is recorded. It follows the cluster's CustomResourceDefinitions, so that a type is recorded
// from when it begins to be served until it ends.
type origin struct {
	Source
	recorder    *Recorder
	definitions *track // nil: the cluster has no definitions, or the user may not list them
	// stands says which type a key stood for at the beginning: a key without a group does not go over to another type.
	stands map[plan.ResourceKey]schema.GroupResource
	first  map[string]bool // the definitions at the beginning
	// postponed are definitions that changed while the keys were looked up, with their versions.
	postponed map[string]string
}

// findDefinitions prepares to follow the definitions.
func (o *origin) findDefinitions(ctx context.Context) error {
	t, client, ok, err := o.Objects.Definitions(ctx)
	if err != nil || !ok {
		return err
	}
	o.definitions = o.recorder.newTrack(o.Source, t)
	o.definitions.client, o.definitions.of = client, o
	return nil
}

// defined finds the type of a key among those that are defined, although the API server's list does not have it yet.
func (o *origin) defined(ctx context.Context, key plan.ResourceKey) (objects.Type, error) {
	r := o.recorder
	r.mu.Lock()
	var names []string
	for _, h := range o.definitions.state {
		if !h.deleted && (key.Group == "" || strings.HasSuffix(h.name, "."+key.Group)) {
			names = append(names, h.name)
		}
	}
	r.mu.Unlock()
	slices.Sort(names)
	for _, name := range names {
		types, err := o.typesOf(ctx, name)
		if err != nil {
			return objects.Type{}, err
		}
		if t, err := objects.FindKey(types, key); err == nil {
			return t, nil
		}
	}
	return objects.Type{}, objects.ErrNotServed
}

func (o *origin) typesOf(ctx context.Context, name string) (types []objects.Type, err error) {
	err = objects.Retry(ctx, func(ctx context.Context) error {
		types, err = o.Objects.DefinedNow(ctx, name)
		return err
	})
	return types, err
}

// define begins to record the types of a definition that has another state, if they are wanted and not recorded yet.
// Before the version they were not served.
func (o *origin) define(name, version string) {
	r := o.recorder
	r.mu.Lock()
	if !r.ready {
		o.postponed[name] = version
		r.mu.Unlock()
		return
	}
	r.mu.Unlock()
	release := r.clock.Hold() // the run must not go far before the types are recorded
	defer release()
	types, err := o.typesOf(r.ctx, name)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && r.ctx.Err() == nil {
		r.gaps = append(r.gaps, fmt.Sprintf("%s: all states, if it was defined: %v", name, err))
	}
	if len(types) == 0 {
		return
	}
	known := false
	for _, t := range r.tracks {
		if t.cluster == o.Cluster && t.typ.DefinedBy(name) {
			t.goOn(types)
			known = true
		}
	}
	if known {
		return
	}
	keys, named := r.wantedKeys(o, types)
	if len(keys) == 0 {
		return
	}
	for _, key := range keys {
		r.follow(o.Source, types[0], key, len(r.config.Namespaces) > 0)
	}
	for _, t := range r.tracks {
		if t.cluster == o.Cluster && t.typ.DefinedBy(name) {
			if named || !o.first[name] {
				t.began, t.version = true, version
			}
			r.start(t)
			t.holdUntilListed()
		}
	}
	if r.config.Served != nil {
		r.done.Go(func() { r.config.Served(r.ctx, o.Cluster, types[0]) })
	}
}

// wantedKeys lists the keys that stand for one of the types, all versions of one that has just been defined. Named:
// they are keys of the configuration. The caller holds the lock.
func (r *Recorder) wantedKeys(o *origin, types []objects.Type) (keys []plan.ResourceKey, named bool) {
	resource := types[0].Resource.GroupResource()
	for _, key := range r.config.Keys {
		if _, err := objects.FindKey(types, key); err != nil {
			continue
		}
		if before, ok := o.stands[key]; ok && before != resource {
			continue
		}
		r.found[key] = true
		keys = append(keys, within(r.config.Namespaces, types[0], key)...)
	}
	if named = len(keys) > 0; !named && r.config.Further != nil && r.config.Further(types[0]) {
		all := plan.ResourceKey{Type: types[0].Singular, Group: resource.Group, Namespace: "*", Name: "*"}
		keys = within(r.config.Namespaces, types[0], all)
	}
	return keys, named
}

// definePostponed begins to record types that were defined while the keys were looked up.
func (r *Recorder) definePostponed() {
	r.mu.Lock()
	r.ready = true
	r.mu.Unlock()
	for _, o := range r.origins {
		for _, name := range slices.Sorted(maps.Keys(o.postponed)) {
			o.define(name, o.postponed[name])
		}
	}
}

// undefine says that a definition is gone. Its types' objects were deleted before it.
func (o *origin) undefine(name string, at uint64) {
	r := o.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.tracks {
		if t.cluster == o.Cluster && t.typ.DefinedBy(name) {
			t.ending = at
		}
	}
}

// definitionFollower follows the definitions of a cluster.
type definitionFollower struct {
	*track
	of *origin
}

// Listed implements objects.Follower.
func (f definitionFollower) Listed(all []*unstructured.Unstructured, version string) bool {
	r := f.recorder
	r.mu.Lock()
	began := f.began
	versions := map[string]uint64{}
	for _, h := range f.state {
		if !h.deleted {
			versions[h.name] = h.version
		}
	}
	if !began {
		f.of.first = map[string]bool{}
		for _, u := range all {
			f.of.first[u.GetName()] = true
		}
	}
	r.mu.Unlock()
	if began {
		for _, u := range all {
			if versions[u.GetName()] < metadata.ParseVersion(u.GetResourceVersion()) {
				f.of.define(u.GetName(), u.GetResourceVersion())
			}
			delete(versions, u.GetName())
		}
		for name := range versions {
			f.of.undefine(name, metadata.ParseVersion(version))
		}
	}
	return f.track.Listed(all, version)
}

// Changed implements objects.Follower.
func (f definitionFollower) Changed(event watch.EventType, u *unstructured.Unstructured) bool {
	if event == watch.Deleted {
		f.of.undefine(u.GetName(), metadata.ParseVersion(u.GetResourceVersion()))
	} else {
		f.of.define(u.GetName(), u.GetResourceVersion())
	}
	return f.track.Changed(event, u)
}

// goOn says that the types of the track are defined: perhaps again, or in other versions. The caller holds the lock.
func (t *track) goOn(types []objects.Type) {
	t.ending, t.next = 0, nil
	if !slices.ContainsFunc(types, func(o objects.Type) bool { return o.Kind == t.typ.Kind }) {
		t.next = &types[0]
	}
}

// end ends a track whose type is not served any more: it has no objects. The caller holds the lock.
func (t *track) end() {
	if t.ended {
		return
	}
	t.ended = true
	var ids []string
	for id, h := range t.state {
		if !h.deleted {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		t.gone(t.state[id], t.ending)
	}
	r := t.recorder
	r.tracks = slices.DeleteFunc(r.tracks, func(o *track) bool { return o == t })
	close(t.over)
}

// holdUntilListed holds the run's clock until the track has listed its type, or cannot.
func (t *track) holdUntilListed() {
	const most = 2 * time.Second
	r := t.recorder
	release := r.clock.Hold()
	r.done.Go(func() {
		defer release()
		timer := time.NewTimer(most)
		defer timer.Stop()
		select {
		case <-t.listed:
		case <-t.over:
		case <-timer.C:
		case <-r.ctx.Done():
		}
	})
}

// NeverServed lists the keys whose types were not served so far.
func (r *Recorder) NeverServed() (keys []plan.ResourceKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range r.config.Keys {
		if !r.found[key] {
			keys = append(keys, key)
		}
	}
	return keys
}

// Types lists the types that were recorded so far, also those that are not served any more.
func (r *Recorder) Types() []objects.Type {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.types)
}

// FollowsDefinitions reports whether types are recorded that begin to be served.
func (r *Recorder) FollowsDefinitions() bool {
	return !slices.ContainsFunc(r.origins, func(o *origin) bool { return o.definitions == nil })
}
