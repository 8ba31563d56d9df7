// Package journal writes what a run leaves in its record: the plan and the suite ([PlanFiles]), what happens in the run
// ([Events]), what the judges look at ([Evidence]), and the run's metadata and findings ([Journal]). A [Console] shows
// a run to those who watch.
package journal

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

// Journal is the metadata of a run, with phases and notes, and its findings. It shows them at once, and writes them
// into the record when the run has ended.
type Journal struct {
	Console  *Console
	Began    time.Time // by the machine's clock
	Meta     record.Meta
	Findings []record.Finding

	clock atomic.Pointer[clock.Clock] // nil until the run has its cluster
	kept  map[string]time.Duration    // clock.Kept, when it became the run's

	phase      string
	phaseStart time.Time
}

// Now is the run's time. It may be called concurrently.
func (j *Journal) Now() time.Time { return j.clock.Load().Now() }

// GoBy makes a clock the run's. What was recorded before counts as if the clock had been ahead by as much already.
func (j *Journal) GoBy(c *clock.Clock) {
	if c == nil {
		return
	}
	ahead := c.Offset()
	j.clock.Store(c)
	j.kept = c.Kept()
	j.Meta.Started, j.phaseStart = j.Meta.Started.Add(ahead), j.phaseStart.Add(ahead)
}

// worthANote is for how long time must have been real so that a run with a clock of its own says so.
const worthANote = 100 * time.Millisecond

// End records when the run ended.
func (j *Journal) End() {
	j.Meta.Ended = j.Now()
	if c := j.clock.Load(); c != nil {
		kept := c.Kept()
		for _, why := range slices.Sorted(maps.Keys(kept)) {
			if d := kept[why] - j.kept[why]; d >= worthANote {
				j.Note(fmt.Sprintf("time was real for %s, while %s", d.Round(10*time.Millisecond), why))
			}
		}
		j.Meta.Clock = &record.Clock{Virtual: true, Took: time.Since(j.Began), Began: j.Began.Round(0)}
	}
}

// Enter ends the current phase and begins the named one; an empty name only ends the current one.
func (j *Journal) Enter(name string) {
	if j.phase != "" {
		j.Meta.Phases = append(j.Meta.Phases, record.Phase{Name: j.phase, Duration: j.clock.Load().Since(j.phaseStart)})
	}
	j.phase, j.phaseStart = name, j.Now()
	if name != "" {
		j.Console.Phase(name)
	}
}

// Add adds findings; those that are notes only become notes, too.
func (j *Journal) Add(findings ...record.Finding) {
	for _, f := range findings {
		j.Findings = append(j.Findings, f)
		if f.Severity == record.SeverityNote {
			j.Note(f.Title)
			continue
		}
		j.Console.Finding(f)
	}
}

// Note records a note about the whole run.
func (j *Journal) Note(text string) {
	j.Console.Info(text)
	j.Meta.Notes = append(j.Meta.Notes, text)
}

// Step notes that a step of the workload begins.
func (j *Journal) Step(number, of int, s record.Step) {
	s.Started = j.Now()
	j.Meta.Steps = append(j.Meta.Steps, s)
	j.Console.step(number, of, s.Text)
}

// Trouble records as a finding that a part of the run itself failed after there was something to judge.
func (j *Journal) Trouble(err error) { j.Add(judge.Trouble(err.Error(), j.Now())) }

// Judged reports whether there is a verdict.
func (j *Journal) Judged() bool { return j.Meta.Verdict != "" }

// Conclude records the verdict.
func (j *Journal) Conclude(d judge.Decision) {
	j.Add(d.Further...)
	j.Meta.Verdict, j.Meta.Reason, j.Meta.Unfinished = d.Verdict, d.Reason, d.Unfinished
	if text := j.Meta.NotHappened(); d.Unfinished != "" && text != "" {
		j.Console.Info(text)
	}
}

// Close writes the record's last files.
func (j *Journal) Close(w *record.Writer) error {
	errs := []error{
		w.Findings(j.Findings),
		w.Meta(j.Meta),
		w.Close(),
	}
	return errors.Join(errs...)
}
