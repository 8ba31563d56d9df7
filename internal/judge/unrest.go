package judge

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/record"
)

// A queue that gives so many items a second without end, and nothing changes, is a bug. The number of items does not
// depend on how fast the machine is, except that a slow one takes fewer. It is at most 9 or so for what is put off: the
// run's clock may be late by a tenth of a second.
const restlessTakes = 5.0

// unrest judges whether a controller never comes to rest: one of its work queues gives it items without end. It needs
// runs without faults that all came to rest. A controller that also writes without end is left to the judge loops.
type unrest struct{}

func (unrest) Is() Traits { return is("unrest", allClusters, whatHappened) }

func (unrest) Judge(_ context.Context, e Evidence) ([]record.Finding, error) {
	var findings []record.Finding
	loops := facts.Loops(e.Events, e.Meta.Calm, e.Meta.Observed)
	for _, u := range e.restless() {
		var asked []string
		writes := false
		for _, l := range loops {
			writes = writes || l.Controller == u.Controller && l.Object != ""
			if l.Controller == u.Controller && l.Object == "" {
				asked = append(asked, fmt.Sprintf("%s in %s", l.Request, l.Reconciler))
			}
		}
		if writes {
			continue
		}
		f := record.Finding{
			Severity: record.SeverityNote, Judge: record.JudgeUnrest, Subject: u.Controller, Time: e.Meta.Observed,
		}
		span := u.Span.Round(100 * time.Millisecond)
		if u.Growing {
			f.Title = fmt.Sprintf("%s does not stop trying again, after pauses that grow: queue %s had put items off "+
				"for %s in the end", u.Controller, u.Queue, u.Delay.Round(time.Millisecond))
		} else {
			f.Title = fmt.Sprintf("%s never comes to rest: queue %s gave it items %d times in the last %s",
				u.Controller, u.Queue, u.Taken, span)
			if float64(u.Taken) >= restlessTakes*u.Span.Seconds() && !u.Changes {
				f.Severity = e.severity()
			}
		}
		switch {
		case u.Delay == 0:
			f.Detail = "there was always something to take"
		case !u.Growing:
			f.Detail = fmt.Sprintf("items are put off for about %s, again and again, and that does not grow",
				u.Delay.Round(time.Millisecond))
		default:
			f.Detail = fmt.Sprintf("nothing has changed for %s, and something is still to come", span)
		}
		if len(asked) > 0 {
			f.Detail += "\nit reconciles " + strings.Join(asked, ", ")
		}
		f.Detail += fmt.Sprintf("\nwithout faults it comes to rest; nothing has disturbed it since %s",
			e.moment(e.Meta.Calm))
		findings = append(findings, f)
	}
	return findings, nil
}

// restless are the queues that did not come to rest, although they do without faults. One that looks again as often
// or more often without faults does what it does there, too.
func (e Evidence) restless() (all []record.Unrest) {
	if e.Baseline == nil || !e.Baseline.Rested || e.Meta.Calm.IsZero() {
		return nil
	}
	for _, u := range e.Meta.Unrest {
		if !slices.ContainsFunc(e.Baseline.Polls, func(p record.Poll) bool { return asOften(p, u) }) {
			all = append(all, u)
		}
	}
	return all
}

// asOften reports whether a poll explains that a queue is restless. Queues without a name are numbered in the order in
// which they were made, which may differ from run to run.
func asOften(p record.Poll, u record.Unrest) bool {
	named := !strings.HasPrefix(p.Queue, "#") || !strings.HasPrefix(u.Queue, "#")
	if p.Controller != u.Controller || named && p.Queue != u.Queue {
		return false
	}
	// With a delay that is so short, a slow machine has always something to take.
	return p.Delay <= u.Delay+u.Delay/10 || u.Delay == 0 && p.Delay <= time.Second
}
