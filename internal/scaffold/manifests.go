package scaffold

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/kustomize/api/konfig"

	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/objects/manifests"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
)

// file is a YAML file with complete objects.
type file struct {
	path    string
	objects []*unstructured.Unstructured
	chart   bool // belongs to a chart
}

// readFiles reads all files that contain objects. It leaves out files that only look like it: patches and settings of
// kustomizations, templates and values of charts.
func readFiles(dir string) (*tree, error) {
	t := &tree{dir: dir, deployed: findDeployed(dir), parsed: map[string]file{}}
	var candidates []string
	err := walk(dir, func(name string) error {
		base := path.Base(name)
		switch {
		case slices.Contains(konfig.RecognizedKustomizationFileNames(), base):
			t.kustomizations = append(t.kustomizations, path.Dir(name))
		case base == "Chart.yaml":
			t.charts = append(t.charts, path.Dir(name))
		case manifests.IsYAML(name):
			candidates = append(candidates, name)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	notObjects := map[string]bool{}
	for _, k := range t.kustomizations {
		for _, f := range patchesOf(filepath.Join(dir, k)) {
			notObjects[path.Join(k, f)] = true
		}
	}
	for _, name := range candidates {
		inChart := slices.ContainsFunc(t.charts, func(c string) bool { return within(name, c) })
		if notObjects[name] || inChart && !strings.Contains(name, "/crds/") ||
			strings.Contains(name, "/templates/") && isTemplate(filepath.Join(dir, name)) {
			continue
		}
		f, err := t.file(name)
		if err != nil {
			return nil, err
		}
		if f.chart = inChart; len(f.objects) > 0 {
			t.files = append(t.files, f)
		}
	}
	return t, nil
}

// isTemplate reports whether a file has an action of a Go template.
func isTemplate(name string) bool {
	text, err := os.ReadFile(name)
	return err != nil || bytes.Contains(text, []byte("{{"))
}

// readFile reads the objects of a file. It has none if it holds something else, such as a patch of a definition.
func readFile(dir, name string) (file, error) {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return file{}, err
	}
	list, err := objects.Decode(text, name)
	if err != nil {
		return file{path: name}, nil
	}
	if slices.ContainsFunc(list, incomplete) {
		return file{path: name}, nil
	}
	if served, _, err := manifests.Served(list); err == nil && len(served) > 0 {
		list = served
	}
	return file{path: name, objects: list}, nil
}

// incomplete reports whether an object is only a part of a definition: a patch that adds to one, or what a generator of
// definitions writes for a type that has no group or no fields.
func incomplete(u *unstructured.Unstructured) bool {
	if u.GetKind() != definitionKind {
		return false
	}
	group, _, _ := unstructured.NestedString(u.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(u.Object, "spec", "names", "plural")
	return group == "" || plural == ""
}

// readDocs reads the files with objects in a repository's documentation.
func readDocs(dir string) ([]file, error) {
	var all []file
	for _, docs := range docsDirs {
		err := walk(filepath.Join(dir, docs), func(name string) error {
			if !manifests.IsYAML(name) {
				return nil
			}
			f, err := readFile(dir, path.Join(docs, name))
			if len(f.objects) > 0 {
				all = append(all, f)
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return all, err
		}
	}
	return all, nil
}

var (
	// testDirs are directories of tests. Their manifests are only looked at if no others have a sample.
	testDirs = []string{"test", "tests", "testing", "e2e"}
	// foreignDirs may hold definitions of other projects, of which the controller uses objects.
	foreignDirs = append([]string{"hack", "third_party"}, testDirs...)
)

// mostFiles limits how many files of other directories are read.
const mostFiles = 2000

// readTests reads the files with objects in a repository's tests.
func readTests(dir string) ([]file, error) { return readAll(dir, testDirs) }

// readAll reads the files with objects in directories that are skipped otherwise.
func readAll(dir string, below []string) (all []file, err error) {
	count := 0
	for _, top := range below {
		err := filepath.WalkDir(filepath.Join(dir, top), func(p string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (strings.HasPrefix(d.Name(), ".") || d.Name() == "vendor" || d.Name() == "node_modules"):
				return fs.SkipDir
			case d.IsDir() || !manifests.IsYAML(p):
				return nil
			}
			if count++; count > mostFiles {
				return fs.SkipAll
			}
			rel, err := filepath.Rel(dir, p)
			if err != nil {
				return err
			}
			f, err := readFile(dir, filepath.ToSlash(rel))
			if len(f.objects) > 0 {
				all = append(all, f)
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return all, err
		}
	}
	return all, nil
}

// tree is what the repository contains.
type tree struct {
	dir            string
	files          []file
	kustomizations []string // directories
	charts         []string // directories
	deployed       map[string]int
	parsed         map[string]file
}

// file reads a file, once.
func (t *tree) file(name string) (file, error) {
	if f, ok := t.parsed[name]; ok {
		return f, nil
	}
	f, err := readFile(t.dir, name)
	if err == nil {
		t.parsed[name] = f
	}
	return f, err
}

// installs reports whether the Makefile or the docs install the file, or a directory that contains it.
func (t *tree) installs(name string) bool {
	for at := name; at != "."; at = path.Dir(at) {
		if t.deployed[at] > 0 {
			return true
		}
	}
	return false
}

func within(name, folder string) bool { return folder == "." || strings.HasPrefix(name, folder+"/") }

// source is a way to install the controller.
type source struct {
	kind       sourceKind
	manifests  []plan.Manifest
	objects    []*unstructured.Unstructured
	notes      []string // what the user must check
	match      match
	fitness    fitness
	preference int
	parts      []string // kustomizations that it includes
}

type sourceKind int

const (
	files sourceKind = iota
	aKustomization
	aChart
)

// fitness says whether a cluster accepts what a source installs.
type fitness int

const (
	refused  fitness = iota // not all of it
	remedied                // something is left out, or a namespace is given
	asItIs
)

// fitnessOf checks the objects of a source. Types that it lacks may be defined elsewhere in the repository.
func (t *tree) fitnessOf(s *source) fitness {
	manifests.DropUnknown(s.objects, instrumentation.KubernetesVersion)
	all := slices.Clone(s.objects)
	for _, f := range t.files {
		for _, u := range f.objects {
			if u.GetKind() == definitionKind && wordScore(f.path) >= 0 && !s.has(u) {
				all = append(all, u)
			}
		}
	}
	// Mistakes in definitions that the source does not install do not matter.
	checker, _ := manifests.NewChecker(all, instrumentation.KubernetesVersion)
	found := asItIs
	if s.unbound() || slices.ContainsFunc(s.manifests, func(m plan.Manifest) bool { return m.SkipRemote }) {
		found = remedied
	}
	for _, u := range s.objects {
		if len(manifests.CheckSubjects(u)) == 0 && checker.Check(u) != nil {
			return refused
		}
	}
	return found
}

const definitionKind = "CustomResourceDefinition"

// has reports whether the source contains an object of that kind and name.
func (s *source) has(u *unstructured.Unstructured) bool {
	return slices.ContainsFunc(s.objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == u.GetKind() && o.GetName() == u.GetName()
	})
}

// choose returns the best way to install the controller. Of those that can be applied as they are it is a
// kustomization, or else a chart, or else single files. What cannot be applied is only chosen if nothing else can.
func (r *Repository) choose(dir string, mains []program, t *tree) *source {
	var all []*source
	best := func(fitness fitness, kind sourceKind) *source {
		i := slices.IndexFunc(all, func(s *source) bool { return s.fitness >= fitness && s.kind == kind })
		if i < 0 {
			return nil
		}
		return all[i]
	}
	add := func(sources []*source) { all = append(all, sources...) }
	add(r.fromKustomizations(dir, mains, t))
	s := best(asItIs, aKustomization)
	charts := t.ownCharts()
	if s != nil {
		r.Charts = slices.DeleteFunc(charts, func(c string) bool { return !deploys(filepath.Join(dir, c)) })
	} else {
		add(r.fromCharts(dir, charts, mains, t))
		s = cmp.Or(best(asItIs, aChart), best(remedied, aKustomization))
	}
	if s == nil {
		if one := r.fromFiles(t, mains); one != nil {
			add([]*source{one})
		}
		for _, f := range []fitness{asItIs, remedied, refused} {
			for _, kind := range []sourceKind{aChart, files, aKustomization} {
				s = cmp.Or(s, best(f, kind))
			}
		}
	}
	switch {
	case s != nil:
		r.Notes = s.notes // why the others were not chosen does not matter
		if s.kind != files {
			r.Beside = nil
		}
		r.takeDeployment(s, mains)
	default:
		s = &source{match: match{program: mains[0]}}
		if len(t.kustomizations)+len(t.charts) > 0 {
			r.Notes = append(r.Notes, "no kustomization and no chart contains a Deployment of the controller, so "+
				"one is generated; if the program needs arguments, such as a subcommand, write them as `args:`")
		}
	}
	r.Manifests = s.manifests
	r.Package, r.Tags = s.match.program.pkg, s.match.program.tags
	for _, m := range mains {
		if m.pkg != r.Package {
			r.OtherMains = append(r.OtherMains, m.pkg)
		}
	}
	return s
}

// ownCharts lists the charts that are not in another chart's charts directory, with which those are rendered.
func (t *tree) ownCharts() []string {
	return slices.DeleteFunc(slices.Clone(t.charts), func(c string) bool {
		return slices.ContainsFunc(t.charts, func(other string) bool { return within(c, path.Join(other, "charts")) })
	})
}

// Words in the names of directories that make them more or less likely.
var (
	preferred = []string{"default", "standalone", "production", "prod", "cluster", "release", "kubernetes"}
	otherUses = []string{"dev", "debug", "ci", "openshift", "prometheus", "sample", "example", "scorecard", "local",
		"kind", "namespaced"}
)

func wordScore(at string) int {
	score := 0
	for _, element := range strings.Split(at, "/") {
		begins := func(word string) bool { return element == word || strings.HasPrefix(element, word+"-") }
		if slices.ContainsFunc(preferred, begins) {
			score += 5
		}
		if slices.ContainsFunc(otherUses, begins) {
			score -= 15
		}
	}
	return score
}

// deploys reports whether a chart looks as if it had a Deployment. It is not rendered, which would take time.
func deploys(chart string) (found bool) {
	_ = filepath.WalkDir(filepath.Join(chart, "templates"), func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		if found = bytes.Contains(text, []byte("\nkind: Deployment")) ||
			bytes.HasPrefix(text, []byte("kind: Deployment")); found {
			return fs.SkipAll
		}
		return err
	})
	return found
}

// ChartNamespace is the namespace into which a chart is installed.
func (r *Repository) ChartNamespace() string { return r.Name + "-system" }

// fromCharts renders charts and returns the sources of the controller among them, the best first.
func (r *Repository) fromCharts(dir string, charts []string, mains []program, t *tree) (all []*source) {
	for _, at := range charts {
		r.stage("rendering the chart " + at)
		m := plan.Manifest{Helm: at, Namespace: r.ChartNamespace()}
		list, _, err := manifests.One(filepath.Join(dir, plan.SuiteFile), m, instrumentation.KubernetesVersion)
		if err != nil {
			r.Notes = append(r.Notes, wording.FirstLine(err.Error()))
			continue
		}
		s := &source{kind: aChart, manifests: []plan.Manifest{m}, objects: list}
		if !s.find(mains) {
			continue
		}
		s.preference = s.match.score + wordScore(at) - strings.Count(at, "/")
		if path.Base(at) == r.Name {
			s.preference += 10
		}
		s.fitness = t.fitnessOf(s)
		all = append(all, s)
	}
	slices.SortStableFunc(all, func(a, b *source) int { return b.preference - a.preference })
	return all
}

// fromFiles starts with the file that contains the Deployment and adds what it needs. Other files with settings beside
// it are only named in the suite.
func (r *Repository) fromFiles(t *tree, mains []program) *source {
	s := &source{}
	var home file
	for _, f := range t.files {
		one := &source{objects: f.objects}
		if !one.find(mains) {
			continue
		}
		// A file that installs everything is better than one of its parts.
		one.match.score += min(5, len(f.objects)/3) + wordScore(f.path) + t.deployed[f.path]
		if s.match.deployment == nil || one.match.score > s.match.score {
			s.match, home = one.match, f
		}
	}
	if s.match.deployment == nil {
		return nil
	}
	s.take(home)
	top, _, _ := strings.Cut(home.path, "/")
	if top == home.path {
		top = "."
	}
	for _, kind := range []string{
		"Namespace", "ServiceAccount", "ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding",
		"ConfigMap", "Secret", "Service", "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration",
	} {
		for _, f := range t.files {
			near := within(f.path, top)
			if kind == "ConfigMap" || kind == "Secret" || kind == "Service" ||
				strings.HasSuffix(kind, "Configuration") {
				near = path.Dir(f.path) == path.Dir(home.path)
			}
			if near && !f.chart && f.has(kind) && !f.has("Deployment") && !f.custom() &&
				wordScore(path.Dir(f.path)) >= 0 &&
				!s.holds(f) {
				if !t.installs(f.path) && !s.needs(f) || s.othersServe(f, t) {
					if !slices.Contains(r.Beside, f.path) {
						r.Beside = append(r.Beside, f.path)
					}
					continue
				}
				s.take(f)
			}
		}
	}
	s.fitness = t.fitnessOf(s)
	return s
}

// needs reports whether the Deployment has to do with the file: with all files that are not merely settings and
// Services, of these with those that its pods name or that select them.
func (s *source) needs(f file) bool {
	template, _, _ := unstructured.NestedMap(s.match.deployment.Object, "spec", "template")
	for _, u := range f.objects {
		switch u.GetKind() {
		case "ConfigMap", "Secret":
			if names(template["spec"], u.GetName()) {
				return true
			}
		case "Service":
			if _, ours := selectedBy(u, s.match.deployment); ours {
				return true
			}
		default:
			return true
		}
	}
	return false
}

// othersServe reports whether a Service of the repository that does not select the Deployment's pods serves a webhook
// of the file: as long as nothing runs behind it, API servers would refuse what the webhook is for.
func (s *source) othersServe(f file, t *tree) bool {
	if !f.has("ValidatingWebhookConfiguration") && !f.has("MutatingWebhookConfiguration") {
		return false
	}
	served := map[string]bool{} // by the name of a Service, whether it selects the Deployment's pods
	for _, other := range t.files {
		for _, u := range other.objects {
			if selects, ours := selectedBy(u, s.match.deployment); selects {
				served[u.GetName()] = served[u.GetName()] || ours
			}
		}
	}
	return slices.ContainsFunc(f.objects, func(u *unstructured.Unstructured) bool {
		hooks, _, _ := unstructured.NestedSlice(u.Object, "webhooks")
		return slices.ContainsFunc(hooks, func(h any) bool {
			hook, _ := h.(map[string]any)
			name, _, _ := unstructured.NestedString(hook, "clientConfig", "service", "name")
			ours, known := served[name]
			return known && !ours
		})
	})
}

// selectedBy reports whether an object is a Service that selects pods, and those of the Deployment.
func selectedBy(u, deployment *unstructured.Unstructured) (selects, ours bool) {
	own, _, _ := unstructured.NestedStringMap(deployment.Object, "spec", "template", "metadata", "labels")
	selector, _, _ := unstructured.NestedStringMap(u.Object, "spec", "selector")
	selects = u.GetKind() == "Service" && len(selector) > 0
	return selects, selects && labels.SelectorFromSet(selector).Matches(labels.Set(own))
}

// names reports whether a text in the value is the name, or ends in it as arguments and paths do.
func names(value any, name string) bool {
	switch v := value.(type) {
	case string:
		return v == name || strings.HasSuffix(v, "/"+name) || strings.HasSuffix(v, "="+name)
	case []any:
		return slices.ContainsFunc(v, func(item any) bool { return names(item, name) })
	case map[string]any:
		for _, item := range v {
			if names(item, name) {
				return true
			}
		}
	}
	return false
}

func (f file) has(kind string) bool {
	return slices.ContainsFunc(f.objects, func(u *unstructured.Unstructured) bool { return u.GetKind() == kind })
}

// custom reports whether the file holds objects of types that are not Kubernetes' own.
func (f file) custom() bool {
	return slices.ContainsFunc(f.objects, func(u *unstructured.Unstructured) bool {
		group := u.GroupVersionKind().Group
		return strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io")
	})
}

func (s *source) take(f file) {
	s.manifests = append(s.manifests, plan.Manifest{Path: f.path})
	s.objects = append(s.objects, f.objects...)
}

// holds reports whether the source already contains an object of the file, perhaps in another namespace: then the file
// is a copy.
func (s *source) holds(f file) bool {
	return slices.ContainsFunc(f.objects, s.has)
}

// addDefinitions adds the files of definitions that the source lacks. It takes only those that the source's roles name:
// others belong to something else in the repository. It takes all if the source has no definitions and its roles name
// none. It does not take those that a kustomization of the source leaves out.
func (r *Repository) addDefinitions(s *source, t *tree) {
	groups := groupsOfRoles(s.objects)
	named := func(u *unstructured.Unstructured) bool {
		group, _, _ := unstructured.NestedString(u.Object, "spec", "group")
		return slices.Contains(groups, group) || slices.Contains(groups, "*")
	}
	defines := func(u *unstructured.Unstructured) bool { return u.GetKind() == definitionKind }
	some := slices.ContainsFunc(s.objects, defines) || slices.ContainsFunc(t.files, func(f file) bool {
		return slices.ContainsFunc(f.objects, func(u *unstructured.Unstructured) bool { return defines(u) && named(u) })
	})
	wanted := func(f file) bool {
		return len(f.objects) > 0 && !slices.ContainsFunc(f.objects, func(u *unstructured.Unstructured) bool {
			return !defines(u) || s.has(u) || some && !named(u)
		})
	}
	files := slices.DeleteFunc(slices.Clone(t.files), func(f file) bool { return t.leftOut(s, f) })
	// The file that a link leads to says more than the link.
	slices.SortStableFunc(files, func(a, b file) int { return t.links(a) - t.links(b) })
	// The repository may contain the same definition several times, for several purposes and in several versions.
	slices.SortStableFunc(files, func(a, b file) int { return definitionScore(b) - definitionScore(a) })
	for _, f := range files {
		if wanted(f) && wordScore(f.path) >= 0 {
			s.take(f)
		}
	}
	for _, t := range objects.Defined(s.objects) {
		if !slices.Contains(r.Definitions, t.Kind.Kind) {
			r.Definitions = append(r.Definitions, t.Kind.Kind)
		}
	}
	slices.Sort(r.Definitions)
	r.addForeign(s, t)
	r.Manifests = s.manifests
}

// links returns 1 for a file that is a symbolic link, and 0 for others.
func (t *tree) links(f file) int {
	if info, err := os.Lstat(filepath.Join(t.dir, f.path)); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return 1
	}
	return 0
}

// addForeign adds definitions of other projects whose groups the source's roles name and which nothing defines: a
// controller that watches them does not start without them. Files that have further objects are only noted.
func (r *Repository) addForeign(s *source, t *tree) {
	groups := groupsOfRoles(s.objects)
	missing := func(u *unstructured.Unstructured) bool {
		group, _, _ := unstructured.NestedString(u.Object, "spec", "group")
		return u.GetKind() == definitionKind && slices.Contains(groups, group) && !s.has(u)
	}
	if !slices.ContainsFunc(groups, func(group string) bool {
		return strings.Contains(group, ".") && !scheme.Scheme.IsGroupRegistered(group) && !s.defines(group)
	}) {
		return
	}
	further, err := readAll(t.dir, foreignDirs)
	if err != nil {
		r.Notes = append(r.Notes, wording.FirstLine(err.Error()))
	}
	defined := slices.Clone(s.objects)
	others := map[string][]string{} // groups, by the file that has their definitions among other objects
	noted := map[string]bool{}
	for _, f := range slices.Concat(further, t.files) {
		if wordScore(f.path) < 0 || t.leftOut(s, f) {
			continue
		}
		only := !slices.ContainsFunc(f.objects, func(u *unstructured.Unstructured) bool { return !missing(u) })
		for _, u := range f.objects {
			group, _, _ := unstructured.NestedString(u.Object, "spec", "group")
			if !missing(u) || (&source{objects: defined}).defines(group) {
				continue
			}
			if only {
				s.take(f)
				break
			}
			if !noted[group] {
				noted[group] = true
				others[f.path] = append(others[f.path], group)
			}
		}
	}
	for _, file := range slices.Sorted(maps.Keys(others)) {
		groups := slices.DeleteFunc(others[file], s.defines)
		if len(groups) > 0 {
			r.Notes = append(r.Notes, fmt.Sprintf("the roles name %s, which the manifests do not define; %s has "+
				"definitions among other objects: add it to the manifests if the controller needs them",
				strings.Join(groups, ", "), file))
		}
	}
}

// defines reports whether the source has a definition of a type of the group.
func (s *source) defines(group string) bool {
	return slices.ContainsFunc(s.objects, func(u *unstructured.Unstructured) bool {
		of, _, _ := unstructured.NestedString(u.Object, "spec", "group")
		return u.GetKind() == definitionKind && of == group
	})
}

// leftOut reports whether a kustomization of the source lists other definitions of the file's directory, but not the
// file: it is an old version, or it defines something that nothing uses.
func (t *tree) leftOut(s *source, f file) bool {
	if s.kind != aKustomization {
		return false
	}
	siblings := false
	for _, at := range append([]string{s.manifests[0].Path}, s.parts...) {
		k, _ := readKustomization(filepath.Join(t.dir, at))
		for _, name := range k.Resources {
			name = path.Join(at, name)
			if name == f.path {
				return false
			}
			if path.Dir(name) == path.Dir(f.path) {
				listed, err := t.file(name)
				siblings = siblings || err == nil && listed.has(definitionKind)
			}
		}
	}
	return siblings
}

// groupsOfRoles lists the API groups that roles among the objects name.
func groupsOfRoles(list []*unstructured.Unstructured) (groups []string) {
	for _, u := range list {
		if kind := u.GetKind(); kind != "ClusterRole" && kind != "Role" {
			continue
		}
		rules, _, _ := unstructured.NestedSlice(u.Object, "rules")
		for _, rule := range rules {
			rule, _ := rule.(map[string]any)
			named, _, _ := unstructured.NestedStringSlice(rule, "apiGroups")
			groups = append(groups, named...)
		}
	}
	return groups
}

// sourceDirs contain source code. Definitions there are copies that a program embeds, or no types of a cluster.
var sourceDirs = []string{"cmd", "internal", "pkg"}

func definitionScore(f file) int {
	score := wordScore(f.path)
	if strings.Contains(f.path, "bases/") {
		score += 3
	}
	if top, _, _ := strings.Cut(f.path, "/"); slices.Contains(sourceDirs, top) {
		score -= 3
	}
	for _, u := range f.objects {
		if strings.HasSuffix(u.GetAPIVersion(), "/v1") {
			score++
		}
	}
	return score
}
