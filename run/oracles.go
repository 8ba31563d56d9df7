package run

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/cluster"
	"github.com/trommel-dev/trommel/oracle"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// watchedKeys lists what the suite wants recorded, and what its invariants are about.
func (r *runner) watchedKeys() []plan.ResourceKey {
	keys := slices.Clone(r.Suite.History)
	for _, i := range r.Suite.Invariants {
		if i.On != nil {
			keys = append(keys, *i.On)
		}
	}
	return keys
}

// startRecorder begins to record the history of what the suite and the plan look at.
func (r *runner) startRecorder(ctx context.Context) (*oracle.Recorder, error) {
	keys := append(r.watchedKeys(), r.keys()...)
	// The whole of a type is recorded: invariants speak of what belongs to an object, and that has names of its own.
	var types []plan.ResourceKey
	for _, k := range keys {
		t := plan.ResourceKey{Type: k.Type, Group: k.Group, Namespace: "*", Name: "*"}
		if k.Type != "" && !slices.Contains(types, t) {
			types = append(types, t)
		}
	}
	recorder, err := oracle.StartRecorder(ctx, oracle.RecorderConfig{Objects: r.objects, Keys: types})
	if err != nil {
		return nil, fmt.Errorf("record history: %w", err)
	}
	r.later(func(context.Context) error { recorder.Close(); return nil })
	return recorder, nil
}

// judgeHistory writes the history down and evaluates what must never or always hold.
func (r *runner) judgeHistory(ctx context.Context, recorder *oracle.Recorder, invariants *oracle.Invariants) error {
	history, err := recorder.Stop(ctx)
	if err != nil {
		return fmt.Errorf("record history: %w", err)
	}
	for _, h := range history {
		if err := r.writer.History(h); err != nil {
			return err
		}
	}
	for _, gap := range recorder.Gaps() {
		r.add(record.Finding{Oracle: record.OracleHistory, Title: gap, Time: time.Now()})
	}
	r.add(invariants.Check(history)...)
	return nil
}

// judgeProcesses looks at how the controllers' processes ended.
func (r *runner) judgeProcesses(ctx context.Context) error {
	for _, c := range r.Suite.Controllers {
		processes, err := r.cluster.Processes().Status(ctx, c.Name)
		if err != nil {
			return fmt.Errorf("status of controller %q: %w", c.Name, err)
		}
		// An exit before the workload is a matter of the cluster's start: the controller has come up since.
		processes = slices.DeleteFunc(processes, func(p cluster.Process) bool {
			return !p.Running() && p.Ended.Before(r.meta.WorkloadStart)
		})
		for _, f := range oracle.Exits(processes) {
			if f.Oracle == record.OracleLeadership && r.pausesLocks(ctx, c.Name) {
				r.Console.Info(f.Title + ", as the plan paused its lock")
				continue
			}
			if server := r.serverAway(c.Name, f.Time); server != "" && (f.Oracle == record.OracleCrash || f.Oracle == record.OracleLeadership) {
				r.note(fmt.Sprintf("%s, while the plan had %s killed, which it was connected to", f.Title, server))
				continue
			}
			r.add(f)
		}
	}
	return nil
}

// withLastErrors adds to findings of the workload which controllers wait for their election, and what they said last:
// the cause often stands there.
func (r *runner) withLastErrors(ctx context.Context, findings []record.Finding) {
	if len(findings) == 0 {
		return
	}
	var lines []string
	if status, err := r.coordinator.Status(ctx); err == nil {
		lines = status.Electing
	}
	for _, c := range r.Suite.Controllers {
		processes, err := r.cluster.Processes().Status(ctx, c.Name)
		if err != nil {
			continue
		}
		last, ok := oracle.LastError(processes)
		if !ok {
			continue
		}
		times := ""
		if last.Times > 1 {
			times = fmt.Sprintf(" (%d times like this)", last.Times)
		}
		lines = append(lines, fmt.Sprintf("the last error of %s%s, in %s:\n  %s", c.Name, times, recordedLog(c.Name, last.Process), last.Text))
	}
	for i := range findings {
		findings[i].Detail = strings.Trim(strings.Join(append(slices.Clone(lines), findings[i].Detail), "\n"), "\n")
	}
}

