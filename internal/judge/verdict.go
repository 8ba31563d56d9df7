package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/judge/processlog"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Course is how far a run's plan came.
type Course struct {
	Fired, Completed, Total int // numbers of actions
	// Unfinished says how far the plan came and what it still waits for. It is used only if the plan is not complete.
	Unfinished string
	// NoneStale says why no controller was shown stale state although the plan paused an API server. NoneFailed names
	// the actions that should have made calls fail and made none fail.
	NoneStale, NoneFailed []string
}

func (c Course) complete() bool { return c.Fired == c.Total && c.Completed == c.Total }

// Decision is how a run ended; see [record.Meta].
type Decision struct {
	Verdict    record.Verdict
	Reason     string
	Unfinished string           // empty: the plan is complete
	Further    []record.Finding // why a run without other findings does not pass
}

// Decide gives the verdict on a run that could be carried out.
func Decide(findings []record.Finding, c Course) (d Decision) {
	complete := c.complete()
	d.Verdict, d.Reason = Verdict(findings, complete)
	further := func(more ...record.Finding) {
		if d.Verdict == record.Pass && len(more) > 0 {
			d.Further = more
			d.Verdict, d.Reason = Verdict(slices.Concat(findings, more), complete)
		}
	}
	if len(c.NoneStale) > 0 {
		further(noneStale(c.NoneStale))
	}
	further(noneFailed(c.NoneFailed)...)
	if complete {
		return d
	}
	d.Unfinished = c.Unfinished
	if d.Verdict == record.Inconclusive {
		d.Reason = d.Unfinished
		i := slices.IndexFunc(findings, func(f record.Finding) bool { return f.Judge == record.JudgeWorkload })
		if c.Fired == 0 && i >= 0 {
			d.Reason = findings[i].Title + "\n" + d.Unfinished
		}
	}
	return d
}

// Failed is the decision on a run that could not be carried out.
func Failed(reason string) Decision { return Decision{Verdict: record.Error, Reason: reason} }

// weigh changes severities by what all findings say together: those of the judges and those of the run, e.Found.
// Resting are the indices of the judges' bugs that rest on the whole run. If the run was not whole, they are not bugs.
// A failed workload is not a bug then either.
func (e Evidence) weigh(all []record.Finding, resting []int) {
	if slices.ContainsFunc(all, processlog.ChangesCache) {
		noted(all)
		noted(e.Found)
	}
	why := broken(e, all)
	if why != "" {
		for _, i := range resting {
			Doubt(all[i:i+1], why)
		}
	}
	// A workload also waits until its timeout if an action failed that should have started a controller again, for
	// example.
	if why = cmp.Or(why, inconclusive(e.Found, record.JudgeAction)); why != "" {
		for i := range e.Found {
			if e.Found[i].Judge == record.JudgeWorkload {
				Doubt(e.Found[i:i+1], why)
			}
		}
	}
}

// noted makes notes of the bugs in a run in which client-go has ended controllers because they change objects in their
// caches: what else has gone wrong may be due to that. Panics are none.
func noted(findings []record.Finding) {
	for i := range findings {
		if f := &findings[i]; f.IsBug() && f.Judge != record.JudgePanic {
			f.Severity = record.SeverityNote
			f.Detail = strings.TrimLeft(f.Detail+"\nit may be due to the end of the controller that changes objects "+
				"in its cache", "\n")
		}
	}
}

// broken says why a run was not whole, given what the judges have found: it was not observed all the time, or the
// controllers were held up by more than its plan. It is empty if the run was.
func broken(e Evidence, found []record.Finding) string {
	return cmp.Or(inconclusive(slices.Concat(e.Found, found), record.JudgeRun, record.JudgeHistory, record.JudgeHook,
		record.JudgeSession, record.JudgeHold, record.JudgeLeadership, record.JudgeEnvironment), e.Stood)
}

// inconclusive is the title of the first inconclusive finding of these judges; empty: there is none.
func inconclusive(findings []record.Finding, judges ...string) string {
	for _, f := range findings {
		if f.Severity == record.SeverityInconclusive && slices.Contains(judges, f.Judge) {
			return f.Title
		}
	}
	return ""
}

// Withdraw makes a run inconclusive whose bugs a further run has explained.
func Withdraw(r *record.Run, why string) {
	for i := range r.Findings {
		if r.Findings[i].IsBug() {
			r.Findings[i].Severity = record.SeverityInconclusive
		}
	}
	r.Meta.Verdict, r.Meta.Reason = record.Inconclusive, why
}

