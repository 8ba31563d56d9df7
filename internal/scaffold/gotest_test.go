package scaffold

import (
	"os"
	"path/filepath"
	"testing"
)

// Only a released version is required: no module proxy has others.
func TestGoTestRequires(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.com/op\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const none = "module example.com/op/trommel-tests\n\ngo 1.26.0\n"
	for version, want := range map[string]string{
		"v1.2.3":                             none + "\nrequire github.com/trommel-dev/trommel v1.2.3\n",
		"(devel)":                            none,
		"v0.0.0-20261125151059-6589b6b00000": none,
		"v0.0.0-20261125151059-6589b6b0000+dirty": none,
		"v1.2.3+dirty": none,
	} {
		files, err := GoTest(dir, version, "1.26.0")
		if err != nil || files[GoTestDir+"/go.mod"] != want {
			t.Errorf("%s: %v\n%s", version, err, files[GoTestDir+"/go.mod"])
		}
	}
	if _, err := GoTest(t.TempDir(), "v1.2.3", "1.26.0"); err == nil {
		t.Error("there is no go.mod")
	}
}
