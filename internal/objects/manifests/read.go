package manifests

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/internal/objects"
)

// Read decodes the objects of a YAML or JSON file, or of all such files (.yaml, .yml, .json) in and below a directory,
// in the order of their paths. A directory with a kustomization file is built by kustomize instead, as `kubectl apply
// -k` does. Errors name the file and, if the decoder knows it, the line.
func Read(path string) ([]*unstructured.Unstructured, error) {
	all, _, err := read(path, false)
	return Bare(all), err
}

// IsYAML reports whether the file is YAML by its name.
func IsYAML(file string) bool { return slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(file)) }

// Bare returns the objects without their places.
func Bare(all []objects.Located) []*unstructured.Unstructured {
	var list []*unstructured.Unstructured
	for _, l := range all {
		list = append(list, l.Unstructured)
	}
	return list
}

// read is [Read] with the places of the objects, and with what a kustomization loads from the network, see kustomize.
func read(path string, skipRemote bool) (all []objects.Located, remote []string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	files := []string{path}
	if info.IsDir() {
		if isKustomization(path) {
			return kustomize(path, skipRemote)
		}
		files = nil
		err := filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && (IsYAML(p) || filepath.Ext(p) == ".json") {
				files = append(files, p)
			}
			return err
		})
		if err != nil {
			return nil, nil, err
		}
	}
	var errs []error
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return nil, nil, err
		}
		list, err := objects.DecodeLocated(data, f)
		if err != nil {
			errs = append(errs, err)
		}
		all = append(all, list...)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, nil, err
	}
	return all, nil, nil
}
