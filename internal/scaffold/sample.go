package scaffold

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/bits"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/objects/manifests"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
)

// Sample is the object that a workload creates. The zero value is none.
type Sample struct {
	Kind       string   // in lower case
	Key        string   // its resource key
	File       string   // empty: Text is the object
	Text       string   // the object as one line of YAML
	Needs      []string // files to apply before it, which have objects that it names
	Targets    []string // objects to apply before it, which it names and no file has, each as one line of YAML
	Namespaces []string // that it needs and no manifest creates
	NodeLabels []string // that a node needs to be selected by it: "key: value"
	Status     bool     // objects of its kind have a status
	Others     []string // files of further samples of its kind
}

// mostOthers limits how many further samples the suite names, and mostKinds of how many kinds it creates an object.
const (
	mostOthers = 5
	mostKinds  = 3
)

// findSample chooses the likeliest file whose objects the cluster will accept and one of which is of a kind that is
// defined here, then one in the documentation and the tests. If there is none, it tries a sample of an older version,
// and then an object with the fields that are required.
func (r *Repository) findSample(s *source, t *tree) {
	checker, err := manifests.NewChecker(s.objects, instrumentation.KubernetesVersion)
	if err != nil {
		r.Notes = append(r.Notes, wording.FirstLine(err.Error()))
	}
	defined := slices.DeleteFunc(objects.Defined(s.objects), func(t objects.Type) bool {
		return !slices.Contains(r.Definitions, t.Kind.Kind)
	})
	likely, ranks := r.kindsByLikeliness(s, t, defined)
	checked := map[*file]bool{}
	accepted := func(f *file) bool {
		ok, known := checked[f]
		if !known {
			ok = !slices.ContainsFunc(f.objects, func(u *unstructured.Unstructured) bool {
				return u.GetName() == "" || strings.ContainsAny(u.GetName(), "$<>{}") || checker.Check(u) != nil
			})
			checked[f] = ok
		}
		return ok
	}
	var kinds []string
	for _, kind := range likely {
		kinds = append(kinds, kind.Kind)
	}
	valid := candidates(t.files, ranks, kinds, s, accepted)
	if len(valid) == 0 || valid[0].doubtful(s) {
		for _, read := range []func(string) ([]file, error){readDocs, readTests} {
			others, err := read(t.dir)
			if err != nil {
				r.Notes = append(r.Notes, wording.FirstLine(err.Error()))
			}
			better := candidates(others, ranks, kinds, s, accepted)
			if len(better) > 0 && (len(valid) == 0 || better[0].rank < valid[0].rank) {
				valid = better
				break
			}
		}
	}
	if len(valid) > 0 {
		best := valid[0]
		r.Sample = s.sampleOf(best)
		kinds := map[schema.GroupKind]bool{best.main.GroupVersionKind().GroupKind(): true}
		for _, other := range valid[1:] {
			kind := other.main.GroupVersionKind()
			switch {
			case kind == best.main.GroupVersionKind():
				if len(r.Sample.Others) < mostOthers {
					r.Sample.Others = append(r.Sample.Others, other.file.path)
				}
			case !kinds[kind.GroupKind()] && len(kinds) < mostKinds && other.complete && r.handles(s, kind):
				kinds[kind.GroupKind()] = true
				r.More = append(r.More, s.sampleOf(other))
			}
		}
		return
	}
	if u := t.renewed(likely, checker); u != nil {
		r.takeText(s, u, "the samples are of versions that are not served: the workload's object is one of them, "+
			"in a version that is")
		return
	}
	for _, kind := range likely {
		if u := leastObject(definition(s.objects, kind.GroupKind()), kind); checker.Check(u) == nil {
			r.takeText(s, u, "no sample was found whose kind is defined here and that is valid: the workload's object "+
				"has only the fields that are required")
			return
		}
	}
	r.Notes = append(r.Notes, "no sample was found whose kind is defined here and that is valid: write an object that "+
		"your controller handles into the workload")
}

// candidate is a file that may be the sample.
type candidate struct {
	file    *file
	main    *unstructured.Unstructured
	rank    int          // of its kind
	needs   []*file      // to apply before it
	targets []objectName // that it names and no file has
	// complete: as far as is known, it names nothing that is missing, and has no placeholder.
	complete bool
	score    int
}

