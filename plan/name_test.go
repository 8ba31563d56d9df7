package plan

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// A plan's name becomes part of the name of its run's directory: the name "../../x" made it write outside.
func TestTestName(t *testing.T) {
	for _, test := range []struct {
		line string // of the plan
		file string
		want string // the name, or the error
	}{
		{line: "testName: stale-deletion", want: "stale-deletion"},
		{line: "testName: a plan of mine", want: "a plan of mine"},
		{line: "testName: prüfung-名前", want: "prüfung-名前"},
		{line: "testName: v1.2_x", want: "v1.2_x"},
		{line: "testName: " + strings.Repeat("a", 100), want: strings.Repeat("a", 100)},
		{line: "description: x", file: "stale-deletion.yaml", want: "stale-deletion"},
		{line: "testName:", file: "dir/stale.deletion.yml", want: "stale.deletion"},
		{line: `testName: ""`, file: "x", want: "x"},
		{line: "testName: ../../x",
			want: `f.yaml:1:11: testName "../../x" contains a slash; a name becomes part of a directory name`},
		{line: "testName: a/b",
			want: `f.yaml:1:11: testName "a/b" contains a slash; a name becomes part of a directory name`},
		{line: `testName: a\b`,
			want: `f.yaml:1:11: testName "a\\b" contains a slash; a name becomes part of a directory name`},
		{line: "testName: ..",
			want: `f.yaml:1:11: testName ".." begins with a dot; a directory name would begin with it`},
		{line: `testName: "a\nb"`, want: `f.yaml:1:11: testName "a\nb" contains a character that cannot be printed`},
		{line: `testName: " a"`, want: `f.yaml:1:11: testName " a" begins or ends with a blank`},
		{
			line: "testName: " + strings.Repeat("ä", 51),
			want: fmt.Sprintf(
				`f.yaml:1:11: testName %q has 102 bytes, at most 100 are allowed: it becomes part of a directory name`,
				strings.Repeat("ä", 51)),
		},
		{
			line: "description: x", file: ".yaml",
			want: `.yaml:1:1: the plan has no testName, and its file name cannot be used: "" is empty`,
		},
		{
			line: "description: x", file: strings.Repeat("a", 101) + ".yaml",
			want: strings.Repeat("a", 101) + ".yaml:1:1: the plan has no testName, and its file name cannot be used: " +
				fmt.Sprintf("%q has 101 bytes, at most 100 are allowed: it becomes part of a directory name",
					strings.Repeat("a", 101)),
		},
	} {
		file := test.file
		if file == "" {
			file = "f.yaml"
		}
		p, err := Parse([]byte(test.line+"\nactions: []\n"), file)
		got := ""
		switch {
		case err != nil:
			got = err.Error()
		default:
			got = p.TestName
		}
		if got != test.want {
			t.Errorf("%s in %s: got %q, want %q", test.line, file, got, test.want)
		}
	}
}

// A variant's name becomes part of the directory name too.
func TestVariantName(t *testing.T) {
	_, err := ParseSuite([]byte("controllers: [{name: a, binary: ./a}]\nvariants: {../x: {}}\n"),
		filepath.Join(t.TempDir(), "trommel.yaml"))
	if err == nil || !strings.Contains(err.Error(), `2:12: variant "../x" contains a slash`) {
		t.Error(err)
	}
}

// A plan that names no workload uses the one with the plan's testName.
func TestWorkloadOfTheTestName(t *testing.T) {
	s := &Suite{Workloads: map[string]Workload{"create": {}, "recreate": {}}}
	for _, test := range []struct{ fields, file, want string }{
		{"testName: recreate", "f.yaml", "recreate"},
		{"testName: recreate\nworkload: create", "f.yaml", "create"},
		{"description: x", "plans/recreate.yaml", "recreate"},
		{
			"testName: other", "f.yaml",
			"f.yaml:1:1: the plan names no workload, and the suite has several, none with the plan's testName: " +
				"create, recreate",
		},
	} {
		p, err := Parse([]byte(test.fields+"\nactions: []\n"), test.file)
		if err != nil {
			t.Fatal(err)
		}
		p.Complete(s)
		got := ""
		if err := p.Validate(s); err != nil {
			got = err.Error()
		} else {
			got = p.Workload
		}
		if got != test.want {
			t.Errorf("%q in %s: got %q, want %q", test.fields, test.file, got, test.want)
		}
	}
}

// Marshal left out a timeout of 0s, so that its output was not a valid plan.
func TestMarshalOfATimeoutOfZero(t *testing.T) {
	p, err := Parse([]byte(`testName: at-once
actions:
- actionType: killController
  trigger: {definitions: [{triggerName: a, condition: {triggerType: onTimeout, timeout: 0s}}]}
`), "f.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text, err := Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "timeout: 0s\n") {
		t.Errorf("%s", text)
	}
	checkRoundTrip(t, p)
}

func TestActionNames(t *testing.T) {
	pod := ResourceKey{Type: "pod", Namespace: "default", Name: "a"}
	object := func(kind string, meta map[string]any) map[string]any {
		return map[string]any{"kind": kind, "metadata": meta}
	}
	for _, test := range []struct {
		action Action
		want   string
	}{
		{Action{Type: KillController, Target: "db"}, "killController db"},
		{Action{Type: KillController}, "killController"},
		{Action{Type: PatchObject, Writing: Writing{ResourceKey: pod}}, "patch pod/default/a"},
		{Action{Type: PatchObject,
			Writing: Writing{ResourceKey: pod, Subresource: "status"}}, "patch pod/default/a (status)"},
		{Action{Type: DeleteObject, Writing: Writing{ResourceKey: pod}}, "delete pod/default/a"},
		{Action{Type: ApplyObject, Writing: Writing{ManifestFile: "pod.yaml"}}, "apply pod.yaml"},
		{Action{Type: ApplyObject,
			Writing: Writing{Manifest: object("Pod", map[string]any{"name": "a", "namespace": "default"})}},
			"apply pod/default/a"},
		{Action{Type: ApplyObject,
			Writing: Writing{Manifest: object("Node", map[string]any{"name": "a"})}}, "apply node//a"},
		{Action{Type: ApplyObject}, "apply"},
	} {
		if got := test.action.String(); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}
