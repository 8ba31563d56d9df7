package points

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"golang.org/x/mod/semver"

	"github.com/trommel-dev/trommel/internal/buildcache"
)

var update = flag.Bool("update", false, "write golden files")

// goOutput returns what the go command writes, outside of any module.
func goOutput(t testing.TB, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "GOWORK=off", "PWD="+cmd.Dir)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// moduleSource returns the directory of a module's version in the module cache.
func moduleSource(t *testing.T, path, version string) string {
	t.Helper()
	var module struct{ Dir string }
	out := goOutput(t, "mod", "download", "-json", path+"@"+version)
	if err := json.Unmarshal(out, &module); err != nil || module.Dir == "" {
		t.Fatalf("no directory in %s: %v", out, err)
	}
	return module.Dir
}

// copyForTest describes the copy of a module that a build would make. For client-go it includes the controller-runtime
// of its time.
func copyForTest(t *testing.T, path, version string) ModuleCopy {
	t.Helper()
	m := ModuleCopy{Path: path, Version: version, Dir: moduleSource(t, path, version), Hook: HookModule}
	var err error
	switch path {
	case ControllerRuntime:
		m.ByGoroutine, err = m.WithoutContext()
	case ClientGo:
		m.ByGoroutine = !KnownVersion(version) || semver.Compare(version, "v0.19.0") < 0
	}
	if err == nil && !KnownVersion(version) {
		m.PointsOf, err = m.VersionByPoints()
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// patchedForTest patches a module in the cache that builds use too.
func patchedForTest(t *testing.T, path, version string) (original, copied string, found []Patched) {
	t.Helper()
	c, err := buildcache.Open("")
	if err != nil {
		t.Fatal(err)
	}
	m := copyForTest(t, path, version)
	copied, found, err = m.Make(c)
	if err != nil {
		t.Fatal(err)
	}
	return m.Dir, copied, found
}

// TestPatch compares the lines that are changed in each version with golden files, and checks that nothing else is.
func TestPatch(t *testing.T) {
	for _, tc := range []struct{ module, version string }{
		{APIServer, "v0.35.8"},
		{APIServer, "v0.36.3"},
		{APIServer, "v0.37.1"},
		{APIExtensions, "v0.35.8"},
		{APIExtensions, "v0.36.3"},
		{APIExtensions, "v0.37.1"},
		{ClientGo, "v0.0.0-20190918160344-1fbdaa4c8d90"}, // Kubernetes 1.16.0
		{ClientGo, "v0.17.17"},
		{ClientGo, "v0.18.19"},
		{ClientGo, "v0.20.15"},
		{ClientGo, "v0.26.15"},
		{ClientGo, "v0.31.14"}, // only half of its work queues are generic
		{ClientGo, "v0.32.13"},
		{ClientGo, "v0.35.6"}, // batches of deliveries, under the lock of the queue
		{ClientGo, "v0.36.3"},
		{ClientGo, "v0.37.2"},
		{ControllerRuntime, "v0.4.0"},
		{ControllerRuntime, "v0.6.5"},
		{ControllerRuntime, "v0.8.3"},
		{ControllerRuntime, "v0.14.7"},
		{ControllerRuntime, "v0.20.4"}, // the first with a priority queue
		{ControllerRuntime, "v0.25.2"},
		{Reflect2, "v1.0.1"},
		{Kubernetes, "v1.35.8"},
		{Kubernetes, "v1.36.3"},
		{Kubernetes, "v1.37.1"},
		{KWOK, "v0.8.0"},
		{APIMachinery, "v0.35.8"},
		{APIMachinery, "v0.36.3"},
		{APIMachinery, "v0.37.1"},
		{Aggregator, "v0.35.8"},
		{Aggregator, "v0.36.3"},
		{Aggregator, "v0.37.1"},
		{Etcd, "v3.6.5"},
		{Etcd, "v3.6.8"},
		{Etcd, "v3.7.0"},
	} {
		name := strings.ReplaceAll(tc.module, "/", "_") + "@" + tc.version
		t.Run(name, func(t *testing.T) {
			original, patched, found := patchedForTest(t, tc.module, tc.version)
			var b strings.Builder
			for _, p := range found {
				what := string(p.Point)
				if what == "" {
					what = "-"
				}
				fmt.Fprintf(&b, "%s %s:%d (%s).%s\n", what, p.File, p.Line, p.Receiver, p.Function)
			}
			files := map[string]bool{}
			for _, p := range found {
				files[p.File] = true
			}
			var names []string
			for f := range files {
				names = append(names, f)
			}
			sort.Strings(names)
			for _, f := range names {
				fmt.Fprintf(&b, "\n%s\n", f)
				diffLines(t, &b, filepath.Join(original, f), filepath.Join(patched, f))
			}
			golden(t, filepath.Join("testdata", "patched", name+".golden"), b.String())
		})
	}
}

// TestEveryMinorIsPatched finds the points in the minor versions between those that TestVersions runs.
func TestEveryMinorIsPatched(t *testing.T) {
	for module, versions := range map[string][]string{
		ClientGo: {"v0.17.4", "v0.18.6", "v0.21.14", "v0.22.17", "v0.24.17", "v0.25.16", "v0.27.16", "v0.28.15",
			"v0.30.14", "v0.31.14", "v0.33.10"},
		ControllerRuntime: {
			"v0.9.7", "v0.10.3", "v0.12.3", "v0.13.1", "v0.15.3", "v0.16.6", "v0.18.7", "v0.19.7", "v0.21.0", "v0.23.1",
		},
	} {
		for _, version := range versions {
			t.Run(module+"@"+version, func(t *testing.T) {
				t.Parallel()
				m, dir := copyForTest(t, module, version), t.TempDir()
				packages := map[string]bool{}
				for _, p := range pointsOf(module, version, m.ByGoroutine) {
					packages[filepath.Dir(filepath.FromSlash(p.file))] = true
				}
				for _, h := range helpers {
					if h.module == module && hasGoFiles(filepath.Join(m.Dir, filepath.FromSlash(h.dir))) {
						packages[filepath.FromSlash(h.dir)] = true
					}
				}
				for name := range packages {
					if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(m.Dir, name))); err != nil &&
						!errors.Is(err, fs.ErrExist) {
						t.Fatal(err)
					}
				}
				if err := filepath.WalkDir(dir,
					func(path string, _ fs.DirEntry, _ error) error { return os.Chmod(path, 0o755) }); err != nil {
					t.Fatal(err)
				}
				found, err := patchModule(m, dir)
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range found {
					if _, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, filepath.FromSlash(p.File)),
						nil, 0); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}

// diffLines writes the changed lines. All other lines, and the number of lines, are the same after the //line
// directive.
func diffLines(t *testing.T, b *strings.Builder, original, patched string) {
	t.Helper()
	want, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(patched)
	if err != nil {
		t.Fatal(err)
	}
	directive, got, _ := bytes.Cut(got, []byte("\n"))
	if string(directive) != "//line "+original+":1" {
		t.Errorf("%s begins with %s", patched, directive)
	}
	changedLines(t, b, patched, want, got)
	fset := token.NewFileSet()
	if _, err := parser.ParseFile(fset, patched, nil, 0); err != nil {
		t.Errorf("patched file does not parse: %v", err)
	}
}

// changedLines writes which of the same number of lines differ.
func changedLines(t *testing.T, b *strings.Builder, name string, want, got []byte) {
	t.Helper()
	before, after := strings.SplitAfter(string(want), "\n"), strings.SplitAfter(string(got), "\n")
	if len(before) != len(after) {
		t.Fatalf("%s: %d lines, were %d", name, len(after), len(before))
	}
	for i := range after {
		if after[i] != before[i] {
			fmt.Fprintf(b, "%d-%s%d+%s", i+1, before[i], i+1, after[i])
		}
	}
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s (go test -update ./instrumentation/points rewrites it):\ngot\n%s\nwant\n%s", path, got, want)
	}
}

// TestPointThatIsNotThere checks the errors for a version that we do not know yet.
func TestPointThatIsNotThere(t *testing.T) {
	write := func(name, text string) string {
		dir := t.TempDir()
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	const advice = ": build with a released k8s.io/apiserver, v0.35.0 or later, or with a newer trommel (searched: %s)"
	for _, tc := range []struct{ name, file, text, want string }{
		{"function", "pkg/storage/cacher/watch_cache.go", "package cacher\nfunc (w watchCache) processEvent() {}\n",
			"k8s.io/apiserver v0.36.9: (*watchCache).processEvent in pkg/storage/cacher/watch_cache.go: no such " +
				"function; this version of trommel does not know how to observe it"},
		{"parameter", "pkg/storage/cacher/watch_cache.go", "package cacher\nfunc (w *watchCache) processEvent() {}\n",
			"k8s.io/apiserver v0.36.9: (*watchCache).processEvent in pkg/storage/cacher/watch_cache.go: it has no " +
				"parameter 0; this version of trommel does not know how to observe it"},
		{"file", "pkg/other.go", "package cacher\n",
			"k8s.io/apiserver v0.36.9: (*watchCache).processEvent in pkg/storage/cacher/watch_cache.go: no such " +
				"file; this version of trommel does not know how to observe it"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := write(tc.file, tc.text)
			_, err := patchModule(ModuleCopy{Path: APIServer, Version: "v0.36.9", Dir: dir}, dir)
			var notFound *NotFoundError
			if !errors.As(err, &notFound) || err.Error() != tc.want+fmt.Sprintf(advice, dir) {
				t.Errorf("got  %v\nwant %s...", err, tc.want)
			}
		})
	}
}

// TestAnnotate covers the signatures that a user's function may have.
func TestAnnotate(t *testing.T) {
	// What the function begins with, if ctx is its context and err its error result.
	hook := func(ctx, err string) string {
		s := " trommelCall := trommelAnnotated(" + ctx + ", \"n\"); defer func() { "
		if err == "" {
			return s + "trommelCall.After(nil, nil, nil, 0) }();"
		}
		return s + err + " = trommelCall.Returns(" + err + ") }(); " +
			"if " + err + " = trommelCall.Refused(); " + err + " != nil { return };"
	}
	for _, tc := range []struct {
		name, receiver, in, want string
		fails                    bool
	}{
		{"no results", "", "func f(a int) {\n}", "func f(a int) {" + hook("nil", "") + "\n}", false},
		{
			"context and unnamed error", "*T", "func (t *T) f(ctx context.Context) error { return nil }",
			"func (t *T) f(ctx context.Context) (trommelErr error) {" + hook("ctx", "trommelErr") + " return nil }",
			true,
		},
		{
			"unnamed parameters", "", "func f(int, context.Context) {}",
			"func f(_ int, trommelCtx context.Context) {" + hook("trommelCtx", "") + "}", false,
		},
		{
			"unnamed results", "T", "func (T) f(_ context.Context) (int, error) { return 0, nil }",
			"func (T) f(trommelCtx context.Context) (trommelResult0 int, trommelErr error) {" +
				hook("trommelCtx", "trommelErr") + " return 0, nil }", true,
		},
		{
			"named results", "*T", "func (t *T[K]) f() (n int, err error) { return }",
			"func (t *T[K]) f() (n int, err error) {" + hook("nil", "err") + " return }", true,
		},
		{
			"blank error", "", "func f() (n int, _ error) { return }",
			"func f() (n int, trommelErr error) {" + hook("nil", "trommelErr") + " return }", true,
		},
		{
			"error is not last", "", "func f() (error, int) { return nil, 0 }",
			"func f() (error, int) {" + hook("nil", "") + " return nil, 0 }", false,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := parse("/x.go", []byte("package p\n"+tc.in))
			if err != nil {
				t.Fatal(err)
			}
			line, fails, err := s.annotate(AnnotatedCall{Name: "n", Receiver: tc.receiver, Function: "f"})
			if err != nil || line != 2 || fails != tc.fails {
				t.Fatalf("line %d, fails %t, %v", line, fails, err)
			}
			want := "//line /x.go:1\npackage p\n" + tc.want
			if got := string(s.patched()); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			if _, err := parse("/x.go", s.patched()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestVersionByPoints checks which version a commit's source is treated as. Its own version sorts below all releases.
func TestVersionByPoints(t *testing.T) {
	for _, tc := range []struct{ version, named, want string }{
		{version: "v0.0.0-20190918160344-1fbdaa4c8d90", want: "v0.16.4"}, // Kubernetes 1.16.0
		{version: "v0.17.17", want: "v0.16.4"},
		{version: "v0.18.19", want: "v0.18.0-0"},
		{version: "v0.20.15", want: "v0.18.0-0"},
		{version: "v0.26.15", want: "v0.23.0-0"},
		{version: "v0.32.13", want: "v0.32.0-0"},
		{version: "v0.37.2", want: "v0.36.0-0"},
		{version: "v0.32.13", named: "v0.0.0-20291231000000-0123456789ab",
			want: Newest}, // newer than all known versions
	} {
		t.Run(tc.version+tc.named, func(t *testing.T) {
			m := ModuleCopy{Path: ClientGo, Version: tc.named, Dir: moduleSource(t, ClientGo, tc.version)}
			if got, err := m.VersionByPoints(); got != tc.want || err != nil {
				t.Errorf("%s, %v, want %s", got, err, tc.want)
			}
		})
	}
	m := ModuleCopy{Path: ClientGo, Dir: t.TempDir()}
	if got, err := m.VersionByPoints(); semver.Compare(got, oldest[ClientGo]) >= 0 || err != nil {
		t.Errorf("no source is treated as %s, %v", got, err)
	}
}
