package bugs

//go:generate go test -run TestPage -update .

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// WritePage writes docs/bugs.md: what goes wrong, the command that shows it, and what the last run has shown.
func WritePage(w io.Writer, all []*Bug, results Results) error {
	var b strings.Builder
	shown := 0
	for _, bug := range all {
		if r := results[bug.Name]; r != nil && r.Shown > 0 {
			shown++
		}
	}
	fmt.Fprintf(&b, `# Known bugs, one command each

You can show each of these bugs in controllers by one command, in a clone of this repository:

%s
go run ./cmd/trommel bugs run NAME
%s

The command gets the source that has the bug, builds it, runs the plans in
[examples/bugs](../examples/bugs), and checks that they find what is expected. If a source without
the bug is known, the command checks that they do not find it there. %s
writes this page.

%d of %d are shown.
`, "```", "```", "`go generate ./internal/bugs`", shown, len(all))
	sorted := slices.SortedStableFunc(slices.Values(all), func(x, y *Bug) int {
		return cmp.Compare(strings.ToLower(x.Project), strings.ToLower(y.Project))
	})
	project := ""
	for _, bug := range sorted {
		if bug.Project != project {
			project = bug.Project
			fmt.Fprintf(&b, "\n## %s\n", project)
		}
		bug.describe(&b, results[bug.Name])
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// describe writes the part of the page about one bug.
func (b *Bug) describe(w io.Writer, r *Result) {
	fmt.Fprintf(w, "\n### %s\n\n%s\n\n", b.Name, wrap(b.Summary))
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "- **%s** %s\n", name, value)
		}
	}
	source := cmp.Or(b.Version, "see the suite")
	if b.Repository != "" {
		source = fmt.Sprintf("[%s](%s/tree/%s)", cmp.Or(b.Version, b.Commit[:12]), b.Repository, b.Commit)
	}
	row("Source:", source)
	row("Kind:", b.Kind)
	for i, report := range b.Reports {
		since := ""
		if i == 0 && b.Reported != "" {
			since = ", " + b.Reported
		}
		row("Report:", "<"+report+">"+since)
	}
	for _, cause := range b.Cause {
		row("Cause:", "`"+cause+"`")
	}
	switch {
	case b.Fixed != "":
		row("Fixed:", fmt.Sprintf("[%s](%s/commit/%s)", b.Fixed[:12], b.Repository, b.Fixed))
	case b.Fix != "":
		row("Fixed:", fmt.Sprintf("by [%s](../examples/bugs/%s/%s)", b.Fix, b.Name, b.Fix))
	}
	if r == nil {
		row("Result:", "not run yet")
		return
	}
	row("Result:", fmt.Sprintf("%s (%s, with builds: %s)", r, r.Date, r.Total.Round(time.Second)))
}

// wrap breaks text into lines of at most 100 characters.
func wrap(text string) string {
	var b strings.Builder
	length := 0
	for _, word := range strings.Fields(text) {
		switch {
		case length == 0:
		case length+1+len(word) > 100:
			b.WriteByte('\n')
			length = 0
		default:
			b.WriteByte(' ')
			length++
		}
		b.WriteString(word)
		length += len(word)
	}
	return b.String()
}

// WriteList writes a line for each bug, and what the last run has shown.
func WriteList(w io.Writer, all []*Bug, results Results) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tPROJECT\tKIND\tLAST RESULT")
	for _, b := range all {
		last := "not run yet"
		if r := results[b.Name]; r != nil {
			last = r.String()
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", b.Name, strings.TrimSpace(b.Project+" "+b.Version), b.Kind, last)
	}
	return t.Flush()
}
