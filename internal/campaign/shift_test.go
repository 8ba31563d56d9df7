package campaign

import (
	"testing"
	"time"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Learning and checks without actions begin at different phases; plans begin as the first run does.
func TestRunsWithoutFaultsAreShifted(t *testing.T) {
	f := &fake{answer: func(
		p *plan.Plan, _ int, m *record.Meta, found *[]record.Finding, _ *[]string,
	) error {
		if len(p.Actions) > 0 {
			*found = []record.Finding{finding("secret/default/a", "never created; without faults: exists at the end")}
			m.Verdict = record.Bug
		}
		return nil
	}}
	c := config(t, f, "w")
	c.Patterns = []string{"intermediate"}
	mustRun(t, c)
	seen := map[time.Duration]bool{}
	for i, name := range f.all {
		switch by := f.shifts[i]; {
		case name == "w-without-faults" && i == 0:
			if by != 0 {
				t.Errorf("the first run is shifted by %s", by)
			}
		case name == "w-without-faults", name == "w-without-actions":
			if by == 0 || seen[by] {
				t.Errorf("run %d, %s, is shifted by %s, as another one", i, name, by)
			}
			seen[by] = true
		case by != 0 && f.acts[i]:
			t.Errorf("the plan %s is shifted by %s", name, by)
		}
	}
	if len(seen) < 4 {
		t.Errorf("only %d runs were shifted: %q", len(seen), f.all)
	}
}
