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

// kustomize does what `kubectl kustomize DIR` does.
func kustomize(dir string) ([]objects.Located, error) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(oldPatches{filesys.MakeFsOnDisk()}, dir)
	if err != nil {
		return nil, fmt.Errorf("kustomize %s: %w", dir, err)
	}
	var all []objects.Located
	for _, r := range built.Resources() {
		text, err := r.MarshalJSON() // AsYaml makes YAML of that, which would have to be read again
		if err != nil {
			return nil, fmt.Errorf("kustomize %s: %w", dir, err)
		}
		u, err := objects.DecodeJSON(text)
		if err != nil {
			return nil, fmt.Errorf("kustomize %s: %s: %w", dir, r.CurId(), err)
		}
		all = append(all, objects.Located{Unstructured: u, Where: dir + " (built by kustomize)"})
	}
	return all, nil
}

// oldPatches is a file system in which kustomizations from before kustomize 2 can be read: their `patches` were a list
// of strings, as kubebuilder wrote them at that time: file names or inline text.
type oldPatches struct{ filesys.FileSystem }

func (f oldPatches) ReadFile(name string) ([]byte, error) {
	data, err := f.FileSystem.ReadFile(name)
	if err != nil || !slices.Contains(konfig.RecognizedKustomizationFileNames(), filepath.Base(name)) {
		return data, err
	}
	return renewPatches(data), nil
}

// renewPatches rewrites patches that are strings in today's form and leaves the rest unchanged.
func renewPatches(data []byte) []byte {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil || len(doc.Content) != 1 ||
		doc.Content[0].Kind != yaml.MappingNode {
		return data // kustomize reports the error
	}
	changed := false
	fields := doc.Content[0].Content
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i].Value != "patches" || fields[i+1].Kind != yaml.SequenceNode {
			continue
		}
		for j, item := range fields[i+1].Content {
			if item.Kind != yaml.ScalarNode {
				continue
			}
			field := "path"
			if strings.Contains(item.Value, "\n") {
				field = "patch"
			}
			fields[i+1].Content[j] = &yaml.Node{Kind: yaml.MappingNode,
				Content: []*yaml.Node{{Kind: yaml.ScalarNode, Value: field}, item}}
			changed = true
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
