package lab

import (
	"fmt"
	"time"

	"github.com/trommel-dev/trommel/internal/progress"
)

// Voice reports how a campaign goes.
type Voice struct{ To progress.Listener }

// Say reports a line of text.
func (v Voice) Say(format string, args ...any) {
	v.Show(progress.Event{Type: progress.Info, Text: fmt.Sprintf(format, args...)})
}

// Show reports an event. It sets the time.
func (v Voice) Show(e progress.Event) {
	e.Time = time.Now()
	v.To.Show(e)
}
