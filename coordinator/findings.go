package coordinator

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/coordinator/machine"
	"github.com/trommel-dev/trommel/coordinator/monitor"
	"github.com/trommel-dev/trommel/record"
)

// findings are reasons why the run is not what its plan describes. The goroutine of Run owns them.
type findings []record.Finding

func (f *findings) add(finding record.Finding) { *f = append(*f, finding) }

// addOnce leaves out a finding whose title is there already.
func (f *findings) addOnce(finding record.Finding) {
	if !slices.ContainsFunc(*f, func(have record.Finding) bool { return have.Title == finding.Title }) {
		f.add(finding)
	}
}

// hookFailed is the finding about a hook that has failed.
func hookFailed(e monitor.Event, now time.Time) record.Finding {
	return record.Finding{
		Severity: record.SeverityInconclusive, Judge: record.JudgeHook, Subject: e.Session.Identity,
		Time: now, Title: fmt.Sprintf("a hook in %s failed: %s", e.Session.Identity, e.Trouble.Text),
		Detail: "This is a bug in Trommel, not in the controller; please report it. The process went on, and what " +
			"the hook should have reported was not observed.\n" + e.Trouble.Stack,
	}
}

// unobserved adds a finding if an event shows that the run is not what its plan describes: the monitor has cut a
// process off, a process did not answer, or its hook stopped waiting for the coordinator. There is one for each cause
// in each process.
func (c *Coordinator) unobserved(e monitor.Event) {
	if !c.began {
		return
	}
	var title, detail string
	switch name := e.Session.Identity; {
	case e.Lost != "":
		title = fmt.Sprintf("%s was cut off: %s", name, e.Lost)
		detail = "All its holds were released, and what it did until it reconnected was not observed."
	case e.Silent > 0 && c.freezer.explains(e, time.Now()):
		return
	case e.Silent > 0:
		title = fmt.Sprintf("%s did not answer for %s", name, e.Silent)
		detail = "The process was running but did nothing, as if it were stopped: what it should have done cannot " +
			"be judged."
	case e.Missed != nil:
		title = fmt.Sprintf("%s was not observed for a time: %s", name, e.Missed.Why)
		detail = "The hook let the process go on, so that a hung coordinator does not block it."
	case e.Abandoned != nil && e.Abandoned.LetGo:
		title = fmt.Sprintf("%s was released by its hook: %s", name, e.Abandoned.Error)
		detail = "It was held at " + machine.Describe(c.observation(e.Session, e.Observation)) + "."
	default:
		return
	}
	c.findings.addOnce(record.Finding{
		Severity: record.SeverityInconclusive, Judge: record.JudgeSession, Subject: e.Session.Identity,
		Time: c.clock.Now(), Title: title,
		Detail: detail + " From here on the run is not what the plan describes.",
	})
}

// expire ends a hold at its deadline, with a finding.
func (c *Coordinator) expire(ctx context.Context, seq int) {
	e, ok := c.holds.event(seq)
	if !ok {
		return
	}
	stuck := c.stuck(c.clock.Now())
	if stuck != "" {
		stuck += "\n"
	}
	by := e.Session.Identity
	c.findings.add(record.Finding{
		Severity: record.SeverityInconclusive, Judge: record.JudgeHold, Subject: by, Time: c.clock.Now(),
		Title: fmt.Sprintf("%s was held for %s and then released: %s", by, c.config.Hold,
			machine.Describe(c.observation(e.Session, e.Observation))),
		Detail: stuck +
			"A pause outlasted the suite's timeouts.hold, or an action did not complete. From here on the run is " +
			"not what the plan describes.",
	})
	c.step(ctx, record.Event{Expired: &seq})
}
