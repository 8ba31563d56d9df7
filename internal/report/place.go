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
	var places []string
	for _, c := range f.Callers.List() {
		places = append(places, c.String())
	}
	if len(places) == 0 {
		return ""
	}
	what := "written by "
	switch f.Call {
	case record.FailedCall:
		what = "the call that failed: "
	case record.KilledAfter:
		what = "the last write before the kill: "
	}
	return what + strings.Join(places, ", called by ")
}

// sourceOf is the file and the line of the write that a run's worst bug names; empty: they are unknown, or the file is
// not there.
func sourceOf(r *record.Run) (file string, line int) {
	for _, f := range ByHarm(r) {
		for _, place := range f.Callers.List() {
			for i := range r.Meta.Controllers {
				dir := r.Meta.Controllers[i].Source
				file := filepath.Join(dir, filepath.FromSlash(place.File))
				if _, err := os.Stat(file); dir != "" && f.IsBug() && err == nil {
					return file, place.Line
				}
			}
		}
	}
	return "", 0
}

// LeadText shows what led to a finding of a run, a line for each step, indented by three spaces.
func LeadText(r *record.Run, l *lead.Lead) string {
	var b strings.Builder
	fmt.Fprintf(&b, "   %s, which begins at %s:\n", strings.ToUpper(l.Reconcile[:1])+l.Reconcile[1:], Since(r, l.Began))
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
