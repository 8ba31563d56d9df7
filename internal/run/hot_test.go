package run

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// unrecorded records nothing.
type unrecorded struct{}

func (unrecorded) Event(record.Event) error   { return nil }
func (unrecorded) Action(record.Action) error { return nil }

// A run waits no longer when a controller changes one object without end, if a workload is learned from it.
func TestUntilTooHot(t *testing.T) {
	for _, tt := range []struct {
		name  string
		from  bool // a workload is learned from the run
		times int
		ends  bool
	}{
		{"without end", true, 1001, true},
		{"often", true, 1000, false},
		{"of a plan", false, 1001, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &runner{task: task{plan: &plan.Plan{}}, events: &events{record: unrecorded{}}}
			if tt.from {
				r.events.overheated = make(chan struct{})
			}
			ctx, end := r.untilTooHot(t.Context())
			defer end()
			for i := range tt.times {
				if err := r.events.Event(record.Event{Time: time.Unix(0, int64(i)), Observation: &record.Observation{
					By: "c", Point: wire.ControllerWrite, Phase: wire.After, Kind: "ConfigMap", Name: "a",
					Object: fmt.Appendf(nil, `{"metadata": {"resourceVersion": "%d"}}`, i+1),
				}}); err != nil {
					t.Fatal(err)
				}
			}
			wait := 50 * time.Millisecond
			if tt.ends {
				wait = time.Minute
			}
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			}
			if ended := ctx.Err() != nil; ended != tt.ends || (r.events.tooHot() != nil) != tt.ends {
				t.Errorf("ended %t, want %t: %+v", ended, tt.ends, r.events.tooHot())
			}
			if got := cooled(ctx, fmt.Errorf("wait: %w", context.Canceled)); got != tt.ends ||
				cooled(ctx, errors.New("another")) {
				t.Errorf("the error of the context counts: %t", !got)
			}
		})
	}
}
