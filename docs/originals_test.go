package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// comparisons is the header of each table of originals.md.
const comparisons = "| The document | Here | Same, or different and why | Shown by |"

// namedTest is the name of a test, and its directory if several have a test of that name.
var namedTest = regexp.MustCompile("`(Test\\w+)`(?: \\(([a-z0-9/]+)\\))?")

// TestOriginals tests that each row of originals.md that says "same" is shown by a test, that the tests which a row
// names exist, and that a name which several packages use comes with its directory.
func TestOriginals(t *testing.T) {
	page, err := os.ReadFile("originals.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := testsByName(t)
	tables := 0
	for i, line := range strings.Split(string(page), "\n") {
		switch {
		case line == comparisons:
			tables++
		case !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| ---"):
		default:
			row := strings.Split(strings.ReplaceAll(strings.Trim(line, "|"), `\|`, "/"), "|")
			if len(row) != 4 {
				t.Errorf("originals.md:%d: %d columns, want 4", i+1, len(row))
				continue
			}
			named := namedTest.FindAllStringSubmatch(row[3], -1)
			if strings.HasPrefix(strings.TrimSpace(row[2]), "same") && len(named) == 0 {
				t.Errorf("originals.md:%d: no test shows that it is the same", i+1)
			}
			for _, m := range named {
				name, dir := m[1], m[2]
				switch dirs := tests[name]; {
				case len(dirs) == 0:
					t.Errorf("originals.md:%d: there is no %s", i+1, name)
				case dir != "" && !slices.Contains(dirs, dir):
					t.Errorf("originals.md:%d: %s has no %s (%s has)", i+1, dir, name, strings.Join(dirs, ", "))
				case dir == "" && len(dirs) > 1:
					t.Errorf("originals.md:%d: name the directory of %s: one of %s", i+1, name,
						strings.Join(dirs, ", "))
				}
			}
		}
	}
	if tables != 5 {
		t.Errorf("%d tables, want one for each of the five documents", tables)
	}
}

// TestOriginalsAreRead tests that a test reads each directory of testdata/originals: one that names the directory, or a
// file in it.
func TestOriginalsAreRead(t *testing.T) {
	dirs, err := filepath.Glob("../testdata/originals/*")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("testdata/originals has %d directories: %v", len(dirs), err)
	}
	var sources strings.Builder
	eachTestFile(t, func(_ string, source []byte) { sources.Write(source) })
	for _, dir := range dirs {
		name := filepath.Base(dir)
		if !strings.Contains(sources.String(), "testdata/originals/"+name+"/") {
			t.Errorf("no test reads testdata/originals/%s", name)
		}
	}
}

// testsByName returns the directories, relative to the repository's root, of all tests with a name.
func testsByName(t *testing.T) map[string][]string {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	tests := map[string][]string{}
	eachTestFile(t, func(dir string, source []byte) {
		for _, m := range declared.FindAllSubmatch(source, -1) {
			tests[string(m[1])] = append(tests[string(m[1])], dir)
		}
	})
	return tests
}

// eachTestFile calls do with the directory and the content of each test file of the repository.
func eachTestFile(t *testing.T, do func(dir string, source []byte)) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel("..", filepath.Dir(path))
		if err != nil {
			return err
		}
		do(filepath.ToSlash(dir), source)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
