package await

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
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

// unknown says that the controllers' remaining work is unknown.
func unknown(context.Context) Work { return Work{} }

// often are objects that are created each second: the same one, or another one each time if it has no name.
func often(same string, until time.Duration) map[time.Duration]string {
	all := map[time.Duration]string{}
	for at := time.Second; at < until; at += time.Second {
		all[at] = cmp.Or(same, at.String())
	}
	return all
}

// A difference counts only when the controllers have had the time of patience since everything was given back, and when
// nothing changes any more.
func TestPatience(t *testing.T) {
	limits := plan.Timeouts{Quiet: 2 * time.Second, Step: time.Minute, Plan: 3 * time.Minute}
	wanted := map[facts.Key]*facts.Object{"secret/default/a": {
		End: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{
			"namespace": "default", "name": "a",
		}}, Made: 1, MostMade: 1,
	}}
	for _, tt := range []struct {
		name  string
		since time.Duration            // from when everything was given back to the call
		adds  map[time.Duration]string // objects, by when they are created after everything was given back
		want  time.Duration            // from when everything was given back to the end
		note  string
	}{
		{"as without faults", 0, map[time.Duration]string{-time.Second: "a"}, 0, ""},
		{"later", 0, map[time.Duration]string{7 * time.Second: "a"}, 7 * time.Second,
			"came right only after 7s of waiting: secret/default/a: never created; without faults: exists at the end"},
		{"never", 0, nil, 10 * time.Second, ""},
		{"never, and others have waited before", 8 * time.Second, nil, 10 * time.Second, ""},
		{"others have waited longer", 15 * time.Second, nil, 15 * time.Second, ""},
		{"never at rest before", 0, map[time.Duration]string{9 * time.Second: "b"}, 11 * time.Second, ""},
		{"not at rest while others waited", 11 * time.Second, map[time.Duration]string{10 * time.Second: "b"},
			12 * time.Second, ""},
		{"not at rest meanwhile", 11 * time.Second,
			map[time.Duration]string{10 * time.Second: "b", 11500 * time.Millisecond: "a"}, 13500 * time.Millisecond,
			""},
		{"never at rest, the same differs", 0, often("b", 10*time.Minute), time.Minute + time.Second, ""},
		{"never at rest, something else differs each time", 0, often("", 10*time.Minute), 3 * time.Minute, ""},
		{name: "soon", adds: map[time.Duration]string{4 * time.Second: "a"}, want: 4 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &growing{changed: make(chan struct{})}
				givenBack := time.Now()
				for at, name := range tt.adds {
					time.AfterFunc(at, func() { g.add(name) })
				}
				time.Sleep(tt.since)
				synctest.Wait()
				ref := &baseline.Baseline{Objects: wanted}
				late, err := Baseline(t.Context(), ref, &plan.Plan{}, g, time.Time{}, givenBack, unknown, nil, limits)
				if err != nil {
					t.Fatal(err)
				}
				if got := late.String(); got != tt.note {
					t.Errorf("note %q, want %q", got, tt.note)
				}
				if got := time.Since(givenBack); got != tt.want {
					t.Errorf("waited until %s after everything was given back, want %s", got, tt.want)
				}
			})
		})
	}
}

