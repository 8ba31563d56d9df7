package bugs

//go:generate go test -run TestPage -update .

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// WritePage writes docs/bugs.md: what goes wrong, the command that shows it, and what the last run has shown.
func WritePage(w io.Writer, all []*Bug, results Results, missing []Missing) error {
	var b strings.Builder
	shown, known, near := 0, 0, 0
	for _, bug := range all {
		r := results[bug.Name]
		if r == nil || r.Shown == 0 {
			continue
		}
		shown++
		if len(bug.Cause) > 0 {
			known++
		}
		if r.Named != nil && r.Named.Off >= 0 && r.Named.Off <= Near {
			near++
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

%d of %d are shown. For %d of them the line of source that causes the bug is known. The reports of
%d name a line that is at most %d lines away from it.
`, "```", "```", "`go generate ./internal/bugs`", shown, len(all), known, near, Near)
	fmt.Fprint(&b, "\n<!-- begin table -->\n\n"+
		"| bug | what goes wrong | source | kind | reports | cause | line that is named | last result |\n"+
		"| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, bug := range slices.SortedStableFunc(slices.Values(all), func(x, y *Bug) int {
		return cmp.Compare(strings.ToLower(x.Project), strings.ToLower(y.Project))
	}) {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(bug.cells(results[bug.Name]), " | "))
	}
	fmt.Fprint(&b, "\n<!-- end table -->\n")
	if len(missing) > 0 {
		fmt.Fprint(&b, "\n## Not shown\n\nThese reports were tried, or read, and no plan shows them yet:\n"+
			"\n<!-- begin table -->\n\n| report | why it is not shown |\n| --- | --- |\n")
		for _, m := range missing {
			fmt.Fprintf(&b, "| %s [%s](%s) | %s |\n", m.Project, nameOf(m.Report), m.Report,
				strings.ReplaceAll(m.Why, "|", `\|`))
		}
		fmt.Fprint(&b, "\n<!-- end table -->\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// cells is the row of a bug.
func (b *Bug) cells(r *Result) []string {
	source := strings.TrimSpace(b.Project + " " + b.Version)
	if b.Repository != "" {
		source = fmt.Sprintf("[%s](%s/tree/%s)", source, b.Repository, b.Commit)
	}
	var reports, causes []string
	for i, report := range b.Reports {
		link := fmt.Sprintf("[%s](%s)", nameOf(report), report)
		if i == 0 && b.Reported != "" {
			link += " (" + b.Reported + ")"
		}
		reports = append(reports, link)
	}
	for _, cause := range b.Cause {
		causes = append(causes, "`"+cause+"`")
	}
	last, named := r.String(), ""
	if r != nil {
		if r.Named != nil {
			named = "`" + r.Named.Line + "`" + strings.TrimPrefix(r.Named.String(), r.Named.Line)
		}
		if _, err := os.Stat(filepath.Join(b.Dir, ReportFile)); err == nil {
			last = fmt.Sprintf("[%s](../examples/bugs/%s/%s)", last, b.Name, ReportFile)
		}
		last += fmt.Sprintf(" (%s; with builds %s)", r.Date, r.Total.Round(time.Second))
	}
	switch {
	case b.Fixed != "":
		last += fmt.Sprintf("; [the fix](%s/commit/%s)", b.Repository, b.Fixed)
	case b.Fix != "":
		last += fmt.Sprintf("; [a fix](../examples/bugs/%s/%s)", b.Name, b.Fix)
	}
	all := []string{
		fmt.Sprintf("[%s](../examples/bugs/%s)", b.Name, b.Name), b.Summary, source, b.Kind,
		strings.Join(reports, ", "), strings.Join(causes, ", "), named, last,
	}
	for i := range all {
		all[i] = strings.ReplaceAll(all[i], "|", `\|`)
	}
	return all
}

// nameOf is what people call a report: #12, or what its URL ends with.
func nameOf(report string) string {
	name := report[strings.LastIndexByte(report, '/')+1:]
	if strings.Trim(name, "0123456789") == "" {
		return "#" + name
	}
	return name
}

// WriteList writes a line for each bug, and what the last run has shown.
func WriteList(w io.Writer, all []*Bug, results Results) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tPROJECT\tKIND\tLAST RESULT")
	for _, b := range all {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", b.Name, strings.TrimSpace(b.Project+" "+b.Version), b.Kind, results[b.Name])
	}
	return t.Flush()
}
