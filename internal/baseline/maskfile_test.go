package baseline

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMaskFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "baseline", "masks.yaml")
	run := func(a, b, list string) *Baseline {
		t.Helper()
		return learn(t,
			story(t, `created secret/default/a {"data": {"a": "1", "b": "1"}, "list": ["x", "y"]}`),
			story(t, `created secret/default/a {"data": {"a": "`+a+`", "b": "`+b+`"}, "list": [`+list+`]}`))
	}
	ref := run("2", "2", `"y", "x"`)
	if err := ref.WriteMasks(file); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"the workload w are compared",
		"- type: secret\n  path: list\n  reason: its order differs between runs without faults\n  order: true\n",
		"- object: secret/default/a\n  path: data.a\n  reason: differs between runs without faults\n  value: true\n",
		"- type: pod\n  path: spec.nodeName\n  reason: the scheduler's choice\n",
	} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%q is missing in\n%s", want, data)
		}
	}
	// A user edits it.
	edited := strings.Replace(string(data), "path: data.a\n", "path: data.a\n  compare: true\n", 1) +
		"- {path: status.phase, reason: mine}\n" +
		"- {type: secret, path: data.old, reason: differs between runs without faults}\n" // of an older version
	if err := os.WriteFile(file, []byte(edited), 0o600); err != nil {
		t.Fatal(err)
	}
	// It is learned anew; one of the fields does not differ any more.
	ref = run("2", "1", `"x", "y"`)
	if err := ref.WriteMasks(file); err != nil {
		t.Fatal(err)
	}
	entries, err := ReadMasks(file)
	if err != nil {
		t.Fatal(err)
	}
	ref.Override(entries)
	for path, want := range map[string]bool{
		"data.a": false, "data.b": true, "data.c": false, "status.phase": true, "metadata.uid": true, "data.old": false,
	} {
		if got := ref.masked("secret/default/a", strings.Split(path, ".")); got != want {
			t.Errorf("%s is masked: %t", path, got)
		}
	}
	if !slices.ContainsFunc(ref.Unordered, func(m Mask) bool { return m.Path == "list" }) {
		t.Errorf("the list's order counts: %v", ref.Unordered)
	}
	n := len(ref.Given)
	ref.Override(entries)
	if len(ref.Given) != n {
		t.Error("entries are added twice")
	}
}

func TestMistakesInMaskFile(t *testing.T) {
	for text, want := range map[string]string{
		"- {type: a, path: b}\n- {type: pod}\n":     ":2:3: path is missing: which field is masked?",
		"- {type: a, pth: b}\n":                     "line 1: field pth not found",
		"- {path: b, compare: true, order: true}\n": ":1:3: compare and order exclude each other",
		"- {type: a, object: a/b/c, path: b}\n":     ":1:3: type and object exclude each other",
		"- {object: a, path: b}\n":                  ":1:3: an object is named type[.group]/namespace/name",
		"- {type: a, path: b, value: true}\n":       ":1:3: value needs an object",
		"masks: []\n":                               "cannot unmarshal",
	} {
		file := filepath.Join(t.TempDir(), "masks.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadMasks(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	for _, text := range []string{"", "# nothing\n"} {
		file := filepath.Join(t.TempDir(), "masks.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if entries, err := ReadMasks(file); err != nil || len(entries) != 0 {
			t.Errorf("an empty file: %v, %v", entries, err)
		}
	}
}
