// Package docs tests that what the documentation shows is true: its plans and suites load, and so do the examples', and
// its links lead somewhere.
package docs

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/internal/campaign/pattern"
	"github.com/trommel-dev/trommel/plan"
)

var (
	fence = regexp.MustCompile("(?ms)^ *```yaml\n(.*?)^ *```")
	link  = regexp.MustCompile(`\]\(([^)#]+)[^)]*\)`)
)

func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"*.md", "decisions/*.md", "../*.md", "../examples/*.md", "../examples/*/*.md"} {
		list, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, list...)
	}
	if len(all) < 5 {
		t.Fatalf("only %d pages found: %v", len(all), all)
	}
	return all
}

// operator makes a directory with what the suites of the first hour name in their operator's repository.
func operator(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "manifests/overlays/standalone"), 0o700); err != nil {
		t.Fatal(err)
	}
	sample := filepath.Join(dir, "examples/v2beta1/horovod/tensorflow-mnist.yaml")
	if err := os.MkdirAll(filepath.Dir(sample), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(sample, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir + "/"
}

func TestShownPlansAndSuitesLoad(t *testing.T) {
	count := 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
			block := m[1]
			// The other pages show them as if they were beside the first example's suite.
			beside := "../examples/database-operator/"
			if page == "first-hour.md" {
				beside = operator(t)
			}
			switch {
			case strings.Contains(block, "kind: TestPlan"):
				_, err = plan.Parse([]byte(block), beside+"shown.yaml")
			case strings.Contains(block, "kind: Suite"):
				_, err = plan.ParseSuite([]byte(block), beside+"trommel.yaml")
			default:
				continue
			}
			count++
			if err != nil {
				t.Errorf("%s: %v\n%s", page, err, block)
			}
		}
	}
	if count < 3 {
		t.Errorf("only %d plans and suites are shown", count)
	}
}

var update = flag.Bool("update", false, "write the generated parts of the pages")

// The table of what conditions mean is generated from the code that evaluates them.
func TestMeaningsTable(t *testing.T) {
	const page, begin, end = "plan-format.md", "<!-- begin: meanings -->\n", "<!-- end: meanings -->"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", page)
	}
	want := head + begin + plan.MeaningsTable() + end + tail
	if want == string(text) {
		return
	}
	if !*update {
		t.Fatalf("the table in %s is out of date; write it with go test ./docs -update", page)
	}
	if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestLinks(t *testing.T) {
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", page, m[1])
			}
		}
	}
}

// Lines have at most 100 columns. What cannot be broken is excepted: a program's output, which stands in fenced blocks
// without a language (its commands begin with "$ "), rows of tables between comments "begin" and "end", which tests
// write or which are wide, and rows of tables that tests read.
func TestLinesAreShort(t *testing.T) {
	const columns = 100
	// The headers of tables that tests compare with the code: one of package plan, and those of originals.md.
	read := []string{"| `actionType` |", comparisons}
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		var fenced, output, written, table bool
		for i, line := range strings.Split(string(text), "\n") {
			mark := strings.TrimSpace(line)
			switch {
			case strings.HasPrefix(mark, "```"):
				fenced = !fenced
				output = fenced && mark == "```"
			case strings.HasPrefix(line, "<!-- begin"), strings.HasPrefix(line, "<!-- end"):
				written = strings.HasPrefix(line, "<!-- begin")
			case !strings.HasPrefix(line, "|"):
				table = false
			case slices.ContainsFunc(read, func(header string) bool { return strings.HasPrefix(line, header) }):
				table = true
			}
			if output && !strings.HasPrefix(mark, "$ ") || (written || table) && strings.HasPrefix(line, "|") {
				continue
			}
			if n := utf8.RuneCountInString(line); n > columns {
				t.Errorf("%s:%d: %d columns, more than %d", page, i+1, n, columns)
			}
		}
	}
}