// The run's clock may move ahead of the machine's.
func TestPatienceOfAClockThatIsAhead(t *testing.T) {
	limits := plan.Timeouts{Quiet: 2 * time.Second, Step: time.Minute, Plan: 3 * time.Minute, Rest: 10 * time.Minute}
	for _, tt := range []struct {
		name string
		look func(context.Context) Work
		want time.Duration
	}{
		{"nothing is to come", func(context.Context) Work { return Work{Known: true} }, 65 * time.Second},
		{"nobody can tell", unknown, 65 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := clock.New()
				c.Advance(24 * time.Hour)
				g := &growing{changed: make(chan struct{})}
				done := make(chan error)
				go func() {
					ref := &baseline.Baseline{Objects: map[facts.Key]*facts.Object{
						"secret/default/a": {End: map[string]any{"kind": "Secret"}, Made: 1, MostMade: 1},
					}}
					_, err := Baseline(clock.With(t.Context(), c), ref, &plan.Plan{}, g, time.Time{}, c.Now(), tt.look,
						nil, limits)
					done <- err
				}()
				synctest.Wait()
				if next, ok := c.Next(); !ok || c.Until(next) != tt.want {
					t.Errorf("it waits for %s (%t), not %s", c.Until(next), ok, tt.want)
				}
				c.Advance(tt.want)
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Regression: a controller that creates an object again when its node reports its status was said to never do so. The
// nodes of a run report theirs before a difference counts.
func TestNodesReportBeforeADifferenceCounts(t *testing.T) {
	limits := plan.Timeouts{Quiet: 2 * time.Second, Step: time.Minute, Plan: 3 * time.Minute, Rest: 10 * time.Minute}
	for _, tt := range []struct {
		name    string
		creates string
		want    time.Duration // from when everything was given back to the end
		note    string
	}{
		{"the controller reacts", "a", 66 * time.Second, "came right only after the nodes had reported their " +
			"status again, as kubelets do every 5 minutes: secret/default/a: never created; without faults: exists " +
			"at the end"},
		{"it does something else", "b", 68 * time.Second, ""},
		{"it does nothing", "", 67 * time.Second, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &growing{changed: make(chan struct{})}
				reports := 0
				report := func(context.Context) {
					reports++
					if tt.creates != "" {
						time.AfterFunc(time.Second, func() { g.add(tt.creates) })
					}
				}
				ref := &baseline.Baseline{Objects: map[facts.Key]*facts.Object{"secret/default/a": {
					End: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{
						"namespace": "default", "name": "a",
					}}, Made: 1, MostMade: 1,
				}}}
				idle := func(context.Context) Work { return Work{Known: true} }
				began, ctx := time.Now(), clock.With(t.Context(), clock.New())
				late, err := Baseline(ctx, ref, &plan.Plan{}, g, time.Time{}, began, idle, report, limits)
				if err != nil {
					t.Fatal(err)
				}
				if got := late.String(); got != tt.note || reports != 1 {
					t.Errorf("note %q after %d reports, want %q", got, reports, tt.note)
				}
				if got := time.Since(began).Round(time.Second); got != tt.want {
					t.Errorf("waited for %s, want %s", got, tt.want)
				}
			})
		})
	}
}

// Regression: a child that arrived before its owner had another name from then on, so that a run that ended as it
// should seemed to differ.
func TestChildBeforeItsOwner(t *testing.T) {
	entry := func(version uint64, typ, name, more string) record.HistoryEntry {
		return record.HistoryEntry{
			Time: time.Now(), ResourceVersion: version, Event: record.Created, Type: typ, Namespace: "default",
			Name: name,
			Object: []byte(`{"apiVersion": "v1", "kind": "` + typ + `", "metadata": {"namespace": "default", ` +
				`"name": "` + name + `", "generateName": "` + name[:len(name)-5] + `", "uid": "` + name + `"` + more +
				`}}`),
		}
	}
	owner := entry(1, "set", "web-bcdf4", "")
	child := entry(2, "pod", "web-bcdf4-xvz42", `, "ownerReferences": [{"uid": "web-bcdf4", "controller": true}]`)
	run := &record.Run{History: []record.HistoryEntry{owner, child}}
	ref, err := baseline.Learn("w", []*record.Run{run, run})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		g := &growing{changed: make(chan struct{})}
		began := time.Now()
		for i, e := range []record.HistoryEntry{child, owner} {
			time.AfterFunc(time.Duration(i)*time.Second, func() {
				g.mu.Lock()
				defer g.mu.Unlock()
				g.entries = append(g.entries, e)
				close(g.changed)
				g.changed = make(chan struct{})
			})
		}
		limits := plan.Timeouts{Quiet: 2 * time.Second, Step: time.Minute, Plan: 3 * time.Minute}
		if _, err := Baseline(t.Context(), ref, &plan.Plan{}, g, time.Time{}, began, unknown, nil, limits); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("it waited for %s, want until the owner is there", took)
		}
	})
}
