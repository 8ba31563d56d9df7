package coordinator

import (
	"fmt"
	"time"

	"github.com/trommel-dev/trommel/coordinator/machine"
	"github.com/trommel-dev/trommel/record"
)

// recording numbers the events and writes the run record. The goroutine of Run owns it.
type recording struct {
	recorder Recorder
	seq      int   // of the newest event
	err      error // the first
}

// event numbers an event, dates it and records it.
func (r *recording) event(e record.Event, now time.Time) record.Event {
	r.seq++
	e.Seq, e.Time = r.seq, now
	r.failed(r.recorder.Event(e))
	return e
}

func (r *recording) action(a record.Action) { r.failed(r.recorder.Action(a)) }

func (r *recording) failed(err error) {
	if r.err == nil {
		r.err = err
	}
}

// cause describes the event, as the cause of an action that it fired.
func cause(e record.Event) string {
	switch {
	case e.Observation != nil:
		return machine.Describe(e.Observation)
	case e.Timeout != nil:
		return "a timeout"
	case e.Began != nil:
		return fmt.Sprintf("the beginning of action %d", *e.Began+1)
	case e.Completed != nil:
		return fmt.Sprintf("the completion of action %d", *e.Completed+1)
	}
	return fmt.Sprintf("event %d", e.Seq)
}
