package judge

import (
	"testing"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/record"
)

// A failed step of the workload is a bug only if nothing else than the controllers can be the cause.
func TestStep(t *testing.T) {
	for excuse, want := range map[facts.Excuse]record.Finding{
		facts.NoExcuse:          {Severity: record.SeverityBug, Judge: record.JudgeWorkload},
		facts.ExcusedByRenewal:  {Severity: record.SeverityInconclusive, Judge: record.JudgeWorkload},
		facts.ExcusedByHolds:    {Severity: record.SeverityInconclusive, Judge: record.JudgeHold},
		facts.ExcusedByWebhook:  {Severity: record.SeverityInconclusive, Judge: record.JudgeWebhook},
		facts.ExcusedByFunction: {Severity: record.SeverityInconclusive, Judge: record.JudgeRun},
	} {
		f := Step(&facts.StepFailure{
			Step: "step 1", Title: "step 1: sleep: no", Harm: record.HarmMissing, Excuse: excuse,
		})
		if f.Severity != want.Severity || f.Judge != want.Judge {
			t.Errorf("excuse %d: %s of %s, want %s of %s", excuse, f.Severity, f.Judge, want.Severity, want.Judge)
		}
		if f.Subject != "step 1" || f.Title != "step 1: sleep: no" || f.Harm != record.HarmMissing {
			t.Errorf("excuse %d: %+v", excuse, f)
		}
	}
}
