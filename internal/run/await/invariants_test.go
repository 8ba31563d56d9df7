package await

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trommel-dev/trommel/internal/judge/invariant"
	"github.com/trommel-dev/trommel/plan"
)

// An eventually gets its within and no more, and the run waits no longer than until it was true.
func TestInvariants(t *testing.T) {
	for _, tt := range []struct {
		name string
		adds map[time.Duration]string // objects, by when they are created after the call
		want time.Duration            // from the call to the end
	}{
		{"true before", map[time.Duration]string{-time.Second: "a"}, 0},
		{"later", map[time.Duration]string{3 * time.Second: "b", 7 * time.Second: "a"}, 7 * time.Second},
		{"never", map[time.Duration]string{3 * time.Second: "b"}, 10 * time.Second},
		{"too late", map[time.Duration]string{11 * time.Second: "a"}, 10 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &growing{changed: make(chan struct{})}
				from := time.Now()
				called := from.Add(time.Minute)
				for at, name := range tt.adds {
					time.AfterFunc(time.Until(called.Add(at)), func() { g.add(name) })
				}
				time.Sleep(time.Until(called))
				synctest.Wait()
				givenBack, err := Invariants(t.Context(), hope(t), g, from)
				if err != nil || !givenBack.Equal(called) {
					t.Errorf("given back at %s (%v), want %s", givenBack, err, called)
				}
				if got := time.Since(called); got != tt.want {
					t.Errorf("waited for %s, want %s", got, tt.want)
				}
				time.Sleep(time.Minute) // what is still to be added
			})
		})
	}
}

func TestInvariantsEndWithTheirContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g := &growing{changed: make(chan struct{})}
	if _, err := Invariants(ctx, hope(t), g, time.Now()); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// hope asks for an object with the name a within ten seconds.
func hope(t *testing.T) *invariant.Set {
	t.Helper()
	i, err := invariant.Compile([]plan.Invariant{{
		Name: "i", Eventually: `objects.exists(o, o.metadata.name == "a")`, Within: 10 * time.Second,
	}})
	if err != nil {
		t.Fatal(err)
	}
	return i
}
