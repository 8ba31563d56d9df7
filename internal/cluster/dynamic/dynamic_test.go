package dynamic

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestLoader(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	build := func(name string, flags ...string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		c := exec.Command("go", append(append([]string{"build", "-o", file}, flags...), source)...)
		c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOFLAGS=")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return file
	}
	if loader, err := Loader(build("static")); loader != "" || err != nil {
		t.Errorf("%q, %v", loader, err)
	}
	// A position-independent executable of Go names a loader, also without cgo.
	if loader, err := Loader(build("pie", "-buildmode=pie")); loader != "/lib64/ld-linux-x86-64.so.2" || err != nil {
		t.Errorf("%q, %v", loader, err)
	}
	if _, err := Loader(source); err == nil {
		t.Error("a text is an executable")
	}
}
