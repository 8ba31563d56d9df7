package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/cluster"
	"github.com/trommel-dev/trommel/history"
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
func (r *runner) startRecorder(ctx context.Context) (*history.Recorder, error) {
	keys := append(r.watchedKeys(), r.keys()...)
	// The whole of a type is recorded: invariants speak of what belongs to an object, and that has names of its own.
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
		last, ok := oracle.LastError(recordProcesses(processes))
		if !ok {
			continue
		}
		times := ""
		if last.Times > 1 {
			times = fmt.Sprintf(" (%d times like this)", last.Times)
		}
		where := recordedLog(c.Name, last.Process.Pod, last.Process.Container)
		lines = append(lines, fmt.Sprintf("the last error of %s%s, in %s:\n  %s", c.Name, times, where, last.Text))
	}
	for i := range findings {
		findings[i].Detail = strings.Trim(strings.Join(append(slices.Clone(lines), findings[i].Detail), "\n"), "\n")
	}
}

// processes describes the controllers' processes, with their logs as the record has them, and tells which file each log
// comes from, by where it is, with its name in the record. An error leaves out a controller.
func (r *runner) processes(ctx context.Context) (all []record.Process, logs map[string]string, err error) {
	node := r.cluster.Processes()
	if node == nil {
		return nil, nil, nil
	}
	logs = map[string]string{}
	var errs []error
	for _, c := range r.Suite.Controllers {
		processes, err := node.Status(ctx, c.Name)
		if err != nil {
			errs = append(errs, fmt.Errorf("status of controller %q: %w", c.Name, err))
			continue
		}
		for _, p := range recordProcesses(processes) {
			name := recordedLog(c.Name, p.Pod, p.Container)
			if p.LogFile != "" {
				logs[p.LogFile] = path.Base(name)
			}
			p.LogFile = name
			all = append(all, p)
		}
	}
	return all, logs, errors.Join(errs...)
}

// recordedLog is where the run record keeps the log of a controller's container.
func recordedLog(controller, pod, container string) string {
	return record.LogsDir + "/" + fmt.Sprintf("%s-%s-%s.log", controller, pod, container)
}

// recordProcesses describes processes as a record does, but for their logs, which are where they are.
func recordProcesses(processes []cluster.Process) []record.Process {
	var all []record.Process
	for _, p := range processes {
		all = append(all, record.Process{
			Controller: p.Controller, Namespace: p.Namespace, Pod: p.Pod, Container: p.Container, Started: p.Started, Ended: p.Ended,
			ExitCode: p.ExitCode, Planned: p.Planned, LogFile: p.LogFile, LogStart: p.LogStart, MetMachine: p.MetMachine,
		})
	}
	return all
}

func oracleTail(p cluster.Process) string {
	return oracle.LogTail(recordProcesses([]cluster.Process{p})[0], 20)
}

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
	// Who has no state any more has no log either.
	if _, own, _ := r.processes(context.Background()); own != nil {
		maps.Copy(logs, own)
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

// serverAway is [oracle.ServerAway] as things stand now.
func (r *runner) serverAway(controller string, at time.Time) string {
	return oracle.ServerAway(r.Plan, r.meta.Controllers, r.carriedOut(), r.Suite.Timeouts.Away, controller, at)
}
