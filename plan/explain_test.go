package plan

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestExplain(t *testing.T) {
	for _, file := range []string{
		"testdata/valid-all-actions.yaml", "testdata/valid-indirect.yaml", sieveDir +
			"/actions/cassandra-operator-stale-state-1.yaml",
		sieveDir + "/actions/casskop-unobserved-state-1.yaml", sieveDir + "/modes/nifi_intmd_1.yaml",
	} {
		p, err := Load(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(strings.TrimSuffix(filepath.Base(file), ".yaml"), "valid-")
		checkGolden(t, "testdata/explain-"+name+".txt", Explain(p))
	}
}
