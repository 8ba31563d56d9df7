package campaign

import (
	"testing"

	"github.com/trommel-dev/trommel/record"
)

func TestBugs(t *testing.T) {
	bug := record.Finding{Severity: record.SeverityBug}
	if got := bugs([]record.Finding{bug, {Severity: record.SeverityInconclusive}}); len(got) != 1 {
		t.Errorf("bugs: %v", got)
	}
}
