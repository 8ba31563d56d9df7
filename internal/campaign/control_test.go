package campaign

import (
	"slices"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/internal/baseline/findings"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/confirm"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// A finding of a plan that shows the past belongs to those of interrupted work if a restart alone leads to it.
func TestWhatComesWithARestartOnly(t *testing.T) {
	gone := finding("secret/default/a", "never created; without faults: exists at the end")
	gone.Harm = record.HarmReplaced
	wrong := finding("pod/default/a", "spec.a is 1")
	wrong.Harm, wrong.Field = record.HarmWrong, "spec.a"
	for _, tt := range []struct {
		name      string
		restarted []record.Finding
		repeated  []record.Finding // in all runs of the plan but the first
		cause     string
		pattern   string
		came      int
	}{
		{"nothing", nil, []record.Finding{gone, wrong}, findings.Stale, "own-write-unseen", 3},
		{"the worst", []record.Finding{gone}, []record.Finding{gone, wrong}, findings.Interrupted, "intermediate", 3},
		{"something that is not the worst", []record.Finding{wrong}, []record.Finding{gone, wrong}, findings.Stale,
			"own-write-unseen", 3},
		{"what comes every time", []record.Finding{wrong}, []record.Finding{wrong}, findings.Interrupted,
			"intermediate", 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &fake{}
			f.answer = func(
				p *plan.Plan, n int, m *record.Meta, found *[]record.Finding, history *[]string,
			) error {
				*history = append(*history, "op configmap/default/b", "secret/default/c")
				switch {
				case p.TestName == "w-own-write-unseen-1" && n == 1:
					*found = []record.Finding{gone, wrong}
				case p.TestName == "w-own-write-unseen-1":
					*found = tt.repeated
				case p.TestName == "w-own-write-unseen-1-restarted":
					*found = tt.restarted
				}
				if *found != nil {
					m.Verdict = record.Bug
				}
				return nil
			}
			c := config(t, f, "w")
			c.Patterns = []string{"own-write-unseen"}
			r := mustRun(t, c)
			i := slices.IndexFunc(r.Outcomes, func(o result.Outcome) bool { return o.Plan == "w-own-write-unseen-1" })
			if i < 0 {
				t.Fatalf("%v, runs %v", statuses(r), f.all)
			}
			o := r.Outcomes[i]
			if o.Status != result.Bug || o.Cause != tt.cause || o.Pattern != tt.pattern || o.Came != tt.came {
				t.Errorf("%+v", o)
			}
			n := f.runs["w-own-write-unseen-1-restarted"]
			if n != 1 || !strings.HasSuffix(o.Restarted, "-restarted/1") {
				t.Errorf("%d runs with a restart only; record %q", n, o.Restarted)
			}
			if says := strings.HasPrefix(o.Reason, confirm.OnlyRestarted); says != (tt.cause == findings.Interrupted) {
				t.Errorf("reason %q", o.Reason)
			}
		})
	}
}
