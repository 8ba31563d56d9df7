package exits

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A program of a machine with another C library says why it cannot be started.
func TestMissingLoader(t *testing.T) {
	text, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Skip(err)
	}
	if err := MissingLoader("/bin/true"); err != nil {
		t.Errorf("a program of this machine: %v", err)
	}
	at := bytes.Index(text, []byte("/lib"))
	if at < 0 {
		t.Skip("it is linked statically")
	}
	end := at + bytes.IndexByte(text[at:], 0)
	text[end-1] = '!'
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, text, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := MissingLoader(program); err == nil || !strings.Contains(err.Error(), string(text[at:end])) {
		t.Errorf("without its loader %s: %v", text[at:end], err)
	}
	if err := MissingLoader("loader_linux_test.go"); err != nil {
		t.Errorf("what is no program: %v", err)
	}
}