// recordedLog is where the run record keeps the log of a controller's process.
func recordedLog(controller string, p cluster.Process) string {
	return record.LogsDir + "/" + fmt.Sprintf("%s-%s-%s.log", controller, p.Pod, p.Container)
}

// awayGrace is how long after the return of its API server a controller may end for want of it: the answer to that is
// often a restart.
const awayGrace = 10 * time.Second

// serverAway is the API server that the controller was connected to at that time, if the plan had it killed then;
// otherwise empty. That a controller ends without its API server is what Kubernetes' own do, and no bug: the kubelet
// starts them again.
func (r *runner) serverAway(controller string, at time.Time) string {
	server := ""
	for _, c := range r.meta.Controllers {
		if c.Name == controller {
			server = c.APIServer
		}
	}
	r.completedMu.Lock()
	actions := slices.Clone(r.completed)
	r.completedMu.Unlock()
	slices.SortFunc(actions, func(a, b record.Action) int { return a.Began.Compare(b.Began) })
	var killed, back time.Time
	for _, a := range actions {
		if a.Began.IsZero() {
			continue // the plan ended before
		}
		e := r.Plan.Actions[a.Index].Effects()
		if e.Moves != nil && e.Moves.Controller == controller && !a.Began.After(at) {
			server = e.Moves.APIServer
			killed, back = time.Time{}, time.Time{}
		}
		if e.Stops == server && !a.Began.After(at) {
			killed, back = a.Began, time.Time{}
		}
		if e.Starts == server && !killed.IsZero() && back.IsZero() {
			back = a.Done
		}
	}
	if killed.IsZero() || !back.IsZero() && at.After(back.Add(awayGrace)) {
		return ""
	}
	return server
}

// pausesLocks reports whether the plan itself keeps the controller from the lock of its leader election: then the loss
// of its leadership is what the plan is about.
func (r *runner) pausesLocks(ctx context.Context, controller string) bool {
	locks, err := r.coordinator.Locks(ctx, controller)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(r.Plan.Actions, func(a plan.Action) bool {
		paused := a.Effects().Pauses
		if paused == nil || paused.By != controller {
			return false
		}
		key, err := plan.ParseResourceKey(paused.Scope)
		return err == nil &&
			(key.Type == "lease" || slices.ContainsFunc(locks, func(l plan.ResourceKey) bool {
				return key.Matches(l.Type, l.Group, true, l.Namespace, l.Name)
			}))
	})
}

func oracleTail(p cluster.Process) string { return oracle.LogTail(p, 20) }

// workloadLog is where the output of the workload's commands goes.
func (r *runner) workloadLog() io.Writer {
	f, err := record.CreateFile(filepath.Join(r.RecordDir, record.LogsDir, "workload.log"))
	if err != nil {
		r.Logger.Warn("no log for the workload", "error", err)
		return io.Discard
	}
	r.later(func(context.Context) error { return f.Close() })
	return f
}

// keepLogs copies the logs of control plane and controllers into the run record, before the cluster's folder goes.
func (r *runner) keepLogs() error {
	logs := map[string]string{} // from where to where
	if dir := r.cluster.LogDir(); dir != "" {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if !e.IsDir() {
				logs[filepath.Join(dir, e.Name())] = e.Name()
			}
		}
	}
	if node := r.cluster.Processes(); node != nil {
		for _, c := range r.Suite.Controllers {
			processes, err := node.Status(context.Background(), c.Name)
			if err != nil {
				continue
			}
			for _, p := range processes {
				logs[p.LogFile] = filepath.Base(recordedLog(c.Name, p))
			}
		}
	}
	for from, to := range logs {
		if err := copyFile(from, r.logStart[filepath.Base(from)], filepath.Join(r.RecordDir, record.LogsDir, to)); err != nil {
			return fmt.Errorf("keep log: %w", err)
		}
	}
	return nil
}

// logSizes are the sizes of a folder's files, by their names.
func logSizes(dir string) (map[string]int64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	sizes := map[string]int64{}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && !e.IsDir() {
			sizes[e.Name()] = info.Size()
		}
	}
	return sizes, nil
}

// copyFile copies a file from an offset on.
func copyFile(from string, offset int64, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	if _, err := in.Seek(offset, io.SeekStart); err != nil {
		return err
	}
	out, err := record.CreateFile(to)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}
