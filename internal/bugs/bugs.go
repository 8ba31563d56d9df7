// Package bugs reads the table of known bugs in controllers: a folder for each bug, with what is known of it, a suite,
// and plans that show it. The package also gets the sources that have the bugs, and describes what runs have shown.
package bugs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// File is the name of the file that describes a bug, in its folder.
const File = "bug.yaml"

// ReportFile is the name of the page for the project's bug tracker, in the same folder. A run writes it.
const ReportFile = "report.md"

// sharedDir is the folder of the table with files that several bugs of one project share.
const sharedDir = "shared"

// Bug is one known bug.
type Bug struct {
	Name string `yaml:"-"` // of its folder
	Dir  string `yaml:"-"` // its folder

	Project string `yaml:"project"`
	// Repository is the URL of the source. Empty: the bug is in a controller of Kubernetes, which Trommel builds.
	Repository string `yaml:"repository"`
	Commit     string `yaml:"commit"`  // that has the bug; 40 hexadecimal digits
	Version    string `yaml:"version"` // what people call that commit
	// Fixed is a commit without the bug. Fix is a patch in the bug's folder that mends it. At most one of them is set.
	Fixed string `yaml:"fixed"`
	Fix   string `yaml:"fix"`

	Summary  string   `yaml:"summary"`  // what goes wrong, in one sentence
	Kind     string   `yaml:"kind"`     // the pattern of the plans that show it
	Reports  []string `yaml:"reports"`  // URLs of reports by others
	Reported string   `yaml:"reported"` // when the first of them was made, such as 2026-03
	Cause    []string `yaml:"cause"`    // lines of source, such as pkg/x.go:12
	Finding  Finding  `yaml:"finding"`
	// Suite and Plans are files in the bug's folder, or in the source. Default: trommel.yaml and plans/*.yaml.
	Suite string   `yaml:"suite"`
	Plans []string `yaml:"plans"`
	// Shared names folders of the table's folder "shared". Their files are laid into the source, too. Files of the
	// bug's own folder take precedence.
	Shared []string `yaml:"shared"`
}

// Finding is what the plans must find. Empty fields match anything.
type Finding struct {
	Judge string `yaml:"judge"`
	Type  string `yaml:"type"`  // of the object, as in keys; without a group it may have any
	Field string `yaml:"field"` // one of the fields that it names, or a parent of one
	Title string `yaml:"title"` // a part of the headline
}

// Matches reports whether a finding of a run is the expected one.
func (f Finding) Matches(found record.Finding) bool {
	typ, _, _ := strings.Cut(cmp.Or(found.About(), found.Subject), "/")
	field := f.Field == "" || slices.ContainsFunc(strings.Fields(found.Field), func(is string) bool {
		return is == f.Field || strings.HasPrefix(is, f.Field+".") || strings.HasPrefix(is, f.Field+"[")
	})
	ofType := f.Type == "" || typ == f.Type || strings.HasPrefix(typ, f.Type+".")
	return found.IsBug() && field && ofType && (f.Judge == "" || found.Of(f.Judge)) &&
		strings.Contains(found.Title, f.Title)
}

// Load reads the bugs in the folders of a directory, by name. It reports everything that is wrong in any of them.
func Load(dir string) ([]*Bug, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []*Bug
	var wrong []error
	for _, e := range entries {
		file := filepath.Join(dir, e.Name(), File)
		data, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) || !e.IsDir() {
			continue
		}
		if err != nil {
			return nil, err
		}
		b, err := decode(data)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", file, err))
			continue
		}
		b.Name, b.Dir = e.Name(), filepath.Join(dir, e.Name())
		for _, err := range b.check() {
			wrong = append(wrong, fmt.Errorf("%s: %w", file, err))
		}
		all = append(all, b)
	}
	return all, errors.Join(wrong...)
}

// decode reads a bug.yaml and sets defaults.
func decode(data []byte) (*Bug, error) {
	b := &Bug{}
	strict := yaml.NewDecoder(bytes.NewReader(data))
	strict.KnownFields(true)
	if err := strict.Decode(b); err != nil {
		return nil, err
	}
	b.Suite = cmp.Or(b.Suite, plan.SuiteFile)
	if len(b.Plans) == 0 {
		b.Plans = []string{"plans/*.yaml"}
	}
	return b, nil
}

var (
	commit = regexp.MustCompile(`^[0-9a-f]{40}$`)
	line   = regexp.MustCompile(`^[^:]+:[1-9][0-9]*$`)
)

func (b *Bug) check() (wrong []error) {
	must := func(right bool, format string, args ...any) {
		if !right {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	must(b.Project != "", "project is missing")
	must(b.Summary != "", "summary is missing: say in one sentence what goes wrong")
	must(b.Finding != Finding{}, "finding is missing: its judge, type, field or title")
	if b.Repository == "" {
		must(b.Commit == "" && b.Fixed == "" && b.Fix == "" && b.Shared == nil,
			"commit, fixed, fix and shared need a repository")
	} else {
		must(commit.MatchString(b.Commit), "commit %q: want 40 hexadecimal digits", b.Commit)
		must(b.Fixed == "" || commit.MatchString(b.Fixed), "fixed %q: want 40 hexadecimal digits", b.Fixed)
		must(b.Fixed == "" || b.Fix == "", "both fixed and fix are set: choose one")
	}
	for _, c := range b.Cause {
		must(line.MatchString(c), "cause %q: want a file and a line, such as pkg/x.go:12", c)
	}
	for _, file := range append([]string{b.Suite}, b.Plans...) {
		must(filepath.IsLocal(file) || b.Repository == "", "%q is outside of the source", file)
	}
	for _, name := range b.Shared {
		must(filepath.IsLocal(name), "shared %q: want a folder in %s", name, sharedDir)
	}
	return wrong
}

// HasFix reports whether there is a source without the bug.
func (b *Bug) HasFix() bool { return b.Fixed != "" || b.Fix != "" }

// MissingFile is the name of the list of bugs that are not shown, in the directory of the table.
const MissingFile = "missing.yaml"

// Missing is a bug that others have reported, and that no plan shows.
type Missing struct {
	Project string `yaml:"project"`
	Report  string `yaml:"report"` // its URL
	Why     string `yaml:"why"`    // it is not shown, in a sentence
}

// LoadMissing reads the list of bugs that are not shown, in the directory of the table. Without the file there are
// none.
func LoadMissing(dir string) ([]Missing, error) {
	file := filepath.Join(dir, MissingFile)
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Missing
	strict := yaml.NewDecoder(bytes.NewReader(data))
	strict.KnownFields(true)
	if err := strict.Decode(&all); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for i, m := range all {
		if m.Project == "" || m.Report == "" || m.Why == "" {
			return nil, fmt.Errorf("%s: item %d needs project, report and why", file, i+1)
		}
	}
	return all, nil
}

// Choose returns the bugs that have one of the names. If no names are given, it returns all bugs.
func Choose(all []*Bug, names []string) ([]*Bug, error) {
	if len(names) == 0 {
		return all, nil
	}
	var chosen []*Bug
	for _, name := range names {
		at := slices.IndexFunc(all, func(b *Bug) bool { return b.Name == name })
		if at < 0 {
			return nil, fmt.Errorf("unknown bug %q; `trommel bugs list` lists them", name)
		}
		chosen = append(chosen, all[at])
	}
	return chosen, nil
}
