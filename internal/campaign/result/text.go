package result

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/lead"
	"github.com/trommel-dev/trommel/internal/report"
	"github.com/trommel-dev/trommel/internal/report/colour"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/record"
)

// Show is the command that runs an outcome's plan again and judges it as the campaign has.
func (r *Result) Show(o *Outcome) string {
	if o.Faultless {
		words := []string{"trommel", "learn", "-c", r.SuiteFile, "--workload", o.Workload, "--baseline", r.Baselines}
		if r.Variant != "" {
			words = append(words, "--variant", r.Variant)
		}
		return Command(append(words, "--anew"))
	}
	file := o.File
	if o.Smaller != "" {
		file = o.Smaller
	}
	words := []string{"trommel", "-p", file}
	if o.Pattern == "" && o.Smaller == "" { // those that are written here name their suite and variant
		words = append(words, "--suite", r.SuiteFile)
		if r.Variant != "" {
			words = append(words, "--variant", r.Variant)
		}
	}
	if o.Judged && !(o.Smaller != "" && o.Alone) {
		words = append(words, "--baseline", r.Baselines)
	}
	return Command(words)
}

// Command returns the words as one command for a shell.
func Command(words []string) string {
	for i, w := range words {
		if strings.ContainsAny(w, " \t'\"$&;()*?<>|\\`") {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// Most is how many plans of a kind the summary lists.
const Most = 10

// Text writes the summary. On a terminal the headlines of findings are cut to its width, and the rest is below them.
func (r *Result) Text(w io.Writer) error {
	var b strings.Builder
	width := colour.Width(w)
	r.groups(&b, width, "bugs", r.With(Bug))
	r.groups(&b, width, notConfirmed+": the budget ended", r.Pending())
	r.groups(&b, width, notConfirmed, r.unconfirmed())
	for _, said := range []string{withoutActions, atRest} {
		r.groups(&b, width, said, r.without(said))
	}
	for _, kind := range []struct {
		title  string
		status Status
	}{{"inconclusive", Inconclusive}, {"could not be run", Failed}} {
		all := r.With(kind.status)
		if len(all) == 0 {
			continue
		}
		fmt.Fprintln(&b, kind.title)
		for i, o := range all {
			if i == Most {
				fmt.Fprintf(&b, "  and %d more\n", len(all)-Most)
				break
			}
			fmt.Fprintf(&b, "  %s: %s\n", o.Plan, indent(shown(o.Reason), "    "))
		}
	}
	if len(r.NotRun) > 0 {
		fmt.Fprintf(&b, "not run\n  %s\n", r.notRun())
		for _, u := range r.Next {
			fmt.Fprintf(&b, "    %s\n", indent(u.String(), "    "))
		}
	}
	if r.GoOn != "" {
		fmt.Fprintf(&b, "to go on\n  %s\n", r.GoOn)
	}
	if len(r.Orders) > 0 {
		fmt.Fprintln(&b, "orders")
		for _, o := range r.Orders {
			fmt.Fprintf(&b, "  %s\n", o)
		}
	}
	if lines := r.notTested(); len(lines) > 0 {
		fmt.Fprintln(&b, "not tested")
		for _, line := range lines {
			fmt.Fprintf(&b, "  %s\n", indent(line, "  "))
		}
	}
	fmt.Fprintln(&b, r.counts())
	_, err := io.WriteString(w, b.String())
	return err
}

// notConfirmed is the title of findings that did not come again, or were not run again.
const notConfirmed = "not confirmed"

// groups lists outcomes, together where they found the same. Headlines are cut to the width, in cells, of a terminal;
// 0: they are not cut.
func (r *Result) groups(b *strings.Builder, width int, title string, outcomes []Outcome) {
	groups := Groups(outcomes)
	if len(groups) == 0 {
		return
	}
	fmt.Fprintln(b, title)
	for i, g := range groups {
		first := &g.Plans[0]
		number := fmt.Sprintf("  %d. ", i+1)
		headline, rest := report.CutTitle(g.title(), width-len(number))
		fmt.Fprintf(b, "%s%s\n", number, headline)
		if rest != "" {
			fmt.Fprintf(b, "     %s\n", indent(rest, "     "))
		}
		if at := report.Place(g.Finding); at != "" {
			fmt.Fprintf(b, "     %s\n", at)
		}
		for _, line := range g.led() {
			fmt.Fprintf(b, "     %s\n", line)
		}
		if gone := g.gone(); gone != "" {
			fmt.Fprintf(b, "     %s\n", gone)
		}
		for _, line := range besides(g) {
			fmt.Fprintf(b, "     %s\n", line)
		}
		fmt.Fprintf(b, "     %s %s", first.Plan, first.Rate())
		if first.Why != "" {
			fmt.Fprintf(b, ": %s", indent(first.Why, "     "))
		}
		fmt.Fprintf(b, "\n     %s\n", r.Show(first))
		if first.Reason != "" && first.Like == "" {
			fmt.Fprintf(b, "     %s\n", wording.FirstLine(first.Reason))
		}
		if also := others(g); also != "" {
			fmt.Fprintf(b, "     also: %s\n", also)
		}
	}
}

// traced is the first of a group's plans of which it is known what led to its finding; nil: it is not known.
func (g Group) traced() *Outcome {
	for i := range g.Plans {
		if g.Plans[i].Lead != nil {
			return &g.Plans[i]
		}
	}
	return nil
}

// Record is the directory of the run that shows a group's finding best: what led to it, if that is known.
func (g Group) Record() string {
	if o := g.traced(); o != nil {
		return o.Traced
	}
	return g.Plans[0].Record
}

func (g Group) lead() *lead.Lead {
	if o := g.traced(); o != nil {
		return o.Lead
	}
	return nil
}

// led says what led to a group's finding, in short: what was wrong on the way, and why.
func (g Group) led() []string {
	o := g.traced()
	if o == nil {
		return nil
	}
	var all []string
	for _, s := range o.Lead.Steps {
		if s.Wrong {
			all = append(all, strings.TrimSpace(s.Text+"  "+s.Place))
		}
	}
	all = append(all, o.Lead.Why...)
	return append(all, "what led to it: "+Command([]string{"trommel", "explain", o.Traced}))
}

// gone says in which other runs of the group's first plan the finding did not come; empty: it is not known.
func (g Group) gone() string {
	if len(g.Plans[0].Gone) == 0 {
		return ""
	}
	return "it does not come " + strings.Join(g.Plans[0].Gone, ", nor ")
}

// maxBesides is how many more findings of a plan the summary shows.
const maxBesides = 3

// besides are the further findings of a group's first plan, the worst first, one line each.
func besides(g Group) []string {
	var all []string
	for _, f := range slices.SortedStableFunc(slices.Values(g.Plans[0].Findings), record.ByHarm) {
		if f != g.Finding {
			all = append(all, report.Title(f))
		}
	}
	if more := len(all) - maxBesides; more > 0 {
		all = append(all[:maxBesides], "and "+wording.Count(more, "more difference"))
	}
	return all
}

// Rate says how often a finding came.
func (o *Outcome) Rate() string {
	if o.Like != "" {
		return "(the same as " + o.Like + ")"
	}
	return fmt.Sprintf("(%d of %s)", o.Came, wording.Count(o.Of, "run"))
}

// title is a group in one line: what was found, and when.
func (g Group) title() string {
	if cause := g.Plans[0].Cause; cause != "" {
		return report.Title(g.Finding) + " [" + cause + "]"
	}
	return report.Title(g.Finding)
}

// others names the plans of a group but the first. Those that found the same as another one were not run again.
func others(g Group) string {
	var all []string
	for _, o := range g.Plans[1:] {
		text := o.Plan
		if o.Like == "" {
			text += " " + o.Rate()
		}
		all = append(all, text)
	}
	return wording.First(all, Most)
}

// shown is the beginning of a reason: its first line, and what the first trigger that did not fire waited for.
func shown(reason string) string {
	lines := strings.SplitN(reason, "\n", 3)
	return strings.Join(lines[:min(2, len(lines))], "\n")
}

// withoutLog is a reason without the end of a log that may follow it: its first line, and the details below it, which
// are indented. The whole reason was shown when it came.
func withoutLog(reason string) string {
	lines := strings.Split(reason, "\n")
	n := 1
	for n < len(lines) && strings.HasPrefix(lines[n], " ") {
		n++
	}
	return strings.Join(lines[:n], "\n")
}

func indent(text, by string) string {
	return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+by)
}

// notRun says how many plans were not run, and why; those that it describes follow.
func (r *Result) notRun() string {
	text := wording.Count(len(r.NotRun), "plan")
	if r.Stopped != "" {
		text += ", because " + r.Stopped
	}
	if len(r.Next) == 0 {
		return text
	}
	if len(r.Next) < len(r.NotRun) {
		text += "; the most valuable of them"
	}
	return text + ":"
}

// String is a plan that was not run in one line.
func (u Unrun) String() string {
	if u.Why == "" {
		return u.Plan
	}
	return u.Plan + ": " + u.Why
}

// notTested says what the campaign says nothing about, a line each.
func (r *Result) notTested() []string {
	var lines []string
	for _, u := range r.Unlearned {
		lines = append(lines, withoutLog(u.Reason))
	}
	if n := len(r.Unstudied); n > 0 {
		why := "which the budget left no time to learn"
		if r.Stopped != "" && !strings.HasPrefix(r.Stopped, "the budget") {
			why = "which were not learned before the campaign ended"
		}
		lines = append(lines, fmt.Sprintf("%s, %s: %s", wording.Count(n, "workload"), why,
			wording.First(r.Unstudied, Most)))
	}
	if r.Elsewhere > 0 {
		lines = append(lines, fmt.Sprintf("%s in other shards", wording.Count(r.Elsewhere, "plan")))
	}
	if len(r.Empty) > 0 {
		lines = append(lines, "there is no plan of the pattern "+strings.Join(r.Empty, ", "))
	}
	for _, s := range r.Suggested {
		lines = append(lines, s.String())
	}
	for _, name := range slices.Sorted(maps.Keys(r.Unreached)) {
		lines = append(lines, fmt.Sprintf("no workload reaches these points of %s: %s", name,
			strings.Join(r.Unreached[name], ", ")))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Unrecorded)) {
		lines = append(lines, fmt.Sprintf("%s: what becomes of these types, which could not be listed: %s", name,
			strings.Join(r.Unrecorded[name], ", ")))
	}
	for _, s := range r.Skipped {
		lines = append(lines, s.String())
	}
	dropped := 0
	for _, n := range r.Dropped {
		dropped += n
	}
	if dropped > 0 {
		// Most of them are as it should be, and there is nothing to do about the others.
		lines = append(lines, fmt.Sprintf("%s without a plan; trommel generate --explain says why",
			wording.Count(dropped, "candidate")))
	}
	return lines
}

// counts says how many plans there are of each status.
func (r *Result) counts() string {
	text := fmt.Sprintf("%s in %s", wording.Count(len(r.Outcomes), "plan"), wording.Roughly(r.Took))
	sep := ": "
	for _, kind := range []struct {
		status Status
		what   string
	}{
		{Passed, "passed"}, {Bug, "with bugs"}, {Unconfirmed, "not confirmed"},
		{OfWorkload, "with findings that come without their actions too"}, {Inconclusive, "inconclusive"},
		{Failed, "could not be run"},
	} {
		if n := len(r.With(kind.status)); n > 0 {
			text += fmt.Sprintf("%s%d %s", sep, n, kind.what)
			sep = ", "
		}
	}
	if n := len(r.Pending()); n > 0 {
		text += fmt.Sprintf("; %d to confirm", n)
	}
	if len(r.NotRun) > 0 {
		text += fmt.Sprintf("; %d not run", len(r.NotRun))
	}
	return text
}

// Markdown writes the summary for a page, such as that of a CI job.
func (r *Result) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "## trommel test: %s\n\n", report.EscapeMarkdown(filepath.ToSlash(r.SuiteFile)))
	fmt.Fprintln(&b, r.counts())
	for _, kind := range []struct {
		title    string
		outcomes []Outcome
	}{
		{"Bugs", r.With(Bug)}, {"Not confirmed: the budget ended", r.Pending()}, {"Not confirmed", r.unconfirmed()},
		{"F" + withoutActions[1:], r.without(withoutActions)}, {"F" + atRest[1:], r.without(atRest)},
	} {
		groups := Groups(kind.outcomes)
		if len(groups) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n### %s\n", kind.title)
		for i, g := range groups {
			first := &g.Plans[0]
			fmt.Fprintf(&b, "\n%d. **%s**\n\n", i+1, report.EscapeMarkdown(g.title()))
			for _, line := range besides(g) {
				fmt.Fprintf(&b, "   - %s\n", report.EscapeMarkdown(line))
			}
			for _, line := range append(g.led(), g.gone()) {
				if line != "" {
					fmt.Fprintf(&b, "   - %s\n", report.EscapeMarkdown(line))
				}
			}
			if len(first.Findings) > 1 || g.lead() != nil || g.gone() != "" {
				fmt.Fprintln(&b)
			}
			fmt.Fprintf(&b, "   %s %s", report.EscapeMarkdown(first.Plan), report.EscapeMarkdown(first.Rate()))
			if first.Why != "" {
				fmt.Fprintf(&b, ": %s", report.EscapeMarkdown(first.Why))
			}
			fmt.Fprintf(&b, "\n\n   ```\n   %s\n   ```\n", r.Show(first))
			if first.Reason != "" && first.Like == "" {
				fmt.Fprintf(&b, "\n   %s\n", report.EscapeMarkdown(wording.FirstLine(first.Reason)))
			}
			if also := others(g); also != "" {
				fmt.Fprintf(&b, "\n   Also: %s\n", report.EscapeMarkdown(also))
			}
		}
	}
	for _, kind := range []struct {
		title  string
		status Status
	}{{"Inconclusive", Inconclusive}, {"Could not be run", Failed}} {
		all := r.With(kind.status)
		if len(all) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n<details><summary>%s: %s</summary>\n\n", kind.title, wording.Count(len(all), "plan"))
		for _, o := range all {
			fmt.Fprintf(&b, "- %s: %s\n", report.EscapeMarkdown(o.Plan), report.EscapeMarkdown(shown(o.Reason)))
		}
		fmt.Fprint(&b, "\n</details>\n")
	}
	if len(r.NotRun) > 0 {
		fmt.Fprintf(&b, "\n### Not run\n\n%s\n\n", report.EscapeMarkdown(r.notRun()))
		for _, u := range r.Next {
			fmt.Fprintf(&b, "- %s\n", report.EscapeMarkdown(u.String()))
		}
	}
	if r.GoOn != "" {
		fmt.Fprintf(&b, "\nTo go on:\n\n```\n%s\n```\n", r.GoOn)
	}
	if lines := r.notTested(); len(lines) > 0 {
		fmt.Fprint(&b, "\n<details><summary>Not tested</summary>\n\n")
		for _, line := range lines {
			fmt.Fprintf(&b, "- %s\n", report.EscapeMarkdown(line))
		}
		fmt.Fprint(&b, "\n</details>\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// JSON writes the result for programs. docs/test.md describes it.
func (r *Result) JSON(w io.Writer) error {
	type plans struct {
		Harm    record.Harm    `json:"harm"`
		Cause   string         `json:"cause,omitempty"`
		Finding record.Finding `json:"finding"`
		Lead    *lead.Lead     `json:"lead,omitempty"`
		Came    int            `json:"came"`
		Of      int            `json:"of"`
		Plans   []string       `json:"plans"`
		Show    string         `json:"show"`
	}
	bugs := []plans{}
	for _, g := range Groups(r.With(Bug)) {
		first := &g.Plans[0]
		p := plans{
			Harm: g.Finding.Does(), Cause: first.Cause, Finding: g.Finding, Lead: g.lead(),
			Came: first.Came, Of: first.Of,
			Show: r.Show(first),
		}
		for _, o := range g.Plans {
			p.Plans = append(p.Plans, o.Plan)
		}
		bugs = append(bugs, p)
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(struct {
		*Result
		Bugs []plans `json:"bugs"`
	}{r, bugs})
}
