package run

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/history"
	"github.com/trommel-dev/trommel/oracle"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// watchedKeys lists the keys that the suite wants recorded, and those that its invariants are about.
func (r *runner) watchedKeys() []plan.ResourceKey {
	keys := slices.Clone(r.Suite.History)
	for _, i := range r.Suite.Invariants {
		if i.On != nil {
			keys = append(keys, *i.On)
		}
	}
	return keys
}

// startRecorder starts recording the history of the objects that the suite and the plan name.
func (r *runner) startRecorder(ctx context.Context) (*history.Recorder, error) {
	keys := slices.Concat(r.watchedKeys(), r.keys(), r.History)
	// All objects of a type are recorded: invariants also refer to objects that belong to the named one and have other
	// names.
	var types []plan.ResourceKey
	for _, k := range keys {
		t := plan.ResourceKey{Type: k.Type, Group: k.Group, Namespace: "*", Name: "*"}
		if k.Type != "" && !slices.Contains(types, t) {
			types = append(types, t)
		}
	}
	recorder, err := history.Start(ctx, history.Config{Objects: r.objects, Keys: types})
	if err != nil {
		return nil, fmt.Errorf("record history: %w", err)
	}
	r.later(func(context.Context) error { recorder.Close(); return nil })
	return recorder, nil
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
		last, ok := oracle.LastError(r.readable(recorded))
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

// serverAway is [oracle.ServerAway] for the actions completed so far.
func (r *runner) serverAway(controller string, at time.Time) string {
	return oracle.ServerAway(r.Plan, r.meta.Controllers, r.carriedOut(), r.Suite.Timeouts.Away, controller, at)
}
