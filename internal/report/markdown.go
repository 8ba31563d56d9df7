package report

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/trommel-dev/trommel/record"
)

// Limits of a summary in Markdown: CI systems drop pages that are too long.
const (
	markdownRuns  = 30 // with details
	markdownLines = 40 // of the detail of a finding
)

// Markdown writes a summary of runs for a page, such as that of a CI job: a table of all plans, and then what was found
// in those that did not pass.
func Markdown(w io.Writer, runs []*record.Run) error {
	var b strings.Builder
	fmt.Fprintf(&b, "## trommel: %s\n\n", Counts(runs))
	b.WriteString("| verdict | plan | suite | took |\n| --- | --- | --- | --- |\n")
	for _, r := range runs {
		took := ""
		if !r.Meta.Ended.IsZero() {
			took = Round(r.Meta.Took()).String()
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", Verdict(r), EscapeMarkdown(Name(r)),
			EscapeMarkdown(relative("", r.Meta.Suite)), took)
	}
	told := 0
	for _, r := range runs {
		if r.Meta.Verdict == record.Pass || r.Meta.Verdict == record.NotRun {
			continue
		}
		if told++; told > markdownRuns {
			b.WriteString("\nThe others are only in the table.\n")
			break
		}
		fmt.Fprintf(&b, "\n### %s: %s\n\n", EscapeMarkdown(Name(r)), Verdict(r))
		for _, text := range []string{Reason(r), r.Meta.NotHappened()} {
			if text != "" {
				code(&b, "", text)
			}
		}
		for _, f := range ByHarm(r) {
			if f.Severity == record.SeverityNote {
				continue
			}
			fmt.Fprintf(&b, "- **%s**\n", EscapeMarkdown(f.Judge+": "+f.Title))
			if at := Place(f); at != "" {
				fmt.Fprintf(&b, "  %s\n", EscapeMarkdown(at))
			}
			if f.Detail != "" {
				b.WriteString("  <details><summary>details</summary>\n\n")
				code(&b, "  ", f.Detail)
				b.WriteString("\n  </details>\n")
			}
		}
		if r.Dir != "" {
			fmt.Fprintf(&b, "\nRecord: `%s`\n", filepath.ToSlash(r.Dir))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// code writes a block that shows text as it is.
func code(b *strings.Builder, by, text string) {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	text = Shorten(strings.TrimRight(text, "\n"), markdownLines)
	fmt.Fprintf(b, "%s%s\n%s%s\n%s%s\n", by, fence, by, indent(text, by), by, fence)
}

// Counts says how many plans have which verdict: "2 plans: 1 bug, 1 pass".
func Counts(runs []*record.Run) string {
	n := map[record.Verdict]int{}
	for _, r := range runs {
		n[Verdict(r)]++
	}
	var parts []string
	for _, v := range []record.Verdict{
		record.Error, Unfinished, record.Bug, record.Inconclusive, record.NotRun, record.Pass,
	} {
		if n[v] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[v], v))
		}
	}
	plans := "plans"
	if len(runs) == 1 {
		plans = "plan"
	}
	return fmt.Sprintf("%d %s: %s", len(runs), plans, strings.Join(parts, ", "))
}

// markdown are the characters that mean something in a line of Markdown.
var markdown = strings.NewReplacer("\\", "\\\\", "*", "\\*", "_", "\\_", "`", "\\`", "[", "\\[", "]", "\\]",
	"<", "&lt;", ">", "&gt;", "&", "&amp;", "|", "\\|", "\n", " ")

// EscapeMarkdown returns the text for a line of Markdown that shows it as it is.
func EscapeMarkdown(text string) string { return markdown.Replace(text) }
