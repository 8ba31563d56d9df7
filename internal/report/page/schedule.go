package page

import (
	"fmt"

	"github.com/trommel-dev/trommel/internal/report"
	"github.com/trommel-dev/trommel/internal/wording"
)

// drawSchedule draws the steps that the plan's schedule has held while others went on.
func drawSchedule(b *pageBuilder) {
	for _, s := range report.OrderedSteps(b.run) {
		at, ok := b.bySeq[s.Choice.Event]
		if !ok || s.Others == 0 {
			continue
		}
		held := b.data.Items[at]
		item := moments(b.lane(groupPlan, "order"), "hold", "held by the schedule: "+s.Choice.What)
		item.Object, item.State, item.Run, item.End = held.Object, held.State, held.Run, b.ms(s.Went)
		item.Detail = []string{
			fmt.Sprintf("held for %s, while %s went on", report.Round(s.Went.Sub(s.Came)),
				wording.Count(s.Others, "other step")),
			fmt.Sprintf("choice %d lets it go on: step %d of the stream %q", s.Choice.Number, s.Choice.Step,
				s.Choice.Stream),
		}
		b.add(item, s.Came)
	}
}
