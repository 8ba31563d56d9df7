// Package planfiles finds the plans and suites that arguments name.
package planfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/objects/manifests"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// ErrNone says that a directory has neither plans nor suites.
var ErrNone = errors.New("no plan and no suite in this directory")

// Find returns the named files, and the plans and suites in the named directories.
func Find(args []string) ([]string, error) {
	var files []string
	for _, arg := range args {
		info, err := os.Stat(arg)
		if err != nil || !info.IsDir() {
			files = append(files, arg) // a missing file is reported like any other mistake
			continue
		}
		found := len(files)
		err = filepath.WalkDir(arg, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if _, err := os.Stat(filepath.Join(path, record.ObservationsFile)); d.IsDir() && err == nil {
				return fs.SkipDir // a run record: its copies of plans and suites lack their manifests
			}
			if d.IsDir() || !manifests.IsYAML(path) {
				return nil
			}
			kind, err := Kind(path)
			if kind != "" {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		if len(files) == found {
			return nil, fmt.Errorf("%s: %w", arg, ErrNone)
		}
	}
	return files, nil
}

// mustBePlan finds what only plans have, also in a file that is not YAML.
var mustBePlan = regexp.MustCompile(`(?m)^(kind: *TestPlan|testName:|[- ]*actionType:)`)

// Kind is [plan.FileKind], but a suite is also known by its name, and a plan also if it is not YAML: it must not be
// left out because of a mistake.
func Kind(path string) (string, error) {
	kind, err := plan.FileKind(path)
	switch {
	case err != nil || kind != "":
		return kind, err
	case filepath.Base(path) == plan.SuiteFile:
		return "Suite", nil
	}
	data, err := os.ReadFile(path)
	if err == nil && mustBePlan.Match(data) {
		kind = "TestPlan"
	}
	return kind, err
}

// Expand returns the plans that arguments name: files, directories and patterns. A plan that a directory or a pattern
// has is named once.
func Expand(args []string) ([]string, error) {
	var all []string
	found := func(files []string) {
		for _, file := range files {
			if !slices.Contains(all, file) {
				all = append(all, file)
			}
		}
	}
	for _, arg := range args {
		info, err := os.Stat(arg)
		switch {
		case err == nil && info.IsDir():
			files, err := InDir(arg)
			if err != nil {
				return nil, err
			}
			found(files)
		case err != nil && strings.ContainsAny(arg, "*?["):
			files, err := matching(arg)
			if err != nil {
				return nil, err
			}
			found(files)
		default:
			all = append(all, arg) // a missing file is reported like any other mistake
		}
	}
	return all, nil
}

// matching lists the plans that a pattern names, and those in directories that it names; there is at least one.
func matching(pattern string) ([]string, error) {
	names, err := filepath.Glob(pattern)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", pattern, err)
	}
	var all []string
	for _, name := range names {
		if info, err := os.Stat(name); err == nil && info.IsDir() {
			if files, err := InDir(name); err == nil {
				all = append(all, files...)
			}
			continue
		}
		if kind, err := Kind(name); err != nil || kind == "TestPlan" {
			all = append(all, name)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no plan matches this pattern", pattern)
	}
	return all, nil
}

// InDir lists the plans in a directory; there is at least one.
func InDir(dir string) ([]string, error) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", dir)
	}
	files, err := Find([]string{dir})
	if err != nil {
		return nil, err
	}
	files = slices.DeleteFunc(files, func(file string) bool {
		kind, err := Kind(file)
		return err == nil && kind == "Suite"
	})
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: no plan in this directory", dir)
	}
	return files, nil
}

// Moved says that a plan's own path to its suite leads nowhere, and which suite [plan.FindSuite] has found instead;
// empty: it leads there.
func Moved(p *plan.Plan, suiteFile string) string {
	if p.Suite == "" {
		return ""
	}
	if _, err := os.Stat(plan.Beside(p.File, p.Suite)); err == nil {
		return ""
	}
	return fmt.Sprintf("%s: its suite %s does not exist; %s is used", p.File, p.Suite, suiteFile)
}
