package buildcache

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestLeftoversAreRemoved checks that files of a killed process are removed, and those of a running one are not.
func TestLeftoversAreRemoved(t *testing.T) {
	c, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	old, young := filepath.Join(c.dir, "things", temporary+"old"), filepath.Join(c.dir, "things", temporary+"young")
	for _, dir := range []string{filepath.Join(old, "half"), young} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	before := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(old, before, before); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Make("things/made", func(string) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Errorf("the old one is still there: %v", err)
	}
	if _, err := os.Stat(young); err != nil {
		t.Errorf("the young one is gone: %v", err)
	}
}
