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

// Started shows that a plan has started.
func (c *Console) Started(p *plan.Plan, variant string) {
	c.show(progress.Event{Type: progress.Started, Plan: p.TestName, Variant: variant, Actions: len(p.Actions)})
}

// Ended shows a run's verdict, with the directory of its record.
func (c *Console) Ended(m *record.Meta, dir string) {
	c.show(progress.Event{Type: progress.Ended, Plan: m.Plan, Variant: m.Variant, Verdict: string(m.Verdict),
		Text: m.Reason, Record: dir})
}

// Phase shows that a phase of the run begins.
func (c *Console) Phase(name string) { c.show(progress.Event{Type: progress.Phase, Text: name}) }

// Info shows a text that belongs to no other kind of event.
func (c *Console) Info(text string) { c.show(progress.Event{Type: progress.Info, Text: text}) }

func (c *Console) step(number, of int, text string) {
	c.show(progress.Event{Type: progress.Step, Text: text, Step: &progress.StepEvent{Number: number, Of: of}})
}

// Finding shows a finding as soon as a judge has it.
func (c *Console) Finding(f record.Finding) {
	c.show(progress.Event{Type: progress.Finding, Text: f.Title, Finding: &progress.FindingEvent{
		Severity: string(f.Severity), Judge: f.Judge, Title: f.Title}})
}

func action(i int, what string) *progress.ActionEvent {
	return &progress.ActionEvent{Number: i + 1, Name: record.ActionName(i, what)}
}

// Fired shows that an action has fired, and because of what.
func (c *Console) Fired(i int, a *plan.Action, by string) {
	c.show(progress.Event{Type: progress.Fired, Action: action(i, a.String()), Text: by})
}

// Completed shows that an action is complete, or has failed.
func (c *Console) Completed(i int, a *plan.Action, err error) {
	e := progress.Event{Type: progress.Done, Action: action(i, a.String())}
	if err != nil {
		e.Type, e.Text = progress.Failed, err.Error()
	}
	c.show(e)
}

// Held shows that an observation is held, with its number, and why.
func (c *Console) Held(seq int, o *record.Observation, why string) {
	c.show(progress.Event{Type: progress.Held,
		Text: fmt.Sprintf("%s held %s %s: %s", o.By, o.Place(), o.Subject(), why),
		Hold: &progress.HoldEvent{ID: seq, By: o.By, At: o.Place(), What: o.Subject(), Why: why},
	})
}

// Released shows that the observation with this number goes on.
func (c *Console) Released(seq int) {
	c.show(progress.Event{Type: progress.Released, Hold: &progress.HoldEvent{ID: seq}})
}

// Next shows what comes next for an action, by its index; negative: for the plan.
func (c *Console) Next(i int, text string) {
	e := progress.Event{Type: progress.Next, Text: text}
	if i >= 0 {
		e.Action = &progress.ActionEvent{Number: i + 1}
	}
	c.show(e)
}

// Waiting shows what the run waits for.
func (c *Console) Waiting(text string) { c.show(progress.Event{Type: progress.Waiting, Text: text}) }
