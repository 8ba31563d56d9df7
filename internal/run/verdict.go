package run

import (
	"fmt"

	"github.com/trommel-dev/trommel/coordinator"
	"github.com/trommel-dev/trommel/internal/judge"
)

// courseOf is how far a plan with this status came. Stuck says why the plan did not finish.
func courseOf(s coordinator.Status, stuck string) judge.Course {
	return judge.Course{
		Fired: s.Fired, Completed: s.Completed, Total: s.Total, Unfinished: unfinished(s, stuck),
		NoneStale: s.NoneStale, NoneFailed: s.NoneFailed,
	}
}

// unfinished describes how far an incomplete plan came and what it waited for; see record.Meta.
func unfinished(s coordinator.Status, stuck string) string {
	text := fmt.Sprintf("%d of %d actions fired", s.Fired, s.Total)
	if s.Fired == s.Total {
		text = fmt.Sprintf("all actions fired, but %d of %d completed", s.Completed, s.Total)
	}
	if stuck != "" {
		text += ": " + stuck
	}
	for _, line := range s.Waiting {
		text += "\n" + line
	}
	if s.Stuck != "" {
		text += "\n" + s.Stuck
	}
	for _, line := range s.Electing {
		text += "\n" + line
	}
	return text
}
