// Package report presents runs to users and to other programs.
//
// Finished runs are read with [record.Open]: [Text], [JSON], [JUnit], [Markdown] and [GitHub] write them in the form
// that the name says, [Explain] describes a run in plain sentences, and [Compare] says where two runs part. Package
// page writes them as HTML pages. Package display shows runs while they go on.
package report

import (
	"cmp"
	_ "embed" // the JSON Schema
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/report/colour"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/record"
)

// Name returns the plan's name with its variant and its build, or the directory of a run that was killed before it
// recorded them.
func Name(r *record.Run) string {
	if r.Meta.Plan == "" {
		return r.Dir
	}
	var of []string
	if r.Meta.Variant != "" {
		of = append(of, r.Meta.Variant)
	}
	if r.Meta.Build != "" {
		of = append(of, "from build "+r.Meta.Build)
	}
	if len(of) > 0 {
		return r.Meta.Plan + " (" + strings.Join(of, ", ") + ")"
	}
	return r.Meta.Plan
}

// Unfinished is the verdict of a run that was killed before it had one.
const Unfinished record.Verdict = "unfinished"

// Verdict returns the run's verdict, or Unfinished.
func Verdict(r *record.Run) record.Verdict { return cmp.Or(r.Meta.Verdict, Unfinished) }

// mostFailed is how many failed calls Text lists.
const mostFailed = 10

