package instrumentation

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestGeneratedWorkspace checks that every path still resolves to the same directory, and patched modules to their
// copies.
func TestGeneratedWorkspace(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"go.work": "go 1.26\n\ntoolchain go1.26.3\n\nuse (\n\t./a\n\t./fork/\n)\n\nreplace example.com/c => ./c\n\n" +
			"replace example.com/d v1.0.0 => example.com/e v1.1.0\n\nreplace k8s.io/client-go v0.36.3 => ./old\n",
		"go.work.sum":      "example.com/w v1.0.0 h1:w=\n",
		"a/go.mod":         "module example.com/a\n\ngo 1.26\n",
		"fork/placeholder": "",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	g := &generatedWork{filepath.Join(dir, "cache", "go.work")}
	err = g.write(filepath.Join(dir, "go.work"), "/hook", map[string]string{"k8s.io/client-go": "/copy",
		"sigs.k8s.io/controller-runtime": "/other"},
		map[string]string{"sigs.k8s.io/controller-runtime": filepath.Join(dir, "fork")})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(g.file)
	if err != nil {
		t.Fatal(err)
	}
	want := "go 1.26\n\ntoolchain go1.26.3\n\nuse (\n\tDIR/a\n\t/other\n\t/hook\n)\n\n" +
		"replace example.com/d v1.0.0 => example.com/e v1.1.0\n\n" +
		"replace example.com/c => DIR/c\n\nreplace k8s.io/client-go => /copy\n"
	if got := strings.ReplaceAll(string(text), dir, "DIR"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if sum, err := os.ReadFile(g.file + ".sum"); err != nil || string(sum) != "example.com/w v1.0.0 h1:w=\n" {
		t.Errorf("sums %q, %v", sum, err)
	}
}

func TestGoFlags(t *testing.T) {
	for _, tc := range []struct {
		goflags, name, want string
		ok                  bool
	}{
		{"", "mod", "", false},
		{"-mod=mod -tags=a,b", "tags", "a,b", true},
		{" --mod=mod  -mod=vendor", "mod", "vendor", true},
		{`-trimpath "-ldflags=-s -X 'main.v=a b'" -mod=mod`, "ldflags", "-s -X 'main.v=a b'", true},
		{`'-ldflags=-X "main.v=a"' -mod=mod`, "mod", "mod", true},
		{"-modfile=x", "mod", "", false},
	} {
		s := settings{GOFLAGS: tc.goflags}
		if got, ok := s.flag(tc.name); got != tc.want || ok != tc.ok {
			t.Errorf("%s in %q: %q, %t", tc.name, tc.goflags, got, ok)
		}
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
		{"another version", moduleInfo{Path: "k8s.io/client-go", Version: "v12.0.0",
			Replace: &moduleInfo{Path: "k8s.io/client-go", Version: "v0.30.0", Dir: "/m"}}, "v0.30.0", "/m", false},
		{"a fork", moduleInfo{Path: "k8s.io/client-go", Version: "v0.30.0",
			Replace: &moduleInfo{Path: "example.com/client-go", Version: "v1.2.3", Dir: "/f"}}, "v0.30.0", "/f", false},
		{"a directory", moduleInfo{Path: "k8s.io/client-go", Version: "v0.30.0",
			Replace: &moduleInfo{Path: "../client-go", Dir: "/d"}}, "v0.30.0", "/d", true},
	} {
		version, dir, local := tc.module.source()
		if version != tc.version || dir != tc.dir || local != tc.local {
			t.Errorf("%s: %s %s %t", tc.name, version, dir, local)
		}
	}
}

func TestReplaceModules(t *testing.T) {
	dir := t.TempDir()
	goMod := filepath.Join(dir, "go.mod")
	const text = "module example.com/a\n\ngo 1.25\n\nrequire example.com/gone v1.0.0\n\n" +
		"replace example.com/gone v1.0.0 => ../gone\n"
	for name, content := range map[string]string{goMod: text, filepath.Join(dir, "go.sum"): "a sum\n"} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	to := filepath.Join(dir, "other", "go.mod")
	err := replaceModules(goMod, to, map[string]string{"example.com/gone": "example.com/kept@v1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		goMod: text,
		to: "module example.com/a\n\ngo 1.25\n\nrequire example.com/gone v1.0.0\n\n" +
			"replace example.com/gone => example.com/kept v1.2.3\n",
		filepath.Join(dir, "other", "go.sum"): "a sum\n",
	} {
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	if err := replaceModules(goMod, to, map[string]string{"example.com/gone": "v1"}); err == nil {
		t.Error("no error without a version")
	}
}
