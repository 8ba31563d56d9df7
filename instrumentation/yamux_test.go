package instrumentation

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/sumdb/dirhash"

	"github.com/trommel-dev/trommel/instrumentation/points"
	"github.com/trommel-dev/trommel/internal/buildcache"
)

// TestPinnedYamux keeps pinnedYamux, for binaries without build information, in sync with go.mod and go.sum.
func TestPinnedYamux(t *testing.T) {
	data, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := modfile.Parse("go.mod", data, nil)
	if err != nil {
		t.Fatal(err)
	}
	version := ""
	for _, r := range mod.Require {
		if r.Mod.Path == yamuxModule {
			version = r.Mod.Version
		}
	}
	sums, err := os.ReadFile("../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	sum := ""
	for line := range strings.Lines(string(sums)) {
		if f := strings.Fields(line); f[0] == yamuxModule && f[1] == version {
			sum = f[2]
		}
	}
	if want := (dependency{path: yamuxModule, version: version, sum: sum}); pinnedYamux != want {
		t.Errorf("pinnedYamux is %+v, go.mod and go.sum have %+v", pinnedYamux, want)
	}
}

func TestYamuxIsWhatTheBinaryWasBuiltWith(t *testing.T) {
	other := &debug.Module{Path: "example.com/x", Version: "v1.0.0", Sum: "h1:x"}
	for _, tc := range []struct {
		name string
		info *debug.BuildInfo
		want dependency
	}{
		{"unknown", nil, pinnedYamux},
		{"a test", &debug.BuildInfo{}, pinnedYamux},
		{"go install",
			&debug.BuildInfo{Deps: []*debug.Module{other, {Path: yamuxModule, Version: "v0.9.0", Sum: "h1:y"}}},
			dependency{path: yamuxModule, version: "v0.9.0", sum: "h1:y"}},
		{"vendored", &debug.BuildInfo{Deps: []*debug.Module{{Path: yamuxModule, Version: "v0.1.2"}}}, pinnedYamux},
		{"a fork", &debug.BuildInfo{Deps: []*debug.Module{{Path: yamuxModule, Version: "v0.9.0", Replace: other}}},
			dependency{path: other.Path, version: other.Version, sum: other.Sum}},
		{"a directory",
			&debug.BuildInfo{Deps: []*debug.Module{{Path: yamuxModule, Version: "v0.9.0",
				Replace: &debug.Module{Path: "/src/yamux"}}}},
			dependency{path: yamuxModule, dir: "/src/yamux"}},
	} {
		if got := yamuxOf(tc.info); got != tc.want {
			t.Errorf("%s: got %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

// TestYamuxWhereItIs looks in the module cache of this process, in that of the build, and finally asks GOPROXY.
func TestYamuxWhereItIs(t *testing.T) {
	ctx := context.Background()
	out, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := strings.TrimSpace(string(out))
	proxy := "file://" + filepath.Join(modules, "cache", "download")
	t.Setenv("GOFLAGS", "-mod=mod -modcacherw") // so that downloads can be removed
	t.Setenv("GOPROXY", "off")
	empty := func() string { return filepath.Join(t.TempDir(), "modules") }
	hook := func(t *testing.T, env ...string) (string, error) {
		c, err := buildcache.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		dir, err := hookDir(ctx, c, hookConfig{importPath: points.HookModule, env: env})
		if entries, _ := os.ReadDir(c.Path("hook")); err != nil && len(entries) > 0 {
			t.Errorf("a hook that failed leaves %v", entries)
		}
		return dir, err
	}
	mustHook := func(t *testing.T, env ...string) {
		t.Helper()
		dir, err := hook(t, env...)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("go", "vet", ".", "./yamux")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("the hook does not compile: %v\n%s", err, out)
		}
		if _, err := os.Stat(filepath.Join(dir, "yamux", "LICENSE")); err != nil {
			t.Error("without its licence:", err)
		}
		if matches, _ := filepath.Glob(filepath.Join(dir, "yamux", "*_test.go")); len(matches) > 0 {
			t.Error("with its tests")
		}
	}
	t.Run("in the module cache of this process", func(t *testing.T) {
		mustHook(t, "GOMODCACHE="+empty(), "GOFLAGS=-mod=vendor")
	})
	t.Run("in the module cache of the build", func(t *testing.T) {
		t.Setenv("GOMODCACHE", empty())
		mustHook(t, "GOMODCACHE="+modules)
	})
	t.Run("downloaded", func(t *testing.T) {
		t.Setenv("GOMODCACHE", empty())
		t.Setenv("GOPROXY", proxy)
		mustHook(t)
	})
	t.Run("cannot be downloaded", func(t *testing.T) {
		dir := empty()
		t.Setenv("GOMODCACHE", dir)
		_, err := hook(t)
		want := "the hook is built with github.com/hashicorp/yamux@v0.1.2, as this trommel is, but it is not in the " +
			"module cache (" + dir +
			") and cannot be downloaded: github.com/hashicorp/yamux@v0.1.2: module lookup disabled by GOPROXY=off; " +
			"run `go mod download github.com/hashicorp/yamux@v0.1.2` with a network, or set GOPROXY or GOMODCACHE to " +
			"a place that has it"
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	})
	t.Run("changed", func(t *testing.T) {
		dir := empty()
		t.Setenv("GOMODCACHE", dir)
		t.Setenv("GOPROXY", proxy)
		if _, err := hook(t); err != nil {
			t.Fatal(err)
		}
		changed := filepath.Join(dir, "github.com", "hashicorp", "yamux@v0.1.2", "session.go")
		// Files of the module cache are read-only.
		if err := errors.Join(os.Chmod(filepath.Dir(changed), 0o755), os.Chmod(changed, 0o644)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(changed, []byte("package yamux\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := hook(t); err == nil || !strings.Contains(err.Error(),
			"is not the github.com/hashicorp/yamux@v0.1.2 that this trommel was built with") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := pinnedYamux.source(cancelled, nil, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

// TestYamuxWithAnotherChecksum: the source is compared with the checksum that this binary was built with.
func TestYamuxWithAnotherChecksum(t *testing.T) {
	sum, err := dirhash.HashDir(t.TempDir(), "x", dirhash.Hash1)
	if err != nil {
		t.Fatal(err)
	}
	other := pinnedYamux
	other.sum = sum
	if _, err := other.source(context.Background(), nil, nil); err == nil ||
		!strings.Contains(err.Error(), "its checksum is "+pinnedYamux.sum+", not "+sum) {
		t.Errorf("got %v", err)
	}
}
