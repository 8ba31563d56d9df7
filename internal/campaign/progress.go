package campaign

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/progress"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
)

// showOutcome shows what became of a plan. The caller holds the lock.
func (c *campaign) showOutcome(o *Outcome) {
	c.show(progress.Event{
		Type: progress.PlanDone, Plan: o.Plan, Verdict: string(o.Status), Record: o.Record,
		Text: fmt.Sprintf("[%d/%d] %s (%s): %s", len(c.done), len(c.tasks), o.Plan, wording.Roughly(o.Took),
			describe(o)),
	})
	c.showStatus()
}

// describe says what became of a plan.
func describe(o *Outcome) string {
	first := ""
	if len(o.Findings) > 0 {
		first = ": " + o.Findings[0].Title
	}
	switch o.Status {
	case Passed:
		return "pass"
	case Bug:
		return fmt.Sprintf("bug %s%s", o.Rate(), first)
	case Unconfirmed:
		if o.Pending {
			return fmt.Sprintf("not confirmed: the budget ended %s%s", o.Rate(), first)
		}
		return fmt.Sprintf("not confirmed %s%s", o.Rate(), first)
	case OfWorkload:
		return o.WithoutActions() + first
	case Inconclusive:
		return "inconclusive: " + wording.FirstLine(o.Reason)
	}
	return "could not be run: " + o.Reason
}

// showStatus shows how far the campaign is. The caller holds the lock.
func (c *campaign) showStatus() {
	bugs := 0
	for _, o := range c.done {
		if o.Status == Bug {
			bugs++
		}
	}
	text, reach := c.progressed()
	text += ", " + wording.Count(bugs, "bug")
	if left := c.left(); left > 0 {
		text += ", about " + wording.Roughly(left) + " left"
	}
	if len(c.running) > 0 {
		text += "; " + strings.Join(c.running, ", ")
	}
	c.show(progress.Event{Type: progress.Status, Text: text, Campaign: &progress.CampaignEvent{
		Done: len(c.done), Of: len(c.tasks), Reach: reach, Bugs: bugs, Left: c.left().Seconds(),
		Running: slices.Clone(c.running),
	}})
}

// showConfirming shows which run of a plan begins, to confirm what was found. The outcome's runs were that many so far,
// and about how many are left tells how long that takes; without an outcome that is not said.
func (c *campaign) showConfirming(p *plan.Plan, o *Outcome, ran int, what string, left int) {
	text := "confirming, " + what
	if o != nil {
		if took := o.Took / time.Duration(max(1, ran)) * time.Duration(left); took > 0 {
			text += ", about " + wording.Roughly(took) + " left"
		}
		if o.Of == 1 && len(o.Findings) > 0 {
			text += "; it has found: " + wording.FirstLine(o.Findings[0].Title)
		}
	}
	c.show(progress.Event{Type: progress.Status, Plan: p.TestName, Text: text})
}

// enough plans have been measured to estimate how long the others take.
const enough = 3

// left estimates how long the campaign will still take, and not longer than the budget: as the plans to come are
// expected to take or, if nobody knows how long their workloads take, as long for each as for those that have ended.
// Zero: nobody knows.
func (c *campaign) left() time.Duration {
	var took time.Duration
	for _, o := range c.done {
		took += o.Took
	}
	if len(c.done) < enough {
		return 0
	}
	left := took / time.Duration(len(c.done)) * time.Duration(len(c.tasks)-len(c.done)) /
		time.Duration(max(1, len(c.Runners)))
	if c.forecast.costs != nil {
		_, left = c.reach()
	}
	if c.Budget > 0 {
		left = min(left, max(c.Budget-c.elapsed(), time.Second))
	}
	return left
}
