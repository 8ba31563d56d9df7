package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMutations finds bugs of Sieve's three kinds that patches put into the database operator, within ten minutes each
// and without being told where. It finds none in the operator without a patch, whose known bugs are fixed. The first
// line of a patch describes its bug.
func TestMutations(t *testing.T) {
	if os.Getenv("TROMMEL_TEST_LONG") == "" {
		t.Skip("takes about an hour; set TROMMEL_TEST_LONG")
	}
	trommel := buildTrommel(t)
	patches, err := filepath.Glob("testdata/mutations/*.patch")
	if err != nil || len(patches) < 15 {
		t.Fatalf("%d patches, %v", len(patches), err)
	}
	t.Run("none", func(t *testing.T) {
		if code, out := campaign(t, trommel, database); code != pass {
			t.Errorf("exit code %d, want %d\n%s", code, pass, out)
		}
	})
	var missed []string
	for _, patch := range patches {
		name := strings.TrimSuffix(filepath.Base(patch), ".patch")
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			code, out := campaign(t, trommel, mutant(t, patch))
			_, finding, _ := strings.Cut("\n"+out, "\nbugs\n")
			t.Logf("exit code %d after %s\n%s", code, time.Since(began).Round(time.Second), finding)
			switch code {
			case bug:
			case pass:
				missed = append(missed, name)
			default:
				t.Errorf("%s", out)
			}
		})
	}
	// Some bugs hide behind what the operator does right, so one in fifteen may be missed.
	if len(missed) > len(patches)/15 {
		t.Errorf("%d of %d bugs were missed: %s", len(missed), len(patches), strings.Join(missed, ", "))
	}
}

// campaign tests the variant of a database operator whose known bugs are fixed, until it finds a bug. It returns the
// exit code and the output.
func campaign(t *testing.T, trommel, example string) (int, string) {
	t.Helper()
	dir := t.TempDir()
	code, out := runTrommel(t, trommel, ".", 40*time.Minute, "test", "-c", example, "--variant", "fixed", "--fail-fast",
		"--budget", "10m", "--dir", filepath.Join(dir, "campaign"), "--reference", filepath.Join(dir, "references"))
	return code, string(out)
}

// mutant copies the database operator, applies the patch to the copy, and returns its directory.
func mutant(t *testing.T, patch string) string {
	t.Helper()
	dir := t.TempDir()
	absolute, err := filepath.Abs(patch)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"cp", "-r", "go.mod", "go.sum", database, dir},
		{"patch", "--quiet", "-p1", "-d", dir, "-i", absolute},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	return filepath.Join(dir, filepath.Base(database))
}
