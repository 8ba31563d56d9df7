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

// kustomize does what `kubectl kustomize DIR` does. Remote is what the kustomization and its bases load from the
// network, in the order in which it was found; with skipRemote it is left out.
func kustomize(dir string, skipRemote bool) (list []objects.Located, remote []string, err error) {
	files := rewritten{filesys.MakeFsOnDisk(), skipRemote, &remote}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, dir)
	if err != nil {
		hint := ""
		if !skipRemote && len(remote) > 0 {
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
	return list, remote, nil
}

// chartReference is a chart that a kustomization renders.
type chartReference struct{ Name, Repo string }

// IsRemote reports whether a resource of a kustomization is loaded from the network.
func IsRemote(resource string) bool {
	return strings.Contains(resource, "://") || strings.Contains(resource, "?ref=") ||
		strings.HasPrefix(resource, "github.com/") || strings.HasPrefix(resource, "git@")
}

// rewritten is a file system in which kustomizations from before kustomize 2 can be read: their `patches` were a list
// of strings, as kubebuilder wrote them at that time: file names or inline text. It finds what kustomizations load from
// the network, each once; with skipRemote they do not.
type rewritten struct {
	filesys.FileSystem

	skipRemote bool
	remote     *[]string
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
			changed = f.findRemote(value) || changed
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

// findRemote finds what is loaded from the network in a list of resources or charts.
func (f rewritten) findRemote(list *yaml.Node) (changed bool) {
	before := len(list.Content)
	list.Content = slices.DeleteFunc(list.Content, func(item *yaml.Node) bool {
		what, chart := "", chartReference{}
		switch {
		case item.Kind == yaml.ScalarNode && IsRemote(item.Value):
			what = item.Value
		case item.Kind == yaml.MappingNode && item.Decode(&chart) == nil && chart.Repo != "":
			what = "chart " + chart.Name
		default:
			return false
		}
		if !slices.Contains(*f.remote, what) {
			*f.remote = append(*f.remote, what)
		}
		return f.skipRemote
	})
	return len(list.Content) < before
}
