package oracle

import (
	"os"
	"regexp"
	"strings"

	"github.com/trommel-dev/trommel/record"
)

// ErrorLine is the newest error that a controller has logged.
type ErrorLine struct {
	Text    string
	Times   int            // how often it was logged in this shape: with other numbers, names of hexadecimal digits, times
	Process record.Process // that logged it last
}

var (
	// How klog, zap (JSON, console), logr and slog mark an error.
	errorLevel = regexp.MustCompile(`^[EF]\d{4} |"level":"(?:error|dpanic|panic|fatal)"|\blevel=(?:error|ERROR|fatal)\b|\t(?:ERROR|DPANIC|PANIC|FATAL)\t|` +
		`^(?:\S+ )*(?:ERROR|FATAL)\b`)
	// What programs print that log in their own way.
	errorWords = regexp.MustCompile(`(?i)\b(?:error|errors|failed|fails|cannot|forbidden|denied|refused|invalid)\b`)
	// What differs between two lines of one shape.
	variable = regexp.MustCompile(`[0-9a-f]{8,}|\d+`)
)

// maxErrorLine bounds the text of an ErrorLine.
const maxErrorLine = 500

// LastError finds the newest error in the logs of a controller's processes, oldest process first. Lines that carry an
// error level come before those that only sound like one. It reports false where there is neither.
func LastError(processes []record.Process) (ErrorLine, bool) {
	var marked, sounding ErrorLine
	times := map[string]int{}
	read := map[string]bool{}
	for _, p := range processes {
		if p.LogFile == "" || read[p.LogFile] {
			continue // the starts of a container share a file
		}
		read[p.LogFile] = true
		linesOf(p.LogFile, func(line string) {
			for _, kind := range []struct {
				pattern *regexp.Regexp
				last    *ErrorLine
			}{{errorLevel, &marked}, {errorWords, &sounding}} {
				if kind.pattern.MatchString(line) {
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
	if len(last.Text) > maxErrorLine {
		last.Text = strings.ToValidUTF8(last.Text[:maxErrorLine], "") + "…"
	}
	return last, last.Text != ""
}

// linesOf calls f for every line of a file. What cannot be read is left out.
func linesOf(file string, f func(string)) {
	in, err := os.Open(file)
	if err != nil {
		return
	}
	defer func() { _ = in.Close() }()
	_ = eachLine(in, f)
}
