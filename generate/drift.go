package generate

import (
	"fmt"
	"time"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
	"github.com/trommel-dev/trommel/reference"
)

// driftAfter is how long after the controller's last write the steady state begins.
const driftAfter = time.Second

// drift deletes, as another client, each object that the controller has created and that exists at the end: right after
// its creation, and in the steady state.
func (g *generator) drift() {
	last := map[string]int{} // effective write, by controller
	for i := range g.ref.Changes {
		if by := g.ref.Changes[i].By; by != "" {
			last[by] = i
		}
	}
	created := map[reference.Key]int{} // for the last time
	for i := range g.ref.Changes {
		if c := &g.ref.Changes[i]; c.By != "" && c.Event == record.Created {
			created[c.Key] = i
		}
	}
	for i := range g.ref.Changes {
		c := &g.ref.Changes[i]
		if at, ok := created[c.Key]; !ok || at != i || g.ref.Objects[c.Key].End == nil {
			continue
		}
		for _, when := range []struct {
			change int
			wait   time.Duration
			words  string
		}{
			{i, 0, "right after " + c.By + " has created it"},
			{last[c.By], driftAfter, "after the last write of " + c.By},
		} {
			why := fmt.Sprintf("somebody deletes %s, %s", c.Key, when.words)
			signature := fmt.Sprintf("%s %s", c.Key.Type(), when.wait)
			d, rule := g.trigger("moment", start, when.change, plan.AfterControllerWrite, c.By)
			if rule != "" {
				g.drop(signature, why, rule)
				continue
			}
			var moment build.Trigger = d
			if when.wait > 0 {
				moment = build.Sequence(d, build.Timeout(when.wait).Named("later"))
			}
			g.add(signature, why, build.Delete(string(c.Key)).When(moment))
		}
	}
}
