package plan

import (
	"os"
	"path"
	"strings"
	"testing"
)

func TestEditorLine(t *testing.T) {
	const raw = "# yaml-language-server: $schema=https://raw.githubusercontent.com/trommel-dev/trommel/"
	for _, test := range []struct{ kind, version, want string }{
		{"TestPlan", "v1.2.3", raw + "v1.2.3/plan/plan.schema.json\n"},
		{"Suite", "v1.2.3-rc.1", raw + "v1.2.3-rc.1/plan/suite.schema.json\n"},
		{"Suite", "(devel)", raw + "main/plan/suite.schema.json\n"},
		{"TestPlan", "v0.0.0-20260102030405-0123456789ab", raw + "main/plan/plan.schema.json\n"},
		{"TestPlan", "v1.2.4-0.20260102030405-0123456789ab+dirty", raw + "main/plan/plan.schema.json\n"},
		{"TestPlan", "v1.2.3+dirty", raw + "main/plan/plan.schema.json\n"},
	} {
		got := EditorLine(test.kind, test.version)
		if got != test.want {
			t.Errorf("%s %s: %s", test.kind, test.version, got)
		}
		// The URL's path is that of a file of this repository.
		if _, err := os.Stat(path.Base(strings.TrimSpace(got))); err != nil {
			t.Error(err)
		}
	}
}
