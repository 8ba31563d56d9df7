package bugs

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/internal/testing/golden"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// lay writes files into a directory; names may have folders.
func lay(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	data := map[string][]byte{}
	for name, text := range files {
		data[name] = []byte(text)
	}
	if err := write(dir, data); err != nil {
		t.Fatal(err)
	}
}

func TestLoadReportsAllMistakes(t *testing.T) {
	dir := t.TempDir()
	lay(t, dir, map[string]string{
		"README.md": "no bug",
		"good/bug.yaml": "project: P\nrepository: https://example.com/p\n" +
			"commit: 0123456789012345678901234567890123456789\nsummary: It fails.\nfinding: {judge: baseline}\n",
		"no-source/bug.yaml": "project: P\nfixed: abc\nshared: [s]\nsummary: It fails.\nfinding: {type: pod}\n",
		"short/bug.yaml": "project: P\nrepository: https://example.com/p\ncommit: v1\nfixed: v2\nfix: a\n" +
			"cause: [x.go]\nsuite: ../trommel.yaml\nshared: [../x]\n",
		"typo/bug.yaml": "project: P\nsumary: It fails.\n",
	})
	_, err := Load(dir)
	want := []string{
		"no-source/bug.yaml: commit, fixed, fix and shared need a repository",
		"short/bug.yaml: summary is missing: say in one sentence what goes wrong",
		"short/bug.yaml: finding is missing: its judge, type, field or title",
		`short/bug.yaml: commit "v1": want 40 hexadecimal digits`,
		`short/bug.yaml: fixed "v2": want 40 hexadecimal digits`,
		"short/bug.yaml: both fixed and fix are set: choose one",
		`short/bug.yaml: cause "x.go": want a file and a line, such as pkg/x.go:12`,
		`short/bug.yaml: "../trommel.yaml" is outside of the source`,
		`short/bug.yaml: shared "../x": want a folder in shared`,
		"typo/bug.yaml: yaml: unmarshal errors:\n  line 2: field sumary not found in type bugs.Bug",
	}
	if diff := cmp.Diff(strings.Join(want, "\n"), strings.ReplaceAll(err.Error(), dir+"/", "")); diff != "" {
		t.Error(diff)
	}
}

func TestMatches(t *testing.T) {
	found := record.Finding{
		Severity: record.SeverityBug, Judge: record.JudgeBaseline, Subject: "job.batch/default/a",
		Field: "spec.suspend status.conditions[type=Complete].status", Title: "job is wrong",
	}
	for want, f := range map[bool][]Finding{
		true: {
			{Judge: "baseline"}, {Type: "job.batch"}, {Type: "job"}, {Field: "spec"}, {Field: "status.conditions"},
			{Title: "is wrong"},
		},
		false: {{Judge: "workload"}, {Type: "jo"}, {Type: "pod"}, {Field: "spe"}, {Title: "is right"}},
	} {
		for _, f := range f {
			if got := f.Matches(found); got != want {
				t.Errorf("%+v: %t, want %t", f, got, want)
			}
		}
	}
	found.Severity = record.SeverityNote
	if (Finding{Judge: "baseline"}).Matches(found) {
		t.Error("a note counts as a bug")
	}
}

