package campaign

import (
	"slices"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/campaign/learn"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// A type that controllers touch only under a fault is recorded as soon as a run has shown it: the workload is learned
// again, once, and the plans whose runs have not recorded it are run again.
func TestTypesThatOnlyAFaultShows(t *testing.T) {
	claims := plan.ResourceKey{Type: "persistentvolumeclaim", Namespace: "*", Name: "*"}
	f := &fake{}
	var plans, blind int
	f.answer = func(p *plan.Plan, _ int, meta *record.Meta, findings *[]record.Finding, _ *[]string) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(p.Actions) == 0 {
			return nil
		}
		plans++
		if slices.Contains(f.recorded, claims) {
			if f.baseline != nil && !slices.Contains(f.baseline.Types, claims) {
				t.Errorf("%s is compared with a baseline that does not know %s", p.TestName, claims)
			}
			return nil
		}
		blind++
		meta.Unrecorded = []string{claims.String()}
		return nil
	}
	c := config(t, f, "w")
	c.Patterns = []string{"lost-answer", "intermediate"}
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if blind != 1 || plans != len(r.Outcomes)+1 || len(r.Outcomes) < 2 ||
		len(r.With(result.Passed)) != len(r.Outcomes) {
		t.Errorf("%d runs of %d plans, %d of them without claims", plans, len(r.Outcomes), blind)
	}
	// Two runs at first. Then three runs, and one with the other pace.
	if n := f.runs["w-without-faults"]; n != 6 {
		t.Errorf("%d runs without faults, want 6", n)
	}
	said := c.Progress.(*heard).String()
	if strings.Count(said, "learning it again") != 1 || !strings.Contains(said, claims.String()) {
		t.Errorf("said:\n%s", said)
	}
	// The next campaign knows it.
	ref, err := baseline.Read(learn.BaselineFile(c.Baselines, "w"))
	if err != nil || !slices.Contains(ref.Types, claims) {
		t.Errorf("the baseline has the types %v (%v)", ref.Types, err)
	}
}

// Types that cannot be listed cannot be recorded, and the summary says so.
func TestTypesThatCannotBeListed(t *testing.T) {
	f := &fake{answer: func(p *plan.Plan, _ int, meta *record.Meta, _ *[]record.Finding, _ *[]string) error {
		if len(p.Actions) == 0 {
			meta.Unlisted = []string{"podmetrics.metrics.k8s.io/*/*"}
		}
		return nil
	}}
	c := config(t, f, "w")
	c.Patterns = []string{"intermediate"}
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	const want = "w: what becomes of these types, which could not be listed: podmetrics.metrics.k8s.io/*/*"
	var text strings.Builder
	if err := r.Text(&text); err != nil || !strings.Contains(text.String(), "\n  "+want+"\n") {
		t.Errorf("%v: %s", err, text.String())
	}
}
