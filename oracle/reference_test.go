package oracle

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
	"github.com/trommel-dev/trommel/reference"
)

// growing is a history that a test adds to.
type growing struct {
	mu      sync.Mutex
	entries []record.HistoryEntry
	changed chan struct{}
}

func (g *growing) Since(n int) ([]record.HistoryEntry, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.entries[n:]), g.changed
}

func (g *growing) Sync(context.Context) error { return nil }

func (g *growing) add(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.entries = append(g.entries, record.HistoryEntry{
		Time: time.Now(), ResourceVersion: uint64(len(g.entries) + 1), Event: record.Created, Type: "secret",
		Namespace: "default", Name: name,
		Object: []byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"default","name":"` + name + `"}}`),
	})
	close(g.changed)
	g.changed = make(chan struct{})
}

// A difference counts only when the controllers have had the time of patience since everything was given back, and when
// nothing changes any more.
func TestPatience(t *testing.T) {
	const quiet = 2 * time.Second
	wanted := map[reference.Key]*reference.Object{"secret/default/a": {
		End: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{
			"namespace": "default", "name": "a",
		}}, Made: 1, MostMade: 1,
	}}
	for _, tt := range []struct {
		name  string
		since time.Duration            // from when everything was given back to the call
		adds  map[string]time.Duration // objects, with when they are created after everything was given back
		want  time.Duration            // from when everything was given back to the end
	}{
		{"as without faults", 0, map[string]time.Duration{"a": -time.Second}, 0},
		{"later", 0, map[string]time.Duration{"a": 7 * time.Second}, 7 * time.Second},
		{"never", 0, nil, 10 * time.Second},
		{"never, and others have waited before", 8 * time.Second, nil, 10 * time.Second},
		{"others have waited longer", 15 * time.Second, nil, 15 * time.Second},
		{"never at rest before", 0, map[string]time.Duration{"b": 9 * time.Second}, 11 * time.Second},
		{"not at rest while others waited", 11 * time.Second, map[string]time.Duration{"b": 10 * time.Second},
			12 * time.Second},
		{"not at rest meanwhile", 11 * time.Second,
			map[string]time.Duration{"b": 10 * time.Second, "a": 11500 * time.Millisecond}, 13500 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &growing{changed: make(chan struct{})}
				givenBack := time.Now()
				for name, at := range tt.adds {
					time.AfterFunc(at, func() { g.add(name) })
				}
				time.Sleep(tt.since)
				synctest.Wait()
				ref := &reference.Reference{Objects: wanted}
				if err := AwaitReference(t.Context(), ref, &plan.Plan{}, g, givenBack, quiet); err != nil {
					t.Fatal(err)
				}
				if got := time.Since(givenBack); got != tt.want {
					t.Errorf("waited until %s after everything was given back, want %s", got, tt.want)
				}
			})
		})
	}
}
