package result

import (
	"fmt"
	"regexp"
)

// Again is the name of a plan in its n-th run, from 2, where each run is an outcome of its own.
func Again(plan string, n int) string { return fmt.Sprintf("%s-run-%d", plan, n) }

var furtherRun = regexp.MustCompile(`-run-[0-9]+$`)

// FirstOf is the name of the plan that Again made a name of. Any other name it returns as it is.
func FirstOf(name string) string { return furtherRun.ReplaceAllString(name, "") }
