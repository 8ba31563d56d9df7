package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/trommel-dev/trommel/internal/mistake"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/objects/manifests"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// PlanFiles writes the plan and the suite of a run into its record, with all that the plan refers to.
type PlanFiles struct {
	Dir     string // of the record
	Plan    *plan.Plan
	Suite   *plan.Suite
	Variant string
}

// Write returns where the manifests of the plan's apply actions are in the record, by their paths in the plan. The run
// applies them from there.
func (w *PlanFiles) Write() (manifests map[string]string, err error) {
	recorded, manifests, err := w.keepManifests()
	if err != nil {
		return nil, err
	}
	data, err := plan.Marshal(recorded)
	if err != nil {
		return nil, fmt.Errorf("write plan: %w", err)
	}
	if err := os.WriteFile(filepath.Join(w.Dir, record.PlanFile), data, record.FileMode); err != nil {
		return nil, fmt.Errorf("write run record: %w", err)
	}
	suite := w.Suite.Text()
	if suite == nil {
		if suite, err = os.ReadFile(w.Suite.File); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(filepath.Join(w.Dir, record.SuiteFile), suite, record.FileMode); err != nil {
		return nil, fmt.Errorf("write run record: %w", err)
	}
	return manifests, nil
}

// keepManifests copies the manifests of the plan's apply actions into the record. It returns the plan for the record,
// which refers to these copies and to the record's copy of the suite.
func (w *PlanFiles) keepManifests() (*plan.Plan, map[string]string, error) {
	recorded := *w.Plan
	recorded.Suite, recorded.Variant = "", w.Variant
	recorded.Actions = slices.Clone(w.Plan.Actions)
	manifests := map[string]string{}
	for i := range recorded.Actions {
		a := &recorded.Actions[i]
		if a.ManifestFile == "" {
			continue
		}
		if _, ok := manifests[a.ManifestFile]; !ok {
			kept, err := w.keepManifest(a.ManifestFile, len(manifests)+1)
			if err != nil {
				err = fmt.Errorf("%s: manifestFile of action %d: %w", w.Plan.File, i+1, err)
				return nil, nil, &mistake.Error{Err: err}
			}
			manifests[a.ManifestFile] = kept
		}
		a.ManifestFile = manifests[a.ManifestFile]
	}
	return &recorded, manifests, nil
}

// keepManifest writes a manifest, or all objects of a directory, into the record and returns its path there.
func (w *PlanFiles) keepManifest(file string, number int) (string, error) {
	path := plan.Beside(w.Plan.File, file)
	list, err := manifests.Read(path)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	var data []byte
	name := filepath.Base(path)
	if info.IsDir() {
		data, err = objects.Encode(list)
		name += ".yaml"
	} else {
		data, err = os.ReadFile(path)
	}
	if err != nil {
		return "", err
	}
	kept := record.ManifestsDir + "/" + fmt.Sprintf("%d-%s", number, name)
	to := filepath.Join(w.Dir, filepath.FromSlash(kept))
	if err := os.MkdirAll(filepath.Dir(to), record.DirMode); err != nil {
		return "", fmt.Errorf("write run record: %w", err)
	}
	if err := os.WriteFile(to, data, record.FileMode); err != nil {
		return "", fmt.Errorf("write run record: %w", err)
	}
	return kept, nil
}