// Confirm makes a run a bug, with the findings that a campaign has confirmed. Its other bugs did not come again and are
// left out.
func Confirm(r *record.Run, confirmed []record.Finding, why string) {
	others := slices.DeleteFunc(slices.Clone(r.Findings), record.Finding.IsBug)
	r.Findings = slices.Concat(confirmed, others)
	r.Meta.Verdict, r.Meta.Reason = record.Bug, why
}

// Unconfirmed makes a run inconclusive whose findings a campaign has not confirmed. It keeps them.
func Unconfirmed(r *record.Run, why string) { r.Meta.Verdict, r.Meta.Reason = record.Inconclusive, why }

// Untested makes findings about a failed workload inconclusive if nothing was done to the controllers: none of the
// plan's actions has fired, or all that have fired were to make calls fail and made none fail. The findings then say
// nothing about the plan.
func Untested(findings []record.Finding, p *plan.Plan, c Course) []record.Finding {
	failing := 0
	for i := range min(c.Fired, len(p.Actions)) {
		switch a := &p.Actions[i]; {
		case plan.Has[*plan.CallFailure](a):
			failing++
		case !plan.Has[*plan.Restore](a):
			return findings
		}
	}
	if c.Total == 0 || failing > len(c.NoneFailed) {
		return findings
	}
	for i := range findings {
		if findings[i].Judge == record.JudgeWorkload && findings[i].IsBug() {
			findings[i].Severity = record.SeverityInconclusive
		}
	}
	return findings
}

// Trouble returns a finding about a failure of Trommel itself that happened when there was already something to judge.
// The first line of the text is its title; at is the run's time. It makes the run inconclusive unless there is a bug.
func Trouble(text string, at time.Time) record.Finding {
	title, detail, _ := strings.Cut(text, "\n")
	return record.Finding{
		Severity: record.SeverityInconclusive, Judge: record.JudgeRun, Title: title, Detail: detail, Time: at,
	}
}

// ClockSet returns the finding about a run in which this machine's clock was set, or stood still because the machine
// slept; by is negative if it was set back. Tokens and certificates are then refused, and what controllers wait for
// comes at another time.
func ClockSet(by time.Duration, at time.Time) record.Finding {
	title := "this machine's clock was set back by " + by.Abs().Round(time.Second).String() + " during the run"
	if by > 0 {
		title = "this machine slept, or its clock was set forward, for " + by.Round(time.Second).String() +
			" during the run"
	}
	return record.Finding{Severity: record.SeverityInconclusive, Judge: record.JudgeClock, Title: title, Time: at}
}

// Doubt makes bugs inconclusive, because of what has happened to the whole run.
func Doubt(findings []record.Finding, why string) {
	for i := range findings {
		if f := &findings[i]; f.IsBug() {
			f.Severity = record.SeverityInconclusive
			f.Detail = strings.TrimLeft(f.Detail+"\nit is not called a bug, because the run was not whole: "+why, "\n")
		}
	}
}

// Verdict returns the verdict on a run that could be carried out. Complete says that every action of the plan was
// carried out. A bug counts even if the plan was not complete; anything else that went wrong makes the run
// inconclusive. The reason is one line, that of the greatest harm; empty for a pass.
func Verdict(findings []record.Finding, complete bool) (record.Verdict, string) {
	var bug, other []string
	for _, f := range slices.SortedStableFunc(slices.Values(findings), record.ByHarm) {
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

// noneStale returns the finding about a run that could not test what its plan is about: an API server was paused, but
// no controller was shown stale state. The causes must not be empty.
func noneStale(causes []string) record.Finding {
	return record.Finding{
		Severity: record.SeverityInconclusive, Judge: record.JudgeStaleness,
		Title: "no controller was shown stale state: " + causes[0], Detail: strings.Join(causes[1:], "\n"),
	}
}

// noneFailed returns the findings about actions that should have made calls fail and made none fail: the run has not
// tested what they are for.
func noneFailed(causes []string) []record.Finding {
	var findings []record.Finding
	for _, cause := range causes {
		findings = append(findings, record.Finding{
			Severity: record.SeverityInconclusive, Judge: record.JudgeAction, Title: cause,
		})
	}
	return findings
}
