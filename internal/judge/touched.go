package judge

import (
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/baseline/findings"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/plan"
)

// touch is what a plan has written or deleted as another client, in a run.
type touch struct {
	any     bool      // it has
	writes  bool      // it has, more than the annotation that causes a conflict
	keys    []written // what
	unknown bool      // and of what is not known, such as a file's contents, or may lead to anything
	objects map[facts.Key]*facts.Object
	owners  *findings.Owners // nil: not needed yet
}

// written is an object that a plan has written, of a cluster.
type written struct {
	cluster string
	plan.ResourceKey
}

// infrastructure are types of objects on which everything else may depend.
var infrastructure = []string{"node", "customresourcedefinition", "storageclass"}

// touched says what a plan has written in a run with these objects. The annotation that causes a conflict leads to
// nothing, unless a controller copies it to what other objects are made from.
func touched(p *plan.Plan, objects map[facts.Key]*facts.Object) *touch {
	t := &touch{writes: writes(p), objects: objects}
	t.any = plan.AnyHas[*plan.Write](p.Actions)
	if !t.writes {
		// Where the annotation has been copied to, and what that has led to, is not known.
		t.writes = copied(p, objects)
		t.unknown = t.writes
		return t
	}
	for i := range p.Actions {
		a := &p.Actions[i]
		if !plan.Has[*plan.Write](a) {
			continue
		}
		key := a.ResourceKey
		if a.Manifest != nil {
			meta := metadata.Of(a.Manifest)
			key = plan.ResourceKey{
				Type: strings.ToLower(metadata.Text(a.Manifest, "kind")), Namespace: metadata.Text(meta, "namespace"),
				Name: metadata.Text(meta, "name"),
			}
		}
		t.unknown = t.unknown || key.IsZero() || slices.Contains(infrastructure, key.Type)
		t.keys = append(t.keys, written{a.Cluster, key})
	}
	return t
}

// explains reports whether what the plan has written may explain that an object was created more or less often.
//
// It explains nearly everything: controllers replace what was made from something else. But that data is lost is a
// mistake, even then, if the plan has written neither the object nor anything that it belongs to. Secrets may be made
// again from other Secrets, and from what is configured; custom resources of others, such as one for each member, may
// be replaced with what they are for.
func (t *touch) explains(d baseline.Difference) bool {
	if !t.writes {
		return false
	}
	typ := d.Key.Type()
	if t.unknown || t.objects[d.Own] == nil || !d.More() || !facts.HoldsData(typ) {
		return true
	}
	if typ == "secret" && slices.ContainsFunc(t.keys, func(k written) bool {
		return k.Type == "secret" || k.Type == "configmap"
	}) {
		return true
	}
	if t.owners == nil {
		t.owners = findings.NewOwners(nil, t.objects)
	}
	above := t.owners.All(d.Own)
	if users := facts.IsCustom(typ); users != (len(above) == 0) {
		return true
	}
	return slices.ContainsFunc(append(above, d.Own), t.wrote)
}

// wrote reports whether the plan has written an object, or its namespace.
func (t *touch) wrote(key facts.Key) bool {
	typ, group, _ := strings.Cut(key.Type(), ".")
	_, rest, _ := strings.Cut(string(key), "/")
	namespace, name, _ := strings.Cut(rest, "/")
	if o := t.objects[key]; o != nil {
		if called := metadata.Text(metadata.Of(o.Last()), "name"); called != "" {
			name = called // it may be generated
		}
	}
	return slices.ContainsFunc(t.keys, func(k written) bool {
		if k.cluster != key.Cluster() {
			return false
		}
		if k.Type == "namespace" {
			return k.Name == namespace || typ == "namespace" && k.Name == name
		}
		return k.Matches(typ, group, true, namespace, name) ||
			k.Namespace == "" && namespace == "default" && k.Type == typ && k.Name == name
	})
}
