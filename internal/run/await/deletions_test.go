package await

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/record"
)

// A run watches for a while whether an object goes that is marked for deletion.
func TestDeletions(t *testing.T) {
	const (
		living   = `{"metadata": {"uid": "u", "finalizers": ["f"]}}`
		marked   = `{"metadata": {"uid": "u", "finalizers": ["f"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}`
		freed    = `{"metadata": {"uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"}}`
		another  = `{"metadata": {"uid": "v"}}`
		patience = facts.Patience
	)
	type change struct {
		after         time.Duration
		event, object string
	}
	stuck := []change{{0, record.Created, living}, {0, record.Updated, marked}}
	after := func(all ...change) []change { return slices.Concat(stuck, all) }
	var often []change
	for at := 10 * time.Second; at < 5*time.Minute; at += 10 * time.Second {
		often = append(often, change{at, record.Updated, marked})
	}
	for _, tt := range []struct {
		name    string
		changes []change
		real    bool // time
		want    time.Duration
	}{
		{name: "nothing is recorded"},
		{name: "nothing is marked", changes: stuck[:1]},
		{name: "it stays", changes: stuck, want: patience},
		{name: "in real time", changes: stuck, real: true},
		{name: "gone before", changes: after(change{0, record.Deleted, marked})},
		{name: "it waits for no finalizer", changes: after(change{0, record.Updated, freed})},
		{name: "it goes", changes: after(change{7 * time.Second, record.Deleted, marked}), want: 7 * time.Second},
		{name: "it changes", changes: after(change{30 * time.Second, record.Updated, marked}),
			want: 30*time.Second + patience},
		{name: "another one changes", changes: after(change{30 * time.Second, record.Created, another}),
			want: patience},
		{name: "it changes without end", changes: after(often...), want: mostReal},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &growing{changed: make(chan struct{})}
				began := time.Now()
				add := func(c change) {
					g.mu.Lock()
					defer g.mu.Unlock()
					g.entries = append(g.entries, record.HistoryEntry{
						Time: time.Now(), Event: c.event, Object: []byte(c.object),
					})
					close(g.changed)
					g.changed = make(chan struct{})
				}
				for _, c := range tt.changes {
					if c.after == 0 {
						add(c)
					} else {
						time.AfterFunc(c.after, func() { add(c) })
					}
				}
				ctx := t.Context()
				if !tt.real {
					ctx = clock.With(ctx, clock.New())
				}
				if err := Deletions(ctx, g); err != nil {
					t.Fatal(err)
				}
				if got := time.Since(began).Round(time.Second); got != tt.want {
					t.Errorf("took %s, want %s", got, tt.want)
				}
			})
		})
	}
}
