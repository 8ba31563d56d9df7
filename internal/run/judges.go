package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trommel-dev/trommel/internal/judge"
	"github.com/trommel-dev/trommel/internal/objects/history"
	"github.com/trommel-dev/trommel/internal/reference"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// watchedKeys lists the keys that the suite wants recorded, those that its invariants are about, and the plan's cycles.
func (r *runner) watchedKeys() []plan.ResourceKey {
	keys := slices.Clone(r.Suite.History)
	for _, i := range r.Suite.Invariants {
		if i.On != nil {
			keys = append(keys, *i.On)
		}
	}
	for i := range r.Plan.Actions {
		if c := r.Plan.Actions[i].Cycles(); c != nil {
			keys = append(keys, c.Key()) // reports show its phases
		}
	}
	return keys
}

// startRecorder starts recording the history of the objects that the suite and the plan name; if types are to be found,
// of all objects.
func (r *runner) startRecorder(ctx context.Context) (*history.Recorder, error) {
	types := allOf(r.watchedKeys(), r.keys())
	for _, key := range allOf(r.History) {
		// A controller may also work with types that nobody can watch, such as reviews.
		if t, err := r.objects.Resolve(ctx, key); (err != nil || t.Watchable()) && !slices.Contains(types, key) {
			types = append(types, key)
		}
	}
	for _, key := range types {
		r.meta.Recorded = append(r.meta.Recorded, key.String())
	}
	if r.FindTypes {
		r.named = types
		further, err := r.listable(ctx)
		if err != nil {
			return nil, fmt.Errorf("record history: %w", err)
		}
		types = slices.Concat(types, further)
	}
	recorder, err := history.Start(ctx, history.Config{Objects: r.objects, Keys: types})
	if err != nil {
		return nil, fmt.Errorf("record history: %w", err)
	}
	r.later(func(context.Context) error { recorder.Close(); return nil })
	return recorder, nil
}

// allOf returns keys of all objects of the keys' types, each once: invariants also refer to objects that belong to the
// named one and have other names.
func allOf(keys ...[]plan.ResourceKey) []plan.ResourceKey {
	var types []plan.ResourceKey
	for _, k := range slices.Concat(keys...) {
		t := plan.ResourceKey{Type: k.Type, Group: k.Group, Namespace: "*", Name: "*"}
		if k.Type != "" && !slices.Contains(types, t) {
			types = append(types, t)
		}
	}
	return types
}

// listTimeout is how long a type may take to be listed that perhaps nobody needs.
const listTimeout = 5 * time.Second

// listable lists the types of which anything counts, without those that the API server cannot list now.
func (r *runner) listable(ctx context.Context) ([]plan.ResourceKey, error) {
	all, err := r.objects.AllWatchable()
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var keys []plan.ResourceKey
	var group errgroup.Group
	group.SetLimit(applyAtOnce)
	for _, t := range all {
		key := plan.ResourceKey{Type: t.Singular, Group: t.Resource.Group, Namespace: "*", Name: "*"}
		if !reference.Counts(key) {
			continue
		}
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, listTimeout)
			defer cancel()
			if _, err := r.objects.Resource(t, "").List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
				r.Logger.Debug("a type is not recorded", "type", key, "error", err)
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			keys = append(keys, key)
			return nil
		})
	}
	_ = group.Wait()
	r.listed = keys
	return keys, ctx.Err()
}

// needed returns the part of a history of all objects that would have been recorded if the types had been known: those
// that were named, and those that the controllers had to do with. The error says that one of them was not recorded.
func (r *runner) needed(ctx context.Context, all []record.HistoryEntry) ([]record.HistoryEntry, error) {
	type typ struct{ name, group string }
	want, recorded := map[typ]bool{}, map[typ]bool{}
	for _, key := range r.listed {
		recorded[typ{key.Type, key.Group}] = true
	}
	for _, key := range r.named {
		t, err := r.objects.Resolve(ctx, key)
		if err != nil {
			return all, err
		}
		want[typ{t.Singular, t.Resource.Group}], recorded[typ{t.Singular, t.Resource.Group}] = true, true
	}
	r.eventsMu.Lock()
	types := slices.Collect(maps.Keys(r.types))
	r.eventsMu.Unlock()
	var errs []error
	for _, key := range types {
		t, err := r.objects.Resolve(ctx, key) // not every observation knows the group
		if err == nil && !t.Watchable() {
			continue
		}
		if id := (typ{t.Singular, t.Resource.Group}); err != nil || !recorded[id] {
			errs = append(errs, fmt.Errorf("record history: %s could not be listed when the workload began: %w", key,
				cmp.Or(err, errors.New("it was not served"))))
		} else {
			want[id] = true
		}
	}
	return slices.DeleteFunc(all, func(h record.HistoryEntry) bool { return !want[typ{h.Type, h.Group}] }),
		errors.Join(errs...)
}

// withLastErrors adds to the workload's findings which controllers wait for leader election, and each controller's last
// logged error, which is often the cause.
func (r *runner) withLastErrors(ctx context.Context, findings []record.Finding) {
	if len(findings) == 0 {
		return
	}
	var lines []string
	if status, err := r.coordinator.Status(ctx); err == nil {
		lines = status.Electing
	}
	for _, c := range r.Suite.Controllers {
		processes, err := r.node().Status(ctx, c.Name)
		if err != nil {
			continue
		}
		recorded, err := r.recordProcesses(processes)
		if err != nil {
			r.Logger.Warn("read the log of a controller", "controller", c.Name, "error", err)
		}
		last, ok := judge.LastError(r.readable(recorded))
		if !ok {
			continue
		}
		times := ""
		if last.Times > 1 {
			times = fmt.Sprintf(" (%d similar ones)", last.Times)
		}
		where := recordedLog(last.Process.Controller, last.Process.Pod, last.Process.Container)
		lines = append(lines, fmt.Sprintf("the last error of %s%s, in %s:\n  %s", c.Name, times, where, last.Text))
	}
	for i := range findings {
		findings[i].Detail = strings.Trim(strings.Join(append(slices.Clone(lines), findings[i].Detail), "\n"), "\n")
	}
}

// workloadLog is the log for the output of the workload's commands.
func (r *runner) workloadLog() io.Writer {
	f, err := record.CreateFile(filepath.Join(r.RecordDir, record.LogsDir, "workload.log"))
	if err != nil {
		r.Logger.Warn("create the workload's log", "error", err)
		return io.Discard
	}
	r.later(func(context.Context) error { return f.Close() })
	return f
}

// serverAway is [judge.ServerAway] for the actions completed so far.
func (r *runner) serverAway(controller string, at time.Time) string {
	return judge.ServerAway(r.Plan, r.meta.Controllers, r.carriedOut(), r.Suite.Timeouts.Away, controller, at)
}
