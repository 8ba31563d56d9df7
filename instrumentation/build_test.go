package instrumentation_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/coordinator/monitor"
	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/instrumentation/points"
	"github.com/trommel-dev/trommel/instrumentation/wire"
)

// tree describes every file below a directory: content, mode and modification time.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		content := ""
		if d.Type().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = string(data)
		}
		files[path] = fmt.Sprintf("%s %s %s", info.Mode(), info.ModTime(), content)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

var copyCall = points.AnnotatedCall{
	Name: "copy", Package: "example.com/controller/reconciler", Receiver: "*Copier", Function: "copy",
}

// annotated are calls in the main module and in a dependency.
var annotated = []points.AnnotatedCall{
	copyCall,
	{Name: "logger", Package: "github.com/go-logr/zapr", Function: "NewLogger"},
}

func TestBuildLeavesTheTreeAsItIs(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a controller")
	}
	dir := filepath.Join("testdata", "controller")
	before := tree(t, dir)
	config := instrumentation.BuildConfig{Dir: dir, AnnotatedCalls: annotated}
	result, err := instrumentation.Build(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	// Two concurrent builds, with nothing to build.
	began := time.Now()
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			again, err := instrumentation.Build(t.Context(), config)
			if err != nil {
				t.Error(err)
			} else if !again.Cached || again.Binary != result.Binary {
				t.Errorf("nothing changed, but %+v", again)
			}
		})
	}
	wg.Wait()
	t.Logf("two builds with nothing to build: %s", time.Since(began))
	after := tree(t, dir)
	for path := range after {
		if after[path] != before[path] {
			t.Errorf("%s was changed", path)
		}
		delete(before, path)
	}
	for path := range before {
		t.Errorf("%s is gone", path)
	}

	// The binary reports its points before its main function runs.
	m, err := monitor.Listen(monitor.Config{Address: "unix://" + filepath.Join(t.TempDir(), "s"), Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	cmd := exec.Command(result.Binary)
	cmd.Env = append(os.Environ(), "KUBECONFIG=/nonexistent", wire.EnvCoordinator+"="+m.Addr(), wire.EnvToken+"=secret",
		wire.EnvIdentity+"=copier")
	if err := cmd.Run(); err == nil {
		t.Error("the controller ran without a cluster")
	}
	e := <-m.Events()
	if !e.Started || len(e.Session.Manifest.Points) != len(result.Manifest.Points) || len(result.Manifest.Points) < 12 {
		t.Errorf("handshake %+v, built with %+v", e.Session, result.Manifest)
	}
	points := map[wire.Point]bool{}
	for _, p := range e.Session.Manifest.Points {
		points[p.Point] = true
	}
	for _, p := range []wire.Point{wire.ControllerRecv, wire.ControllerRead, wire.ControllerWrite, wire.Reconcile,
		wire.AnnotatedCall} {
		if !points[p] {
			t.Errorf("no point %s in the manifest", p)
		}
	}
}

func write(t *testing.T, dir string, files map[string]string) string {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestBuildSaysWhatIsWrong(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	empty := write(t, filepath.Join(dir, "empty"), nil)
	if err := os.MkdirAll(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	alien := write(t, filepath.Join(dir, "alien"), map[string]string{
		"go.mod": "module example.com/alien\n\ngo 1.26\n", "main.go": "package main\n\nfunc main() {}\n",
		"lib/lib.go": "package lib\n",
	})
	for _, tc := range []struct {
		name   string
		config instrumentation.BuildConfig
		want   string
	}{
		{"no folder", instrumentation.BuildConfig{Dir: filepath.Join(dir, "none")}, "lstat " +
			filepath.Join(dir, "none") + ": no such file or directory"},
		{"no module", instrumentation.BuildConfig{Dir: empty}, "no go.mod in " + empty +
			" or above it: trommel builds Go modules; in an older repository, create one with `go mod init` and `go " +
			"mod tidy` (in a copy, to leave the repository unchanged)"},
		{"no main package", instrumentation.BuildConfig{Dir: alien, Package: "./lib"},
			"package example.com/alien/lib in " + filepath.Join(alien, "lib") + " is not a main package"},
		{"many packages", instrumentation.BuildConfig{Dir: alien, Package: "./..."}, `"./..." in ` + alien +
			" matches 2 packages: want one main package"},
		{"no client-go", instrumentation.BuildConfig{Dir: alien}, "package example.com/alien in " + alien +
			" does not use k8s.io/client-go: there is nothing to observe (trommel observes controllers that use it " +
			"to talk to Kubernetes)"},
		{"no client-go, but a call of it", instrumentation.BuildConfig{Dir: alien, AnyProgram: true,
			AnnotatedCalls: []points.AnnotatedCall{{Name: "main", Function: "main"}}},
			"package example.com/alien in " + alien + " does not use k8s.io/client-go: there is nothing to observe " +
				"(trommel observes controllers that use it to talk to Kubernetes)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.config.CacheDir = filepath.Join(dir, "cache")
			_, err := instrumentation.Build(t.Context(), tc.config)
			var input *instrumentation.InputError
			if !errors.As(err, &input) || err.Error() != tc.want {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
}

func TestBuildShowsWhatTheCompilerSays(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a controller")
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "controller"))); err != nil {
		t.Fatal(err)
	}
	write(t, dir, map[string]string{"broken.go": "package main\n\nvar broken int = \"x\"\n"})
	_, err := instrumentation.Build(t.Context(), instrumentation.BuildConfig{Dir: dir})
	var compile *instrumentation.CompileError
	if !errors.As(err, &compile) {
		t.Fatalf("got %v, want a CompileError", err)
	}
	want := `./broken.go:3:18: cannot use "x" (untyped string constant) as int value in variable declaration`
	if !strings.Contains(compile.Output, want) {
		t.Errorf("output %q, want %q in it", compile.Output, want)
	}

	if err := os.Remove(filepath.Join(dir, "broken.go")); err != nil {
		t.Fatal(err)
	}
	missing := copyCall
	missing.Function = "Copy"
	_, err = instrumentation.Build(t.Context(),
		instrumentation.BuildConfig{Dir: dir, AnnotatedCalls: []points.AnnotatedCall{missing}})
	want = `annotated call "copy": package example.com/controller/reconciler has no function (*Copier).Copy`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	missing.Package = "example.com/controller/none"
	_, err = instrumentation.Build(t.Context(),
		instrumentation.BuildConfig{Dir: dir, AnnotatedCalls: []points.AnnotatedCall{missing}})
	want = `annotated call "copy": example.com/controller does not use package "example.com/controller/none"`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestBuildEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := instrumentation.Build(ctx, instrumentation.BuildConfig{Dir: filepath.Join("testdata", "controller")})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
