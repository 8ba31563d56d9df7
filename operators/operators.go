// Package operators gives tests the sources of operators that nobody here wrote. They are inputs and no part of this
// repository: tests that need them skip where their archives are not beside it.
package operators

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// archives is where the archives lie, relative to the root of the repository.
const archives = "../shared/operators"

// Unpack puts the source of the named operator into a folder of the test and returns that. It skips the test where
// there is no archive of it.
func Unpack(t testing.TB, name string) string {
	t.Helper()
	archive := filepath.Join(Root(t), archives, name+".tar.gz")
	if _, err := os.Stat(archive); err != nil {
		t.Skip("no archive of its source: ", err)
	}
	dir := t.TempDir()
	if out, err := exec.Command("tar", "-xzf", archive, "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("unpack: %v\n%s", err, out)
	}
	return filepath.Join(dir, name)
}

// Root is the root of this repository.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd() // of the package under test
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("the test does not run in the repository")
		}
		dir = parent
	}
}
