package scaffold

import (
	"path"
	"slices"
)

// mostNeeds limits how many files are applied before a sample. What needs more is no sample to begin with.
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
// apply them; valid says which files the cluster accepts. Missing counts the names that only files have that cannot be
// applied, or those beyond a limit: a sample that lacks something shows little.
func needs(sample *file, files named, valid func(*file) bool) (needed []*file, missing int) {
	seen := map[*file]bool{sample: true}
	var visit func(f *file)
	visit = func(f *file) {
		for _, name := range namesIn(f) {
			there := files[[2]string{path.Dir(f.path), name}]
			if slices.ContainsFunc(there, func(g *file) bool { return seen[g] }) {
				continue // that includes f itself
			}
			var best *file
			for _, g := range there {
				if valid(g) && (best == nil || len(g.objects) < len(best.objects)) {
					best = g
				}
			}
			switch {
			case len(there) == 0:
			case best == nil || len(seen) > mostNeeds:
				missing++
			default:
				seen[best] = true
				visit(best)
				needed = append(needed, best)
			}
		}
	}
	visit(sample)
	return needed, missing
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
