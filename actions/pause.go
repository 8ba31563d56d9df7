package actions

import (
	"context"

	"github.com/trommel-dev/trommel/plan"
)

// All that a pause or a resume does are its effects on observations, which the coordinator puts into force when it
// begins. The plan's end ends every pause.
type switchPause struct{}

func init() {
	for _, t := range []plan.ActionType{plan.PauseController, plan.ResumeController, plan.PauseAPIServer,
		plan.ResumeAPIServer} {
		Register(t, func(*plan.Action, Tools) Action { return switchPause{} })
	}
}

// Do leaves it to the coordinator to note a resume that ended no pause.
func (switchPause) Do(context.Context) (string, error) { return "", nil }
func (switchPause) Undo(context.Context) error         { return nil }
