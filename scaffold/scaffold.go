// Package scaffold writes a first suite and a first plan for a controller's repository, filled in from what it finds there. What it
// finds is a guess; the files say so, and are commented for people who go on from them.
package scaffold

import (
	_ "embed"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"text/template"

	"golang.org/x/mod/modfile"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/objects"
	"github.com/trommel-dev/trommel/plan"
)

// PlanFile is where the first plan goes, relative to the repository.
const PlanFile = "trommel-plans/restart.yaml"

// Repository is what was found of a controller. Paths are relative to it, with slashes.
type Repository struct {
	Module      string   // module path
	Name        string   // a name for the controller
	Package     string   // the main package that looks most like the manager
	OtherMains  []string // further main packages
	Manifests   []string // files and folders to apply
	Deployment  string   // namespace/name in the manifests; empty: one is generated
	Image       string   // of its container, where there are several
	Definitions []string // kinds that the CustomResourceDefinitions define
	Sample      string   // file of an object of such a kind; empty: none was found
	SampleKey   string   // its resource key
	Notes       []string // what could not be made out
}

// Inspect looks through the repository in dir, whose root has a go.mod.
func Inspect(dir string) (*Repository, error) {
	data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s has no go.mod: run it in the root of the controller's module", dir)
	}
	if err != nil {
		return nil, err
	}
	module := modfile.ModulePath(data)
	if module == "" {
		return nil, fmt.Errorf("%s names no module", filepath.Join(dir, "go.mod"))
	}
	r := &Repository{Module: module, Name: controllerName(module)}
	if err := r.findMains(dir); err != nil {
		return nil, err
	}
	if err := r.findManifests(dir); err != nil {
		return nil, err
	}
	return r, nil
}

// controllerName makes a valid name of the module path's last element that is no version.
func controllerName(module string) string {
	name := path.Base(module)
	if len(name) > 1 && name[0] == 'v' && strings.Trim(name[1:], "0123456789") == "" {
		name = path.Base(path.Dir(module))
	}
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	if name = strings.Trim(name, "-"); name == "" {
		return "controller"
	}
	return name
}

// skipped folders hold no controller and no manifests that are meant to be applied.
var skipped = []string{"vendor", "testdata", "node_modules", "hack", "test", "tests", "e2e", "docs", "tools", "third_party", "trommel-runs"}

// walk visits the files below dir with their slash paths relative to it.
func walk(dir string, visit func(file string) error) error {
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if rel != "." && (strings.HasPrefix(d.Name(), ".") || slices.Contains(skipped, d.Name())) {
				return fs.SkipDir
			}
			return nil
		}
		return visit(filepath.ToSlash(rel))
	})
}

