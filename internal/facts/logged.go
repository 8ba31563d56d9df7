package facts

import (
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/trommel-dev/trommel/internal/errorlog"
	"github.com/trommel-dev/trommel/record"
)

// LoggedError is an error that a controller has logged.
type LoggedError struct {
	Controller string `json:"controller"`
	Shape      string `json:"shape"` // see errorlog.Shape
	Most       int    `json:"most"`  // how often, at most in a run
	Line       string `json:"line"`  // the first one
}

// Errors lists the errors in the logs of a recorded run's controllers.
func Errors(r *record.Run) ([]LoggedError, error) {
	all := map[string]*LoggedError{}
	read := map[string]bool{}
	for _, p := range r.Processes {
		if p.LogFile == "" || read[p.LogFile] {
			continue // the starts of a container share a file
		}
		read[p.LogFile] = true
		err := errorlog.File(filepath.Join(r.Dir, filepath.FromSlash(p.LogFile)), 0, -1, func(line string) {
			if !errorlog.Marked(line) {
				return
			}
			shape := errorlog.Shape(line)
			id := p.Controller + " " + shape
			if all[id] == nil {
				all[id] = &LoggedError{Controller: p.Controller, Shape: shape, Line: line}
			}
			all[id].Most++
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	list := make([]LoggedError, 0, len(all))
	for _, id := range slices.Sorted(maps.Keys(all)) {
		list = append(list, *all[id])
	}
	return list, nil
}
