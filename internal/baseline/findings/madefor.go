package findings

import (
	"cmp"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/record"
)

// MadeFor returns the objects for which an object was created in runs of the same workload, given their changes, as far
// as that is known. Each answer suffices alone, and has all objects that need this one.
//
// An object goes with the owner that it refers to, so the owner is an answer. The objects that the reconcile requests
// name in which a controller created the object are another one, if it also has their name, in its own name or in a
// label. An object that Kubernetes' own controllers create is for the same objects as its owner: a volume claim is for
// those for which the StatefulSet is. Otherwise the requests and the names are one answer together.
func (o *Owners) MadeFor(key facts.Key, runs [][]facts.Change) [][]facts.Key {
	return o.madeFor(key, runs, maxDepth)
}

func (o *Owners) madeFor(key facts.Key, runs [][]facts.Change, depth int) (all [][]facts.Key) {
	requested, ours, always := o.requested(key, runs)
	if always && !slices.ContainsFunc(requested, func(needs facts.Key) bool { return !o.isNamedAfter(key, needs) }) {
		all = append(all, requested)
	}
	owner := o.Of(key)
	if owner != "" && ownerReference(o.last[key]) != nil {
		all = append(all, []facts.Key{owner})
	}
	if up, ok := o.owner(key, o.last[key]); len(all) == 0 && ok && !ours && depth > 0 {
		all = o.madeFor(up.key, runs, depth-1)
	}
	if len(all) > 0 {
		return all
	}
	others := o.namesakes(key, o.last[key])
	if owner != "" {
		others = []facts.Key{owner}
	}
	if len(others) == 0 {
		return nil // others may need it, too
	}
	for _, needs := range others {
		if !slices.Contains(requested, needs) {
			requested = append(requested, needs)
		}
	}
	return [][]facts.Key{requested}
}

// requested returns the objects that the reconcile requests name in which controllers under test created an object, or
// the owners of these. Ours: controllers under test created it. All: each of its creations was in such a request.
func (o *Owners) requested(key facts.Key, runs [][]facts.Change) (needs []facts.Key, ours, all bool) {
	all = true
	for _, changes := range runs {
		for i := range changes {
			c := &changes[i]
			if c.Key != key || c.Event != record.Created {
				continue
			}
			ours = ours || c.By != ""
			named := o.namedBy(c, changes)
			all = all && len(named) > 0
			for _, n := range named {
				if !slices.Contains(needs, n) {
					needs = append(needs, n)
				}
			}
		}
	}
	return needs, ours, all && len(needs) > 0
}

// namedBy returns the objects that the request names in which a change was made, as far as they lived then: its type is
// unknown. Of an object that belongs to another one it returns that one.
func (o *Owners) namedBy(c *facts.Change, changes []facts.Change) []facts.Key {
	if c.Request == "" {
		return nil
	}
	namespace, name, found := strings.Cut(c.Request, "/")
	if !found {
		namespace, name = "", c.Request
	}
	var all []facts.Key
	for key, object := range o.last {
		meta := metadata.Of(object)
		if key == c.Key || key.Cluster() != c.Key.Cluster() || metadata.Text(meta, "name") != name ||
			metadata.Text(meta, "namespace") != namespace || !lived(changes, key, c) {
			continue
		}
		key = cmp.Or(o.Of(key), key)
		if key != c.Key && !slices.Contains(all, key) {
			all = append(all, key)
		}
	}
	slices.Sort(all)
	return all
}

// lived reports whether an object was there at another one's change, and not marked for deletion.
func lived(changes []facts.Change, key facts.Key, at *facts.Change) bool {
	return slices.ContainsFunc(facts.Lives(changes, key), func(l facts.Life) bool { return l.HasChange(at) })
}

// isNamedAfter reports whether an object has the name of another one in its own name or in a label.
func (o *Owners) isNamedAfter(key, other facts.Key) bool {
	return hasName(o.last[key], metadata.Text(metadata.Of(o.last[other]), "name"))
}

// namesakes returns the custom resources after which an object is named, in its namespace, or in any if it has none: of
// those with the longest name, since db is a part of db-1, too.
func (o *Owners) namesakes(key facts.Key, own map[string]any) []facts.Key {
	namespaced := metadata.Text(metadata.Of(own), "namespace") != ""
	var all []facts.Key
	length := 0
	for other, object := range o.last {
		name := metadata.Text(metadata.Of(object), "name")
		if other == key || !facts.IsCustom(other.Type()) || other.Cluster() != key.Cluster() ||
			namespaced && !sameNamespace(own, object) || len(name) < length || !hasName(own, name) {
			continue
		}
		if len(name) > length {
			all, length = nil, len(name)
		}
		all = append(all, other)
	}
	slices.Sort(all)
	return all
}
