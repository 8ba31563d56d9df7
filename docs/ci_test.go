package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"
)

type action struct {
	Name        string
	Description string
	Inputs      map[string]struct{ Description, Default string }
	Outputs     map[string]struct{ Description, Value string }
	Runs        struct {
		Using string
		Steps []step
	}
}

type step struct {
	Name, ID, If, Uses, Run, Shell string
	WorkingDirectory               string `yaml:"working-directory"`
	Env, With                      map[string]string
}

func readAction(t *testing.T) *action {
	t.Helper()
	f, err := os.Open("../action.yml")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	d := yaml.NewDecoder(f)
	d.KnownFields(true)
	var a action
	if err := d.Decode(&a); err != nil {
		t.Fatal(err)
	}
	return &a
}

var reference = regexp.MustCompile(`\b(inputs|steps)\.([a-z-]+)(?:\.outputs\.([a-z-]+))?`)

// What the action's expressions name exists.
func TestActionNamesWhatIsThere(t *testing.T) {
	a := readAction(t)
	outputs := map[string][]string{"cache": {"cache-hit"}} // documented by actions/cache
	for _, s := range a.Runs.Steps {
		for _, m := range regexp.MustCompile(`echo "([a-z-]+)=`).FindAllStringSubmatch(s.Run, -1) {
			outputs[s.ID] = append(outputs[s.ID], m[1])
		}
		if (s.Run == "") == (s.Uses == "") || (s.Run == "") != (s.Shell == "") {
			t.Errorf("step %q: a composite action's step has either uses, or run with shell", s.Name)
		}
	}
	used := map[string]bool{}
	text, err := os.ReadFile("../action.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range reference.FindAllStringSubmatch(string(text), -1) {
		switch m[1] {
		case "inputs":
			if _, ok := a.Inputs[m[2]]; !ok {
				t.Errorf("there is no input %s", m[2])
			}
			used[m[2]] = true
		case "steps":
			if m[3] != "" && !slices.Contains(outputs[m[2]], m[3]) {
				t.Errorf("step %s has no output %s", m[2], m[3])
			}
			if !slices.ContainsFunc(a.Runs.Steps, func(s step) bool { return s.ID == m[2] }) {
				t.Errorf("there is no step %s", m[2])
			}
		}
	}
	for name := range a.Inputs {
		if !used[name] {
			t.Errorf("input %s is not used", name)
		}
	}
}

// The action's own script, with a program instead of Trommel that prints its arguments.
func TestActionRunsTrommel(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash")
	}
	a := readAction(t)
	i := slices.IndexFunc(a.Runs.Steps, func(s step) bool { return s.ID == "run" })
	for _, tt := range []struct {
		name   string
		inputs map[string]string
		code   string
		want   []string
	}{
		{"plans", map[string]string{"plans": "plans/\nmore/stale-*.yaml\n", "junit": "trommel-runs/junit.xml"}, "0",
			[]string{"run", "-p", "plans/", "-p", "more/stale-*.yaml", "--junit", "trommel-runs/junit.xml"}},
		{"a campaign",
			map[string]string{"command": "test", "controller": "my operator", "args": "--budget  45m *"}, "1",
			[]string{"test", "-c", "my operator", "--budget", "45m", "*"}},
		{"plans of a campaign", map[string]string{"command": "test", "plans": "plans", "variant": "fixed"}, "3",
			[]string{"test", "--plans", "plans", "--variant", "fixed"}},
		{"nothing is run from an input", map[string]string{"plans": "$(touch x); `touch x`"}, "2",
			[]string{"run", "-p", "$(touch x); `touch x`"}},
	} {
		dir := t.TempDir()
		fake := filepath.Join(dir, "trommel")
		script := "#!/bin/sh\nprintf '%s\\n' \"$@\"\nexit " + tt.code + "\n"
		if err := os.WriteFile(fake, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(bash, "--noprofile", "--norc", "-eo", "pipefail", "-c", a.Runs.Steps[i].Run)
		cmd.Dir = dir
		output := filepath.Join(dir, "output")
		cmd.Env = append(os.Environ(), "GITHUB_OUTPUT="+output)
		for name, value := range a.Runs.Steps[i].Env {
			if m := reference.FindStringSubmatch(value); m != nil && m[1] == "inputs" {
				value = tt.inputs[m[2]]
				if m[2] == "command" && value == "" {
					value = a.Inputs["command"].Default
				}
			}
			if name == "TROMMEL" {
				value = fake
			}
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		out, _ := cmd.Output()
		if diff := cmp.Diff(tt.want, strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
		if set, err := os.ReadFile(output); err != nil || string(set) != "exit-code="+tt.code+"\n" {
			t.Errorf("%s: output %q, %v", tt.name, set, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "x")); err == nil {
			t.Errorf("%s: something was run", tt.name)
		}
	}
}

// The jobs of the page are YAML, and give the action only inputs that it has.
func TestJobsOfThePage(t *testing.T) {
	a := readAction(t)
	text, err := os.ReadFile("ci.md")
	if err != nil {
		t.Fatal(err)
	}
	jobs := 0
	for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
		var page struct {
			Jobs    map[string]struct{ Steps []step }
			Trommel struct{ Script []string }
		}
		if err := yaml.Unmarshal([]byte(m[1]), &page); err != nil {
			t.Error(err)
		}
		if len(page.Trommel.Script) > 0 {
			jobs++
		}
		for name, job := range page.Jobs {
			for _, s := range job.Steps {
				if !strings.HasPrefix(s.Uses, "trommel-dev/trommel@") {
					continue
				}
				jobs++
				for input := range s.With {
					if _, ok := a.Inputs[input]; !ok {
						t.Errorf("job %s: the action has no input %s", name, input)
					}
				}
			}
		}
	}
	if jobs != 3 {
		t.Errorf("%d jobs with Trommel, want 3", jobs)
	}
}
