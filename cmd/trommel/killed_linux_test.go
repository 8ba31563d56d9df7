package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/internal/privatedir"
)

// TestKilledCoordinatorLeavesNothingRunning kills a coordinator that owns its cluster, with a controller and an API
// server paused.
func TestKilledCoordinatorLeavesNothingRunning(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	trommel := buildTrommel(t)
	copier, err := filepath.Abs("../../testdata/controllers/copier")
	if err != nil {
		t.Fatal(err)
	}
	dir := writePlans(t, copier)
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			// Every process of the run has this directory in its arguments or its environment. It must be short: paths
			// of unix sockets are limited.
			mark, err := os.MkdirTemp("/tmp", "t")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(mark)
			recordDir := filepath.Join(t.TempDir(), "r")
			t.Setenv("TMPDIR", mark)
			s := startUntil(t, "paused by action", trommel, "-p", filepath.Join(dir, "pausing.yaml"),
				"--record", recordDir)
			if n := len(processesWith(t, mark)); n < 6 {
				t.Fatalf("%d processes belong to the run while it runs; the test does not recognize them", n)
			}
			if err := s.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			rest := <-s.rest
			code := exitCode(s.Wait())
			if signal == syscall.SIGINT {
				if code != "4" {
					t.Errorf("exit code %s, then it printed:\n%s", code, rest)
				}
				checkNoFiles(t, mark)
			}
			deadline := time.Now().Add(10 * time.Second)
			for {
				left := processesWith(t, mark)
				if len(left) == 0 {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("still running after 10s:\n%s", strings.Join(left, "\n"))
				}
				time.Sleep(20 * time.Millisecond)
			}
			next, err := privatedir.New("") // as the next run does; it deletes what a killed one has left
			if err != nil {
				t.Fatal(err)
			}
			if err := next.Remove(); err != nil {
				t.Error(err)
			}
			checkNoFiles(t, mark)
		})
	}
}

// checkNoFiles checks that runs have left no files in their directory for temporary files.
func checkNoFiles(t *testing.T, dir string) {
	t.Helper()
	if left, _ := filepath.Glob(filepath.Join(dir, "*", "[^.]*")); len(left) > 0 {
		t.Errorf("files left: %v", left)
	}
}

// processesWith lists the processes, other than this one, that have the text in their arguments or environment.
func processesWith(t *testing.T, text string) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, e := range entries {
		if strings.Trim(e.Name(), "0123456789") != "" || e.Name() == fmt.Sprint(os.Getpid()) {
			continue
		}
		args, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		env, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if bytes.Contains(args, []byte(text)) || bytes.Contains(env, []byte(text)) {
			found = append(found, e.Name()+" "+string(bytes.ReplaceAll(args, []byte{0}, []byte(" "))))
		}
	}
	return found
}
