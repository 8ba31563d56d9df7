package judge

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/reference"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// alsoEnds is in the titles of the notes that excusesOf returns.
const alsoEnds = "; it also ends like that "

// Excused says which differences of a run did not count, because another run has ended like that, given the findings of
// the run: one line for the reason of an outcome. Empty: all of them counted.
func Excused(all []record.Finding) string {
	var lines []string
	for _, f := range all {
		isNote := f.Judge == record.JudgeReference && f.Severity == record.SeverityNote
		if isNote && strings.Contains(f.Title, alsoEnds) {
			lines = append(lines, f.Title)
		}
	}
	return strings.Join(lines, "; ")
}

// excusesOf returns notes that name what is not counted, because another run has ended like that.
func excusesOf(e Evidence, f *reference.Follower) []record.Finding {
	var findings []record.Finding
	var hows []string
	var objects []int
	for _, x := range e.Reference.Excuses(f.Objects()) {
		at := slices.Index(hows, x.How)
		if at < 0 {
			at = len(hows)
			hows, objects = append(hows, x.How), append(objects, 0)
			findings = append(findings, record.Finding{
				Severity: record.SeverityNote, Judge: record.JudgeReference, Time: e.Meta.WorkloadEnd,
				Subject: string(x.Differences[0].Key),
				Title:   x.Differences[0].String() + alsoEnds + x.How,
			})
		}
		objects[at]++
		for _, d := range x.Differences {
			findings[at].Detail = strings.TrimLeft(findings[at].Detail+"\n"+d.String(), "\n")
		}
	}
	for i, n := range objects {
		if n > 1 {
			findings[i].Title += fmt.Sprintf(" (and %s more)", wording.Count(n-1, "object"))
		}
	}
	return findings
}

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
