package report

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/trommel-dev/trommel/internal/lead"
	"github.com/trommel-dev/trommel/record"
)

// Place says where in the controller's source a call is that explains a finding, and who makes it there; empty: that
// is unknown.
func Place(f record.Finding) string {
	what, places := Places(f)
	if len(places) == 0 {
		return ""
	}
	return what + strings.Join(places, ", called by ")
}

// Places says what is at the place in the controller's source that explains a finding, and lists that place and its
// callers, the innermost first; none: they are unknown.
func Places(f record.Finding) (what string, places []string) {
	for _, c := range f.Callers.List() {
		places = append(places, c.String())
	}
	what = "written by "
	switch f.Call {
	case record.FailedCall:
		what = "the call that failed: "
	case record.Panicked:
		what = "in "
	case record.KilledAfter:
		what = "the last write before the kill: "
	case record.WroteIt:
		what = "its last write of that object: "
	}
	return what, places
}

// sourceOf is the file and the line of the write that a run's worst bug names; empty: they are unknown, or the file is
// not there.
func sourceOf(r *record.Run) (file string, line int) {
	for _, f := range ByHarm(r) {
		if !f.IsBug() {
			continue
		}
		if file, line = fileOf(r, f.Callers); file != "" {
			return file, line
		}
	}
	return "", 0
}

// fileOf is the first of the places whose file is there; empty: there is none.
func fileOf(r *record.Run, callers record.Callers) (file string, line int) {
	for _, place := range callers.List() {
		for i := range r.Meta.Controllers {
			dir := r.Meta.Controllers[i].Source
			file := filepath.Join(dir, filepath.FromSlash(place.File))
			if _, err := os.Stat(file); dir != "" && err == nil {
				return file, place.Line
			}
		}
	}
	return "", 0
}

// around is how many lines of source are shown before and after one.
const around = 6

// SourceAround is the source around the call that a finding names, with the numbers of the lines and a mark at the
// call, and its file; empty: the place is unknown, or the file is not there.
func SourceAround(r *record.Run, f record.Finding) (file, text string) {
	file, line := fileOf(r, f.Callers)
	data, err := os.ReadFile(file)
	if err != nil {
		return "", ""
	}
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	if line > len(lines) {
		return "", "" // it has changed since
	}
	var b strings.Builder
	for n := max(1, line-around); n <= min(len(lines), line+around); n++ {
		mark := " "
		if n == line {
			mark = ">"
		}
		fmt.Fprintf(&b, "%s %4d  %s\n", mark, n, strings.TrimRight(lines[n-1], "\r"))
	}
	return file, b.String()
}

// LeadText shows what led to a finding of a run, a line for each step, indented by three spaces.
func LeadText(r *record.Run, l *lead.Lead) string {
	var b strings.Builder
	fmt.Fprintf(&b, "   %s", strings.ToUpper(l.Reconcile[:1])+l.Reconcile[1:])
	if !l.Began.IsZero() {
		fmt.Fprintf(&b, ", which begins at %s", Since(r, l.Began))
	}
	b.WriteString(":\n")
	width := 0
	for _, s := range l.Steps {
		width = max(width, len(Since(r, s.At)))
	}
	for _, s := range l.Steps {
		mark := " "
		if s.Wrong {
			mark = "!"
		}
		fmt.Fprintf(&b, "   %s %*s  %s\n", mark, width, Since(r, s.At), s.Text)
		if s.Place != "" {
			fmt.Fprintf(&b, "     %*s    %s\n", width, "", s.Place)
		}
	}
	for _, why := range l.Why {
		fmt.Fprintf(&b, "   %s\n", why)
	}
	return b.String()
}