// The page on the API lists the packages that `make api` compares, and all of them exist.
func TestPackagesOfTheAPI(t *testing.T) {
	page, err := os.ReadFile("api.md")
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	variable := regexp.MustCompile(`(?m)^API := ((?:.*\\\n)*.*)$`).FindStringSubmatch(string(makefile))
	if variable == nil {
		t.Fatal("the Makefile has no list of the API's packages")
	}
	compared := strings.Fields(strings.ReplaceAll(variable[1], "\\\n", " "))
	var listed []string
	for _, m := range regexp.MustCompile("(?m)^- `([a-z0-9/]+)`: ").FindAllStringSubmatch(string(page), -1) {
		listed = append(listed, m[1])
	}
	if diff := cmp.Diff(compared, listed); diff != "" {
		t.Errorf("(-Makefile +api.md)\n%s", diff)
	}
	for _, pkg := range compared {
		if files, err := filepath.Glob(filepath.Join("..", pkg, "*.go")); err != nil || len(files) == 0 {
			t.Errorf("package %s does not exist", pkg)
		}
	}
}

func TestExamplesLoad(t *testing.T) {
	files, err := filepath.Glob("../examples/*/plans/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 8 {
		t.Errorf("only %d plans found", len(files))
	}
	for _, file := range files {
		suiteFile, err := plan.FindSuite(file)
		if err != nil {
			t.Error(err)
			continue
		}
		suite, err := plan.LoadSuite(suiteFile)
		if err != nil {
			t.Error(err)
			continue
		}
		variants := []string{""}
		for name := range suite.Variants {
			variants = append(variants, name)
		}
		for _, variant := range variants {
			merged, err := suite.WithVariant(variant)
			if err != nil {
				t.Errorf("%s: %v", suiteFile, err)
				continue
			}
			p, err := plan.Load(file)
			if err == nil {
				err = p.Validate(merged)
			}
			if err != nil {
				t.Errorf("variant %q: %v", variant, err)
			}
		}
	}
}

// Each field of the suite has a section of its own; each field of the types below it is named in it. (The tables of
// fields are compared by the tests of package plan.)
func TestFieldsOfTheSuiteAreDescribed(t *testing.T) {
	text, err := os.ReadFile("suite.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, section := range strings.Split(string(text), "\n## `")[1:] {
		name, rest, _ := strings.Cut(section, "`")
		sections[name] = rest
	}
	elsewhere := map[string]string{ // described in the text, or in another section
		"apiVersion": "the head", "kind": "the head",
	}
	fields := 0
	var named func(section string, typ reflect.Type)
	named = func(section string, typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice || typ.Kind() == reflect.Map {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || typ.PkgPath() != reflect.TypeFor[plan.Suite]().PkgPath() ||
			typ == reflect.TypeFor[plan.ResourceKey]() {
			return
		}
		for _, f := range reflect.VisibleFields(typ) {
			name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			if name == "" || name == "-" {
				continue
			}
			fields++
			if !regexp.MustCompile(`\b` + name + `\b`).MatchString(sections[section]) {
				t.Errorf("suite.md: the section on %s does not name the field %s of %s", section, name, typ.Name())
			}
			named(section, f.Type)
		}
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[plan.Suite]()) {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case name == "" || name == "-" || elsewhere[name] != "":
		case sections[name] == "":
			t.Errorf("suite.md has no section on %s", name)
		case name == "clusters":
			named("cluster", f.Type) // each has the fields of that
		default:
			named(name, f.Type)
		}
	}
	if fields < 60 {
		t.Errorf("only %d fields were looked for", fields)
	}
}

// Each pattern has a section of its own, and an item in the page on trommel test.
func TestPatternsAreDescribed(t *testing.T) {
	for page, line := range map[string]string{"patterns.md": "\n## %s\n", "test.md": "\n- **`%s`** "} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pattern.Patterns() {
			if want := fmt.Sprintf(line, p.Name); !strings.Contains(string(text), want) {
				t.Errorf("%s: no %q", page, want)
			}
		}
	}
}
