// Package records has the commands that show run records, and the files that commands write about runs.
package records

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// In lists the run records that the directories are or hold, in the given order and by name.
func In(dirs []string) ([]string, error) {
	var all []string
	for _, dir := range dirs {
		if isRecord(dir) {
			all = append(all, dir)
			continue
		}
		before := len(all)
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() || !isRecord(path) {
				return err
			}
			all = append(all, path)
			return fs.SkipDir
		})
		switch {
		case errors.Is(err, fs.ErrNotExist):
			_, err := record.Open(dir)
			return nil, err
		case err != nil:
			return nil, err
		case len(all) == before:
			return nil, fmt.Errorf("%s is not a run record, and there is none below it", dir)
		}
	}
	return all, nil
}

func isRecord(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, record.ObservationsFile))
	return err == nil
}

// Plan reads the plan of a record. It is complete: it contains every default of the suite. It gets no file
// name, so that no files are looked for beside it: a record may lack its manifests.
func Plan(r *record.Run) (*plan.Plan, error) {
	p, err := plan.Parse(r.Plan, "")
	if err != nil {
		return nil, fmt.Errorf("the plan in %s: %w", filepath.Join(r.Dir, record.PlanFile), err)
	}
	return p, nil
}
