package display

import (
	"fmt"

	"github.com/trommel-dev/trommel/internal/progress"
	"github.com/trommel-dev/trommel/internal/report/colour"
	"github.com/trommel-dev/trommel/record"
)

// line returns the line for an event; empty: it has none.
func line(p colour.Painter, e progress.Event) string {
	name := ""
	if e.Action != nil {
		name = p.Cyan(e.Action.Name)
	}
	switch e.Type {
	case progress.Phase:
		return p.Bold(e.Text)
	case progress.Build:
		return "  " + e.Target + ": " + e.Text
	case progress.Fired:
		return "  " + name + " fired by " + e.Text
	case progress.Done:
		return "  " + name + " done"
	case progress.Failed:
		if e.Action == nil {
			return p.Red("could not run: ") + e.Text
		}
		return "  " + name + " " + p.Red("failed") + ": " + e.Text
	case progress.Held:
		return "  " + p.Yellow(e.Text)
	case progress.Waiting:
		return "  waiting: " + e.Text
	case progress.Finding:
		if e.Finding.Severity != string(record.SeverityBug) {
			return "  " + p.Yellow("note ") + e.Text
		}
		return "  " + p.Red("found ") + e.Text
	case progress.Step:
		return fmt.Sprintf("  step %d of %d: %s", e.Step.Number, e.Step.Of, e.Text)
	case progress.Status:
		if e.Plan != "" {
			return "  " + p.Dim(e.Plan+":") + " " + e.Text
		}
		return "  " + e.Text
	case progress.Info, progress.PlanDone:
		return "  " + e.Text
	case progress.Next:
		if e.Action == nil {
			return "  all actions have fired"
		}
		return fmt.Sprintf("  action %d comes %s", e.Action.Number, e.Text)
	case progress.Ended:
		return "  " + e.Plan + ": " + string(e.Verdict)
	}
	return ""
}
