package plan

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A suite on kind is refused what a real node does not have.
func TestKindCluster(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trommel.yaml")
	const suite = `cluster:
  type: kind
  apiServers: 2
  images: [registry.example/database:1.0]
  nodes: 2
  answers: [{stdout: x}]
disruptions: {install: true}
variants: {installed: {disruptions: {install: true}}}
workloads:
  nothing: {steps: [{sleep: 1s}]}
`
	if err := os.WriteFile(file, []byte(suite), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := LoadSuite(file)
	wantErrors(t, err,
		file+`:5:10: nodes is not for a cluster of type "kind" (it is for: embedded)`,
		file+`:6:12: answers is not for a cluster of type "kind" (it is for: embedded)`,
		file+`:7:24: install needs a cluster that can install the controllers of disruptions; one of type "kind" `+
			`cannot`,
		file+`:8:47: install needs a cluster that can install the controllers of disruptions; one of type "kind" `+
			`cannot`)
}

const begins = `testName: t
workload: nothing
actions:
- actionType: disrupt
  disruption: {name: slow, selector: {app: x}, cpuPressure: {}, apiFault: {delay: 1s}}
  trigger: {definitions: [{triggerName: t, condition: {triggerType: none}}]}
`

// A disruption that real nodes cannot do is refused before a cluster is made.
func TestDisruptionsOnKind(t *testing.T) {
	p, err := Parse([]byte(begins), "p.yaml")
	if err != nil {
		t.Fatal(err)
	}
	kind, _ := LookupClusterKind(KindCluster)
	for _, test := range []struct {
		cluster string
		want    []string
	}{
		{"type: embedded", nil},
		{"type: kind", []string{`p.yaml:5:75: a cluster of type "kind" cannot carry out apiFault (it can: ` +
			strings.Join(kind.Disruptions, ", ") + ")"}},
	} {
		file := filepath.Join(t.TempDir(), "trommel.yaml")
		suite := "cluster: {" + test.cluster + "}\nworkloads: {nothing: {steps: [{sleep: 1s}]}}\n"
		if err := os.WriteFile(file, []byte(suite), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := LoadSuite(file)
		if err != nil {
			t.Fatal(err)
		}
		wantErrors(t, p.Validate(s), test.want...)
	}
}

var registeredRE = regexp.MustCompile(`register\(v1alpha1\.Kind(\w+),`)

// Plans may begin on kind what the backend for real nodes, a module of its own, has.
func TestKindHasTheKindsOfRealNodes(t *testing.T) {
	files, err := filepath.Glob("../chaos/linux/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range registeredRE.FindAllSubmatch(source, -1) {
			want = append(want, strings.ToLower(string(m[1])))
		}
	}
	slices.Sort(want)
	kind, _ := LookupClusterKind(KindCluster)
	if got := strings.ToLower(strings.Join(kind.Disruptions, " ")); got != strings.Join(want, " ") {
		t.Errorf("%s can be begun, %v can be carried out", got, want)
	}
}
