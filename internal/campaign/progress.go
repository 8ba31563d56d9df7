package campaign

import (
	"time"

	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/progress"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
)

// showConfirming shows which run of a plan begins, to confirm what was found. With an outcome, it also shows how long
// that takes, from its number of runs so far and from about how many are left.
func (c *confirmer) showConfirming(p *plan.Plan, o *result.Outcome, ran int, what string, left int) {
	text := "confirming, " + what
	if o != nil {
		if took := o.Took / time.Duration(max(1, ran)) * time.Duration(left); took > 0 {
			text += ", about " + wording.Roughly(took) + " left"
		}
		if o.Of == 1 && len(o.Findings) > 0 {
			text += "; it has found: " + wording.FirstLine(o.Findings[0].Title)
		}
	}
	c.Show(progress.Event{Type: progress.Status, Plan: p.TestName, Text: text})
}
