package scaffold

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// compareFiles looks for other files with the Deployment that was taken from a file. If one has further arguments that
// name some of the definitions, such as --extensions for extensions.example.com, these arguments are taken: without
// them nothing would serve the definitions. Others are only said.
func (r *Repository) compareFiles(s *source, t *tree) {
	if s.kind != files || s.match.deployment == nil {
		return
	}
	own := argsOf(s.match.deployment)
	for _, f := range t.files {
		if s.taken(f) || wordScore(f.path) < 0 {
			continue
		}
		for _, u := range f.objects {
			if u.GetKind() != "Deployment" || u.GetName() != s.match.deployment.GetName() {
				continue
			}
			further := slices.DeleteFunc(argsOf(u), func(a string) bool { return slices.Contains(own, a) })
			serves := slices.ContainsFunc(further, s.namesDefinition)
			switch {
			case serves && len(r.Args) == 0:
				r.Args, r.ArgsOf = further, f.path
			case len(further) > 0:
				r.Notes = append(r.Notes, fmt.Sprintf("%s has the same Deployment with other arguments (%s): "+
					"check which one to use", f.path, strings.Join(further, " ")))
			}
		}
	}
}

// taken reports whether a file is one of the manifests.
func (s *source) taken(f file) bool {
	for _, m := range s.manifests {
		if m.Path == f.path {
			return true
		}
	}
	return false
}

// argsOf lists the arguments of a Deployment's containers.
func argsOf(u *unstructured.Unstructured) (all []string) {
	for _, c := range containersOf(u) {
		c, _ := c.(map[string]any)
		args, _, _ := unstructured.NestedStringSlice(c, "args")
		all = append(all, args...)
	}
	return all
}

// namesDefinition reports whether a word of an argument is the kind of a definition, or a part of its group.
func (s *source) namesDefinition(arg string) bool {
	words := strings.FieldsFunc(strings.ToLower(arg), func(c rune) bool { return strings.ContainsRune("-_=,.", c) })
	for _, u := range s.objects {
		if u.GetKind() != definitionKind {
			continue
		}
		group, _, _ := unstructured.NestedString(u.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(u.Object, "spec", "names", "kind")
		plural, _, _ := unstructured.NestedString(u.Object, "spec", "names", "plural")
		for _, name := range append(strings.Split(group, "."), strings.ToLower(kind), plural) {
			if len(name) > 3 && slices.Contains(words, name) {
				return true
			}
		}
	}
	return false
}
