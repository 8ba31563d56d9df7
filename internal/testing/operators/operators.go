// Package operators provides the sources of third-party operators to tests. The sources are not part of this
// repository: tests that need them skip if their archives are not beside it.
package operators

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// archives is the directory of the archives, relative to the root of the repository.
const archives = "../shared/operators"

// Unpack unpacks the source of the named operator into a temporary directory of the test and returns the directory. It
// skips the test if there is no archive.
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

// Root returns the root directory of this repository.
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
			t.Fatal("the test is not running in the repository")
		}
		dir = parent
	}
}
