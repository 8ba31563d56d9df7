package records

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/internal/report"
	"github.com/trommel-dev/trommel/record"
)

// reports lists the formats in which run records can be shown.
var reports = map[string]func(io.Writer, []*record.Run) error{
	"text":     each(report.Text),
	"html":     each(WritePage),
	"json":     report.JSON,
	"junit":    func(w io.Writer, all []*record.Run) error { return report.JUnit(w, all, junitOptions()) },
	"markdown": report.Markdown,
}

func each(f func(io.Writer, *record.Run) error) func(io.Writer, []*record.Run) error {
	return func(w io.Writer, runs []*record.Run) error {
		for _, r := range runs {
			if err := f(w, r); err != nil {
				return err
			}
		}
		return nil
	}
}

// NewReportCommand returns `trommel report`.
func NewReportCommand(s output.Streams) *cobra.Command {
	var form, to string
	group := 1
	known := append(slices.Sorted(maps.Keys(reports)), issueForm)
	slices.Sort(known)
	forms := strings.Join(known, "|")
	c := &cobra.Command{
		Use:   "report DIR...",
		Short: "Show run records as text, Markdown, a page in HTML, JSON, JUnit XML or a page for a bug tracker",
		Long: `Report shows runs again, from their records. A directory that is not a record stands for all records
below it, such as those of a campaign. With -o html, one run is one page without references to other files: the
verdict, a timeline, the versions of objects at each place, the plan and the logs. Several runs need --to: a directory
that gets a page for each run and index.html, which groups what they have found.

With -o issue, a campaign's bug, or that of one run, becomes a page for a project's bug tracker: what happens, how it
comes about, with lines of source, how to show it, and what was ruled out. --group names the bug by its number in the
summary.`,
		Example: `  trommel report trommel-runs/stale-deletion-20260102-150405.000
  trommel report -o html trommel-runs/stale-deletion-20260102-150405.000 > stale-deletion.html
  trommel report -o html --to pages trommel-runs
  trommel report -o issue --group 2 trommel-runs/test-20260102-150405 > issue.md`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, dirs []string) error {
			if form == issueForm {
				return writeIssue(c.Context(), s, dirs, group)
			}
			show, ok := reports[form]
			if !ok {
				return exit.With(exit.Usage, fmt.Errorf("unknown format %q, want %s", form, forms))
			}
			if to != "" && form != "html" {
				return exit.With(exit.Usage, errors.New("--to is for -o html"))
			}
			records, err := In(dirs)
			if err != nil {
				return exit.With(exit.Usage, err)
			}
			if to != "" {
				return writePages(s, to, records)
			}
			if form == "html" && len(records) > 1 {
				return exit.With(exit.Usage, fmt.Errorf("these are %d runs, and each has a page of its own: "+
					"--to names the directory for the pages", len(records)))
			}
			var runs []*record.Run
			for _, dir := range records {
				r, err := record.Open(dir)
				if err != nil {
					return exit.With(exit.Usage, err)
				}
				runs = append(runs, r)
			}
			if err := show(s.Out, runs); err != nil {
				return exit.With(exit.CannotRun, err)
			}
			return nil
		},
	}
	c.Flags().StringVarP(&form, "output", "o", "text", forms)
	_ = c.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions(known, cobra.ShellCompDirectiveNoFileComp))
	c.Flags().StringVar(&to, "to", "",
		"with -o html: write a page for each run, and an index of them, to this `directory`")
	c.Flags().IntVar(&group, "group", 1, "with -o issue: the `number` of the bug in the campaign's summary")
	return c
}
