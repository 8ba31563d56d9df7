package plan

import (
	"fmt"
	"strings"

	"github.com/trommel-dev/trommel/internal/wording"
)

// Explain says in plain sentences what a plan does: which process is stopped, where, until when.
func Explain(p *Plan) string {
	var b strings.Builder
	name := p.TestName
	if name == "" {
		name = p.File
	}
	fmt.Fprintf(&b, "Plan %s", name)
	if p.Workload != "" {
		fmt.Fprintf(&b, ", while the workload %s runs", p.Workload)
	}
	if len(p.Steps) > 0 {
		b.WriteString(", while its own workload runs")
	}
	if p.Variant != "" {
		fmt.Fprintf(&b, ", in the variant %s", p.Variant)
	}
	if p.Build != "" {
		fmt.Fprintf(&b, ", beginning with the build %s", p.Build)
	}
	b.WriteString(":\n")
	if p.Description != "" {
		b.WriteString(indent(strings.TrimSpace(p.Description), "  ") + "\n")
	}
	if p.CheckCaches {
		b.WriteString("\nAll along, client-go checks each second whether a controller has changed an object in its " +
			"cache, and ends it then.\n")
	}
	if p.Schedule != nil {
		b.WriteString("\n" + p.Schedule.Explain() + "\n")
	} else if len(p.Actions) == 0 {
		b.WriteString("\nThe plan does nothing; the workload alone should show the bug.\n")
	}
	for i := range p.Actions {
		fmt.Fprintf(&b, "\n%d. %s\n", i+1, ExplainAction(p, i))
	}
	return b.String()
}

func indent(s, by string) string { return by + strings.ReplaceAll(s, "\n", "\n"+by) }

// ExplainAction says in plain sentences what the action with that index does, and when. Lines after the first are
// indented by three spaces.
func ExplainAction(p *Plan, i int) string {
	a := &p.Actions[i]
	var b strings.Builder
	when, details := explainTrigger(p, i)
	if a.WaitBefore > 0 {
		when = FormatDuration(a.WaitBefore) + " after the moment " + when
		if a.Trigger.isAtOnce() {
			when = FormatDuration(a.WaitBefore) + " after " + p.enabled(i)
		}
	}
	fmt.Fprintf(&b, "%s, %s.", upper(when), doing(a))
	if details != "" {
		b.WriteString("\n" + details)
	}
	if a.WaitAfter > 0 {
		fmt.Fprintf(&b, "\n   It counts as done %s later.", FormatDuration(a.WaitAfter))
	}
	if a.Async && i+1 < len(p.Actions) {
		b.WriteString("\n   The plan does not wait for it to be done.")
	}
	return b.String()
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// controllerName names a controller; an empty name means the suite's only one.
func controllerName(name string) string {
	if name == "" {
		return "the controller"
	}
	return name
}

func doing(a *Action) string {
	if explain := a.kind().Explain; explain != nil {
		return explain(a)
	}
	return a.String()
}

// scopeOf names the scope of an action.
func scopeOf(scope Scope) string {
	if scope.Everything() {
		return "everything"
	}
	return scope.String()
}

// sideOf says at which side of which step a controller is at a timing.
func sideOf(t Timing) string {
	what := map[string]string{
		"ControllerRecv": "it receives an event", "ControllerRead": "it reads", "ControllerWrite": "it writes",
		"Reconcile": "it reconciles", "AnnotatedCall": "it makes an annotated call",
	}[t.point()]
	if t.isBefore() {
		return "before " + what
	}
	return "after " + what
}

func (t *Trigger) isAtOnce() bool {
	return len(t.Definitions) == 1 && t.Definitions[0].Condition.Type == OnNone
}

// enabled describes the moment at which an action's trigger becomes enabled.
func (p *Plan) enabled(i int) string {
	switch {
	case i == 0:
		return "the plan's start"
	case p.Actions[i-1].Async:
		return fmt.Sprintf("action %d has begun", i)
	}
	return fmt.Sprintf("action %d is done", i)
}

// explainTrigger returns the moment, and the trigger definitions if there are several.
func explainTrigger(p *Plan, i int) (when, details string) {
	t := &p.Actions[i].Trigger
	if t.isAtOnce() {
		return "as soon as " + strings.Replace(p.enabled(i), "the plan's start", "the plan starts", 1), ""
	}
	if len(t.Definitions) == 1 && t.Expression == t.Definitions[0].Name {
		d := &t.Definitions[0]
		if d.Condition.Type == OnTimeout {
			return fmt.Sprintf("%s after %s", FormatDuration(d.Condition.Timeout), p.enabled(i)) +
				d.Condition.extended(), ""
		}
		return "when " + d.explain(), ""
	}
	lines := make([]string, len(t.Definitions))
	for j := range t.Definitions {
		lines[j] = fmt.Sprintf("   - %s: %s", t.Definitions[j].Name, t.Definitions[j].explain())
	}
	words := strings.NewReplacer(";", ", then ", "|", " or ", "&", " and ")
	return "when " + words.Replace(t.Expression), strings.Join(lines, "\n")
}

// extended says how much longer a timeout may take.
func (c *Condition) extended() string {
	if c.Extend == 0 {
		return ""
	}
	return fmt.Sprintf(" (up to %s later, until the controllers are idle)", FormatDuration(c.Extend))
}

// explain says what a definition waits for.
func (d *Definition) explain() string {
	c, before := &d.Condition, d.Observe.Timing.isBefore()
	by := controllerName(d.Observe.ObserveBy)
	if d.Observe.Reconciler != "" {
		by += " (in " + d.Observe.Reconciler + ")"
	}
	times := ""
	if c.Repeat > 1 {
		times = fmt.Sprintf(", for the %s time", wording.Ordinal(c.Repeat))
	}
	switch c.Type {
	case OnTimeout:
		return FormatDuration(c.Timeout) + " has passed" + c.extended()
	case OnNone:
		return "at once"
	case OnAnnotatedCall:
		return fmt.Sprintf("%s %s %s%s", by, map[bool]string{true: "is about to call", false: "has called"}[before],
			c.Call, times)
	case OnReconcile:
		of := ""
		if !c.ResourceKey.IsZero() {
			of = " " + c.ResourceKey.String()
		}
		return fmt.Sprintf("%s %s%s%s", by, map[bool]string{true: "is about to reconcile",
			false: "has reconciled"}[before], of, times)
	}
	verb := map[string][2]string{
		"APIServerRecv": {"is about to see", "has seen"}, "ControllerRecv": {"is about to receive", "has received"},
		"ControllerRead": {"is about to read", "has read"}, "ControllerWrite": {"is about to send", "has sent"},
	}[d.Observe.Timing.point()]
	word := verb[1]
	if before {
		word = verb[0]
	}
	what := map[TriggerType]string{OnObjectCreation: "the creation of ", OnObjectDeletion: "the deletion of "}[c.Type]
	if what == "" {
		what = "an update of "
	}
	if d.Observe.Timing.point() == "ControllerRead" {
		what = map[bool]string{true: "that it finds nothing at ", false: ""}[c.Type == OnObjectDeletion]
	}
	return fmt.Sprintf("%s %s %s%s%s%s", by, word, what, c.ResourceKey, c.matched().Explain(), times)
}
