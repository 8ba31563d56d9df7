package judge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/errorlog"
	"github.com/trommel-dev/trommel/record"
)

const (
	tailLines  = 20
	panicLines = 25
)

// exits judges how the controllers' processes exited.
type exits struct{}

func (exits) Is() Traits { return is("exits", allClusters, whatHappened) }

// Judge returns the findings of [Exits] about processes that exited after the workload began: earlier exits belong to
// the cluster's start, and the controller has come up since. An exit that the plan itself has caused becomes a note.
func (exits) Judge(_ context.Context, e Evidence) ([]record.Finding, error) {
	var findings []record.Finding
	for _, c := range e.Meta.Controllers {
		var processes []record.Process
		for _, p := range e.Processes {
			if p.Controller == c.Name && (p.Running() || !p.Ended.Before(e.Meta.WorkloadStart)) {
				p.LogFile = filepath.Join(e.Dir, filepath.FromSlash(p.LogFile))
				processes = append(processes, p)
			}
		}
		for _, f := range Exits(processes) {
			ended := f.Judge == record.JudgeCrash || f.Judge == record.JudgeLeadership
			ever, lately := frozen(e.Plan, e.Actions, e.Timeouts.Away, c.Name, f.Time)
			server := ServerAway(e.Plan, e.Meta.Controllers, e.Actions, e.Timeouts.Away, c.Name, f.Time)
			cut := disconnected(e.Plan, e.Actions, e.Timeouts.Away, c.Name, f.Time)
			switch {
			case f.Judge == record.JudgeLeadership && pausesLocks(e.Plan, c):
				f.Severity = record.SeverityNote
				f.Title += ", because the plan paused its lock"
			case f.Judge == record.JudgeLeadership && ever || f.Judge == record.JudgeCrash && lately:
				f.Severity = record.SeverityNote
				f.Title += ", when the plan had frozen a process"
			case ended && server != "":
				f.Severity = record.SeverityNote
				f.Title = fmt.Sprintf("%s, while the plan had killed its API server %s", f.Title, server)
			case ended && callsFailed(e.Plan, e.Actions, e.Timeouts.Away, c.Name, f.Time):
				f.Severity = record.SeverityNote
				f.Title += ", when the plan had made its calls fail"
			case ended && cut != "":
				f.Severity = record.SeverityNote
				f.Title += ", when the plan had disturbed its connection to the cluster " + cut
			}
			findings = append(findings, f)
		}
	}
	return findings, nil
}

// Exits examines how controllers' processes exited, and the panics in their logs, including those of running processes.
// An exit that the plan caused is not a finding, but a panic before it is. Repeated findings are counted, not listed
// again.
func Exits(processes []record.Process) []record.Finding {
	var findings []record.Finding
	more := map[int]int{}
	at := map[string]int{}
	for i, p := range processes {
		end := int64(-1)
		for _, q := range processes {
			if q.LogFile == p.LogFile && q.LogStart > p.LogStart && (end < 0 || q.LogStart < end) {
				end = q.LogStart
			}
		}
		for _, f := range inspect(processes[i], end) {
			id := f.Judge + "\n" + f.Subject + "\n" + f.Title
			if first, ok := at[id]; ok {
				more[first]++
				continue
			}
			at[id] = len(findings)
			findings = append(findings, f)
		}
	}
	for i, n := range more {
		findings[i].Detail = strings.TrimRight(fmt.Sprintf("it happened %d times; the first time:\n%s", n+1,
			findings[i].Detail), "\n")
	}
	return findings
}

