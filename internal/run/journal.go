package run

import (
	"errors"
	"time"

	"github.com/trommel-dev/trommel/internal/judge"
	"github.com/trommel-dev/trommel/record"
)

// journal is what a run has to say of itself: its metadata, with phases and notes, and its findings. Listeners are told
// at once; the record gets it when the run has ended.
type journal struct {
	console  *console
	meta     record.Meta
	findings []record.Finding

	phase      string
	phaseStart time.Time
}

// enter ends the current phase and begins the named one; an empty name only ends the current one.
func (j *journal) enter(name string) {
	if j.phase != "" {
		j.meta.Phases = append(j.meta.Phases, record.Phase{Name: j.phase, Duration: time.Since(j.phaseStart)})
	}
	j.phase, j.phaseStart = name, time.Now()
	if name != "" {
		j.console.Phase(name)
	}
}

// add adds findings; those that are notes only become notes, too.
func (j *journal) add(findings ...record.Finding) {
	for _, f := range findings {
		j.findings = append(j.findings, f)
		if f.Severity == record.SeverityNote {
			j.note(f.Title)
			continue
		}
		j.console.Finding(f)
	}
}

// note records a note about the whole run.
func (j *journal) note(text string) {
	j.console.Info(text)
	j.meta.Notes = append(j.meta.Notes, text)
}

// step notes that a step of the workload begins.
func (j *journal) step(number, of int, text string) {
	j.meta.Steps = append(j.meta.Steps, record.Step{Text: text, Started: time.Now()})
	j.console.step(number, of, text)
}

// trouble records as a finding that a part of the run itself failed after there was something to judge.
func (j *journal) trouble(err error) { j.add(judge.Trouble(err.Error())) }

// judged reports whether there is a verdict.
func (j *journal) judged() bool { return j.meta.Verdict != "" }

// conclude records the verdict.
func (j *journal) conclude(d decision) {
	j.add(d.further...)
	j.meta.Verdict, j.meta.Reason, j.meta.Unfinished = d.verdict, d.reason, d.unfinished
	if text := j.meta.NotHappened(); d.unfinished != "" && text != "" {
		j.console.Info(text)
	}
}

// close writes the record's last files.
func (j *journal) close(w *record.Writer) error {
	errs := []error{
		w.Findings(j.findings),
		w.Meta(j.meta),
		w.Close(),
	}
	return errors.Join(errs...)
}
