package processlog

import (
	"regexp"
	"strings"

	"github.com/trommel-dev/trommel/internal/errorlog"
	"github.com/trommel-dev/trommel/record"
)

// ErrorLine is the newest error that a controller has logged.
type ErrorLine struct {
	Text    string
	Times   int            // how often it was logged, ignoring differences in numbers, UUIDs and hexadecimal names
	Process record.Process // the process that logged it last
}

// variable is what may differ between two lines that count as the same error.
var variable = regexp.MustCompile(`[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{8,}|\d+`)

// maxErrorLine is the maximum length of an ErrorLine's text, in bytes.
const maxErrorLine = 500

// LastError returns the newest error in the logs of a controller's processes, which must be ordered, oldest first. A
// line with an error level is preferred to one that only contains an error word. It returns false if there is neither.
func LastError(processes []record.Process) (ErrorLine, bool) {
	var marked, sounding ErrorLine
	times := map[string]int{}
	read := map[string]bool{}
	for _, p := range processes {
		if p.LogFile == "" || read[p.LogFile] {
			continue // the starts of a container share a file
		}
		read[p.LogFile] = true
		_ = errorlog.File(p.LogFile, 0, -1, func(line string) { // as far as it can be read
			for _, kind := range []struct {
				is   func(string) bool
				last *ErrorLine
			}{{errorlog.Marked, &marked}, {errorlog.Sounds, &sounding}} {
				if kind.is(line) {
					times[variable.ReplaceAllString(line, "#")]++
					*kind.last = ErrorLine{Text: line, Process: p}
					return
				}
			}
		})
	}
	last := marked
	if last.Text == "" {
		last = sounding
	}
	last.Times = times[variable.ReplaceAllString(last.Text, "#")]
	last.Text = Shorten(last.Text)
	return last, last.Text != ""
}

// Shorten shortens a line of a log.
func Shorten(line string) string {
	if len(line) > maxErrorLine {
		return strings.ToValidUTF8(line[:maxErrorLine], "") + "…"
	}
	return line
}
