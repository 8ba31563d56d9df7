package actions

import (
	"context"

	"github.com/trommel-dev/trommel/plan"
)

// A pause or resume only affects observations. The coordinator puts that into force when the action begins; the end of
// the plan ends every pause.
type switchPause struct{}

func init() {
	for _, t := range []plan.ActionType{plan.PauseController, plan.ResumeController, plan.PauseAPIServer,
		plan.ResumeAPIServer} {
		Register(t, func(*plan.Action, Tools) Action { return switchPause{} })
	}
}

// Do does nothing: the coordinator also adds the note about a resume that ended no pause.
func (switchPause) Do(context.Context) (string, error) { return "", nil }
func (switchPause) Undo(context.Context) error         { return nil }
