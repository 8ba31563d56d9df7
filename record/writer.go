package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/trommel-dev/trommel/internal/atomicfile"
)

// Writer writes a run record. It is safe for concurrent use; the lines of a file are in the order of the calls.
//
// Every line reaches the operating system before its method returns, so a killed run leaves everything that it had
// reported. The first failure to write a file, such as a full disk, is returned by the failing call and again by Close;
// the calls in between return nil and write nothing more to that file, so that a run whose record is lost still ends
// properly.
type Writer struct {
	dir     string
	events  lines
	actions lines
	history lines

	mu  sync.Mutex
	err error // of a file that is written as a whole
}

// Permissions of a record's directories and files: only for their owner, because recorded objects can be Secrets.
const (
	DirMode  = 0o700
	FileMode = 0o600
)

// Create creates the directory, its empty files and its directory for logs. It fails if the directory already holds a
// run record.
func Create(dir string) (*Writer, error) {
	if err := os.MkdirAll(filepath.Join(dir, LogsDir), DirMode); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, ObservationsFile)); err == nil {
		return nil, fmt.Errorf("%s already holds a run record", dir)
	}
	w := &Writer{dir: dir}
	for name, l := range map[string]*lines{ObservationsFile: &w.events, ActionsFile: &w.actions,
		HistoryFile: &w.history} {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, FileMode)
		if err != nil {
			_ = w.Close()
			return nil, err
		}
		l.file = f
	}
	return w, nil
}

// CreateFile creates a file for a record, or truncates an existing one.
func CreateFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, FileMode)
}

// Dir returns the record's directory.
func (w *Writer) Dir() string { return w.dir }

// LogFile returns the path of a log in the record.
func (w *Writer) LogFile(name string) string { return filepath.Join(w.dir, LogsDir, name) }

// Event appends to the observations.
func (w *Writer) Event(e Event) error { return w.events.append(e) }

// Action appends to the actions.
func (w *Writer) Action(a Action) error { return w.actions.append(a) }

// History appends to the history.
func (w *Writer) History(h HistoryEntry) error { return w.history.append(h) }

// Plan writes the plan as it was run.
func (w *Writer) Plan(data []byte) error { return w.whole(PlanFile, data) }

// Suite writes the suite as it was run.
func (w *Writer) Suite(data []byte) error { return w.whole(SuiteFile, data) }

// Findings writes the findings; a later call replaces them.
func (w *Writer) Findings(findings []Finding) error {
	if findings == nil {
		findings = []Finding{}
	}
	return w.json(FindingsFile, findings)
}

// Processes writes the controllers' processes and their exits; a later call replaces them.
func (w *Writer) Processes(processes []Process) error {
	if processes == nil {
		processes = []Process{}
	}
	return w.json(ProcessesFile, processes)
}

// Meta writes the description of the run; a later call replaces it.
func (w *Writer) Meta(m Meta) error { return w.json(MetaFile, m) }

func (w *Writer) json(name string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	return w.whole(name, append(data, '\n'))
}

// whole replaces a file atomically: a reader sees the old or the new one.
func (w *Writer) whole(name string, data []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := atomicfile.Write(filepath.Join(w.dir, name), data, FileMode); err != nil {
		w.err = errors.Join(w.err, err)
		return err
	}
	return nil
}

// Revise replaces the description and the findings of the complete record in dir: more has been learned about the run.
func Revise(dir string, m Meta, findings []Finding) error {
	w := &Writer{dir: dir}
	return errors.Join(w.Findings(findings), w.Meta(m))
}

// Close closes the files. It returns all errors of earlier calls again.
func (w *Writer) Close() error {
	w.mu.Lock()
	err := w.err
	w.mu.Unlock()
	return errors.Join(err, w.events.close(), w.actions.close(), w.history.close())
}

// lines is a file of JSON lines. Each line is one write, so a reader finds complete lines, except perhaps the last one.
type lines struct {
	mu   sync.Mutex
	file *os.File
	err  error // the first; nothing is written after it
}

func (l *lines) append(v any) error {
	data, err := json.Marshal(v)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil
	}
	if err == nil {
		if l.file == nil {
			return fmt.Errorf("write run record: %w", os.ErrClosed)
		}
		_, err = l.file.Write(append(data, '\n'))
	}
	if err != nil {
		l.err = fmt.Errorf("write run record: %w", err)
	}
	return l.err
}

func (l *lines) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.err
	if l.file != nil {
		err = errors.Join(err, l.file.Close())
		l.file = nil
	}
	return err
}