// candidates lists the files with an object of a kind that is defined here, and that the cluster accepts, the likeliest
// first.
func candidates(
	files []file, ranks map[schema.GroupVersionKind]int, kinds []string, s *source, accepted func(*file) bool,
) (valid []candidate) {
	byName, applied := namedFiles(files), &file{objects: s.objects}
	elsewhere := storedNames(files)
	for i := range files {
		f := &files[i]
		if f.has(definitionKind) {
			continue
		}
		main, score := mainObject(f, ranks)
		if main == nil || !accepted(f) {
			continue
		}
		needed, missing := needs(f, byName, kinds, applied, accepted)
		missing += misplaced(f) + elsewhere.namedBy(f, needed) + s.foreignIn(f)
		blanks := placeholders(f)
		for _, n := range needed {
			missing += misplaced(n)
			blanks = blanks || placeholders(n)
		}
		lacking := slices.DeleteFunc(targetsIn(f), func(target objectName) bool {
			return applied.holds(target) || slices.ContainsFunc(needed, func(n *file) bool { return n.holds(target) })
		})
		score -= pointsForNeed*(len(needed)+len(lacking)) + pointsForLack*missing
		if blanks {
			score -= pointsForBlank
		}
		complete := missing == 0 && !blanks
		valid = append(valid, candidate{f, main, ranks[main.GroupVersionKind()], needed, lacking, complete, score})
	}
	slices.SortStableFunc(valid, func(a, b candidate) int { return b.score - a.score })
	return valid
}

// doubtful reports whether a candidate is probably a part of the installation: it lies beside the files that are
// applied, and its kind is not the likeliest.
func (c candidate) doubtful(s *source) bool {
	lower := strings.ToLower(c.file.path)
	if c.rank == 0 || s.kind != files || strings.Contains(lower, "sample") || strings.Contains(lower, "example") {
		return false
	}
	return slices.ContainsFunc(s.manifests, func(m plan.Manifest) bool {
		return path.Dir(m.Path) == path.Dir(c.file.path)
	})
}

// takeText records an object that is written into the suite.
func (r *Repository) takeText(s *source, u *unstructured.Unstructured, note string) {
	text, err := json.Marshal(u.Object)
	if err != nil {
		return
	}
	r.Sample = s.sample(u, []*unstructured.Unstructured{u})
	r.Sample.Text = string(text)
	r.Notes = append(r.Notes, note)
}

// sampleOf returns the sample of a file.
func (s *source) sampleOf(c candidate) Sample {
	all := c.file.objects
	for _, f := range c.needs {
		all = slices.Concat(all, f.objects)
	}
	sample := s.sample(c.main, all)
	sample.File = c.file.path
	for _, f := range c.needs {
		if !s.taken(*f) {
			sample.Needs = append(sample.Needs, f.path)
		}
	}
	for _, target := range c.targets {
		sample.Targets = append(sample.Targets, target.text(c.main.GetNamespace(), c.targets))
	}
	return sample
}

// sample returns the sample of an object: its key, and what all objects of the sample need.
func (s *source) sample(u *unstructured.Unstructured, all []*unstructured.Unstructured) Sample {
	key := plan.ResourceKey{Type: strings.ToLower(u.GetKind()), Name: u.GetName()}
	defined := objects.Defined(s.objects)
	if ambiguous(defined, u.GroupVersionKind().GroupKind()) {
		key.Group = u.GroupVersionKind().Group
	}
	for _, t := range defined {
		if t.Kind.GroupKind() == u.GroupVersionKind().GroupKind() && t.Namespaced {
			key.Namespace = u.GetNamespace()
			if key.Namespace == "" {
				key.Namespace = "default"
			}
		}
	}
	sample := Sample{Kind: key.Type, Key: key.String(), Status: hasStatus(s.objects, u.GroupVersionKind())}
	labels := selectedNode(u.Object)
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		sample.NodeLabels = append(sample.NodeLabels, fmt.Sprintf("%s: %q", label, labels[label]))
	}
	made := slices.Concat(s.objects, manifests.MissingNamespaces(s.objects))
	for _, n := range manifests.MissingNamespaces(slices.Concat(made, all)) {
		sample.Namespaces = append(sample.Namespaces, n.GetName())
	}
	return sample
}

// handles reports whether something probably happens to an object of the kind: a controller is set up for it, or it has
// a status, and others do not merely use it.
func (r *Repository) handles(s *source, kind schema.GroupVersionKind) bool {
	_, setUp := r.owns[kind.Kind]
	return (setUp || hasStatus(s.objects, kind)) && !containsAny(kind.Kind, passive)
}

