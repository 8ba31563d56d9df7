package findings

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/record"
)

// Owners knows whose objects are, over a run. It is not safe for concurrent use.
type Owners struct {
	changes []facts.Change
	objects map[facts.Key]*facts.Object
	byUID   map[string]member            // all objects that there ever were
	last    map[facts.Key]map[string]any // the newest state of each
	names   map[string]facts.Key         // keys by the names in the run, which may be generated
}

type member struct {
	key    facts.Key
	object map[string]any // its newest state
}

// NewOwners returns the owners in a run with these changes, after which the objects are as given. The objects may be
// those of runs without faults.
func NewOwners(changes []facts.Change, objects map[facts.Key]*facts.Object) *Owners {
	o := &Owners{
		changes, objects, map[string]member{}, map[facts.Key]map[string]any{}, map[string]facts.Key{},
	}
	add := func(key facts.Key, object map[string]any) {
		if object != nil {
			o.byUID[cmp.Or(metadata.UID(object), string(key))] = member{key, object}
			o.last[key] = object
			meta := metadata.Of(object)
			typ, _, _ := strings.Cut(key.Type(), ".")
			rest := "/" + metadata.Text(meta, "namespace") + "/" + metadata.Text(meta, "name")
			for _, typ := range []string{typ, key.Type()} {
				o.names[record.In(key.Cluster(), typ+rest)] = key
			}
		}
	}
	for i := range changes {
		add(changes[i].Key, changes[i].Prev)
		add(changes[i].Key, changes[i].Cur)
	}
	for key, object := range objects {
		add(key, object.Last())
	}
	return o
}

// Of returns the key of the object that one belongs to in the end, such as a custom resource; empty: to none.
func (o *Owners) Of(key facts.Key) facts.Key { return o.top(key, o.last[key]).key }

// Named returns the key of an object by type/namespace/name, as it is called in the run. The group may be missing.
func (o *Owners) Named(name string) facts.Key {
	if key, ok := o.names[name]; ok {
		return key
	}
	return facts.Key(name)
}

// maxDepth is how far up owners are looked for; they may form a circle.
const maxDepth = 10

// top climbs from an object to the last of its owners; zero: it has none.
func (o *Owners) top(key facts.Key, object map[string]any) member {
	var top member
	for range maxDepth {
		up, ok := o.owner(key, object)
		if !ok || up.key == key {
			break
		}
		top, key, object = up, up.key, up.object
	}
	return top
}

// All lists the keys of all objects that one belongs to, and of the StatefulSet that has a volume claim in its
// templates even if the claim refers to another owner, nearest first.
func (o *Owners) All(key facts.Key) []facts.Key {
	var all []facts.Key
	climb := func(at member, ok bool) {
		for range maxDepth {
			if !ok || slices.Contains(all, at.key) {
				return
			}
			all = append(all, at.key)
			at, ok = o.owner(at.key, at.object)
		}
	}
	climb(o.owner(key, o.last[key]))
	if key.Type() == "persistentvolumeclaim" {
		climb(o.setOf(key, o.last[key]))
	}
	return slices.DeleteFunc(all, func(k facts.Key) bool { return k == key })
}

// owner is the object that another one belongs to. Volume claims of a StatefulSet have no reference to it, volumes
// refer to their claims in another way, and what an operator creates may be tied to its custom resource only by a label
// or by its name. An object outside namespaces cannot refer to a custom resource in one. Some operators then refer to
// the definition of its type instead, to which nothing belongs.
func (o *Owners) owner(key facts.Key, object map[string]any) (member, bool) {
	if ref := ownerReference(object); ref != nil {
		if up, ok := o.byUID[metadata.Text(ref, "uid")]; ok {
			return up, true
		}
		group, _, grouped := strings.Cut(metadata.Text(ref, "apiVersion"), "/")
		typ := strings.ToLower(metadata.Text(ref, "kind"))
		if grouped {
			typ += "." + group
		}
		named := facts.KeyIn(key.Cluster(), typ+"/"+metadata.Text(metadata.Of(object), "namespace")+"/"+
			metadata.Text(ref, "name"))
		return member{named, o.last[named]}, true
	}
	if facts.IsCustom(key.Type()) || object == nil {
		return member{}, false
	}
	switch key.Type() {
	case "persistentvolumeclaim":
		if set, ok := o.setOf(key, object); ok {
			return set, true
		}
	case "persistentvolume":
		spec, _ := object["spec"].(map[string]any)
		if claim, ok := spec["claimRef"].(map[string]any); ok {
			named := facts.KeyIn(key.Cluster(), "persistentvolumeclaim/"+metadata.Text(claim, "namespace")+"/"+
				metadata.Text(claim, "name"))
			return member{named, o.last[named]}, true
		}
	}
	namespaced := metadata.Text(metadata.Of(object), "namespace") != ""
	if all := o.namesakes(key, object); len(all) == 1 || namespaced && len(all) > 1 {
		return member{all[0], o.last[all[0]]}, true
	}
	return member{}, false
}

// ownerReference is the object's reference to its owner; nil: it has none, or only one to a definition.
func ownerReference(object map[string]any) map[string]any {
	ref := metadata.Controller(object)
	if all := metadata.Owners(object); ref == nil && len(all) > 0 {
		ref = all[0]
	}
	if ref["kind"] == "CustomResourceDefinition" {
		return nil
	}
	return ref
}

// setOf finds the StatefulSet that has a volume claim in its templates: the claim is named after the template and a
// pod.
func (o *Owners) setOf(of facts.Key, claim map[string]any) (member, bool) {
	name := metadata.Text(metadata.Of(claim), "name")
	for _, key := range slices.Sorted(maps.Keys(o.last)) {
		if key.Type() == "statefulset.apps" && key.Cluster() == of.Cluster() && sameNamespace(claim, o.last[key]) &&
			facts.IsClaimOf(name, o.last[key]) {
			return member{key, o.last[key]}, true
		}
	}
	return member{}, false
}

// hasName reports whether an object has a name as the value of a label, or as a part of its own name.
func hasName(object map[string]any, name string) bool {
	meta := metadata.Of(object)
	labels, _ := meta["labels"].(map[string]any)
	for _, value := range labels {
		if value == name {
			return true
		}
	}
	own := strings.ReplaceAll(metadata.Text(meta, "name"), ":", "-") // as in names of roles
	return name != "" && strings.Contains("-"+own+"-", "-"+name+"-")
}

func sameNamespace(a, b map[string]any) bool {
	return metadata.Text(metadata.Of(a), "namespace") == metadata.Text(metadata.Of(b), "namespace")
}

// livedAt reports whether an object was there, and not being deleted, right before a change.
func (o *Owners) livedAt(owner member, change int) bool {
	uid := metadata.UID(owner.object)
	lives := false
	seen := false
	for i := range o.changes[:change] {
		c := &o.changes[i]
		if c.Key != owner.key || uid != "" && uid != metadata.UID(c.Cur) && uid != metadata.UID(c.Prev) {
			continue
		}
		seen, lives = true, c.Cur != nil && !metadata.Marked(c.Cur)
	}
	if seen {
		return lives
	}
	for i := range o.changes[change:] { // it existed before the workload
		if c := &o.changes[change+i]; c.Key == owner.key {
			return c.Prev != nil && !metadata.Marked(c.Prev)
		}
	}
	known := o.objects[owner.key]
	return known != nil && known.End != nil && !metadata.Marked(known.End)
}
