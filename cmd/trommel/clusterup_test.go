package main

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestClusterUp tests the cluster commands, with its own clusters.
func TestClusterUp(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	t.Parallel()
	p := params(filepath.Join("testdata", "up"))
	p.Setup = func(e *testscript.Env) error {
		shareCaches(e)
		e.Setenv("PID", strconv.Itoa(os.Getpid()))
		return nil
	}
	testscript.Run(t, p)
}
