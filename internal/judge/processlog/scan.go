package processlog

import (
	"fmt"
	"maps"
	"regexp"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/errorlog"
	"github.com/trommel-dev/trommel/record"
)

const (
	tailLines  = 20
	panicLines = 25
)

// Tail returns the last lines that a process has printed. Of log lines that repeat, only the last is there.
func Tail(p record.Process, lines int) string {
	log, err := scan(p, -1)
	if err != nil && len(log.tail) == 0 {
		return "(" + err.Error() + ")"
	}
	tail := fold(log.tail)
	if over := len(tail) - lines; over > 0 {
		tail = tail[over:]
	}
	return strings.Join(tail, "\n")
}

// fold shortens lines for a message. Of lines with a time that are otherwise alike, it keeps the last, and says how
// many there are. Other lines, such as those of a stack, all stay.
func fold(lines []string) []string {
	key := func(line string) string {
		if _, logged := errorlog.Time(line, time.Now()); !logged {
			return ""
		}
		return variable.ReplaceAllString(line, "#")
	}
	times := map[string]int{}
	for _, line := range lines {
		times[key(line)]++
	}
	var folded []string
	left := maps.Clone(times)
	for _, line := range lines {
		k := key(line)
		if left[k]--; k != "" && left[k] > 0 {
			continue
		}
		text := Shorten(line)
		if k != "" && times[k] > 1 {
			text += fmt.Sprintf(" (%d similar lines)", times[k])
		}
		folded = append(folded, text)
	}
	return folded
}

// logged is what inspect needs of a log.
type logged struct {
	tail    []string
	panics  []stack
	altered []alteration // objects of caches that were changed
	inside  bool         // the next line may belong to the last one
}

// stack is a panic in a log.
type stack struct {
	value string
	fatal bool // printed by Go's runtime when the process dies
	lines []string
}

// unknownPanic replaces the value of a panic whose line does not contain it.
const unknownPanic = "see the log"

var (
	// Go's runtime prints these at the beginning of a line.
	runtimePanic = regexp.MustCompile(`^(?:panic|fatal error): (.*)$`)
	// apimachinery's crash handler, which controller-runtime calls for the panics that it recovers, in klog's text,
	// logr's key=value and zap's JSON format.
	observedPanic = regexp.MustCompile(`Observed a panic`)
	panicValue    = regexp.MustCompile(`"?panic"?[=:]\s*("(?:[^"\\]|\\.)*"|\S+)`)
	observedValue = regexp.MustCompile(`Observed a panic: ("(?:[^"\\]|\\.)*"|[^(]*)`)
	leaderLost    = regexp.MustCompile(`leader ?election lost|lost leader election|failed to renew lease`)
)

func scan(p record.Process, end int64) (logged, error) {
	var l logged
	if p.LogFile == "" {
		return l, nil
	}
	collecting := 0 // lines of the newest panic that are still to be collected
	err := errorlog.File(p.LogFile, p.LogStart, end, func(text string) { l.take(text, &collecting) })
	return l, err
}

func (l *logged) take(text string, collecting *int) {
	l.tail = append(l.tail, text)
	if len(l.tail) > 2*tailLines {
		l.tail = append(l.tail[:0], l.tail[len(l.tail)-tailLines:]...)
	}
	if m := alteredBegins.FindStringSubmatch(text); m != nil {
		l.altered, l.inside = append(l.altered, alteration{typ: m[1]}), true
		return
	}
	if l.inside = l.inside && l.altered[len(l.altered)-1].take(text); l.inside {
		return
	}
	if m := runtimePanic.FindStringSubmatch(text); m != nil {
		// A panic that is raised again during another panic's unwinding belongs to that one.
		if n := len(l.panics); n > 0 && *collecting > 0 {
			l.panics[n-1].fatal = true
			l.panics[n-1].lines = append(l.panics[n-1].lines, text)
			*collecting = panicLines
			return
		}
		value := strings.TrimSuffix(strings.TrimSuffix(m[1], ", repanicked]"), " [recovered")
		value = strings.TrimSuffix(value, " [recovered]")
		l.panics = append(l.panics, stack{value: value, fatal: true, lines: []string{text}})
		*collecting = panicLines
		return
	}
	if observedPanic.MatchString(text) {
		l.panics = append(l.panics, stack{value: observed(text), lines: strings.Split(unescape(text), "\n")})
		if n := len(l.panics) - 1; len(l.panics[n].lines) > panicLines {
			l.panics[n].lines = l.panics[n].lines[:panicLines]
		}
		*collecting = panicLines - len(l.panics[len(l.panics)-1].lines)
		return
	}
	if *collecting > 0 {
		n := len(l.panics) - 1
		l.panics[n].lines = append(l.panics[n].lines, text)
		*collecting--
	}
}

func observed(text string) string {
	for _, pattern := range []*regexp.Regexp{observedValue, panicValue} {
		if m := pattern.FindStringSubmatch(text); m != nil && strings.TrimSpace(m[1]) != "" {
			value := strings.TrimSpace(m[1])
			if len(value) > 1 && value[0] == '"' && value[len(value)-1] == '"' {
				value = value[1 : len(value)-1]
			}
			value, _, _ = strings.Cut(unescape(value), "\n")
			return value
		}
	}
	return unknownPanic
}

// unescape makes the stack in a JSON line readable.
func unescape(text string) string {
	return strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\"`, `"`).Replace(text)
}
