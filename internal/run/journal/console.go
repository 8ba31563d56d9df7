package journal

import (
	"fmt"
	"time"

	"github.com/trommel-dev/trommel/internal/progress"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Console turns what a run does into events. It is the coordinator's Watcher.
type Console struct {
	listener progress.Listener
	run      string // empty: the session is meant
}

// NewConsole returns a console for the run with this record directory, which identifies it; empty: for none.
func NewConsole(l progress.Listener, recordDir string) *Console {
	return &Console{listener: l, run: recordDir}
}

// show shows an event to those that watch the run, at the machine's time.
func (c *Console) show(e progress.Event) {
	e.Time, e.Run = time.Now(), c.run
	c.listener.Show(e)
}

func (c *Console) Started(p *plan.Plan, variant string) {
	c.show(progress.Event{Type: progress.Started, Plan: p.TestName, Variant: variant, Actions: len(p.Actions)})
}

func (c *Console) Ended(m *record.Meta, dir string) {
	c.show(progress.Event{Type: progress.Ended, Plan: m.Plan, Variant: m.Variant, Verdict: string(m.Verdict),
		Text: m.Reason, Record: dir})
}

func (c *Console) Phase(name string) { c.show(progress.Event{Type: progress.Phase, Text: name}) }

func (c *Console) Info(text string) { c.show(progress.Event{Type: progress.Info, Text: text}) }

func (c *Console) step(number, of int, text string) {
	c.show(progress.Event{Type: progress.Step, Text: text, Step: &progress.StepEvent{Number: number, Of: of}})
}

func (c *Console) Finding(f record.Finding) {
	c.show(progress.Event{Type: progress.Finding, Text: f.Title, Finding: &progress.FindingEvent{
		Severity: string(f.Severity), Judge: f.Judge, Title: f.Title}})
}

func action(i int, what string) *progress.ActionEvent {
	return &progress.ActionEvent{Number: i + 1, Name: record.ActionName(i, what)}
}

func (c *Console) Fired(i int, a *plan.Action, by string) {
	c.show(progress.Event{Type: progress.Fired, Action: action(i, a.String()), Text: by})
}

func (c *Console) Completed(i int, a *plan.Action, err error) {
	e := progress.Event{Type: progress.Done, Action: action(i, a.String())}
	if err != nil {
		e.Type, e.Text = progress.Failed, err.Error()
	}
	c.show(e)
}

func (c *Console) Held(seq int, o *record.Observation, why string) {
	c.show(progress.Event{Type: progress.Held,
		Text: fmt.Sprintf("%s held %s %s: %s", o.By, o.Place(), o.Subject(), why),
		Hold: &progress.HoldEvent{ID: seq, By: o.By, At: o.Place(), What: o.Subject(), Why: why},
	})
}

func (c *Console) Released(seq int) {
	c.show(progress.Event{Type: progress.Released, Hold: &progress.HoldEvent{ID: seq}})
}

func (c *Console) Next(i int, text string) {
	e := progress.Event{Type: progress.Next, Text: text}
	if i >= 0 {
		e.Action = &progress.ActionEvent{Number: i + 1}
	}
	c.show(e)
}

func (c *Console) Waiting(text string) { c.show(progress.Event{Type: progress.Waiting, Text: text}) }
