package judge

import (
	"fmt"
	"strings"

	"github.com/trommel-dev/trommel/internal/reference"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// notesOf returns a note about the objects that others than the controllers under test have created more or less often
// than without faults, and that hold no data: what the controllers did may have led to that. It says nothing of a run
// whose plan writes objects itself.
func notesOf(e Evidence, p *plan.Plan, f *reference.Follower) []record.Finding {
	if writes(p) || copied(p, f.Objects()) {
		return nil
	}
	var lines []string
	var all []reference.Difference
	for _, d := range e.Reference.Compare(f.Objects()) {
		if !d.Note {
			continue
		}
		all = append(all, d)
		lines = append(lines, d.String())
		for _, c := range d.Caused(f.Changes()) {
			lines = append(lines, "  "+nameOf(c)+": "+e.happened(c))
		}
	}
	if all == nil {
		return nil
	}
	title := fmt.Sprintf("%s, by others than the controllers", lines[0])
	if more := len(all) - 1; more > 0 {
		title += fmt.Sprintf(" (and %s more)", wording.Count(more, "object"))
	}
	return []record.Finding{{
		Severity: record.SeverityNote, Judge: record.JudgeReference, Subject: string(all[0].Key), Title: title,
		Detail: strings.Join(lines, "\n"), Time: e.Meta.WorkloadEnd,
	}}
}
