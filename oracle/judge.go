// Package oracle decides what a run has shown. Judges look at the evidence that the run has recorded, and at nothing
// else; the verdict follows from what they find.
package oracle

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
	"github.com/trommel-dev/trommel/reference"
)

// Evidence is what judges look at: what the run was to do, and what it has recorded. Nothing in it leads to a cluster.
// Judges do not change it.
type Evidence struct {
	Plan       *plan.Plan
	Invariants *Invariants // of the suite
	Timeouts   plan.Timeouts
	Dir        string      // of the run record; logs are in it
	Meta       record.Meta // without a verdict
	Actions    []record.Action
	History    []record.HistoryEntry // ordered by resource version
	Gaps       []string              // where states may be missing in the history, a line each
	Processes  []record.Process      // of the controllers, oldest first
	// Reference is what the workload does without faults; nil: nobody has learned it.
	Reference *reference.Reference
}

// Judge finds what one kind of evidence shows. An error says that it could not judge; what it has found stands.
type Judge interface {
	Name() string
	Judge(ctx context.Context, e Evidence) ([]record.Finding, error)
}

// Judges lists all judges in the order in which their findings are told.
func Judges() []Judge { return []Judge{eventually{}, gaps{}, invariantJudge{}, exits{}, faultFree{}} }

// Hear has all judges judge. One that fails, or panics, becomes a finding, and does not keep the others from theirs.
func Hear(ctx context.Context, e Evidence, judges []Judge) []record.Finding {
	var all []record.Finding
	for _, j := range judges {
		findings, err := hear(ctx, e, j)
		all = append(all, findings...)
		if err != nil {
			all = append(all, Trouble(fmt.Sprintf("the judge of %s failed: %v", j.Name(), err)))
		}
	}
	return all
}

func hear(ctx context.Context, e Evidence, j Judge) (findings []record.Finding, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return j.Judge(ctx, e)
}

// Trouble is the finding that something of Trommel's own failed when there was already something to judge. The first
// line of the text is its title. It makes the run inconclusive, unless others have found a bug.
func Trouble(text string) record.Finding {
	title, detail, _ := strings.Cut(text, "\n")
	return record.Finding{
		Severity: record.SeverityInconclusive, Oracle: record.OracleRun, Title: title, Detail: detail, Time: time.Now(),
	}
}

// gaps judges whether the history is whole.
type gaps struct{}

func (gaps) Name() string { return "gaps" }

func (gaps) Judge(_ context.Context, e Evidence) ([]record.Finding, error) {
	var findings []record.Finding
	for _, gap := range e.Gaps {
		findings = append(findings, record.Finding{
			Severity: record.SeverityInconclusive, Oracle: record.OracleHistory, Title: gap, Time: e.Meta.WorkloadEnd,
		})
	}
	return findings, nil
}

// Verdict follows from the findings on a run that could be carried out. Complete says that every action of the plan was
// carried out. A bug is a bug also where the plan was not; what else went wrong with the run makes it inconclusive. The
// reason is one line, empty for a pass.
func Verdict(findings []record.Finding, complete bool) (record.Verdict, string) {
	var bug, other []string
	for _, f := range findings {
		switch f.Severity {
		case record.SeverityBug:
			bug = append(bug, f.Title)
		case record.SeverityNote:
		default:
			other = append(other, f.Title)
		}
	}
	switch {
	case len(bug) > 0:
		return record.Bug, first(bug)
	case !complete:
		return record.Inconclusive, "not every action of the plan was carried out"
	case len(other) > 0:
		return record.Inconclusive, first(other)
	}
	return record.Pass, ""
}

func first(titles []string) string {
	if len(titles) == 1 {
		return titles[0]
	}
	return fmt.Sprintf("%s (and %d more)", titles[0], len(titles)-1)
}

// NoneStale is the finding of a run that could not show what its plan is about: an API server was paused, and no
// controller was shown anything stale. The causes are not empty.
func NoneStale(causes []string) record.Finding {
	return record.Finding{
		Severity: record.SeverityInconclusive, Oracle: record.OracleStaleness,
		Title: "no controller was shown stale state: " + causes[0], Detail: strings.Join(causes[1:], "\n"),
	}
}
