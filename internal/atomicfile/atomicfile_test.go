package atomicfile

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a")
	for _, mode := range []os.FileMode{0o600, 0o755, 0o640} {
		if err := Write(file, []byte(mode.String()), mode); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != mode {
			t.Errorf("mode %s, want %s", info.Mode(), mode)
		}
		if text, err := os.ReadFile(file); err != nil || string(text) != mode.String() {
			t.Errorf("%q, %v", text, err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "folder"), filepath.Join(dir, "missing", "a")} {
		if err := Write(path, []byte("x"), 0o600); err == nil {
			t.Errorf("%s is replaced", path)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 2 {
		t.Errorf("a failure leaves something behind: %v", entries)
	}
}
