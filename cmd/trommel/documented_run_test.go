package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
)

// TestDocumentedCommandsRun carries out the commands that the pages show, as far as what they name is in this
// repository; the others are about the reader's own operator. A plan may show a bug. It is one of the long tests.
func TestDocumentedCommandsRun(t *testing.T) {
	if os.Getenv("TROMMEL_TEST_LONG") == "" {
		t.Skip("runs with TROMMEL_TEST_LONG=1 (make long)")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	var done []string
	for _, page := range documentedPages(t, root) {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range fenced.FindAllStringSubmatch(string(data), -1) {
			for _, args := range commandsIn(block[1]) {
				dir, line := whereRuns(root, page, args), strings.Join(args, " ")
				if dir == "" || slices.Contains(done, line) {
					continue
				}
				done = append(done, line)
				t.Run(line, func(t *testing.T) {
					t.Chdir(likeness(t, dir))
					var out bytes.Buffer
					code := execute(t.Context(), args, output.Streams{In: &bytes.Buffer{}, Out: &out, Err: &out})
					if code != exit.Pass && code != exit.Bug {
						t.Errorf("exit code %d:\n%s", code, out.String())
					}
				})
			}
		}
	}
	if len(done) < 4 {
		t.Errorf("only %d commands were run: %q", len(done), done)
	}
}

// likeness returns a directory with links to all that is in dir, for commands that write files where they are called.
func likeness(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	like := t.TempDir()
	for _, e := range entries {
		if e.Name() == "trommel-runs" {
			continue
		}
		if err := os.Symlink(filepath.Join(dir, e.Name()), filepath.Join(like, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return like
}

// whereRuns returns the directory in which the command finds the files that it names: the repository's root, the page's
// own, or the first example's. It is empty if there is none, or if the command names no file.
func whereRuns(root, page string, args []string) string {
	var files []string
	for i, arg := range args {
		if i > 0 && slices.Contains([]string{"-p", "-c", "--plans"}, args[i-1]) || strings.HasSuffix(arg, ".yaml") {
			files = append(files, arg)
		}
	}
	if len(files) == 0 || slices.Contains(args, "-m") { // -m is Sieve's own way
		return ""
	}
	for _, dir := range []string{root, filepath.Dir(page), filepath.Join(root, "examples/database-operator")} {
		missing := slices.ContainsFunc(files, func(f string) bool {
			_, err := os.Stat(filepath.Join(dir, f))
			return err != nil
		})
		if !missing {
			return dir
		}
	}
	return ""
}