// ambiguous reports whether a kind of the same name exists in another group, of the definitions or of Kubernetes.
func ambiguous(defined []objects.Type, kind schema.GroupKind) bool {
	for _, t := range defined {
		if strings.EqualFold(t.Kind.Kind, kind.Kind) && t.Kind.Group != kind.Group {
			return true
		}
	}
	for known := range scheme.Scheme.AllKnownTypes() {
		if strings.EqualFold(known.Kind, kind.Kind) && known.Group != kind.Group {
			return true
		}
	}
	return false
}

// Samples are compared by points. What a sample lacks counts more than any name.
const (
	points        = 1000
	pointsForNeed = 1 * points // for each file to apply before it
	pointsForLack = 5 * points // for each object that it names and that cannot be applied, and each pod without a node
	// pointsForBlank count if it has a placeholder, so that it can never work.
	pointsForBlank = 25 * points
)

// small lists words in the names of samples that need little, and needy of those that need what is there already.
var (
	small = []string{
		"simple", "minimal", "minimum", "basic", "single", "standalone", "quickstart", "sample", "example",
	}
	needy = []string{"existing", "external"}
)

// nothingElse is how many of the small words mean something in the name of a directory too.
const nothingElse = 7

// mainObject returns the file's object of a kind that is defined here, and a score of how good a sample it is. The
// likeliest kinds come first.
func mainObject(f *file, ranks map[schema.GroupVersionKind]int) (*unstructured.Unstructured, int) {
	var main *unstructured.Unstructured
	for _, u := range f.objects {
		if u.GetName() == "" {
			return nil, 0
		}
		if _, defined := ranks[u.GroupVersionKind()]; defined && main == nil {
			main = u
		}
	}
	if main == nil {
		return nil, 0
	}
	score := -10 * ranks[main.GroupVersionKind()]
	lower, kind := strings.ToLower(f.path), strings.ToLower(main.GetKind())
	if strings.Contains(lower, "sample") || strings.Contains(lower, "example") {
		score += 5
	}
	base := strings.TrimSuffix(strings.TrimSuffix(path.Base(lower), ".yaml"), ".yml")
	if strings.HasSuffix(base, "_"+kind) || base == kind || strings.HasSuffix(base, "_"+kind+"_cr") ||
		strings.HasSuffix(base, "_cr") ||
		containsAny(base, small) {
		score += 4
	}
	if containsAny(base, needy) {
		score -= 4
	}
	if containsAny(path.Base(path.Dir(lower)), small[:nothingElse]) {
		score += 2
	}
	// Among equally likely samples the smallest is preferred, because it requires the least, but not one with a long
	// name, which is about something special.
	text, _ := json.Marshal(main.Object)
	words := len(strings.FieldsFunc(base, func(c rune) bool { return strings.ContainsRune("-_.", c) }))
	return main, points*(score-len(f.objects)-strings.Count(f.path, "/")) - min(2999, len(text)+200*max(0, words-3))
}

// kindsByLikeliness lists the kinds that are defined here, each in its newest version. Those come last that have no
// status and that no controller is set up for: they are settings, or templates. Of the others the kind that the
// controller is named after comes first, then the one whose controller owns most types, then the one of which the
// repository has most objects, then those that make pods. Equally likely kinds have the same rank.
func (r *Repository) kindsByLikeliness(
	s *source, t *tree, defined []objects.Type,
) (kinds []schema.GroupVersionKind, ranks map[schema.GroupVersionKind]int) {
	score := func(kind schema.GroupVersionKind) int {
		name := strings.ReplaceAll(strings.TrimSuffix(strings.TrimSuffix(r.Name, "-operator"), "-controller"), "-", "")
		lower := strings.ToLower(kind.Kind)
		switch {
		case lower == name || slices.Contains(shortNames(s.objects, kind.GroupKind()), r.Name):
			return 3
		case strings.HasPrefix(lower, name):
			return 2
		case strings.Contains(name, lower) || strings.Contains(lower, name):
			return 1
		}
		return 0
	}
	scores, handled := map[schema.GroupVersionKind]int{}, map[schema.GroupVersionKind]int{}
	pods := map[schema.GroupVersionKind]int{}
	counts := t.countKinds(defined)
	for _, t := range defined {
		kinds = append(kinds, t.Kind)
		scores[t.Kind] = score(t.Kind)
		if _, setUp := r.owns[t.Kind.Kind]; setUp || hasStatus(s.objects, t.Kind) {
			handled[t.Kind] = 1
		}
		if containsAny(t.Kind.Kind, passive) && !mostlyOf(counts, t.Kind.GroupKind(), defined) {
			handled[t.Kind]--
		}
		if makesPods(s.objects, t.Kind.GroupKind()) {
			pods[t.Kind] = 1
		}
	}
	compare := func(a, b schema.GroupVersionKind) int {
		return cmp.Or(handled[b]-handled[a], scores[b]-scores[a], r.owns[b.Kind]-r.owns[a.Kind],
			magnitude(counts[b.GroupKind()])-magnitude(counts[a.GroupKind()]), pods[b]-pods[a])
	}
	slices.SortStableFunc(kinds, compare)
	ranks = map[schema.GroupVersionKind]int{}
	for i, kind := range kinds {
		if ranks[kind] = i; i > 0 && compare(kinds[i-1], kind) == 0 {
			ranks[kind] = ranks[kinds[i-1]]
		}
	}
	return kinds, ranks
}

