package instrumentation

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWorkspaceMembersAreReplacedByTheirFolders lets a module of a workspace be built without the workspace.
func TestWorkspaceMembersAreReplacedByTheirFolders(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.work":       "go 1.26\n\nuse (\n\t./a\n\t./b\n)\n\nreplace example.com/c => ./c\n",
		"go.work.sum":   "example.com/w v1.0.0 h1:w=\n",
		"a/go.mod":      "module example.com/a\n\ngo 1.26\n\nreplace example.com/b => ../old\n",
		"a/go.sum":      "example.com/x v1.0.0 h1:x=", // no newline at the end
		"b/go.mod":      "module example.com/b\n\ngo 1.26\n",
		"b/go.sum":      "example.com/y v1.0.0 h1:y=\n",
		"alone/go.mod":  "module example.com/alone\n\ngo 1.26\n",
		"c/placeholder": "",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOWORK", "")
	file, sum, err := readModule(filepath.Join(dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	file.Cleanup()
	text, err := file.Format()
	if err != nil {
		t.Fatal(err)
	}
	want := "module example.com/a\n\ngo 1.26\n\nreplace example.com/b => DIR/b\n\nrequire example.com/b v0.0.0\n\nreplace example.com/c => DIR/c\n"
	if got := strings.ReplaceAll(string(text), dir, "DIR"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if want := "example.com/x v1.0.0 h1:x=\nexample.com/w v1.0.0 h1:w=\nexample.com/y v1.0.0 h1:y=\n"; string(sum) != want {
		t.Errorf("got sums\n%s\nwant\n%s", sum, want)
	}

	// A module that is not in the workspace stands for itself.
	file, _, err = readModule(filepath.Join(dir, "alone"))
	if err != nil || len(file.Replace) != 0 {
		t.Errorf("alone: %+v, %v", file, err)
	}
}

func TestModuleSource(t *testing.T) {
	for _, tc := range []struct {
		name    string
		module  moduleInfo
		version string
		dir     string
		local   bool
	}{
		{"as required", moduleInfo{Path: "k8s.io/client-go", Version: "v0.30.0", Dir: "/m"}, "v0.30.0", "/m", false},
		{"another version", moduleInfo{Path: "k8s.io/client-go", Version: "v12.0.0", Replace: &moduleInfo{Path: "k8s.io/client-go", Version: "v0.30.0", Dir: "/m"}}, "v0.30.0", "/m", false},
		{"a fork", moduleInfo{Path: "k8s.io/client-go", Version: "v0.30.0", Replace: &moduleInfo{Path: "example.com/client-go", Version: "v1.2.3", Dir: "/f"}}, "v0.30.0", "/f", false},
		{"a folder", moduleInfo{Path: "k8s.io/client-go", Version: "v0.30.0", Replace: &moduleInfo{Path: "../client-go", Dir: "/d"}}, "v0.30.0", "/d", true},
	} {
		version, dir, local := tc.module.source()
		if version != tc.version || dir != tc.dir || local != tc.local {
			t.Errorf("%s: %s %s %t", tc.name, version, dir, local)
		}
	}
}
