package points

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	goversion "go/version"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/internal/buildcache"
)

// testGoRoot returns the Go installation that runs the tests, for a target platform.
func testGoRoot(t testing.TB, goos, goarch string) *GoRoot {
	t.Helper()
	var env struct {
		GOROOT, GOVERSION string
		Cgo               string `json:"CGO_ENABLED"`
	}
	if err := json.Unmarshal(goOutput(t, "env", "-json", "GOROOT", "GOVERSION", "CGO_ENABLED"), &env); err != nil {
		t.Fatal(err)
	}
	return &GoRoot{Dir: env.GOROOT, Version: env.GOVERSION, GOOS: goos, GOARCH: goarch, Cgo: env.Cgo == "1"}
}

// TestStandard checks that all points are found, that only lines with a point change, and that equal files get equal
// names.
func TestStandard(t *testing.T) {
	for _, tt := range []struct {
		goos, goarch string
		byGoroutine  bool
	}{{"linux", "amd64", false}, {"linux", "amd64", true}, {"linux", "arm64", false}, {"linux", "s390x", false},
		{"darwin", "arm64", true}} {
		t.Run(fmt.Sprintf("%s/%s %t", tt.goos, tt.goarch, tt.byGoroutine), func(t *testing.T) {
			t.Parallel()
			g := testGoRoot(t, tt.goos, tt.goarch)
			g.ByGoroutine = tt.byGoroutine
			c, err := buildcache.Open(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			overlay, points, err := g.Overlay(c)
			if err != nil {
				t.Fatal(err)
			}
			again, _, err := g.Overlay(c)
			if err != nil {
				t.Fatal(err)
			}
			seen := map[string]bool{}
			for _, p := range points {
				seen[p.File] = true
				if p.Module != Standard || p.Version != g.Version || p.Line == 0 || p.Point != "" {
					t.Errorf("point %+v", p)
				}
			}
			helpers := 0
			for original, patched := range overlay {
				if again[original] != patched {
					t.Errorf("%s is %s the first time and %s the second", original, patched, again[original])
				}
				name, err := filepath.Rel(filepath.Join(g.Dir, "src"), original)
				if err != nil {
					t.Fatal(err)
				}
				if strings.HasPrefix(filepath.Base(name), "zz_trommel_") {
					helpers++
					if _, err := parser.ParseFile(token.NewFileSet(), patched, nil, 0); err != nil {
						t.Error(err)
					}
					continue
				}
				if filepath.ToSlash(name) == nowAssembly {
					continue // see assembly; building with it is another test
				}
				if !seen[filepath.ToSlash(name)] {
					t.Errorf("%s is replaced but has no point", name)
				}
				var changed strings.Builder
				diffLines(t, &changed, original, patched)
				lines := regexp.MustCompile(`(?m)^\d+\+.*$`).FindAllString(changed.String(), -1)
				if len(lines) == 0 {
					t.Errorf("%s is unchanged", name)
				}
				for _, line := range lines {
					if !strings.Contains(line, "rommel") {
						t.Errorf("%s: %s", name, line)
					}
				}
			}
			want := 4
			if inotify(tt.goos, tt.goarch) {
				want++
			}
			if tt.byGoroutine {
				want++
			}
			if g.hasClock() {
				want += 3
			}
			if helpers != want {
				t.Errorf("%d helpers, want %d", helpers, want)
			}
		})
	}
}

// TestPatchedRuntime compares the lines of Go's runtime that give processes the run's clock with golden files, one for
// each minor version of Go.
func TestPatchedRuntime(t *testing.T) {
	mod, err := os.ReadFile(filepath.Join("..", "..", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	declared := "go" + regexp.MustCompile(`(?m)^go (\S+)$`).FindStringSubmatch(string(mod))[1]
	for _, goarch := range []string{"amd64", "arm64"} {
		t.Run(goarch, func(t *testing.T) {
			g := testGoRoot(t, "linux", goarch)
			if !*update && goversion.Lang(g.Version) != goversion.Lang(declared) {
				t.Skipf("%s is not the minor version of go.mod, %s", g.Version, declared)
			}
			c, err := buildcache.Open(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			overlay, _, err := g.Overlay(c)
			if err != nil {
				t.Fatal(err)
			}
			clock := map[string]bool{nowAssembly: true}
			for _, p := range clockPoints {
				clock[p.file] = true
			}
			for _, h := range clockHelpers {
				clock[h.dir+"/"+h.name] = true
			}
			var b strings.Builder
			for _, original := range slices.Sorted(maps.Keys(overlay)) {
				name, err := filepath.Rel(filepath.Join(g.Dir, "src"), original)
				if err != nil {
					t.Fatal(err)
				}
				if !clock[filepath.ToSlash(name)] {
					continue
				}
				fmt.Fprintf(&b, "%s\n", filepath.ToSlash(name))
				var changed strings.Builder
				switch {
				case strings.HasPrefix(filepath.Base(name), "zz_trommel_"): // a file of ours
				case filepath.ToSlash(name) == nowAssembly:
					diffAssembly(t, &changed, original, overlay[original])
				default:
					diffLines(t, &changed, original, overlay[original])
				}
				// Where the lines are differs between patch releases.
				b.WriteString(regexp.MustCompile(`(?m)^\d+`).ReplaceAllString(changed.String(), ""))
			}
			golden(t, filepath.Join("testdata", "patched",
				fmt.Sprintf("std@%s_%s.golden", goversion.Lang(g.Version), goarch)), b.String())
		})
	}
}

// diffAssembly is diffLines for a file that has no line directive.
func diffAssembly(t *testing.T, b *strings.Builder, original, patched string) {
	t.Helper()
	want, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(patched)
	if err != nil {
		t.Fatal(err)
	}
	changedLines(t, b, patched, want, got)
}

// A version of Go that the points of the clock do not fit builds programs that live in real time.
func TestClockThatDoesNotFit(t *testing.T) {
	g := testGoRoot(t, "linux", "amd64")
	src := filepath.Join(g.Dir, "src")
	g.Dir = t.TempDir()
	if err := os.CopyFS(filepath.Join(g.Dir, "src", "runtime"), os.DirFS(filepath.Join(src, "runtime"))); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(g.Dir, "src", "syscall"), os.DirFS(filepath.Join(src, "syscall"))); err != nil {
		t.Fatal(err)
	}
	if g.tryClock(); !g.hasClock() {
		t.Fatal("the points do not fit")
	}
	file := filepath.Join(g.Dir, "src", "runtime", "netpoll_epoll.go")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.ReplaceAll(string(text), "func netpoll(", "func poll("))
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	if g.tryClock(); g.hasClock() {
		t.Error("the points fit")
	}
}

// An unknown version of Go is rejected with an error that names the first place that differs.
func TestStandardPointThatIsNotThere(t *testing.T) {
	real := testGoRoot(t, "linux", "amd64")
	for _, tt := range []struct{ name, file, from, to, want string }{
		{"function", "net/ipsock_posix.go", "func internetSocket(", "func renamedSocket(",
			"internetSocket in net/ipsock_posix.go: no such function"},
		{"nothing is missing", "", "", "", ""},
		{"calls", "os/file_unix.go", "syscall.Readlink(", "syscall.ReadLink(",
			"call of syscall.Readlink in os/: nothing calls it"},
		{"file", "net/lookup.go", "", "", "(*Resolver).lookupIPAddr in net/lookup.go: no such file"},
		{"labels", "runtime/pprof/runtime.go", "func SetGoroutineLabels(", "func SetLabels(",
			"SetGoroutineLabels in runtime/pprof/runtime.go: no such function"},
		{"type of labels", "runtime/pprof/label.go", "labelMap", "labels",
			"labelMap in runtime/pprof/: it is not declared"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := *real
			g.Dir, g.Version = t.TempDir(), "go1.99.1"
			g.ByGoroutine = true
			for _, p := range []string{"os", "os/exec", "net", "syscall", "runtime/pprof"} {
				names, err := real.files(p)
				if err != nil {
					t.Fatal(err)
				}
				for _, name := range names {
					text, err := os.ReadFile(real.source(name))
					if err != nil {
						t.Fatal(err)
					}
					if name == tt.file {
						if tt.from == "" && tt.want != "" {
							continue
						}
						text = []byte(strings.ReplaceAll(string(text), tt.from, tt.to))
					}
					if err := os.MkdirAll(filepath.Dir(g.source(name)), 0o755); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(g.source(name), text, 0o644); err != nil {
						t.Fatal(err)
					}
				}
			}
			c, err := buildcache.Open(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = g.Overlay(c)
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			what := "give its processes their pod's files and address"
			if strings.HasPrefix(tt.file, labelsDir) {
				what = "distinguish reconciles that have no context"
			}
			want := "go1.99.1: " + tt.want + "; this version of trommel does not know how to " + what +
				": build with a released Go, go1.21 or later (GOTOOLCHAIN), or with a newer trommel " +
				"(searched: " + g.Dir + ")"
			var notFound *NotFoundError
			if !errors.As(err, &notFound) || err.Error() != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
		})
	}
}
