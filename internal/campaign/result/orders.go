package result

import (
	"fmt"
	"strings"

	"github.com/trommel-dev/trommel/internal/wording"
)

// Orders says which orders of a workload's steps a campaign has run, see docs/orders.md.
type Orders struct {
	Workload string  `json:"workload"`
	One      Covered `json:"one"`    // orders with one late step
	Two      Covered `json:"two"`    // with two, as far as they are known from those with one
	Seeds    Covered `json:"seeds"`  // orders that a seed has chosen
	Faults   Covered `json:"faults"` // the same, with a kill, a lost answer, refused calls or a stale API server
	// Different is how many of the orders that were run are different.
	Different int `json:"different"`
}

// Covered is how many of some plans were run.
type Covered struct {
	Run   int `json:"run"`
	Of    int `json:"of"`
	Found int `json:"found"` // plans with a confirmed finding
}

// String says it in one line.
func (o Orders) String() string {
	parts := []string{"all orders with one late step: " + o.One.text()}
	if o.Two.Of > 0 {
		parts = append(parts, "with two: "+o.Two.text())
	}
	if o.Seeds.Run > 0 {
		parts = append(parts, fmt.Sprintf("%s, %s", wording.Count(o.Seeds.Run, "seed"),
			wording.Count(o.Seeds.Found, "finding")))
	}
	if o.Faults.Run > 0 {
		parts = append(parts, fmt.Sprintf("%s with a fault, %s", wording.Count(o.Faults.Run, "seed"),
			wording.Count(o.Faults.Found, "finding")))
	}
	return fmt.Sprintf("%s: %s (%s)", o.Workload, strings.Join(parts, "; "),
		wording.Count(o.Different, "different order"))
}

func (c Covered) text() string {
	return fmt.Sprintf("%d of %d run, %s", c.Run, c.Of, wording.Count(c.Found, "finding"))
}
