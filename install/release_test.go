package install

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// The script of releases makes images, manifests and charts name the release, and nothing is left that names another
// one. The release's notes are what the changelog had under Unreleased.
func TestReleaseVersion(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the scripts use GNU sed, as the workflow does")
	}
	root := t.TempDir()
	for _, name := range []string{".ci", "chaos/config", "chaos/command", "nodes/config", "install/chart",
		"install/images"} {
		if err := os.CopyFS(filepath.Join(root, name), os.DirFS(filepath.Join("..", name))); err != nil {
			t.Fatal(err)
		}
	}
	changelog, err := os.ReadFile("../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "CHANGELOG.md"), changelog, 0o644); err != nil {
		t.Fatal(err)
	}
	script := func(name string, args ...string) (string, error) {
		out, err := exec.Command(filepath.Join(root, ".ci", name), args...).CombinedOutput()
		return string(out), err
	}
	before := named(t, root)
	if len(before) < 12 {
		t.Errorf("only %d places name a release: %v", len(before), before)
	}
	for _, version := range []string{"v7.8.9", "v7.9.0-rc.1"} {
		if out, err := script("release-version", version); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		after := named(t, root)
		if len(after) != len(before) {
			t.Errorf("%s: %d places name a release, not %d", version, len(after), len(before))
		}
		for _, place := range after {
			if !strings.HasSuffix(place, strings.TrimPrefix(version, "v")) {
				t.Errorf("%s: there is still %s", version, place)
			}
		}
	}
	notes, err := script("release-notes", "v7.8.9")
	notes = strings.TrimSpace(notes)
	if err != nil || !strings.HasPrefix(notes, "### ") || !strings.Contains(string(changelog), notes) {
		t.Errorf("the notes of v7.8.9: %v, %s", err, notes)
	}
	for _, tt := range []struct{ script, version, err string }{
		{"release-version", "7.8", `version "7.8": want one such as v0.1.0`},
		{"release-notes", "v7.9.0-rc.1", "CHANGELOG.md says nothing about v7.9.0-rc.1"},
		{"release-notes", "v5.0.0", "CHANGELOG.md says nothing about v5.0.0"},
	} {
		if out, err := script(tt.script, tt.version); err == nil || strings.TrimSpace(out) != tt.err {
			t.Errorf("%s %s: %v, %s", tt.script, tt.version, err, out)
		}
	}
}

// release matches what names one: the tag of an image, the version of a chart and of what it installs.
var release = regexp.MustCompile(`(?m)ghcr\.io/trommel-dev/trommel-[a-z-]+:v[0-9A-Za-z.-]+|` +
	`^version: .*|^appVersion: .*|name: trommel-[a-z]+, alias: [a-z]+, version: [^,]*|^const release = "[^"]*`)

// named lists what names a release, in order.
func named(t *testing.T, root string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") || filepath.Ext(path) == "" {
			return err
		}
		data, err := os.ReadFile(path)
		all = append(all, release.FindAllString(string(data), -1)...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
