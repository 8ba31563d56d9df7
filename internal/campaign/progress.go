package campaign

import (
	"time"

	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/progress"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
)

// showConfirming shows which run of a plan begins, to confirm what was found. The outcome's runs were that many so far,
// and about how many are left tells how long that takes; without an outcome that is not said.
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
