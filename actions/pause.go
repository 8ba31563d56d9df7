package actions

import "context"

// switchPause begins or ends a pause. What is paused is a matter of the coordinator's state, which also ends every pause with
// the plan; there is nothing to undo here.
type switchPause struct {
	pauses Pauses
	index  int
}

// Do leaves it to the coordinator to note a resume that ended no pause.
func (a *switchPause) Do(ctx context.Context) (string, error) {
	return "", a.pauses.Switch(ctx, a.index)
}
func (a *switchPause) Undo(context.Context) error { return nil }
