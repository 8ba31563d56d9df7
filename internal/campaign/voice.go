package campaign

import (
	"fmt"
	"time"

	"github.com/trommel-dev/trommel/internal/progress"
)

// voice reports how a campaign goes.
type voice struct{ to progress.Listener }

func (v voice) say(format string, args ...any) {
	v.show(progress.Event{Type: progress.Info, Text: fmt.Sprintf(format, args...)})
}

func (v voice) show(e progress.Event) {
	e.Time = time.Now()
	v.to.Show(e)
}