// Text writes a run's result: the verdict, the findings and the actions.
func Text(w io.Writer, r *record.Run) error {
	p := colour.For(w)
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", p.Bold(Name(r)), p.Verdict(Verdict(r)))
	for _, text := range []string{Reason(r), r.Meta.NotHappened()} {
		if text != "" {
			fmt.Fprintf(&b, "  %s\n", indent(text, "  "))
		}
	}
	details := map[string]string{} // of notes
	for _, f := range ByHarm(r) {
		if f.Severity == record.SeverityNote {
			details[f.Title] = f.Detail
			continue
		}
		paint := p.Red
		if !f.IsBug() {
			paint = p.Yellow
		}
		title, rest := CutTitle(f.Title, colour.Width(w)-len("  ")-ansi.StringWidth(f.Judge+": "))
		fmt.Fprintf(&b, "  %s %s\n", paint(f.Judge+":"), title)
		if rest != "" {
			fmt.Fprintf(&b, "      %s\n", indent(rest, "      "))
		}
		for _, text := range []string{Place(f), Shorten(f.Detail, 20)} {
			if text != "" {
				fmt.Fprintf(&b, "      %s\n", p.Dim(indent(text, "      ")))
			}
		}
	}
	for _, note := range r.Meta.Notes {
		fmt.Fprintf(&b, "  note: %s\n", note)
		if details[note] != "" {
			fmt.Fprintf(&b, "      %s\n", p.Dim(indent(Shorten(details[note], 20), "      ")))
		}
	}
	for _, stale := range r.Meta.StaleReads {
		fmt.Fprintf(&b, "  stale read: %s (%s)\n", stale, Since(r, stale.Time))
	}
	failed := 0
	for _, e := range r.Events {
		if o := e.Observation; o != nil && o.Failed != "" {
			if failed++; failed <= mostFailed {
				fmt.Fprintf(&b, "  failed call: %s by %s; %s (%s)\n", o.Subject(), o.By, Failed(o), Since(r, e.Time))
			}
		}
	}
	if more := failed - mostFailed; more > 0 {
		fmt.Fprintf(&b, "  and %s; trommel explain lists all\n", wording.Count(more, "more failed call"))
	}
	if len(r.Actions) > 0 {
		fmt.Fprintf(&b, "  actions carried out:\n")
	}
	for _, a := range r.Actions {
		fmt.Fprintf(&b, "    %s at %s, took %s%s", a, Since(r, a.At()), Round(a.Done.Sub(a.Began)),
			WithCause(", fired by ", a))
		if a.Note != "" {
			fmt.Fprintf(&b, "\n      %s %s", p.Yellow("note:"), indent(a.Note, "      "))
		}
		if a.Error != "" {
			fmt.Fprintf(&b, "\n      %s %s", p.Red("failed:"), indent(a.Error, "      "))
		}
		b.WriteByte('\n')
	}
	if held := HeldSteps(r, nil); len(held) > 0 && Verdict(r) == record.Bug {
		fmt.Fprintf(&b, "  held the longest by the schedule:\n    %s\n", strings.Join(held, "\n    "))
	}
	var phases []string
	for _, ph := range r.Meta.Phases {
		phases = append(phases, fmt.Sprintf("%s %s", ph.Name, Round(ph.Duration)))
	}
	if len(phases) > 0 {
		fmt.Fprintf(&b, "  took %s: %s\n", Took(r.Meta), strings.Join(phases, ", "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// CutTitle cuts a title to the cells that there are for it, at a blank if there is one in its second half, and returns
// the rest. With few or no cells it is left whole: there is no terminal, or too small a one.
func CutTitle(title string, cells int) (head, rest string) {
	first, more, _ := strings.Cut(title, "\n")
	if cells < 20 || ansi.StringWidth(first) <= cells {
		return title, ""
	}
	head = ansi.Truncate(first, cells-1, "")
	if i := strings.LastIndexByte(head, ' '); i > len(head)/2 && first[len(head)] != ' ' {
		head = head[:i]
	}
	rest = strings.TrimLeft(first[len(head):], " ")
	if more != "" {
		rest += "\n" + more
	}
	return head + "…", rest
}

// Took says how long a run took, and how long it lasted by its own clock if that differs. Phases and all other times in
// a report are of that clock.
func Took(m record.Meta) string {
	machine, own := Round(m.Took()), Round(m.Lasted())
	if m.RealTime != "" {
		return fmt.Sprintf("%s (in real time: %s)", machine, m.RealTime)
	}
	if own == machine {
		return machine.String()
	}
	return fmt.Sprintf("%s (%s of its own time)", machine, own)
}

// Reason returns the verdict's reason, unless a finding, printed below it, says the same.
func Reason(r *record.Run) string {
	for _, f := range r.Findings {
		if r.Meta.Reason == f.Title || strings.HasPrefix(r.Meta.Reason, f.Title+" (and ") {
			return ""
		}
	}
	return r.Meta.Reason
}

// WithCause returns words such as ", fired by " with what fired an action behind them; empty: it is unknown.
func WithCause(words string, a record.Action) string {
	switch {
	case a.Cause != "":
		return words + a.Cause
	case a.FiredBy > 0:
		return fmt.Sprintf("%sevent %d", words, a.FiredBy)
	}
	return ""
}

// Failed says how the plan made a call fail.
func Failed(o *record.Observation) string {
	if o.Failed == wire.Lost {
		return fmt.Sprintf("the plan made its answer (%d) get lost: %s", o.Code, o.Error)
	}
	return "the plan had it refused: " + o.Error
}

// Zero returns the moment from which the times in a report count: the workload's start or else the run's. Of a run
// whose metadata could not be written it is the first observation's.
func Zero(r *record.Run) time.Time {
	switch {
	case !r.Meta.WorkloadStart.IsZero():
		return r.Meta.WorkloadStart
	case r.Meta.Started.IsZero() && len(r.Events) > 0:
		return r.Events[0].Time
	}
	return r.Meta.Started
}

// Since returns a moment relative to zero. It can be negative: an action that fires at once does so before the workload
// starts.
func Since(r *record.Run, t time.Time) string { return signed(t.Sub(Zero(r))) }

func signed(d time.Duration) string {
	if d = Round(d); d < 0 {
		return d.String()
	}
	return "+" + d.String()
}

// Round rounds a time for people: three or four digits are enough.
func Round(d time.Duration) time.Duration {
	switch {
	case d.Abs() >= time.Second:
		return d.Round(10 * time.Millisecond)
	case d.Abs() >= time.Millisecond:
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}

func indent(text, by string) string { return strings.ReplaceAll(text, "\n", "\n"+by) }

// Shorten keeps the first lines of a text.
func Shorten(text string, lines int) string {
	all := strings.Split(text, "\n")
	if len(all) <= lines {
		return text
	}
	return strings.Join(all[:lines], "\n") +
		fmt.Sprintf("\n… %d more lines in %s", len(all)-lines, record.FindingsFile)
}

// RunsJSONSchema is the JSON Schema (2020-12) of what [JSON] writes.
//
//go:embed runs.schema.json
var RunsJSONSchema []byte

// summary is the JSON form of a run. Its schema is in runs.schema.json.
type summary struct {
	record.Meta
	Record   string           `json:"record"`
	Findings []record.Finding `json:"findings"`
	Actions  []record.Action  `json:"actions"`
	Events   int              `json:"events"`
	History  int              `json:"history"`
}

// JSON writes runs as a list with metadata, findings and actions. Of observations and history it contains only the
// counts.
func JSON(w io.Writer, runs []*record.Run) error {
	all := make([]summary, len(runs))
	for i, r := range runs {
		all[i] = summary{r.Meta, r.Dir, r.Findings, r.Actions, len(r.Events), len(r.History)}
		if all[i].Findings == nil {
			all[i].Findings = []record.Finding{}
		}
		if all[i].Actions == nil {
			all[i].Actions = []record.Action{}
		}
		if all[i].Phases == nil {
			all[i].Phases = []record.Phase{}
		}
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(all)
}
