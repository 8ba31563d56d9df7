package run

import (
	"fmt"
	"time"

	"github.com/trommel-dev/trommel/internal/progress"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// console turns what a run does into events. It is the coordinator's Watcher.
type console struct {
	listener progress.Listener
	run      string // empty: the session is meant
}

// newConsole returns a console for the run with this record directory, which identifies it; empty: for none.
func newConsole(l progress.Listener, recordDir string) *console {
	return &console{listener: l, run: recordDir}
}

// show shows an event to those that watch the run, at the machine's time.
func (c *console) show(e progress.Event) {
	e.Time, e.Run = time.Now(), c.run
	c.listener.Show(e)
}

func (c *console) started(p *plan.Plan, variant string) {
	c.show(progress.Event{Type: progress.Started, Plan: p.TestName, Variant: variant, Actions: len(p.Actions)})
}

func (c *console) ended(m *record.Meta, dir string) {
	c.show(progress.Event{Type: progress.Ended, Plan: m.Plan, Variant: m.Variant, Verdict: string(m.Verdict),
		Text: m.Reason, Record: dir})
}

func (c *console) Phase(name string) { c.show(progress.Event{Type: progress.Phase, Text: name}) }

func (c *console) Info(text string) { c.show(progress.Event{Type: progress.Info, Text: text}) }

func (c *console) step(number, of int, text string) {
	c.show(progress.Event{Type: progress.Step, Text: text, Step: &progress.StepEvent{Number: number, Of: of}})
}

func (c *console) Finding(f record.Finding) {
	c.show(progress.Event{Type: progress.Finding, Text: f.Title, Finding: &progress.FindingEvent{
		Severity: string(f.Severity), Judge: f.Judge, Title: f.Title}})
}

func action(i int, what string) *progress.ActionEvent {
	return &progress.ActionEvent{Number: i + 1, Name: record.ActionName(i, what)}
}

func (c *console) Fired(i int, a *plan.Action, by string) {
	c.show(progress.Event{Type: progress.Fired, Action: action(i, a.String()), Text: by})
}

func (c *console) Completed(i int, a *plan.Action, err error) {
	e := progress.Event{Type: progress.Done, Action: action(i, a.String())}
	if err != nil {
		e.Type, e.Text = progress.Failed, err.Error()
	}
	c.show(e)
}

func (c *console) Held(seq int, o *record.Observation, why string) {
	c.show(progress.Event{Type: progress.Held,
		Text: fmt.Sprintf("%s held %s %s: %s", o.By, o.Place(), o.Subject(), why),
		Hold: &progress.HoldEvent{ID: seq, By: o.By, At: o.Place(), What: o.Subject(), Why: why},
	})
}

func (c *console) Released(seq int) {
	c.show(progress.Event{Type: progress.Released, Hold: &progress.HoldEvent{ID: seq}})
}

func (c *console) Next(i int, text string) {
	e := progress.Event{Type: progress.Next, Text: text}
	if i >= 0 {
		e.Action = &progress.ActionEvent{Number: i + 1}
	}
	c.show(e)
}

func (c *console) Waiting(text string) { c.show(progress.Event{Type: progress.Waiting, Text: text}) }