// findMains ranks the main packages: one that imports controller-runtime is more likely the manager than one that imports client-go,
// and either more than one that imports neither.
func (r *Repository) findMains(dir string) error {
	rank := map[string]int{} // by package folder
	err := walk(dir, func(file string) error {
		if path.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, file), nil, parser.ImportsOnly)
		if err != nil || parsed.Name.Name != "main" {
			return nil // what does not parse the build will tell
		}
		at := "."
		if d := path.Dir(file); d != "." {
			at = "./" + d
		}
		rank[at] = max(rank[at], 1)
		for _, i := range parsed.Imports {
			imported, _ := strconv.Unquote(i.Path.Value) // the parser has unquoted it
			switch {
			case strings.HasPrefix(imported, "sigs.k8s.io/controller-runtime"):
				rank[at] = max(rank[at], 3)
			case strings.HasPrefix(imported, "k8s.io/client-go"):
				rank[at] = max(rank[at], 2)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	var mains []string
	for m := range rank {
		mains = append(mains, m)
	}
	sort.Slice(mains, func(i, j int) bool {
		a, b := mains[i], mains[j]
		if rank[a] != rank[b] {
			return rank[a] > rank[b]
		}
		if len(a) != len(b) {
			return len(a) < len(b)
		}
		return a < b
	})
	if len(mains) == 0 {
		return fmt.Errorf("%s has no main package: which program is the controller?", dir)
	}
	r.Package, r.OtherMains = mains[0], mains[1:]
	return nil
}

// findManifests looks for kubebuilder's layout first, then for files that hold definitions, roles and Deployments.
func (r *Repository) findManifests(dir string) error {
	byKind := map[string][]string{} // files
	var samples []string
	err := walk(dir, func(file string) error {
		if ext := path.Ext(file); ext != ".yaml" && ext != ".yml" || strings.Contains(file, "/templates/") {
			return nil
		}
		list, err := objects.Read(filepath.Join(dir, file))
		if err != nil {
			return nil // charts and other things that are no objects as they stand
		}
		for _, u := range list {
			byKind[u.GetKind()] = append(byKind[u.GetKind()], file)
			if u.GetKind() == "CustomResourceDefinition" {
				if kind, _, _ := unstructured.NestedString(u.Object, "spec", "names", "kind"); kind != "" && !slices.Contains(r.Definitions, kind) {
					r.Definitions = append(r.Definitions, kind)
				}
			}
		}
		if strings.Contains(file, "sample") || strings.Contains(file, "example") {
			samples = append(samples, file)
		}
		return nil
	})
	if err != nil {
		return err
	}
	sort.Strings(r.Definitions)
	if _, err := os.Stat(filepath.Join(dir, "config/default/kustomization.yaml")); err == nil {
		r.Manifests = []string{"config/default"}
	} else {
		for _, kind := range []string{
			"Namespace", "CustomResourceDefinition", "ServiceAccount", "ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding", "Deployment",
		} {
			for _, f := range byKind[kind] {
				if !slices.Contains(r.Manifests, f) && !slices.Contains(samples, f) {
					r.Manifests = append(r.Manifests, f)
				}
			}
		}
	}
	r.findDeployment(dir)
	r.findSample(dir, samples)
	return nil
}

func (r *Repository) findDeployment(dir string) {
	var deployments []*unstructured.Unstructured
	for _, m := range r.Manifests {
		list, err := objects.Read(filepath.Join(dir, m))
		if err != nil {
			r.Notes = append(r.Notes, fmt.Sprintf("%s could not be read: %s", m, firstLine(err)))
			continue
		}
		for _, u := range list {
			if u.GetKind() == "Deployment" {
				deployments = append(deployments, u)
			}
		}
	}
	if len(deployments) != 1 {
		if len(deployments) > 1 {
			r.Notes = append(r.Notes, fmt.Sprintf("the manifests hold %d Deployments: name the controller's with `deployment:`", len(deployments)))
		}
		return
	}
	d := deployments[0]
	namespace := d.GetNamespace()
	if namespace == "" {
		namespace = "default"
	}
	r.Deployment = namespace + "/" + d.GetName()
	containers, _, _ := unstructured.NestedSlice(d.Object, "spec", "template", "spec", "containers")
	if len(containers) < 2 {
		return
	}
	for _, c := range containers {
		m, _ := c.(map[string]any)
		if name, _ := m["name"].(string); name == "manager" || name == "controller" || name == r.Name {
			r.Image, _ = m["image"].(string)
		}
	}
	if r.Image == "" {
		r.Notes = append(r.Notes, "the Deployment has several containers: name the controller's image with `image:`")
	}
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// findSample takes the first sample file that holds one object of a kind that is defined here.
func (r *Repository) findSample(dir string, samples []string) {
	sort.Strings(samples)
	for _, file := range samples {
		list, err := objects.Read(filepath.Join(dir, file))
		if err != nil || len(list) != 1 || !slices.Contains(r.Definitions, list[0].GetKind()) || list[0].GetName() == "" {
			continue
		}
		key := plan.ResourceKey{Type: strings.ToLower(list[0].GetKind()), Namespace: list[0].GetNamespace(), Name: list[0].GetName()}
		if key.Namespace == "" {
			key.Namespace = "default"
		}
		r.Sample, r.SampleKey = file, key.String()
		return
	}
}

//go:embed suite.tmpl
var suiteTemplate string

//go:embed plan.tmpl
var planTemplate string

var templates = template.Must(template.Must(template.New("suite").Parse(suiteTemplate)).New("plan").Parse(planTemplate))

// Files gives the texts of the suite and of the first plan, by path relative to the repository.
func (r *Repository) Files() (map[string]string, error) {
	files := map[string]string{}
	for name, file := range map[string]string{"suite": plan.SuiteFile, "plan": PlanFile} {
		var text strings.Builder
		if err := templates.ExecuteTemplate(&text, name, r); err != nil {
			return nil, err
		}
		files[file] = text.String()
	}
	return files, nil
}
