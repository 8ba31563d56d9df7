package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/lead"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Limits of what [Explain] shows.
const (
	explainedChanges = 60 // if there are more, only those of objects that the plan or a finding names
	explainedFields  = 6  // of a change
)

// Explain describes a run in plain sentences: the verdict and its cause, what became of each of the plan's actions,
// what happened when, and what was found, the cause before its consequences. The plan is the recorded one; nil: it is
// not known. The error is that of the writer, or of a history that cannot be read.
func Explain(w io.Writer, r *record.Run, p *plan.Plan) error {
	found := ByCause(r)
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", Name(r), Verdict(r))
	fmt.Fprintf(&b, "%s\n", indent(Headline(r, found), "  "))
	if p != nil {
		explainPlan(&b, r, p)
	}
	moments, err := Story(r, found)
	if err != nil {
		return err
	}
	if len(moments) > 0 {
		b.WriteString("\nWhat happened:\n\n")
		width := 0
		for _, m := range moments {
			width = max(width, len(Since(r, m.At)))
		}
		for _, m := range moments {
			fmt.Fprintf(&b, "  %*s  %s\n", width, Since(r, m.At), indent(m.Text, strings.Repeat(" ", width+4)))
		}
	}
	if len(found) > 0 {
		b.WriteString("\nWhat was found, the worst first:\n")
		for i, f := range found {
			fmt.Fprintf(&b, "\n%d. %s%s\n", i+1, Title(f.Finding), f.Times())
			for _, text := range []string{Place(f.Finding), Shorten(f.Detail, 20)} {
				if text != "" {
					fmt.Fprintf(&b, "   %s\n", indent(text, "   "))
				}
			}
			if l := lead.Of(r, f.Finding); l != nil && i == 0 {
				fmt.Fprintf(&b, "\n   What led to it:\n\n%s", indent(LeadText(r, l), ""))
			}
		}
	}
	_, err = io.WriteString(w, b.String())
	return err
}

// Title is a finding in one line, with its judge.
func Title(f record.Finding) string {
	if strings.HasPrefix(f.Title, f.Judge) {
		return f.Title
	}
	return f.Judge + ": " + f.Title
}

// Headline says in a sentence why the run has its verdict.
func Headline(r *record.Run, found []GroupedFinding) string {
	switch Verdict(r) {
	case record.Pass:
		switch r.Meta.ActionsTotal {
		case 0:
			return "Nothing was found. The plan has no actions."
		case 1:
			return "The action was carried out, and nothing was found."
		}
		return fmt.Sprintf("All %d actions were carried out, and nothing was found.", r.Meta.ActionsTotal)
	case record.Bug:
		text := r.Meta.Reason
		if i := slices.IndexFunc(found, func(f GroupedFinding) bool { return f.IsBug() }); i >= 0 {
			text = found[i].Title
		}
		if did := r.Meta.NotHappened(); did != "" {
			text += "\n" + wording.FirstLine(did)
		}
		return text
	case Unfinished:
		return "The run was killed before it had a verdict."
	}
	return wording.FirstLine(r.Meta.Reason)
}

// explainPlan says of each action what it was to do, and what became of it.
func explainPlan(b *strings.Builder, r *record.Run, p *plan.Plan) {
	if p.Schedule != nil {
		fmt.Fprintf(b, "\nWhat the schedule was to do, and what came of it:\n\n%s\n", p.Schedule.Explain())
		for _, line := range HeldSteps(r, p) {
			fmt.Fprintf(b, "   -> %s.\n", line)
		}
	}
	switch {
	case len(p.Actions) > 0:
		b.WriteString("\nWhat the plan was to do, and what came of it:\n")
	case p.Schedule == nil:
		b.WriteString("\nThe plan has no actions: only the workload ran.\n")
	}
	for i := range p.Actions {
		fmt.Fprintf(b, "\n%d. %s\n", i+1, plan.ExplainAction(p, i))
		at := slices.IndexFunc(r.Actions, func(a record.Action) bool { return a.Index == i })
		if at < 0 {
			b.WriteString("   -> It was not carried out.\n")
			for _, line := range WaitedFor(r, i) {
				fmt.Fprintf(b, "      %s\n", line)
			}
			continue
		}
		a := r.Actions[at]
		fmt.Fprintf(b, "   -> It was carried out at %s%s.\n", Since(r, a.At()), WithCause(", after ", a))
		if a.Error != "" {
			fmt.Fprintf(b, "      It failed: %s\n", indent(a.Error, "      "))
		}
		if a.Note != "" {
			fmt.Fprintf(b, "      But it %s\n", indent(a.Note, "      "))
		}
	}
}

// WaitedFor returns what an action that did not fire waited for, a line for each of its triggers.
func WaitedFor(r *record.Run, index int) []string {
	if r.Meta.Awaited == nil || r.Meta.Awaited.Action != index {
		return nil
	}
	return r.Meta.Awaited.Triggers
}

