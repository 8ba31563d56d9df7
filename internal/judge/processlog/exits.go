// Package processlog says what the logs of controllers' processes contain: panics, how a process exited, and errors. It
// knows neither the plan of a run nor its objects.
package processlog

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/record"
)

// Exits examines how controllers' processes exited, and the panics in their logs, including those of running processes.
// An exit that the plan caused is not a finding, but a panic before it is. Repeated findings are counted, not listed
// again. A panic names the places in the controller's module that its stack has.
func Exits(module string, processes []record.Process) []record.Finding {
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
		for _, f := range inspect(module, processes[i], end) {
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
func inspect(module string, p record.Process, end int64) []record.Finding {
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
		f := record.Finding{
			Severity: record.SeverityBug, Judge: record.JudgePanic, Title: title, Subject: p.Controller,
			Detail: detail, Time: when,
		}
		if f.Callers = callersIn(module, s.lines); f.Callers.Known() {
			f.Call = record.Panicked
		}
		findings = append(findings, f)
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
