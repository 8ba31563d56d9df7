package run

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/judge"
	"github.com/trommel-dev/trommel/record"
)

// journal is what a run has to say of itself: its metadata, with phases and notes, and its findings. Listeners receive
// it at once; the record gets it when the run has ended.
type journal struct {
	console  *console
	clock    atomic.Pointer[clock.Clock] // nil until the run has its cluster
	kept     map[string]time.Duration    // clock.Kept, when it became the run's
	began    time.Time                   // by the machine's clock
	meta     record.Meta
	findings []record.Finding

	phase      string
	phaseStart time.Time
}

// now is the run's time. It may be called concurrently.
func (j *journal) now() time.Time { return j.clock.Load().Now() }

// goBy makes a clock the run's. What was recorded before counts as if the clock had been ahead by as much already.
func (j *journal) goBy(c *clock.Clock) {
	if c == nil {
		return
	}
	ahead := c.Offset()
	j.clock.Store(c)
	j.kept = c.Kept()
	j.meta.Started, j.phaseStart = j.meta.Started.Add(ahead), j.phaseStart.Add(ahead)
}

// worthANote is for how long time must have been real so that a run with a clock of its own says so.
const worthANote = 100 * time.Millisecond

// end records when the run ended.
func (j *journal) end() {
	j.meta.Ended = j.now()
	if c := j.clock.Load(); c != nil {
		kept := c.Kept()
		for _, why := range slices.Sorted(maps.Keys(kept)) {
			if d := kept[why] - j.kept[why]; d >= worthANote {
				j.note(fmt.Sprintf("time was real for %s, while %s", d.Round(10*time.Millisecond), why))
			}
		}
		j.meta.Clock = &record.Clock{Virtual: true, Took: time.Since(j.began), Began: j.began.Round(0)}
	}
}

// enter ends the current phase and begins the named one; an empty name only ends the current one.
func (j *journal) enter(name string) {
	if j.phase != "" {
		j.meta.Phases = append(j.meta.Phases, record.Phase{Name: j.phase, Duration: j.clock.Load().Since(j.phaseStart)})
	}
	j.phase, j.phaseStart = name, j.now()
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
func (j *journal) step(number, of int, s record.Step) {
	s.Started = j.now()
	j.meta.Steps = append(j.meta.Steps, s)
	j.console.step(number, of, s.Text)
}

// trouble records as a finding that a part of the run itself failed after there was something to judge.
func (j *journal) trouble(err error) { j.add(judge.Trouble(err.Error(), j.now())) }

// judged reports whether there is a verdict.
func (j *journal) judged() bool { return j.meta.Verdict != "" }

// conclude records the verdict.
func (j *journal) conclude(d judge.Decision) {
	j.add(d.Further...)
	j.meta.Verdict, j.meta.Reason, j.meta.Unfinished = d.Verdict, d.Reason, d.Unfinished
	if text := j.meta.NotHappened(); d.Unfinished != "" && text != "" {
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