// Moment is something that happened.
type Moment struct {
	At   time.Time
	Text string
}

// Story lists what happened, in order.
func Story(r *record.Run, found []GroupedFinding) ([]Moment, error) {
	var all []Moment
	add := func(at time.Time, format string, args ...any) {
		if !at.IsZero() {
			all = append(all, Moment{at, fmt.Sprintf(format, args...)})
		}
	}
	add(r.Meta.WorkloadStart, "The workload begins.")
	add(r.Meta.WorkloadEnd, "The workload ends.")
	for _, a := range r.Actions {
		text := a.String()
		text = strings.ToUpper(text[:1]) + text[1:] + " is carried out."
		if a.Error != "" {
			text = strings.TrimSuffix(text, " is carried out.") + " fails."
		}
		add(a.At(), "%s", text)
	}
	for _, p := range r.Processes {
		if p.Started.After(Zero(r)) {
			add(p.Started, "%s starts (pod %s).", p.Controller, p.Pod)
		}
		switch over := r.Meta.Observed; {
		case p.Running() || !over.IsZero() && p.Ended.After(over):
		case p.Planned:
			add(p.Ended, "%s is stopped by the plan, or its pod is deleted.", p.Controller)
		default:
			add(p.Ended, "%s exits on its own (exit code %d).", p.Controller, p.ExitCode)
		}
	}
	for _, s := range r.Meta.StaleReads {
		add(s.Time, "%s.", s)
	}
	for _, e := range r.Events {
		if o := e.Observation; o != nil && o.Failed != "" {
			add(e.Time, "%s by %s: %s.", o.Subject(), o.By, Failed(o))
		}
	}
	changes, err := changesOf(r, found)
	if err != nil {
		return nil, err
	}
	all = append(all, changes...)
	for i := 0; i < len(found); i++ { // after the changes that they are about
		first := i
		for i+1 < len(found) && found[i+1].Time.Equal(found[first].Time) {
			i++
		}
		if i > first {
			add(found[first].Time, "Findings %d to %d are noticed.", first+1, i+1)
		} else {
			add(found[first].Time, "Finding %d is noticed: %s", first+1, found[first].Title)
		}
	}
	slices.SortStableFunc(all, func(x, y Moment) int { return x.At.Compare(y.At) })
	return all, nil
}

// changesOf describes what happened to the recorded objects. If it is much, it describes only objects that the plan or
// a finding names.
func changesOf(r *record.Run, found []GroupedFinding) ([]Moment, error) {
	changes, err := facts.Changes(r)
	if err != nil {
		return nil, err
	}
	writers := map[uint64][]record.FieldManager{}
	for _, h := range r.History {
		writers[h.ResourceVersion] = h.Writers
	}
	var all []Moment
	last := map[facts.Key]int{} // index in all of the newest update of an object, by the same client
	by := map[facts.Key]string{}
	folded := map[int]int{}
	left := 0
	few := len(changes) <= explainedChanges
	for i := range changes {
		c := &changes[i]
		if !few && !named(r, found, c) {
			left++
			continue
		}
		who := c.By
		if ws := writers[c.Version]; who == "" && len(ws) > 0 && c.Event != record.Deleted {
			var names []string
			for _, w := range ws {
				if !slices.Contains(names, w.Manager) {
					names = append(names, w.Manager)
				}
			}
			who = strings.Join(names, ", ")
		}
		text := sentence(c, who)
		at, repeated := last[c.Key]
		if repeated && c.Event == record.Updated && !c.Marked() && by[c.Key] == who && at == len(all)-1 {
			folded[at]++
			continue
		}
		delete(last, c.Key)
		if c.Event == record.Updated && !c.Marked() {
			last[c.Key], by[c.Key] = len(all), who
		}
		all = append(all, Moment{c.Time, text})
	}
	for i, n := range folded {
		more := "Another update of it follows."
		if n > 1 {
			more = fmt.Sprintf("%d more updates of it follow.", n)
		}
		all[i].Text += "\n" + more
	}
	if left > 0 && len(changes) > 0 {
		all = append(all, Moment{changes[len(changes)-1].Time,
			fmt.Sprintf("(%d changes of objects that neither the plan nor a finding names are in %s.)", left,
				record.HistoryFile)})
	}
	return all, nil
}

// named reports whether the plan's actions, a stale read or a finding names the object of a change.
func named(r *record.Run, found []GroupedFinding, c *facts.Change) bool {
	keys := []string{string(c.Key), WithoutGroup(string(c.Key))}
	in := func(text string) bool {
		return slices.ContainsFunc(keys, func(k string) bool { return Names(text, k) })
	}
	for _, a := range r.Actions {
		if in(a.Cause) || in(a.Target) {
			return true
		}
	}
	for _, s := range r.Meta.StaleReads {
		if in(s.Object) {
			return true
		}
	}
	return in(r.Meta.Unfinished) || slices.ContainsFunc(found, func(f GroupedFinding) bool {
		return in(f.Subject) || in(f.Title) || in(f.Detail)
	})
}