// TestSources gets two commits of a repository, and one of them with patches.
func TestSources(t *testing.T) {
	repo := filepath.Join(t.TempDir(), "example.com", "p")
	lay(t, repo, map[string]string{"main.go": "broken\n"})
	run := func(args ...string) string {
		t.Helper()
		args = append([]string{"-C", repo, "-c", "user.name=t", "-c", "user.email=t@example.com"}, args...)
		out, err := exec.Command("git", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	run("init", "-q")
	run("add", ".")
	run("commit", "-qm", "broken")
	broken := run("rev-parse", "HEAD")
	lay(t, repo, map[string]string{"main.go": "fixed\n"})
	run("commit", "-qam", "fixed")
	table := t.TempDir()
	lay(t, table, map[string]string{
		"b/bug.yaml": "project: P\nrepository: https://example.com/p\ncommit: " + broken + "\nfix: fix.patch\n" +
			"summary: It fails.\nfinding: {type: pod}\nshared: [s]\n",
		"b/fix.patch":    "--- a/main.go\n+++ b/main.go\n@@ -1,0 +2 @@\n+mended\n",
		"b/trommel.yaml": "suite", "b/plans/1.yaml": "one", "b/plans/2.yaml": "two",
		"shared/s/plans/1.yaml": "another one", "shared/s/data/x": "x",
	})
	all, err := Load(table)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TROMMEL_CACHE", t.TempDir())
	s := Sources{Mirror: "file://" + filepath.Dir(filepath.Dir(repo)) + "/"}
	check := func(get func(context.Context, *Bug) (*Tree, error), want string) {
		t.Helper()
		tree, err := get(t.Context(), all[0])
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(tree.Dir, "main.go"))
		if err != nil || string(got) != want {
			t.Errorf("source %q, want %q (%v)", got, want, err)
		}
		if len(tree.Plans) != 2 || filepath.Base(tree.Suite) != "trommel.yaml" {
			t.Errorf("plans %q, suite %s", tree.Plans, tree.Suite)
		}
		for name, want := range map[string]string{"data/x": "x", "plans/1.yaml": "one"} {
			if got, err := os.ReadFile(filepath.Join(tree.Dir, name)); err != nil || string(got) != want {
				t.Errorf("%s: %q, want %q (%v)", name, got, want, err)
			}
		}
		for _, left := range []string{"bug.yaml", "fix.patch"} {
			if _, err := os.Stat(filepath.Join(tree.Dir, left)); err == nil {
				t.Errorf("%s is there", left)
			}
		}
	}
	check(s.Get, "broken\n")
	check(s.GetFixed, "broken\nmended\n")
	lay(t, table, map[string]string{"b/fix.patch": "--- a/main.go\n+++ b/main.go\n@@ -1,0 +2 @@\n+whole\n"})
	check(s.GetFixed, "broken\nwhole\n")
	all[0].Fix, all[0].Fixed = "", run("rev-parse", "HEAD")
	if err := os.Remove(filepath.Join(table, "b", "fix.patch")); err != nil {
		t.Fatal(err)
	}
	check(s.GetFixed, "fixed\n")
	all[0].Commit = strings.Repeat("0", 40)
	if _, err := s.Get(t.Context(), all[0]); err == nil ||
		!strings.HasPrefix(err.Error(), "get P: commit "+all[0].Commit+" is not in file://") {
		t.Errorf("a commit that does not exist: %v", err)
	}
	if err := os.RemoveAll(repo); err != nil { // what is there is not fetched again
		t.Fatal(err)
	}
	check(s.GetFixed, "fixed\n")
	if _, err := s.Get(t.Context(), all[0]); err == nil || !strings.HasPrefix(err.Error(), "get P: git fetch: ") {
		t.Errorf("a repository that does not exist: %v", err)
	}
}

func TestResults(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.json")
	all, err := ReadResults(file)
	if err != nil || len(all) != 0 {
		t.Fatal(all, err)
	}
	all["a"] = &Result{Shown: 3, Of: 3, OfFixed: 3, Took: 4 * time.Second, Total: time.Minute, Date: "2026-01-02"}
	all["b"] = &Result{Of: 1, Other: "crash: it exits"}
	all["renamed"] = &Result{}
	table := []*Bug{
		{
			Name: "a", Project: "P", Version: "v1", Kind: "stale", Summary: "It fails.",
			Repository: "https://example.com/p", Commit: strings.Repeat("1", 40), Fix: "fix.patch",
			Reports: []string{"https://example.com/1"}, Reported: "2025-01", Cause: []string{"a.go:1"},
		},
		{Name: "b", Project: "P", Summary: "Short."},
	}
	if err := all.Write(file, table); err != nil {
		t.Fatal(err)
	}
	again, err := ReadResults(file)
	if delete(all, "renamed"); err != nil || !cmp.Equal(again, all) {
		t.Errorf("%v (%v)", cmp.Diff(again, all), err)
	}
	var list, page strings.Builder
	if err := WriteList(&list, table, again); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"shown 3 of 3 in 4s; gone at the fix", "not shown; found instead: crash: it exits"} {
		if !strings.Contains(list.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &list)
		}
	}
	missing := []Missing{{"Q", "https://example.com/browse/Q-7", "No fault does it."}}
	if err := WritePage(&page, table, again, missing); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"1 of 2 are shown.", "| [a](../examples/bugs/a) | It fails. | [P v1]",
		"; [a fix](../examples/bugs/a/fix.patch) |",
		"| Q [Q-7](https://example.com/browse/Q-7) | No fault does it. |",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &page)
		}
	}
}

// TestPage checks that docs/bugs.md is what the table says, and that suites and plans of the table can be read.
func TestPage(t *testing.T) {
	const table, page = "../../examples/bugs", "../../docs/bugs.md"
	all, err := Load(table)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range all {
		dir := b.Dir
		if b.Repository != "" {
			dir = t.TempDir()
			files, err := b.files()
			if err == nil {
				err = write(dir, files)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		tree, err := b.tree(dir)
		if err != nil {
			t.Fatal(err)
		}
		suite, err := plan.LoadSuite(tree.Suite)
		if err != nil && b.Repository != "" {
			// The rest is in the source, which is not here.
			for _, m := range regexp.MustCompile(`: ([^: ]+): no such file`).FindAllStringSubmatch(err.Error(), -1) {
				lay(t, dir, map[string]string{m[1]: ""})
			}
			suite, err = plan.LoadSuite(tree.Suite)
		}
		if err != nil {
			t.Error(err)
			continue
		}
		for _, file := range tree.Plans {
			p, err := plan.LoadWith(file, suite)
			if err == nil {
				err = p.Validate(suite)
			}
			if err != nil {
				t.Error(err)
			}
		}
	}
	results, err := ReadResults(filepath.Join(table, "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	missing, err := LoadMissing(table)
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	if err := WritePage(&want, all, results, missing); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, page, []byte(want.String()))
}
