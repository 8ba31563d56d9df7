package judge

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/baseline/findings"
	"github.com/trommel-dev/trommel/internal/facts"
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
		isNote := f.Judge == record.JudgeBaseline && f.Severity == record.SeverityNote
		if isNote && strings.Contains(f.Title, alsoEnds) {
			lines = append(lines, f.Title)
		}
	}
	return strings.Join(lines, "; ")
}

// excusesOf returns notes that name what is not counted, because another run has ended like that.
func excusesOf(e Evidence, f *facts.Follower) []record.Finding {
	var all []record.Finding
	var hows []string
	var objects []int
	for _, x := range e.Baseline.Excuses(f.Objects()) {
		at := slices.Index(hows, x.How)
		if at < 0 {
			at = len(hows)
			hows, objects = append(hows, x.How), append(objects, 0)
			all = append(all, record.Finding{
				Severity: record.SeverityNote, Judge: record.JudgeBaseline, Time: e.Meta.WorkloadEnd,
				Subject: string(x.Differences[0].Key),
				Title:   x.Differences[0].String() + alsoEnds + x.How,
				Claims:  findings.ClaimsOf(x.Differences[0]),
			})
		}
		objects[at]++
		for _, d := range x.Differences {
			all[at].Detail = strings.TrimLeft(all[at].Detail+"\n"+d.String(), "\n")
		}
	}
	for i, n := range objects {
		if n > 1 {
			all[i].Title += fmt.Sprintf(" (and %s more)", wording.Count(n-1, "object"))
		}
	}
	return all
}

// notesOf returns a note about the conditions that only have another message than without faults; one about annotations
// that tell of what has happened; one about how long something has taken; one about random values that were replaced
// more or less often, where that need not be a mistake; and one about the objects that others than the controllers
// under test have created more or less often, and that hold no data: what the controllers did may have led to that. Of
// a run whose plan writes objects itself, it says only the first three.
func notesOf(e Evidence, p *plan.Plan, f *facts.Follower) []record.Finding {
	var messages, histories, times, counts, renewals []baseline.Difference
	for _, d := range e.Baseline.Compare(f.Objects()) {
		switch {
		case !d.Note:
		case d.OfMessage():
			messages = append(messages, d)
		case d.OfHistory():
			histories = append(histories, d)
		case d.OfElapsed():
			times = append(times, d)
		case d.Renewal:
			renewals = append(renewals, d)
		default:
			counts = append(counts, d)
		}
	}
	var findings []record.Finding
	if len(messages) > 0 {
		findings = append(findings, note(e, f, messages, ", which says the same", "condition"))
	}
	if len(histories) > 0 {
		findings = append(findings, note(e, f, histories, ", which tells of what has happened", "annotation"))
	}
	if len(times) > 0 {
		findings = append(findings, note(e, f, times, ", which is how long it took", "field"))
	}
	if writes(p) || copied(p, f.Objects()) {
		return findings
	}
	if len(renewals) > 0 {
		findings = append(findings, note(e, f, renewals, "", "value"))
	}
	if len(counts) > 0 {
		findings = append(findings, note(e, f, counts, ", by others than the controllers", "object"))
	}
	return findings
}

// note reports differences that are worth knowing. What they are is said of the first one; the others have a noun.
func note(
	e Evidence, f *facts.Follower, all []baseline.Difference, what, noun string,
) record.Finding {
	var lines []string
	var causes []*facts.Change
	for _, d := range all {
		lines = append(lines, d.String())
		for _, c := range d.Caused(f.Changes()) {
			causes = append(causes, c)
			lines = append(lines, "  "+nameOf(c)+": "+e.happened(c))
		}
	}
	title := lines[0] + what
	if more := len(all) - 1; more > 0 {
		title += fmt.Sprintf(" (and %s more)", wording.Count(more, noun))
	}
	return record.Finding{
		Severity: record.SeverityNote, Judge: record.JudgeBaseline, Subject: string(all[0].Key), Title: title,
		Detail: strings.Join(lines, "\n"), Time: e.Meta.WorkloadEnd, Cause: earliest(causes...),
		Origin: origin(causes...),
		Claims: findings.ClaimsOf(all[0]),
	}
}
