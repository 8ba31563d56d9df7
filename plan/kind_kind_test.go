package plan

import (
	"os"
	"path/filepath"
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
		file+`:2:3: the suite installs the controllers of disruptions, which need a cluster that can install the `+
			`controllers of disruptions; one of type "kind" cannot`)
}
