package plans

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/trommel-dev/trommel/record"
)

// A campaign has a directory for each plan, with a record for each of its runs.
func TestFirstRun(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"runs/a/1", "runs/a/2", "runs/b/1"} {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(at, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(at, record.ObservationsFile), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"runs/a": "runs/a/1", "runs/a/": "runs/a/1", "runs/a/2": "runs/a/2", "runs": "", "none": "",
	} {
		got, err := firstRun(dir + "/" + name)
		if want == "" {
			if err == nil {
				t.Errorf("%s: %s, want an error", name, got)
			}
			continue
		}
		if err != nil || filepath.Clean(got) != filepath.Join(dir, want) {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}
