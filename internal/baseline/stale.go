package baseline

import (
	"fmt"
	"slices"

	"github.com/trommel-dev/trommel/plan"
)

// StaleBy says how a controller is shown the past by starting it at an API server that is paused. Off: the plan must
// switch its streaming lists off, with `watchList: false` of the action that starts it. Why says why it cannot be
// shown the past at all; empty: it can.
func (s Setup) StaleBy(suite *plan.Suite, name string) (off bool, why string) {
	if !slices.Contains(s.Streaming, name) {
		return false, ""
	}
	i := slices.IndexFunc(suite.Controllers, func(c plan.Controller) bool { return c.Name == name })
	if i >= 0 && suite.Controllers[i].WatchList != nil && *suite.Controllers[i].WatchList {
		return false, fmt.Sprintf("the suite says watchList: true for %s, and a streaming list shows nothing old", name)
	}
	return true, ""
}
