package manifests

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/trommel-dev/trommel/internal/objects"
)

// isKustomization reports whether the directory must be built by kustomize: not all files in such a directory are
// objects, and those that are may need changes by kustomize.
func isKustomization(dir string) bool {
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return true
		}
	}
	return false
}

// kustomize does what `kubectl kustomize DIR` does. With skipRemote it leaves out what is loaded from the network, and
// returns what that is, in the order in which it was found.
func kustomize(dir string, skipRemote bool) (list []objects.Located, skipped []string, err error) {
	files := rewritten{FileSystem: filesys.MakeFsOnDisk()}
	if skipRemote {
		files.skipped = &skipped
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, dir)
	if err != nil {
		hint := ""
		if !skipRemote && len(Remote(dir)) > 0 {
			hint = "\nwithout access to the network, use {path: DIR, skipRemote: true}, which leaves out what it " +
				"loads from there"
		}
		return nil, nil, fmt.Errorf("kustomize %s: %w%s", dir, err, hint)
	}
	for _, r := range built.Resources() {
		text, err := r.MarshalJSON() // AsYaml makes YAML of that, which would have to be read again
		if err != nil {
			return nil, nil, fmt.Errorf("kustomize %s: %w", dir, err)
		}
		u, err := objects.DecodeJSON(text)
		if err != nil {
			return nil, nil, fmt.Errorf("kustomize %s: %s: %w", dir, r.CurId(), err)
		}
		list = append(list, objects.Located{Unstructured: u, Where: dir + " (built by kustomize)"})
	}
	return list, skipped, nil
}

// Kustomization has the fields of a kustomization that name files that are not objects or are elsewhere.
type Kustomization struct {
	Kind                  string
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
	Charts                []chartReference        `yaml:"helmCharts"`
}

// chartReference is a chart that a kustomization renders.
type chartReference struct{ Name, Repo string }

func (c chartReference) String() string { return "chart " + c.Name }

// ReadKustomization returns false for a directory that has no kustomization, or one that is no YAML.
func ReadKustomization(dir string) (k Kustomization, ok bool) {
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			return k, yaml.Unmarshal(text, &k) == nil
		}
	}
	return k, false
}

// Remote lists what the kustomization in a directory and its bases load from the network.
func Remote(dir string) []string { return remote(dir, 0) }

func remote(dir string, depth int) (all []string) {
	k, _ := ReadKustomization(dir)
	for _, c := range k.Charts {
		if c.Repo != "" {
			all = append(all, c.String())
		}
	}
	for _, r := range slices.Concat(k.Resources, k.Bases, k.Components) {
		if isRemote(r) {
			all = append(all, r)
		} else if info, err := os.Stat(filepath.Join(dir, r)); err == nil && info.IsDir() && depth < 10 {
			all = append(all, remote(filepath.Join(dir, r), depth+1)...)
		}
	}
	return all
}

// isRemote reports whether a resource of a kustomization is loaded from the network.
func isRemote(resource string) bool {
	return strings.Contains(resource, "://") || strings.Contains(resource, "?ref=") ||
		strings.HasPrefix(resource, "github.com/") || strings.HasPrefix(resource, "git@")
}

// rewritten is a file system in which kustomizations from before kustomize 2 can be read: their `patches` were a list
// of strings, as kubebuilder wrote them at that time: file names or inline text. If skipped is set, kustomizations load
// nothing from the network, and what that would be is added to it.
type rewritten struct {
	filesys.FileSystem

	skipped *[]string
}

func (f rewritten) ReadFile(name string) ([]byte, error) {
	data, err := f.FileSystem.ReadFile(name)
	if err != nil || !slices.Contains(konfig.RecognizedKustomizationFileNames(), filepath.Base(name)) {
		return data, err
	}
	return f.rewrite(data), nil
}

// rewrite returns a kustomization as it is to be read, and unchanged if there is nothing to change.
func (f rewritten) rewrite(data []byte) []byte {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil || len(doc.Content) != 1 ||
		doc.Content[0].Kind != yaml.MappingNode {
		return data // kustomize reports the error
	}
	changed := false
	fields := doc.Content[0].Content
	for i := 0; i+1 < len(fields); i += 2 {
		value := fields[i+1]
		if value.Kind != yaml.SequenceNode {
			continue
		}
		switch fields[i].Value {
		case "patches":
			changed = renewPatches(value) || changed
		case "resources", "bases", "components", "helmCharts":
			changed = f.skip(value) || changed
		}
	}
	if !changed {
		return data
	}
	renewed, err := yaml.Marshal(&doc)
	if err != nil {
		return data
	}
	return renewed
}

// renewPatches rewrites patches that are strings in today's form.
func renewPatches(patches *yaml.Node) (changed bool) {
	for i, item := range patches.Content {
		if item.Kind != yaml.ScalarNode {
			continue
		}
		field := "path"
		if strings.Contains(item.Value, "\n") {
			field = "patch"
		}
		patches.Content[i] = &yaml.Node{Kind: yaml.MappingNode,
			Content: []*yaml.Node{{Kind: yaml.ScalarNode, Value: field}, item}}
		changed = true
	}
	return changed
}

// skip removes what is loaded from the network from a list of resources or charts.
func (f rewritten) skip(list *yaml.Node) (changed bool) {
	if f.skipped == nil {
		return false
	}
	list.Content = slices.DeleteFunc(list.Content, func(item *yaml.Node) bool {
		what, chart := "", chartReference{}
		switch {
		case item.Kind == yaml.ScalarNode && isRemote(item.Value):
			what = item.Value
		case item.Kind == yaml.MappingNode && item.Decode(&chart) == nil && chart.Repo != "":
			what = chart.String()
		default:
			return false
		}
		if !slices.Contains(*f.skipped, what) {
			*f.skipped = append(*f.skipped, what)
		}
		changed = true
		return true
	})
	return changed
}
