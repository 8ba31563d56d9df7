package judge

import (
	"context"

	"github.com/trommel-dev/trommel/internal/baseline/findings"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/record"
)

// complaints notes which custom resources that users have made say in the end, in their status, that something is
// wrong. A sample with a placeholder, for example, never works, and shows little of its controller. A run that is
// compared with runs without faults is not judged: the comparison says what differs.
type complaints struct{}

func (complaints) Is() Traits { return is("complaints", allClusters, whatHappened) }

func (complaints) Judge(_ context.Context, e Evidence) ([]record.Finding, error) {
	if e.Baseline != nil || e.Meta.GivenBack.IsZero() {
		return nil, nil
	}
	f, err := e.follower()
	if err != nil {
		return nil, err
	}
	var all []record.Finding
	seen := map[facts.Key]bool{}
	for _, c := range f.Changes() {
		if c.By != "" || c.Event != record.Created || !facts.IsCustom(c.Key.Type()) || seen[c.Key] ||
			len(metadata.Owners(c.Cur)) > 0 {
			continue
		}
		seen[c.Key] = true
		object := f.Objects()[c.Key]
		if object == nil || object.End == nil || metadata.Marked(object.End) {
			continue
		}
		if what := facts.Complaint(object.End); what != "" {
			all = append(all, record.Finding{
				Severity: record.SeverityNote, Judge: record.JudgeComplaint, Subject: string(c.Key),
				Title: findings.Name(string(c.Key)) + " ended with " + what, Time: e.Meta.Observed,
				Detail: "Of an object that it rejects, or that lacks something, a controller does little that a plan " +
					"could strike at. If that is not meant so, add what it lacks, or take another one.",
			})
		}
	}
	return all, nil
}