// magnitude makes counts equal that differ little: 0 and 1, 2 and 3, 4 to 7 and so on.
func magnitude(count int) int { return bits.Len(uint(count / 2)) }

// countKinds counts the files by the defined kinds of their objects: the repository's, or those of its documentation
// and tests if it has none.
func (t *tree) countKinds(defined []objects.Type) map[schema.GroupKind]int {
	counts := map[schema.GroupKind]int{}
	for _, read := range []func() ([]file, error){
		func() ([]file, error) { return t.files, nil },
		func() ([]file, error) { return readDocs(t.dir) },
		func() ([]file, error) { return readTests(t.dir) },
	} {
		files, _ := read()
		for _, f := range files {
			seen := map[schema.GroupKind]bool{}
			for _, u := range f.objects {
				kind := u.GroupVersionKind().GroupKind()
				isDefined := slices.ContainsFunc(defined, func(t objects.Type) bool {
					return t.Kind.GroupKind() == kind
				})
				if isDefined && !seen[kind] {
					seen[kind] = true
					counts[kind]++
				}
			}
		}
		if len(counts) > 0 {
			break
		}
	}
	return counts
}

// mostlyOf reports whether the repository has more than twice as many files with objects of a kind as of each other one
// that is defined: then users write them first.
func mostlyOf(counts map[schema.GroupKind]int, kind schema.GroupKind, defined []objects.Type) bool {
	return counts[kind] > 2 && !slices.ContainsFunc(defined, func(t objects.Type) bool {
		return t.Kind.GroupKind() != kind && 2*counts[t.Kind.GroupKind()] >= counts[kind]
	})
}

// passive are words in the names of kinds whose objects others use: alone, they make nothing.
var passive = []string{"Template", "Class", "Profile", "Revision", "Snapshot"}

// makesPods reports whether objects of the kind describe pods, according to their schema.
func makesPods(list []*unstructured.Unstructured, kind schema.GroupKind) bool {
	u := definition(list, kind)
	if u == nil {
		return false
	}
	text, err := json.Marshal(u.Object["spec"])
	return err == nil && (bytes.Contains(text, []byte(`"containers":`)) || bytes.Contains(text, []byte(`"replicas":`)))
}

// definition finds the object that defines the kind.
func definition(list []*unstructured.Unstructured, kind schema.GroupKind) *unstructured.Unstructured {
	for _, u := range list {
		for _, t := range objects.Defined([]*unstructured.Unstructured{u}) {
			if t.Kind.GroupKind() == kind {
				return u
			}
		}
	}
	return nil
}

func shortNames(list []*unstructured.Unstructured, kind schema.GroupKind) []string {
	if u := definition(list, kind); u != nil {
		names, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "names", "shortNames")
		return names
	}
	return nil
}

// hasStatus reports whether objects of the kind can have something in their status, according to their schema.
func hasStatus(list []*unstructured.Unstructured, kind schema.GroupVersionKind) bool {
	u := definition(list, kind.GroupKind())
	if u == nil {
		return false
	}
	status := func(m map[string]any, fields ...string) bool {
		status, found, _ := unstructured.NestedMap(m, fields...)
		// Of a status without fields the API server keeps nothing.
		return found && (status["properties"] != nil || status["additionalProperties"] != nil ||
			status["x-kubernetes-preserve-unknown-fields"] == true)
	}
	if status(u.Object, "spec", "validation", "openAPIV3Schema", "properties", "status") {
		return true
	}
	versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
	for _, v := range versions {
		if m, _ := v.(map[string]any); m["name"] == kind.Version &&
			status(m, "schema", "openAPIV3Schema", "properties", "status") {
			return true
		}
	}
	return false
}
