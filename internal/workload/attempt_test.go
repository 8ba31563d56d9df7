package workload

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Regression: an API server that the plan had restarted used up most of a step's timeout while it came up, and the step
// failed although the controller was fast.
func TestStepHasItsTimeFromThePlansLastAction(t *testing.T) {
	for _, test := range []struct {
		name           string
		actions        []time.Duration // when they are complete
		ready          time.Duration
		goesOn         bool
		timedOut       bool
		took           time.Duration
		withoutThePlan bool
	}{
		{name: "in time", actions: []time.Duration{9 * time.Second}, ready: 8 * time.Second, took: 8 * time.Second},
		{name: "late, as the plan was", actions: []time.Duration{9 * time.Second}, ready: 15 * time.Second,
			took: 15 * time.Second},
		{
			name: "late, as two actions were", actions: []time.Duration{9 * time.Second, 18 * time.Second},
			ready: 25 * time.Second, took: 25 * time.Second,
		},
		{
			name: "too late all the same", actions: []time.Duration{9 * time.Second}, ready: time.Hour,
			timedOut: true, took: 19 * time.Second,
		},
		{name: "the plan did nothing", ready: 15 * time.Second, timedOut: true, took: 10 * time.Second},
		{name: "there is no plan", ready: 15 * time.Second, timedOut: true, took: 10 * time.Second,
			withoutThePlan: true},
		{
			name: "the workload goes on", actions: []time.Duration{9 * time.Second}, ready: 15 * time.Second,
			goesOn: true, timedOut: true, took: 10 * time.Second,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				r := &runner{Config: Config{Progress: func(string) {}}}
				if !test.withoutThePlan {
					r.Disturbed = func() (last time.Time) {
						for _, a := range test.actions {
							if time.Since(start) >= a {
								last = start.Add(a)
							}
						}
						return last
					}
				}
				timedOut, _, err := r.attempt(t.Context(),
					step{timeout: 10 * time.Second, goesOn: test.goesOn, do: func(ctx context.Context) error {
						select {
						case <-time.After(time.Until(start.Add(test.ready))):
							return nil
						case <-ctx.Done():
							return context.Cause(ctx)
						}
					}})
				if timedOut != test.timedOut || (err != nil) != test.timedOut ||
					err != nil && !errors.Is(err, errStepTimeout) {
					t.Errorf("timed out: %t, error %v", timedOut, err)
				}
				if took := time.Since(start); took != test.took {
					t.Errorf("took %s, want %s", took, test.took)
				}
			})
		})
	}
}