// Names reports whether a text has a key that does not go on: pod/default/a is not in pod/default/ab.
func Names(text, key string) bool {
	for {
		_, rest, ok := strings.Cut(text, key)
		if !ok {
			return false
		}
		next, _ := utf8.DecodeRuneInString(rest)
		if next != '-' && !unicode.IsLetter(next) && !unicode.IsDigit(next) {
			return true
		}
		text = rest
	}
}

// WithoutGroup shortens a key: statefulset.apps/default/db is statefulset/default/db.
func WithoutGroup(key string) string {
	typ, rest, _ := strings.Cut(key, "/")
	typ, _, _ = strings.Cut(typ, ".")
	return typ + "/" + rest
}

// sentence says a change.
func sentence(c *facts.Change, who string) string {
	key := WithoutGroup(string(c.Key))
	passive := map[string]string{record.Created: "created", record.Deleted: "deleted"}[c.Event]
	switch {
	case c.Marked():
		passive = "marked for deletion"
	case passive == "":
		passive = "updated"
	}
	var text string
	switch {
	case who == "":
		text = fmt.Sprintf("%s is %s", key, passive)
	case passive == "marked for deletion":
		text = fmt.Sprintf("%s marks %s for deletion", who, key)
	default:
		text = fmt.Sprintf("%s %s %s", who, strings.TrimSuffix(passive, "d")+"s", key)
	}
	if c.Event == record.Updated && !c.Marked() {
		text += fieldsOf(c)
	}
	return text + "."
}

// fieldsOf says which fields a change has changed.
func fieldsOf(c *facts.Change) string {
	counting := baseline.Fields(c)
	var parts []string
	for _, f := range facts.FieldsOf(c) {
		if slices.Contains(counting, f.Where) {
			parts = append(parts, howChanged(f))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	if more := len(parts) - explainedFields; more > 0 {
		parts = append(parts[:explainedFields], fmt.Sprintf("and %d more fields", more))
	}
	return ": " + strings.Join(parts, ", ")
}

func howChanged(f facts.Field) string {
	switch {
	case f.Prev == nil:
		return fmt.Sprintf("%s is set to %s", f.Where, value(f.Cur))
	case f.Cur == nil:
		return fmt.Sprintf("%s is removed (it was %s)", f.Where, value(f.Prev))
	}
	return fmt.Sprintf("%s from %s to %s", f.Where, value(f.Prev), value(f.Cur))
}

// value says a field's value; a long one is shortened.
func value(v any) string {
	text := []rune(baseline.Value(v))
	if len(text) > 60 {
		return string(text[:57]) + "…"
	}
	return string(text)
}

// GroupedFinding is a finding, with the number of others that say the same of the same object.
type GroupedFinding struct {
	record.Finding
	// Happened is when the change that it is about happened.
	Happened time.Time
	more     int
}

// Times says how many others say the same, as the end of a title.
func (f GroupedFinding) Times() string {
	switch {
	case f.more == 0:
		return ""
	case f.more == 1:
		return " (and once more)"
	}
	return fmt.Sprintf(" (and %d more times)", f.more)
}

// alike reports whether two findings are the same, and mean the same for the verdict.
func alike(f, g record.Finding) bool { return f.Severity == g.Severity && f.Same(g) }

// ByHarm returns the findings with the worst first, bugs before others and notes last.
func ByHarm(r *record.Run) []record.Finding {
	return slices.SortedStableFunc(slices.Values(r.Findings), record.ByHarm)
}

// ByCause returns the findings by harm, each once, and those of the same harm in the order in which what they are about
// happened: bugs first, notes last. A judge may notice a cause after its consequences: an invariant that something
// exists eventually fails long after it was deleted. So a finding that names changes counts from the first of them.
func ByCause(r *record.Run) []GroupedFinding {
	var all []GroupedFinding
	for _, f := range r.Findings {
		same := func(g GroupedFinding) bool { return alike(f, g.Finding) }
		if i := slices.IndexFunc(all, same); i >= 0 {
			all[i].more++
			continue
		}
		grouped := GroupedFinding{Finding: f, Happened: f.Time}
		if !f.Cause.IsZero() && (f.Time.IsZero() || f.Cause.Before(f.Time)) {
			grouped.Happened = f.Cause
		}
		all = append(all, grouped)
	}
	slices.SortStableFunc(all, func(x, y GroupedFinding) int {
		by := x.Happened.Compare(y.Happened)
		if x.Happened.IsZero() != y.Happened.IsZero() { // unknown ones come last
			by = -by
		}
		return cmp.Or(record.ByHarm(x.Finding, y.Finding), by)
	})
	return all
}
