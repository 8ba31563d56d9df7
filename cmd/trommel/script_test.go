package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/clusters"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

func TestMain(m *testing.M) {
	testscript.Main(isolated{m}, map[string]func(){"trommel": func() {
		useIndex()
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		code := withoutKustomize(func(s output.Streams) int { return execute(ctx, os.Args[1:], s) })
		stop()
		os.Exit(code)
	}})
}

// TestScript tests the real CLI where no control plane is needed.
func TestScript(t *testing.T) {
	testscript.Run(t, params(filepath.Join("testdata", "script")))
}

// TestInitLayouts runs init on repositories with the layouts of common operators; its output must validate.
func TestInitLayouts(t *testing.T) {
	testscript.Run(t, params(filepath.Join("testdata", "init")))
}

func params(dir string) testscript.Params {
	return testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	}
}

// exits runs a program and checks its exit code: `exits 2 trommel -p plan.yaml`.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARG...]")
	}
	if code := exitCode(ts.Exec(args[1], args[2:]...)); code != args[0] {
		ts.Fatalf("%v: exit code %s, want %s", args[1:], code, args[0])
	}
}

// shareCaches makes the script use the user's caches and clusters, by copying the variables that locate them.
func shareCaches(e *testscript.Env) {
	for _, name := range []string{
		"HOME", "XDG_CACHE_HOME", "TROMMEL_CACHE", clusters.EnvControlPlaneBinary,
		"GOCACHE", "GOMODCACHE", "GOPATH", "GOENV", "GOFLAGS", "GOPROXY", "GONOPROXY", "GOPRIVATE", "GOSUMDB",
		"GONOSUMDB", "GOTOOLCHAIN",
	} {
		if v, ok := os.LookupEnv(name); ok {
			e.Setenv(name, v)
		}
	}
}

// isolated returns the command with which an isolating test runs tests.
type isolated struct{ m *testing.M }

func (i isolated) Run() int {
	defer func() { _ = os.RemoveAll(builtIn) }()
	return clustertest.Isolated(i.m.Run)
}
