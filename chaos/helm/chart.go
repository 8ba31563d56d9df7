package helm

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"

	"github.com/trommel-dev/trommel/chaos/config"
	"github.com/trommel-dev/trommel/install"
)

// chartFiles reads the chart trommel-chaos, which is in install/chart/charts; its definitions are those of
// chaos/config/crd.
func chartFiles() ([]*loader.BufferedFile, error) {
	var all []*loader.BufferedFile
	read := func(from fs.FS, root, to string, want func(string) bool) error {
		return fs.WalkDir(from, root, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !want(name) {
				return err
			}
			data, err := fs.ReadFile(from, name)
			all = append(all, &loader.BufferedFile{Name: path.Join(to, strings.TrimPrefix(name, root)), Data: data})
			return err
		})
	}
	files, err := install.ChaosChart()
	if err != nil {
		return nil, err
	}
	if err := read(files, ".", "", func(string) bool { return true }); err != nil {
		return nil, err
	}
	return all, read(config.Files, "crd", "crds", func(name string) bool {
		return path.Base(name) != "kustomization.yaml"
	})
}

// unknown returns the paths of values that the chart does not have. Helm ignores such ones without a word. What is
// below resources belongs to Kubernetes.
func unknown(values, known map[string]any, at string) []string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		its, ok := known[key]
		if !ok {
			all = append(all, at+key)
			continue
		}
		deeper, ok := values[key].(map[string]any)
		below, ok2 := its.(map[string]any)
		if ok && ok2 && key != "resources" {
			all = append(all, unknown(deeper, below, at+key+".")...)
		}
	}
	return all
}

// check returns an error if values cannot be those of the chart.
func check(c *chart.Chart, values map[string]any) error {
	if wrong := unknown(values, c.Values, ""); len(wrong) > 0 {
		return fmt.Errorf("values that chart %s does not have: %s (it has %s)", c.Name(), strings.Join(wrong, ", "),
			strings.Join(slices.Sorted(maps.Keys(c.Values)), ", "))
	}
	return nil
}

// alike reports whether two values have the same JSON.
func alike(a, b any) bool {
	x, err := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err == nil && err2 == nil && string(x) == string(y)
}
