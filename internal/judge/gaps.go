package judge

import (
	"context"

	"github.com/trommel-dev/trommel/record"
)

// gaps judges whether the history is complete.
type gaps struct{}

func (gaps) Is() Traits { return is("gaps", allClusters, whatHappened) }

func (gaps) Judge(_ context.Context, e Evidence) ([]record.Finding, error) {
	var findings []record.Finding
	for _, gap := range e.Gaps {
		findings = append(findings, record.Finding{
			Severity: record.SeverityInconclusive, Judge: record.JudgeHistory, Title: gap, Time: e.Meta.WorkloadEnd,
		})
	}
	return findings, nil
}
