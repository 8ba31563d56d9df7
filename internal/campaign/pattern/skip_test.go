package pattern

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

func TestPlansThatTheSuiteLeavesOut(t *testing.T) {
	const web = facts.Key("deployment.apps/default/web")
	changes := []facts.Change{
		change("op", wire.Create, web, record.Created, nil, spec(1)),
		change("op", wire.Update, web, record.Updated, spec(1), spec(2)),
		change("op", wire.Create, "service/default/web", record.Created, nil, object{}),
	}
	apart(changes)
	ref := &baseline.Baseline{Workload: "w", Changes: changes, Objects: facts.Objects(changes)}
	for _, tt := range []struct {
		skip string
		left map[string]int // plans by pattern
	}{
		{"", map[string]int{"drift": 8, "intermediate": 3}},
		{"{pattern: drift}", map[string]int{"drift": 0, "intermediate": 3}},
		{"{pattern: drift, type: deployment.apps}", map[string]int{"drift": 2, "intermediate": 3}},
		{
			"{pattern: drift, type: deployment.apps, field: spec.replicas}",
			map[string]int{"drift": 4, "intermediate": 3},
		},
		{
			"{pattern: drift, type: deployment.apps, field: metadata.deletionTimestamp}",
			map[string]int{"drift": 6, "intermediate": 3},
		},
		{"{pattern: drift, type: deployment.other}", map[string]int{"drift": 8, "intermediate": 3}},
		{"{field: spec.*}", map[string]int{"drift": 4, "intermediate": 2}},
		{"{type: service}", map[string]int{"drift": 6, "intermediate": 2}},
		{"{name: w*}", map[string]int{"drift": 0, "intermediate": 0}},
		{"{name: x*}", map[string]int{"drift": 8, "intermediate": 3}},
	} {
		t.Run(tt.skip, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), plan.SuiteFile)
			text := "controllers: [{name: op, build: {dir: .}}]\nworkloads: {w: [{sleep: 1s}]}\n"
			if tt.skip != "" {
				text += "generate:\n  skip:\n  - " + tt.skip + "\n"
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := plan.LoadSuite(file)
			if err != nil {
				t.Fatal(err)
			}
			for name, want := range tt.left {
				left := 0
				for _, c := range Generate(s, ref, name) {
					switch {
					case c.Plan != nil:
						left++
					case c.Skipped > 0 && !strings.HasPrefix(c.Dropped, "left out by "+file+":5: "):
						t.Errorf("it was left out because %q", c.Dropped)
					}
				}
				if left != want {
					t.Errorf("%d plans of %s, want %d", left, name, want)
				}
			}
		})
	}
}