// inspect examines one process. Its log ends at offset end, or at the end of the file if end is negative.
func inspect(p record.Process, end int64) []record.Finding {
	name := p.Controller
	if p.Container != "" && p.Container != p.Controller && p.Container != "controller" && p.Container != "manager" {
		name += " (container " + p.Container + ")"
	}
	log, err := scan(p, end)
	if !p.Running() && !p.Planned {
		log.panics = withoutEchoes(log.panics)
	}
	if p.MetMachine != "" {
		// It does not matter whether it reports that in a panic.
		log.panics = slices.DeleteFunc(log.panics, func(s stack) bool { return s.fatal })
	}
	var findings []record.Finding
	when := p.Ended
	if p.Running() {
		when = p.Started
	}
	for _, s := range log.panics {
		if s.fatal && (p.Running() || p.Planned) {
			// Printed, but the process did not die of it: a panic that some library recovered.
			s.fatal = false
		}
		title := fmt.Sprintf("controller %s panicked: %s", name, s.value)
		detail := strings.Join(s.lines, "\n")
		if s.fatal {
			title = fmt.Sprintf("controller %s died of a panic: %s", name, s.value)
			detail = fmt.Sprintf("exit code %d\n%s", p.ExitCode, detail)
		}
		if alteredPanic.MatchString(s.value) && len(log.altered) > 0 {
			title, detail = ofCache(name, log.altered)
		}
		findings = append(findings, record.Finding{
			Severity: record.SeverityBug, Judge: record.JudgePanic, Title: title, Subject: p.Controller,
			Detail: detail, Time: when,
		})
	}
	if p.Running() || p.Planned || slices.ContainsFunc(log.panics, func(s stack) bool { return s.fatal }) {
		return findings
	}
	f := record.Finding{
		Severity: record.SeverityBug, Judge: record.JudgeCrash, Subject: p.Controller, Time: when,
		Title:  fmt.Sprintf("controller %s exited on its own: %s", name, describeCode(p.ExitCode)),
		Detail: strings.Join(log.tail, "\n"),
	}
	switch {
	case err != nil && !errors.Is(err, os.ErrNotExist):
		f.Detail = strings.TrimLeft(f.Detail+"\nits log could not be read: "+err.Error(), "\n")
	case len(log.tail) == 0:
		f.Detail = "it printed nothing"
	}
	if p.MetMachine != "" {
		f.Severity, f.Judge = record.SeverityInconclusive, record.JudgeEnvironment
		f.Title = fmt.Sprintf("controller %s exited because of what it has met on this machine: %s", name,
			describeCode(p.ExitCode))
		f.Detail = p.MetMachine + "\n" + f.Detail
	}
	if slices.ContainsFunc(log.tail, leaderLost.MatchString) {
		f.Severity, f.Judge = record.SeverityInconclusive, record.JudgeLeadership
		f.Title = fmt.Sprintf("controller %s lost its leader election and exited: %s", name, describeCode(p.ExitCode))
	}
	return append(findings, f)
}

// withoutEchoes leaves out a panic that was logged and then raised again and killed the process: the finding about the
// exit reports it. The two may be far apart in the log.
func withoutEchoes(panics []stack) []stack {
	var kept []stack
	for i, s := range panics {
		again := func(later stack) bool {
			same := strings.HasPrefix(later.value, s.value) || strings.HasPrefix(s.value, later.value)
			return later.fatal && (same || s.value == unknownPanic)
		}
		if !s.fatal && slices.ContainsFunc(panics[i+1:], again) {
			continue
		}
		kept = append(kept, s)
	}
	return kept
}

func describeCode(code int) string {
	if code > 128 && code < 128+65 {
		names := map[int]string{134: "SIGABRT", 137: "SIGKILL", 139: "SIGSEGV", 143: "SIGTERM", 131: "SIGQUIT",
			130: "SIGINT"}
		if n := names[code]; n != "" {
			return fmt.Sprintf("exit code %d (%s)", code, n)
		}
		return fmt.Sprintf("exit code %d (signal %d)", code, code-128)
	}
	return fmt.Sprintf("exit code %d", code)
}

// LogTail returns the last lines that a process has printed.
func LogTail(p record.Process, lines int) string {
	log, err := scan(p, -1)
	if err != nil && len(log.tail) == 0 {
		return "(" + err.Error() + ")"
	}
	if over := len(log.tail) - lines; over > 0 {
		log.tail = log.tail[over:]
	}
	return strings.Join(log.tail, "\n")
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
