package actions

import (
	"context"

	"github.com/trommel-dev/trommel/plan"
)

// A failure of calls only affects observations. The coordinator puts it into force when the action begins; the end of
// the plan ends every failure.
type switchFailure struct{}

func init() {
	for _, t := range []plan.ActionType{plan.FailCall, plan.RestoreCalls} {
		Register(t, func(*plan.Action, Tools) Action { return switchFailure{} })
	}
}

// Do does nothing: the coordinator also adds the note about a restore that ended no failure.
func (switchFailure) Do(context.Context) (string, error) { return "", nil }
func (switchFailure) Undo(context.Context) error         { return nil }
