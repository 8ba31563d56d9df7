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
	Times   int            // how often it was logged, ignoring differences in numbers and hexadecimal names
	Process record.Process // the process that logged it last
}

var (
	// Error levels of klog, zap (JSON, console), logr and slog.
	errorLevel = regexp.MustCompile(`^[EF]\d{4} |"level":"(?:error|dpanic|panic|fatal)"|\blevel=(?:error|ERROR|fatal)\b|` +
		`\t(?:ERROR|DPANIC|PANIC|FATAL)\t|` +
		`^(?:\S+ )*(?:ERROR|FATAL)\b`)
	// Words in errors of programs that log in their own format.
	errorWords = regexp.MustCompile(`(?i)\b(?:error|errors|failed|fails|cannot|forbidden|denied|refused|invalid)\b`)
	// What may differ between two lines that count as the same error.
	variable = regexp.MustCompile(`[0-9a-f]{8,}|\d+`)
)

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

// linesOf calls f for every line of a file, as far as it can be read.
func linesOf(file string, f func(string)) {
	in, err := os.Open(file)
	if err != nil {
		return
	}
	defer func() { _ = in.Close() }()
	_ = eachLine(in, f)
}
