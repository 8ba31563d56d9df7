package scaffold

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
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

// stored are the names of objects with data that the files have, with the directories of the files.
type stored map[string][]string

// storedNames lists the Secrets, ConfigMaps and PersistentVolumeClaims in the files. Names of one word may mean
// something else and are left out.
func storedNames(files []file) stored {
	all := stored{}
	for _, f := range files {
		for _, u := range f.objects {
			if slices.Contains([]string{"Secret", "ConfigMap", "PersistentVolumeClaim"}, u.GetKind()) &&
				strings.Contains(u.GetName(), "-") {
				all[u.GetName()] = append(all[u.GetName()], path.Dir(f.path))
			}
		}
	}
	return all
}

// namedBy counts the names in a sample of objects with data that are only in other directories, so that they are
// neither in the sample nor among what it needs.
func (all stored) namedBy(sample *file, needed []*file) (count int) {
	for _, name := range namesIn(sample) {
		has := func(f *file) bool {
			return slices.ContainsFunc(f.objects, func(u *unstructured.Unstructured) bool {
				return u.GetName() == name
			})
		}
		if dirs := all[name]; len(dirs) > 0 && !slices.Contains(dirs, path.Dir(sample.path)) && !has(sample) &&
			!slices.ContainsFunc(needed, has) {
			count++
		}
	}
	return count
}

// objectName names an object that another one needs.
type objectName struct{ kind, name string }

func (f *file) holds(r objectName) bool {
	return slices.ContainsFunc(f.objects, func(u *unstructured.Unstructured) bool {
		return u.GetKind() == r.kind && u.GetName() == r.name
	})
}

// referredIn lists the objects of some kinds that a file's objects certainly refer to, as in storeRef: {name: a} or
// {kind: Store, name: a}, and the service accounts of pods, which are not created without them.
func referredIn(f *file, kinds []string) (all []objectName) {
	add := func(kind, name string) {
		if r := (objectName{kind, name}); name != "" && !slices.Contains(all, r) {
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

// targetsIn lists the workloads, and their autoscalers, that a file's objects refer to by apiVersion, kind and name,
// and that the file does not have.
func targetsIn(f *file) (all []objectName) {
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			version, _ := v["apiVersion"].(string)
			kind, _ := v["kind"].(string)
			name, _ := v["name"].(string)
			r := objectName{kind, name}
			group, _, _ := strings.Cut(version, "/")
			if name != "" && targetGroups[kind] == group && group != "" && !f.holds(r) && !slices.Contains(all, r) {
				all = append(all, r)
			}
			for _, k := range slices.Sorted(maps.Keys(v)) {
				walk(v[k])
			}
		case []any:
			for _, value := range v {
				walk(value)
			}
		}
	}
	for _, u := range f.objects {
		walk(u.Object)
	}
	return all
}

// targetGroups are the groups of the kinds that other objects act on.
var targetGroups = map[string]string{
	"Deployment": "apps", "StatefulSet": "apps", "DaemonSet": "apps", "HorizontalPodAutoscaler": "autoscaling",
}

// text returns the least object of that kind and name, as one line of YAML. An autoscaler is for the first workload of
// the targets.
func (b objectName) text(namespace string, targets []objectName) string {
	meta := "metadata: {name: " + b.name + "}"
	if namespace != "" {
		meta = "metadata: {name: " + b.name + ", namespace: " + namespace + "}"
	}
	if b.kind == "HorizontalPodAutoscaler" {
		target := objectName{"Deployment", b.name}
		for _, other := range targets {
			if other.kind != b.kind {
				target = other
				break
			}
		}
		return fmt.Sprintf("{apiVersion: autoscaling/v2, kind: %s, %s, spec: {scaleTargetRef: {apiVersion: apps/v1, "+
			"kind: %s, name: %s}, minReplicas: 1, maxReplicas: 2}}", b.kind, meta, target.kind, target.name)
	}
	extra := ""
	if b.kind == "StatefulSet" {
		extra = "serviceName: " + b.name + ", "
	}
	return fmt.Sprintf("{apiVersion: apps/v1, kind: %s, %s, spec: {%sselector: {matchLabels: {app: %s}}, "+
		"template: {metadata: {labels: {app: %s}}, spec: {containers: [{name: %s, image: nginx}]}}}}",
		b.kind, meta, extra, b.name, b.name, b.name)
}

// foreignIn counts the objects inside a file's objects whose groups neither Kubernetes nor the source has: nothing
// serves their types, so the controller cannot make them.
func (s *source) foreignIn(f *file) (count int) {
	f.eachMapping(func(m map[string]any) bool {
		version, _ := m["apiVersion"].(string)
		group, _, hasGroup := strings.Cut(version, "/")
		_, isObject := m["metadata"].(map[string]any)
		if m["kind"] != nil && isObject && hasGroup && !scheme.Scheme.IsGroupRegistered(group) && !s.defines(group) {
			count++
		}
		return true
	})
	return count
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
