// Package logs copies the logs of the control plane and of the controllers under test into the record of a run.
package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/judge/processlog"
	"github.com/trommel-dev/trommel/record"
)

// Set copies the logs of the control plane and of the controllers under test into the run record.
type Set struct {
	Dir          string         // of the record
	ControlPlane cluster.Logger // nil: its logs cannot be read
	Node         interface {    // nil: there are no processes
		Status(ctx context.Context, controller string) ([]cluster.Process, error)
		OpenLog(p cluster.Process) (io.ReadCloser, error)
	}
	Controllers []string
	Logger      *slog.Logger

	start map[string]int64 // offset of the run's part of each log of the control plane; missing: 0
	calm  map[string]int64 // length of each recorded log at Meta.Calm
}

// ofControlPlane lists the logs of the control plane; nil if the cluster has none.
func (l *Set) ofControlPlane(ctx context.Context) ([]cluster.Log, error) {
	if l.ControlPlane == nil {
		return nil, nil
	}
	all, err := l.ControlPlane.Logs(ctx)
	if err != nil {
		return nil, fmt.Errorf("list logs of the control plane: %w", err)
	}
	return all, nil
}

// Skip notes the current length of the control plane's logs: what they contain so far belongs to other runs.
func (l *Set) Skip(ctx context.Context) error {
	all, err := l.ofControlPlane(ctx)
	l.start = map[string]int64{}
	for _, one := range all {
		l.start[one.Name] = one.Size
	}
	return err
}

// Keep copies all logs into the run record, before the cluster's directory is deleted.
func (l *Set) Keep(ctx context.Context) error {
	all, err := l.ofControlPlane(ctx)
	errs := []error{err}
	for _, one := range all {
		open := func() (io.ReadCloser, error) { return one.Open(l.start[one.Name]) }
		errs = append(errs, l.keepOne(one.Name, open))
	}
	_, err = l.Processes(ctx)
	return errors.Join(append(errs, err)...)
}

// keepOne copies a log into the record. It skips a log that does not exist.
func (l *Set) keepOne(name string, open func() (io.ReadCloser, error)) error {
	in, err := open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("keep log: %w", err)
	}
	defer in.Close()
	out, err := record.CreateFile(filepath.Join(l.Dir, record.LogsDir, name))
	if err != nil {
		return fmt.Errorf("keep log: %w", err)
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("keep log %s: %w", name, err)
	}
	return nil
}

// Processes returns the controllers' processes in the record's form and copies their logs so far into it. With an error
// it returns what it could gather.
func (l *Set) Processes(ctx context.Context) ([]record.Process, error) {
	if l.Node == nil {
		return nil, nil
	}
	var all []record.Process
	var errs []error
	for _, name := range l.Controllers {
		processes, err := l.Node.Status(ctx, name)
		if err != nil {
			errs = append(errs, fmt.Errorf("status of controller %q: %w", name, err))
			continue
		}
		recorded, err := l.record(processes)
		all, errs = append(all, recorded...), append(errs, err)
	}
	return all, errors.Join(errs...)
}

// record converts processes to the record's form, and copies their logs into it. The result is complete even with an
// error.
func (l *Set) record(processes []cluster.Process) ([]record.Process, error) {
	var all []record.Process
	var errs []error
	kept := map[string]bool{}
	for _, p := range processes {
		name := recordedLog(p.Controller, p.Pod, p.Container)
		all = append(all, record.Process{
			Controller: p.Controller, Namespace: p.Namespace, Pod: p.Pod, Container: p.Container,
			Started: p.Started, Ended: p.Ended, ExitCode: p.ExitCode, Planned: p.Planned,
			LogFile: name, LogStart: p.LogStart, LogCalm: l.calm[name], MetMachine: p.MetMachine,
		})
		if !kept[name] {
			kept[name] = true
			errs = append(errs, l.keepOne(filepath.Base(name),
				func() (io.ReadCloser, error) { return l.Node.OpenLog(p) }))
		}
	}
	return all, errors.Join(errs...)
}

// recordedLog is the path of a container's log in the run record.
func recordedLog(controller, pod, container string) string {
	return record.LogsDir + "/" + fmt.Sprintf("%s-%s-%s.log", controller, pod, container)
}

// path is the full path of a file that the record names.
func (l *Set) path(file string) string { return filepath.Join(l.Dir, filepath.FromSlash(file)) }

// Becalm records how long the logs are when nothing disturbs the controllers any more.
func (l *Set) Becalm(ctx context.Context) error {
	processes, err := l.Processes(ctx)
	sizes := map[string]int64{}
	for _, p := range processes {
		if info, err := os.Stat(l.path(p.LogFile)); err == nil {
			sizes[p.LogFile] = info.Size()
		}
	}
	l.calm = sizes
	return err
}

// Tail returns the last lines of a process's log.
func (l *Set) Tail(p cluster.Process) string {
	recorded, err := l.record([]cluster.Process{p})
	if err != nil {
		return err.Error()
	}
	recorded[0].LogFile = l.path(recorded[0].LogFile)
	return processlog.Tail(recorded[0], 20)
}

// Tails returns, of every controller, why its processes are not ready, and the last lines of its log.
func (l *Set) Tails(ctx context.Context) string {
	var text strings.Builder
	for _, name := range l.Controllers {
		processes, err := l.Node.Status(ctx, name)
		if err != nil || len(processes) == 0 {
			continue
		}
		for _, p := range processes {
			if p.Running() && p.Unready != "" {
				fmt.Fprintf(&text, "\nthe readiness probe of %s's pod %s fails: %s", name, p.Pod, p.Unready)
			}
		}
		fmt.Fprintf(&text, "\nthe end of %s's log:\n%s", name, l.Tail(processes[len(processes)-1]))
	}
	return text.String()
}

// LastErrors describes each controller's last logged error, which is often the cause of what a workload finds.
func (l *Set) LastErrors(ctx context.Context) (lines []string) {
	for _, name := range l.Controllers {
		processes, err := l.Node.Status(ctx, name)
		if err != nil {
			continue
		}
		recorded, err := l.record(processes)
		if err != nil {
			l.Logger.Warn("read the log of a controller", "controller", name, "error", err)
		}
		for i := range recorded {
			recorded[i].LogFile = l.path(recorded[i].LogFile)
		}
		last, ok := processlog.LastError(recorded)
		if !ok {
			continue
		}
		times := ""
		if last.Times > 1 {
			times = fmt.Sprintf(" (%d similar ones)", last.Times)
		}
		where := recordedLog(last.Process.Controller, last.Process.Pod, last.Process.Container)
		lines = append(lines, fmt.Sprintf("the last error of %s%s, in %s:\n  %s", name, times, where, last.Text))
	}
	return lines
}
