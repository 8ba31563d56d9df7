package journal

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
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
			e := &Events{Record: unrecorded{}}
			if tt.from {
				e.Overheated = make(chan struct{})
			}
			ctx, end := e.UntilTooHot(t.Context())
			defer end()
			for i := range tt.times {
				if err := e.Event(record.Event{Time: time.Unix(0, int64(i)), Observation: &record.Observation{
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
			if ended := ctx.Err() != nil; ended != tt.ends || (e.TooHot() != nil) != tt.ends {
				t.Errorf("ended %t, want %t: %+v", ended, tt.ends, e.TooHot())
			}
			if got := Cooled(ctx, fmt.Errorf("wait: %w", context.Canceled)); got != tt.ends ||
				Cooled(ctx, errors.New("another")) {
				t.Errorf("the error of the context counts: %t", !got)
			}
		})
	}
}
