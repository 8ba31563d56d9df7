package judge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/errorlog"
	"github.com/trommel-dev/trommel/internal/judge/processlog"
	"github.com/trommel-dev/trommel/record"
)

// An error counts as logged without end if it is logged so often, and still so shortly before the end, and not much
// less often in the second half of the time than in the first. Controllers that try again after growing pauses log
// less.
const (
	errorsPerSecond = 1.0
	errorsEnd       = 3 * time.Second // logs may have times in whole seconds
	errorsSteady    = 0.6
)

// loggedErrors judges whether a controller logs an error without end when nothing disturbs it any more, and does not
// log it without faults. It is a note, since a controller may log one thing and do another.
type loggedErrors struct{}

func (loggedErrors) Is() Traits { return is("errors", allClusters, whatHappened) }

func (loggedErrors) Judge(_ context.Context, e Evidence) ([]record.Finding, error) {
	if e.Baseline == nil || e.calm() < 2*leftFor {
		return nil, nil
	}
	all, err := e.newErrors()
	var findings []record.Finding
	for _, l := range all {
		times := l.early + l.late
		if float64(times) < errorsPerSecond*e.calm().Seconds() ||
			e.Meta.Observed.Sub(l.last) > errorsEnd || float64(l.late) < errorsSteady*float64(l.early) {
			continue
		}
		findings = append(findings, record.Finding{
			Severity: record.SeverityNote, Judge: record.JudgeErrors, Subject: l.controller, Time: e.Meta.Observed,
			Title: fmt.Sprintf("%s logs an error without end that it does not log without faults: %q, %d times in "+
				"the last %s", l.controller, l.shape, times, e.calm().Round(100*time.Millisecond)),
			Detail: fmt.Sprintf("nothing has disturbed it since %s\nthe last one, in %s:\n%s", e.moment(e.Meta.Calm),
				l.file, l.line),
		})
	}
	return findings, err
}

// newError is an error that a controller has logged when nothing disturbed it any more, and does not log without
// faults.
type newError struct {
	controller, shape string
	early, late       int       // how often in the first and the second half of the calm
	last              time.Time // when it was logged last
	line, file        string    // of that
}

// newErrors lists the errors of the controllers, sorted by controller and shape. An error says that a log could not be
// read whole.
func (e Evidence) newErrors() ([]newError, error) {
	type id struct{ controller, shape string }
	all := map[id]*newError{}
	read := map[string]bool{}
	var errs []error
	for _, p := range e.Processes {
		if p.LogFile == "" || read[p.LogFile] {
			continue // the starts of a container share a file
		}
		read[p.LogFile] = true
		err := errorlog.File(filepath.Join(e.Dir, filepath.FromSlash(p.LogFile)), p.LogCalm, -1, func(line string) {
			if !errorlog.Marked(line) {
				return
			}
			at, known := errorlog.Time(line, e.Meta.Observed)
			if !known || at.Before(e.Meta.Calm) {
				return
			}
			k := id{p.Controller, errorlog.Shape(line)}
			l := all[k]
			if l == nil {
				l = &newError{controller: k.controller, shape: k.shape, file: p.LogFile}
				all[k] = l
			}
			l.last, l.line = at, line
			if at.Before(e.Meta.Calm.Add(e.calm() / 2)) {
				l.early++
			} else {
				l.late++
			}
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	for _, l := range e.Baseline.Errors {
		delete(all, id{l.Controller, l.Shape})
	}
	var list []newError
	for _, k := range slices.SortedFunc(maps.Keys(all), func(a, b id) int {
		return cmp.Or(cmp.Compare(a.controller, b.controller), cmp.Compare(a.shape, b.shape))
	}) {
		list = append(list, *all[k])
	}
	return list, errors.Join(errs...)
}

// lastNewError says which new error a controller has logged last; it may tell why a run ends differently. Empty: there
// is none.
func (e Evidence) lastNewError() string {
	if e.Meta.Calm.IsZero() {
		return "" // something disturbed it until the end
	}
	all, _ := e.newErrors() // as far as the logs can be read
	if len(all) == 0 {
		return ""
	}
	last := slices.MaxFunc(all, func(a, b newError) int { return a.last.Compare(b.last) })
	return fmt.Sprintf("%s logs an error that it does not log without faults, the last time %s, in %s:\n  %s",
		last.controller, e.moment(last.last), last.file, processlog.Shorten(errorlog.Message(last.line)))
}
