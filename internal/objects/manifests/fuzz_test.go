package manifests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/trommel-dev/trommel/plan"
)

// FuzzHelmValues renders a chart with values of a file, and the same in the suite. What does not fit is an error that
// names the chart; nothing panics, and the suite's own values stay as they are.
func FuzzHelmValues(f *testing.F) {
	dir := unpack(f, charts)
	for _, name := range []string{"more.yaml", "most.yaml", "foo/values.yaml"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data), "")
	}
	f.Add("replicas: null\nimage: {repository: {a: [1, 2]}}\nsub: 3", "r")
	f.Add("extra: \"x}\\n---\\nkind: Foo\"", "a b")
	file := filepath.Join(f.TempDir(), "values.yaml") // of this process, which tries one input at a time
	f.Fuzz(func(t *testing.T, values, release string) {
		if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
			t.Fatal(err)
		}
		m := plan.Manifest{Helm: "foo", ValuesFiles: []string{file}, Release: release}
		in := map[string]any{}
		if yaml.Unmarshal([]byte(values), &in) == nil {
			m.Values = in
		}
		before, _ := yaml.Marshal(m.Values)
		_, _, err := helm(m, "v1.36.0", func(name string) string {
			if filepath.IsAbs(name) {
				return name
			}
			return filepath.Join(dir, name)
		})
		if err != nil && !strings.Contains(err.Error(), "foo") {
			t.Errorf("the error does not name the chart: %v", err)
		}
		if after, _ := yaml.Marshal(m.Values); string(after) != string(before) {
			t.Errorf("values\n%s\nhave become\n%s", before, after)
		}
	})
}
