package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/judge"
	"github.com/trommel-dev/trommel/record"
)

// controlPlaneLogs lists the logs of the control plane; nil if the cluster has none.
func (r *runner) controlPlaneLogs(ctx context.Context) ([]cluster.Log, error) {
	c, ok := r.cluster.(cluster.Logger)
	if !ok {
		return nil, nil
	}
	logs, err := c.Logs(ctx)
	if err != nil {
		return nil, fmt.Errorf("list logs of the control plane: %w", err)
	}
	return logs, nil
}

// skipLogs notes the current length of the control plane's logs: what they contain so far belongs to other runs.
func (r *runner) skipLogs(ctx context.Context) error {
	logs, err := r.controlPlaneLogs(ctx)
	r.logStart = map[string]int64{}
	for _, l := range logs {
		r.logStart[l.Name] = l.Size
	}
	return err
}

// keepLogs copies the logs of the control plane and the controllers into the run record, before the cluster's directory
// is deleted.
func (r *runner) keepLogs(ctx context.Context) error {
	logs, err := r.controlPlaneLogs(ctx)
	errs := []error{err}
	for _, l := range logs {
		open := func() (io.ReadCloser, error) { return l.Open(r.logStart[l.Name]) }
		errs = append(errs, r.keepLog(l.Name, open))
	}
	_, err = r.processes(ctx)
	return errors.Join(append(errs, err)...)
}

// keepLog copies a log into the record. It skips a log that does not exist.
func (r *runner) keepLog(name string, open func() (io.ReadCloser, error)) error {
	in, err := open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("keep log: %w", err)
	}
	defer in.Close()
	out, err := record.CreateFile(r.writer.LogFile(name))
	if err != nil {
		return fmt.Errorf("keep log: %w", err)
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("keep log %s: %w", name, err)
	}
	return nil
}

// node returns the process node; nil if the cluster has none.
func (r *runner) node() cluster.ProcessNode {
	if c, ok := r.cluster.(cluster.ProcessRunner); ok {
		return c.Processes()
	}
	return nil
}

// processes returns the controllers' processes in the record's form and copies their logs so far into it. With an error
// it returns what it could gather.
func (r *runner) processes(ctx context.Context) ([]record.Process, error) {
	node := r.node()
	if node == nil {
		return nil, nil
	}
	var all []record.Process
	var errs []error
	for _, c := range r.Suite.Controllers {
		processes, err := node.Status(ctx, c.Name)
		if err != nil {
			errs = append(errs, fmt.Errorf("status of controller %q: %w", c.Name, err))
			continue
		}
		recorded, err := r.recordProcesses(processes)
		all, errs = append(all, recorded...), append(errs, err)
	}
	return all, errors.Join(errs...)
}

// recordProcesses converts processes to the record's form, and copies their logs into it. The result is complete even
// with an error.
func (r *runner) recordProcesses(processes []cluster.Process) ([]record.Process, error) {
	var all []record.Process
	var errs []error
	kept := map[string]bool{}
	for _, p := range processes {
		name := recordedLog(p.Controller, p.Pod, p.Container)
		all = append(all, record.Process{
			Controller: p.Controller, Namespace: p.Namespace, Pod: p.Pod, Container: p.Container,
			Started: p.Started, Ended: p.Ended, ExitCode: p.ExitCode, Planned: p.Planned,
			LogFile: name, LogStart: p.LogStart, LogCalm: r.logCalm[name], MetMachine: p.MetMachine,
		})
		if !kept[name] {
			kept[name] = true
			errs = append(errs, r.keepLog(filepath.Base(name),
				func() (io.ReadCloser, error) { return r.node().OpenLog(p) }))
		}
	}
	return all, errors.Join(errs...)
}

// recordedLog is the path of a container's log in the run record.
func recordedLog(controller, pod, container string) string {
	return record.LogsDir + "/" + fmt.Sprintf("%s-%s-%s.log", controller, pod, container)
}

// readable changes the paths of the processes' logs to full paths.
func (r *runner) readable(processes []record.Process) []record.Process {
	for i := range processes {
		processes[i].LogFile = filepath.Join(r.RecordDir, filepath.FromSlash(processes[i].LogFile))
	}
	return processes
}

// logTail returns the last lines of a process's log.
func (r *runner) logTail(p cluster.Process) string {
	recorded, err := r.recordProcesses([]cluster.Process{p})
	if err != nil {
		return err.Error()
	}
	return judge.LogTail(r.readable(recorded)[0], 20)
}
