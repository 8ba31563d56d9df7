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
	"github.com/trommel-dev/trommel/internal/reference"
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

func (loggedErrors) Name() string { return "errors" }

func (loggedErrors) Judge(_ context.Context, e Evidence) ([]record.Finding, error) {
	if e.Reference == nil || e.calm() < 2*leftFor {
		return nil, nil
	}
	type id struct{ controller, shape string }
	type sum struct {
		early, late int       // in the first and the second half of the calm
		last        time.Time // when it was logged last
		line, file  string
	}
	all := map[id]*sum{}
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
			s := all[k]
			if s == nil {
				s = &sum{file: p.LogFile}
				all[k] = s
			}
			s.last, s.line = at, line
			if at.Before(e.Meta.Calm.Add(e.calm() / 2)) {
				s.early++
			} else {
				s.late++
			}
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	var findings []record.Finding
	for _, k := range slices.SortedFunc(maps.Keys(all), func(a, b id) int {
		return cmp.Or(cmp.Compare(a.controller, b.controller), cmp.Compare(a.shape, b.shape))
	}) {
		s := all[k]
		known := slices.ContainsFunc(e.Reference.Errors, func(l reference.LoggedError) bool {
			return l.Controller == k.controller && l.Shape == k.shape
		})
		times := s.early + s.late
		if known || float64(times) < errorsPerSecond*e.calm().Seconds() ||
			e.Meta.Observed.Sub(s.last) > errorsEnd || float64(s.late) < errorsSteady*float64(s.early) {
			continue
		}
		findings = append(findings, record.Finding{
			Severity: record.SeverityNote, Judge: record.JudgeErrors, Subject: k.controller, Time: e.Meta.Observed,
			Title: fmt.Sprintf("%s logs an error without end that it does not log without faults: %q, %d times in "+
				"the last %s", k.controller, k.shape, times, e.calm().Round(100*time.Millisecond)),
			Detail: fmt.Sprintf("nothing has disturbed it since %s\nthe last one, in %s:\n%s", e.moment(e.Meta.Calm),
				s.file, s.line),
		})
	}
	return findings, errors.Join(errs...)
}
