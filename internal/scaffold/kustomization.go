package scaffold

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/konfig"

	"github.com/trommel-dev/trommel/internal/objects/manifests"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
)

// kustomization holds the fields that name files and directories, and those that rename objects.
type kustomization struct {
	Kind                  string
	Namespace             string
	NamePrefix            string `yaml:"namePrefix"`
	NameSuffix            string `yaml:"nameSuffix"`
	Resources             []string
	Bases                 []string
	Components            []string
	Configurations        []string
	Patches               []yaml.Node
	PatchesStrategicMerge []string                `yaml:"patchesStrategicMerge"`
	PatchesJSON6902       []struct{ Path string } `yaml:"patchesJson6902"`
	Replacements          []struct{ Path string } `yaml:"replacements"`
	Transformers          []string                `yaml:"transformers"`
	Generators            []string                `yaml:"generators"`
	OpenAPI               struct{ Path string }   `yaml:"openapi"`
}

// readKustomization returns false for a directory whose file is not a valid kustomization.
func readKustomization(dir string) (k kustomization, ok bool) {
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			return k, yaml.Unmarshal(text, &k) == nil
		}
	}
	return k, false
}

// patchesOf lists the files of the kustomization that are not objects, relative to it.
func patchesOf(dir string) []string {
	k, _ := readKustomization(dir)
	files := slices.Concat(k.Configurations, k.PatchesStrategicMerge, k.Transformers, k.Generators,
		[]string{k.OpenAPI.Path})
	for _, p := range k.PatchesJSON6902 {
		files = append(files, p.Path)
	}
	for _, p := range k.Replacements {
		files = append(files, p.Path)
	}
	for _, p := range k.Patches {
		var patch struct{ Path string }
		switch {
		case p.Kind == yaml.ScalarNode:
			files = append(files, p.Value)
		case p.Decode(&patch) == nil:
			files = append(files, patch.Path)
		}
	}
	return files
}

// usual is where kubebuilder and operator-sdk put what they deploy. The other kustomizations are parts of it.
const usual = "config/default"

// fromKustomizations returns the sources of the controller among the kustomizations. It builds the likeliest first,
// because building takes seconds where definitions are large, and ends with one that can be applied as it is.
func (r *Repository) fromKustomizations(dir string, mains []program, t *tree) (all []*source) {
	var likely []*source
	for _, at := range t.kustomizations {
		if k, ok := readKustomization(filepath.Join(dir, at)); !ok || k.Kind == "Component" {
			continue
		}
		s := &source{kind: aKustomization, manifests: []plan.Manifest{{Path: at}}}
		o := &outline{}
		t.outline(at, o)
		s.objects, s.parts = o.objects, o.parts
		if s.find(mains) {
			s.preference = completeness(s) + wordScore(at) - strings.Count(at, "/") + t.deployed[at] - 10*o.remote
			likely = append(likely, s)
		}
	}
	// The Makefile says what is deployed; a conventional name only suggests it.
	byMake := func(s *source) int {
		switch at := s.manifests[0].Path; {
		case t.deployed[at] >= byDeploy:
			return 2
		case at == usual:
			return 1
		}
		return 0
	}
	slices.SortStableFunc(likely, func(a, b *source) int {
		return cmp.Or(byMake(b)-byMake(a), b.preference-a.preference, len(a.objects)-len(b.objects))
	})
	var parts []string // of what can be applied with a remedy: alone they would lack more
	for _, s := range likely {
		if slices.Contains(parts, s.manifests[0].Path) || !s.build(r, dir, mains) {
			continue
		}
		s.fitness = t.fitnessOf(s)
		all = append(all, s)
		switch s.fitness {
		case asItIs:
			return all
		case remedied:
			parts = append(parts, s.parts...)
		}
	}
	return all
}

// build builds the kustomization of a source. It returns false if that fails, or the controller is not in it.
func (s *source) build(r *Repository, dir string, mains []program) bool {
	m := &s.manifests[0]
	r.stage("building the kustomization " + m.Path)
	list, remote, err := manifests.ReadLocal(filepath.Join(dir, m.Path))
	if err != nil {
		if m.Path == usual {
			r.Notes = append(r.Notes, fmt.Sprintf("%s cannot be built: %s", m.Path, wording.FirstLine(err.Error())))
		}
		return false
	}
	if m.SkipRemote = len(remote) > 0; m.SkipRemote {
		s.notes = append(s.notes, fmt.Sprintf("%s loads %s from the network, which is left out; "+
			"apply what the controller needs of it from a file", m.Path, strings.Join(remote, ", ")))
	}
	s.objects, s.match = list, match{}
	return s.find(mains)
}

// completeness returns points for the kinds of objects that a complete installation has.
func completeness(s *source) (points int) {
	kinds := map[string]bool{}
	for _, u := range s.objects {
		kinds[u.GetKind()] = true
	}
	for _, kind := range []string{definitionKind, "ClusterRole", "Namespace", "ServiceAccount"} {
		if kinds[kind] {
			points += 10
		}
	}
	if s.match.deployment.GetNamespace() != "" {
		points += 6 // without one it may be a base, which others complete
	}
	return points
}

// outline is what a kustomization and those that it includes consist of, as far as their files show it. Patches and
// generators are left out.
type outline struct {
	objects []*unstructured.Unstructured
	parts   []string // the kustomizations that are included
	remote  int      // how many resources are loaded from the network
}

// outline adds what the kustomization in a directory consists of. Deployments get the names and namespaces that it
// gives them.
func (t *tree) outline(at string, o *outline) {
	k, ok := readKustomization(filepath.Join(t.dir, at))
	if !ok {
		return
	}
	first := len(o.objects)
	for _, name := range slices.Concat(k.Resources, k.Bases, k.Components) {
		below := path.Join(at, name)
		switch info, err := os.Stat(filepath.Join(t.dir, below)); {
		case manifests.IsRemote(name):
			o.remote++
		case err != nil || slices.Contains(o.parts, below):
		case info.IsDir():
			o.parts = append(o.parts, below)
			t.outline(below, o)
		default:
			if f, err := t.file(below); err == nil {
				o.objects = append(o.objects, f.objects...)
			}
		}
	}
	for i, u := range o.objects[first:] {
		if u.GetKind() != "Deployment" || k.Namespace == "" && k.NamePrefix == "" && k.NameSuffix == "" {
			continue // the names of others do not matter here
		}
		u = u.DeepCopy()
		u.SetName(k.NamePrefix + u.GetName() + k.NameSuffix)
		u.SetNamespace(cmp.Or(k.Namespace, u.GetNamespace()))
		o.objects[first+i] = u
	}
}
