package propose

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/objects/manifests"
	"github.com/trommel-dev/trommel/plan"
)

// withOthers adds further samples of the same kind: those that the suite's workloads apply, and those in the folders of
// the suite and of the controllers' modules. They show which values there are. What cannot be read is left out.
func (s *sample) withOthers(suite *plan.Suite) *sample {
	if s == nil {
		return nil
	}
	add := func(list []*unstructured.Unstructured) {
		for _, u := range list {
			if u.GroupVersionKind() == s.object.GroupVersionKind() {
				s.others = append(s.others, u.Object)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(suite.Workloads)) {
		for i := range suite.Workloads[name].Steps {
			if apply := suite.Workloads[name].Steps[i].Apply; apply != nil {
				if list, _, err := manifests.OfStep(suite, apply); err == nil {
					add(list)
				}
			}
		}
	}
	here := filepath.Dir(suite.File)
	dirs := []string{here}
	for i := range suite.Controllers {
		if build := suite.Controllers[i].Build; build != nil {
			dirs = append(dirs, filepath.Join(here, build.Dir))
		}
	}
	slices.Sort(dirs)
	kind := []byte("kind: " + s.object.GetKind())
	for i, dir := range slices.Compact(dirs) {
		if i > 0 && strings.HasPrefix(dir, dirs[0]+string(filepath.Separator)) {
			continue // read with the folder that it is in
		}
		for _, file := range samplesIn(dir) {
			data, err := os.ReadFile(file)
			if err != nil || !bytes.Contains(data, kind) {
				continue
			}
			list, err := objects.Decode(data, file)
			if err == nil {
				add(list)
			}
		}
	}
	return s
}

// samplesIn lists YAML files below a folder whose paths say that they are samples.
func samplesIn(dir string) (files []string) {
	const most, size = 500, 256 << 10
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fs.SkipDir // others may be readable
		}
		relative, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if relative != "." && (strings.HasPrefix(name, ".") ||
				slices.Contains([]string{"vendor", "node_modules", "trommel-runs"}, name)) {
				return fs.SkipDir
			}
			return nil
		}
		lower := strings.ToLower(filepath.ToSlash(relative))
		if !manifests.IsYAML(name) || !strings.Contains(lower, "sample") && !strings.Contains(lower, "example") {
			return nil
		}
		if info, err := d.Info(); err != nil || info.Size() > size {
			return nil
		}
		if files = append(files, path); len(files) == most {
			return fs.SkipAll
		}
		return nil
	})
	return files
}
