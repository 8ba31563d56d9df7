package run

import (
	"fmt"
	"slices"

	"github.com/trommel-dev/trommel/coordinator"
	"github.com/trommel-dev/trommel/internal/judge"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// decision is how a run ended; see record.Meta.
type decision struct {
	verdict    record.Verdict
	reason     string
	unfinished string           // empty: the plan is complete
	further    []record.Finding // why a run that found nothing does not pass
}

// decide gives the verdict on a run with these findings. The status is that of the plan; stuck says why the plan did
// not finish.
func decide(findings []record.Finding, s coordinator.Status, stuck string) (d decision) {
	complete := s.Fired == s.Total && s.Completed == s.Total
	again := func(further ...record.Finding) {
		d.further = append(d.further, further...)
		d.verdict, d.reason = judge.Verdict(slices.Concat(findings, d.further), complete)
	}
	again()
	if d.verdict == record.Pass && len(s.NoneStale) > 0 {
		again(judge.NoneStale(s.NoneStale))
	}
	if d.verdict == record.Pass && len(s.NoneFailed) > 0 {
		again(judge.NoneFailed(s.NoneFailed)...)
	}
	if complete {
		return d
	}
	d.unfinished = unfinished(s, stuck)
	if d.verdict == record.Inconclusive {
		d.reason = d.unfinished
		i := slices.IndexFunc(findings, func(f record.Finding) bool { return f.Judge == record.JudgeWorkload })
		if s.Fired == 0 && i >= 0 {
			d.reason = findings[i].Title + "\n" + d.unfinished
		}
	}
	return d
}

// ofWorkload returns the findings about a workload that has failed. If none of the plan's actions has fired, or all
// that have fired were to make calls fail and none did, they say nothing of what the plan is about: nothing was done to
// the controllers.
func ofWorkload(findings []record.Finding, p *plan.Plan, s coordinator.Status) []record.Finding {
	failing := 0
	for i := range min(s.Fired, len(p.Actions)) {
		switch e := p.Actions[i].Effects(); {
		case e.Fails != nil:
			failing++
		case e.Restores == nil:
			return findings
		}
	}
	if s.Total == 0 || failing > len(s.NoneFailed) {
		return findings
	}
	for i := range findings {
		if findings[i].Judge == record.JudgeWorkload && findings[i].IsBug() {
			findings[i].Severity = record.SeverityInconclusive
		}
	}
	return findings
}

// unfinished describes how far an incomplete plan came and what it waited for; see record.Meta.
func unfinished(s coordinator.Status, stuck string) string {
	text := fmt.Sprintf("%d of %d actions fired", s.Fired, s.Total)
	if s.Fired == s.Total {
		text = fmt.Sprintf("all actions fired, but %d of %d completed", s.Completed, s.Total)
	}
	if stuck != "" {
		text += ": " + stuck
	}
	for _, line := range s.Waiting {
		text += "\n" + line
	}
	if s.Stuck != "" {
		text += "\n" + s.Stuck
	}
	for _, line := range s.Electing {
		text += "\n" + line
	}
	return text
}
