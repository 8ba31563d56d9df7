package main

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestClusterUp drives the commands about clusters, with clusters of its own.
func TestClusterUp(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	p := params(filepath.Join("testdata", "up"))
	p.Setup = func(e *testscript.Env) error {
		// The control plane is cached where the user's is, and clusters are registered there.
		for _, name := range []string{"HOME", "TROMMEL_CACHE", envControlPlaneBinary} {
			if v, ok := os.LookupEnv(name); ok {
				e.Setenv(name, v)
			}
		}
		e.Setenv("PID", strconv.Itoa(os.Getpid()))
		return nil
	}
	testscript.Run(t, p)
}
