package builds

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/plan"
)

// repo makes a repository in which the tag v1 has other files than the work tree.
func repo(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, map[string]string{
		"go.mod": "module example.com/op\n", "main.go": "package main // 1\n", "config/crd.yaml": "one: 1\n",
		".gitattributes": "config export-ignore\n",
	})
	command(t, dir, "init", "-q")
	command(t, dir, "add", "-A")
	command(t, dir, "-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-qm", "1")
	command(t, dir, "tag", "v1")
	write(t, dir, map[string]string{
		"main.go": "package main // 2\n", "config/crd.yaml": "two: 2\n", "new/crd.yaml": "new: 1\n",
		"trommel/own.yaml": "own: 1\n",
	})
	return dir
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func command(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func suite(t *testing.T, dir, text string) *plan.Suite {
	t.Helper()
	file := filepath.Join(dir, "trommel", "trommel.yaml")
	write(t, dir, map[string]string{"trommel/trommel.yaml": text})
	s, err := plan.LoadSuite(file)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

const controllers = "kind: Suite\ncontrollers: [{name: op, build: {dir: ..}, args: [--a]}]\n"

func TestRef(t *testing.T) {
	t.Setenv("TROMMEL_CACHE", t.TempDir())
	dir := repo(t)
	before := command(t, dir, "status", "--porcelain")
	s := suite(t, dir, controllers+"manifests: [../config]\nbuilds:\n  old: {ref: v1}\n")
	for range 2 { // the second time it is in the cache
		old, err := Of(t.Context(), s, "old")
		if err != nil {
			t.Fatal(err)
		}
		if got := read(t, filepath.Join(old.Controllers[0].Build.Dir, "main.go")); got != "package main // 1" {
			t.Errorf("the source is %q", got)
		}
		if got := read(t, filepath.Join(old.Manifests[0].Path, "crd.yaml")); got != "one: 1" {
			t.Errorf("the manifest is %q", got)
		}
	}
	if s.Manifests[0].Path != "../config" || s.Controllers[0].Build.Dir != ".." {
		t.Errorf("the suite was changed: %+v", s)
	}
	if after := command(t, dir, "status", "--porcelain"); after != before+"?? trommel/\n" && after != before {
		t.Errorf("the repository was changed: %s", after)
	}
	if own, err := Of(t.Context(), s, ""); own != s || err != nil {
		t.Errorf("the suite itself: %v, %v", own, err)
	}
}

func TestManifestsOfABuild(t *testing.T) {
	t.Setenv("TROMMEL_CACHE", t.TempDir())
	s := suite(t, repo(t), controllers+"manifests: [../new]\nbuilds:\n"+
		"  old: {ref: v1, manifests: [../config, own.yaml], controllers: {op: {package: ./x, args: [--b]}}}\n"+
		"  same: {controllers: {op: {package: ./y}}}\n")
	old, err := Of(t.Context(), s, "old")
	if err != nil {
		t.Fatal(err)
	}
	if got := read(t, filepath.Join(old.Manifests[0].Path, "crd.yaml")); got != "one: 1" {
		t.Errorf("the manifest is %q", got)
	}
	if got := read(t, old.Manifests[1].Path); got != "own: 1" {
		t.Errorf("the manifest beside the suite is %q", got)
	}
	if c := old.Controllers[0]; c.Build.Package != "./x" || len(c.Args) != 1 || c.Args[0] != "--b" {
		t.Errorf("the controller is %+v with %+v", c, c.Build)
	}
	same, err := Of(t.Context(), s, "same")
	if err != nil {
		t.Fatal(err)
	}
	if c := same.Controllers[0]; c.Build.Package != "./y" || c.Args[0] != "--a" {
		t.Errorf("the controller is %+v with %+v", c, c.Build)
	}
}

// The files of a controller's image are those of the build's source, if it has them.
func TestFilesOfABuild(t *testing.T) {
	t.Setenv("TROMMEL_CACHE", t.TempDir())
	dir := repo(t)
	s := suite(t, dir, "kind: Suite\nbuilds: {old: {ref: v1}}\ncontrollers:\n"+
		"- {name: op, build: {dir: ..}, files: {/crds: ../config, /new: ../new}}\n")
	old, err := Of(t.Context(), s, "old")
	if err != nil {
		t.Fatal(err)
	}
	files := old.Controllers[0].Files
	if got := read(t, filepath.Join(files["/crds"], "crd.yaml")); got != "one: 1" {
		t.Errorf("the image has %q", got)
	}
	if got := read(t, filepath.Join(files["/new"], "crd.yaml")); got != "new: 1" {
		t.Errorf("the image has %q, which its source does not have", got)
	}
	if s.Controllers[0].Files["/crds"] != "../config" {
		t.Errorf("the suite was changed: %v", s.Controllers[0].Files)
	}
}

func TestDir(t *testing.T) {
	dir, other := repo(t), repo(t)
	write(t, other, map[string]string{"config/crd.yaml": "other: 1\n"})
	module := t.TempDir()
	write(t, module, map[string]string{"go.mod": "module example.com/op\n", "config/crd.yaml": "module: 1\n"})
	s := suite(t, dir, controllers+"manifests: [../config]\nbuilds:\n"+
		"  other: {dir: "+other+"}\n  module: {dir: "+module+"}\n")
	for name, want := range map[string]string{"other": "other: 1", "module": "module: 1"} {
		b, err := Of(t.Context(), s, name)
		if err != nil {
			t.Fatal(err)
		}
		if got := read(t, filepath.Join(b.Manifests[0].Path, "crd.yaml")); got != want {
			t.Errorf("the manifest of %s is %q", name, got)
		}
	}
}

func TestMistakes(t *testing.T) {
	t.Setenv("TROMMEL_CACHE", t.TempDir())
	dir := repo(t)
	s := suite(t, dir, controllers+"manifests: [../new]\nbuilds:\n  gone: {ref: v9}\n  old: {ref: v1}\n"+
		"  lacks: {ref: v1, manifests: [nowhere]}\n  bare: {dir: .}\n")
	for _, tt := range []struct{ name, want string }{
		{"gone", `:5:15: build "gone": the repository ` + dir + ` has no commit "v9"`},
		{"old", `:6:8: build "old": v1 has no new, which the suite names as ../new: say with manifests or controllers`},
		{"lacks", `:7:32: build "lacks": nowhere is neither in v1 nor beside the suite`},
		{"bare", `:8:15: build "bare": . is neither the top of a git checkout nor the directory of a Go module`},
		{"unknown", `unknown build "unknown" (the suite has: bare, gone, lacks, old)`},
	} {
		_, err := Of(t.Context(), s, tt.name)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v\nwant %s", tt.name, err, tt.want)
		}
	}
	alone := t.TempDir()
	write(t, alone, map[string]string{"new/x": ""})
	s = suite(t, alone, controllers+"builds: {old: {ref: v1}}\n")
	_, err := Of(t.Context(), s, "old")
	if err == nil || !strings.Contains(err.Error(), "the suite is in no git repository") {
		t.Errorf("without a repository: %v", err)
	}
}
