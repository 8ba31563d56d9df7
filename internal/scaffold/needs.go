package scaffold

import (
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// mostNeeds limits how many files are applied before a sample. A sample that needs more is not chosen first.
const mostNeeds = 4

// asides are fields whose texts are not names of other objects, although they may look like some.
var asides = []string{
	"metadata", "labels", "matchLabels", "annotations", "selector", "args", "command", "image", "value",
}

// ownNames are lists whose items have names of their own.
var ownNames = []string{"containers", "initContainers", "ports", "volumes", "volumeMounts", "env"}

// named are the files that have an object of a name, by their directories and the name.
type named map[[2]string][]*file

func namedFiles(files []file) named {
	all := named{}
	for i := range files {
		f := &files[i]
		if f.has("CustomResourceDefinition") {
			continue
		}
		for _, u := range f.objects {
			at := [2]string{path.Dir(f.path), u.GetName()}
			if !slices.Contains(all[at], f) {
				all[at] = append(all[at], f)
			}
		}
	}
	return all
}

// needs lists the files beside a sample that have what it names, and what that names in turn, in the order in which to
// apply them; valid says which files the cluster accepts, and the kinds are defined by the manifests, which are applied
// before. Missing counts the names that only files have that cannot be applied, those beyond a limit, and the objects
// that are nowhere although they are certainly referred to: a sample that lacks something shows little.
func needs(
	sample *file, files named, kinds []string, manifests *file, valid func(*file) bool,
) (needed []*file, missing int) {
	seen := map[*file]bool{sample: true}
	var visit func(f *file)
	need := func(one []*file) {
		if slices.ContainsFunc(one, func(g *file) bool { return seen[g] }) {
			return
		}
		var best *file
		for _, g := range one {
			if valid(g) && (best == nil || len(g.objects) < len(best.objects)) {
				best = g
			}
		}
		if best == nil || len(seen) > mostNeeds {
			missing++
			return
		}
		seen[best] = true
		visit(best)
		needed = append(needed, best)
	}
	visit = func(f *file) {
		dir := path.Dir(f.path)
		for _, r := range referredIn(f, kinds) {
			one := slices.Clone(files[[2]string{dir, r.name}])
			one = slices.DeleteFunc(one, func(g *file) bool { return !g.holds(r) })
			if len(one) > 0 || !manifests.holds(r) {
				need(one)
			}
		}
		for _, name := range namesIn(f) {
			if one := files[[2]string{dir, name}]; len(one) > 0 {
				need(one) // f itself may have that name
			}
		}
	}
	visit(sample)
	return needed, missing
}

// reference names an object that another one needs.
type reference struct{ kind, name string }

func (f *file) holds(r reference) bool {
	return slices.ContainsFunc(f.objects, func(u *unstructured.Unstructured) bool {
		return u.GetKind() == r.kind && u.GetName() == r.name
	})
}

// referredIn lists the objects of some kinds that a file's objects certainly refer to, as in storeRef: {name: a} or
// {kind: Store, name: a}, and the service accounts of pods, which are not created without them.
func referredIn(f *file, kinds []string) (all []reference) {
	add := func(kind, name string) {
		if r := (reference{kind, name}); name != "" && !slices.Contains(all, r) {
			all = append(all, r)
		}
	}
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			kind, _ := v["kind"].(string)
			if kind == "" {
				kind = strings.TrimSuffix(at, "Ref")
			}
			name, _ := v["name"].(string)
			if i := slices.IndexFunc(kinds, func(k string) bool { return strings.EqualFold(k, kind) }); i >= 0 {
				add(kinds[i], name)
			}
			if account, _ := v["serviceAccountName"].(string); account != "default" {
				add("ServiceAccount", account)
			}
			for k, value := range v {
				walk(k, value)
			}
		case []any:
			for _, value := range v {
				walk("", value)
			}
		}
	}
	for _, u := range f.objects {
		walk("", u.Object)
	}
	return all
}

// namesIn lists the texts in a file's objects that may be names of other objects.
func namesIn(f *file) (names []string) {
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, value := range v {
				if k == "name" && slices.Contains(ownNames, at) || slices.Contains(asides, k) {
					continue
				}
				walk(k, value)
			}
		case []any:
			for _, value := range v {
				walk(at, value)
			}
		case string:
			if len(v) > 2 && !slices.Contains(names, v) {
				names = append(names, v)
			}
		}
	}
	for _, u := range f.objects {
		walk("", u.Object)
	}
	slices.Sort(names)
	return names
}
