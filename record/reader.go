package record

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Run is a run record that was read.
type Run struct {
	Dir      string
	Meta     Meta
	Plan     []byte
	Suite    []byte
	Events   []Event
	Actions  []Action
	History  []HistoryEntry
	Findings []Finding
	// Processes are those of the controllers, oldest first.
	Processes []Process
	// Truncated says that the run was killed: metadata or findings are missing, or a file ends within a line, which is
	// left out.
	Truncated bool
}

// Open reads the run record in the directory. Parts that a killed run could not write are empty. A directory without
// observations is not a run record.
func Open(dir string) (*Run, error) {
	r := &Run{Dir: dir}
	if _, err := os.Stat(filepath.Join(dir, ObservationsFile)); err != nil {
		return nil, fmt.Errorf("%s is not a run record: %w", dir, err)
	}
	var err error
	if r.Plan, err = r.whole(PlanFile); err != nil {
		return nil, err
	}
	if r.Suite, err = r.whole(SuiteFile); err != nil {
		return nil, err
	}
	for name, into := range map[string]any{MetaFile: &r.Meta, FindingsFile: &r.Findings} {
		data, err := r.whole(name)
		if err != nil {
			return nil, err
		}
		if data == nil {
			r.Truncated = true
			continue
		}
		if err := json.Unmarshal(data, into); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
		}
	}
	data, err := r.whole(ProcessesFile)
	if err != nil {
		return nil, err
	}
	if data != nil {
		if err := json.Unmarshal(data, &r.Processes); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(dir, ProcessesFile), err)
		}
	}
	if r.Events, err = readLines[Event](r, ObservationsFile); err != nil {
		return nil, err
	}
	if r.Actions, err = readLines[Action](r, ActionsFile); err != nil {
		return nil, err
	}
	if r.History, err = readLines[HistoryEntry](r, HistoryFile); err != nil {
		return nil, err
	}
	return r, nil
}

// whole reads a file; nil if it does not exist.
func (r *Run) whole(name string) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(r.Dir, name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

func readLines[T any](r *Run, name string) ([]T, error) {
	path := filepath.Join(r.Dir, name)
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		r.Truncated = true
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var all []T
	in := bufio.NewReaderSize(f, 64<<10)
	for number := 1; ; number++ {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			if len(line) > 0 {
				r.Truncated = true
			}
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var v T
		if err := json.Unmarshal(line, &v); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, number, err)
		}
		all = append(all, v)
	}
}
