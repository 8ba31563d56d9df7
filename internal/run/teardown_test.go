package run

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Each step has its time, also if another one fails or does not end, and also if the run's context has ended.
func TestTeardown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var done []string
		down := new(teardown)
		for _, name := range []string{"first", "second", "third"} {
			down.later(func(ctx context.Context) error {
				done = append(done, name)
				switch name {
				case "second":
					return errors.New("failed")
				case "third":
					<-ctx.Done()
				}
				return ctx.Err()
			})
		}
		start := time.Now()
		down.run(t.Context(), func(err error) { done = append(done, err.Error()) })
		want := []string{"third", "context deadline exceeded", "second", "failed", "first"}
		if !slices.Equal(done, want) || time.Since(start) != teardownTimeout {
			t.Errorf("%q after %s, want %q", done, time.Since(start), want)
		}
	})
}
