package judge

import (
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/record"
)

// Step returns the finding about a step of the workload that failed. It is a bug unless the step has an excuse.
func Step(s *facts.StepFailure) record.Finding {
	f := record.Finding{
		Severity: record.SeverityInconclusive, Subject: s.Step, Title: s.Title, Detail: s.Detail, Time: s.Time,
		Awaited: s.Awaited, Harm: s.Harm, Claims: s.Claims,
	}
	switch s.Excuse {
	case facts.ExcusedByHolds:
		f.Judge = record.JudgeHold
	case facts.ExcusedByWebhook:
		f.Judge = record.JudgeWebhook
	case facts.ExcusedByFunction:
		f.Judge = record.JudgeRun
	case facts.ExcusedByRenewal:
		f.Judge = record.JudgeWorkload
	case facts.NoExcuse:
		f.Judge, f.Severity = record.JudgeWorkload, record.SeverityBug
	}
	return f
}
