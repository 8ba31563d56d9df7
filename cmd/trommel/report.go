package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/coordinator"
	"github.com/trommel-dev/trommel/record"
	"github.com/trommel-dev/trommel/report"
)

// reports lists the formats in which run records can be shown.
var reports = map[string]func(io.Writer, []*record.Run) error{
	"text":     each(report.Text),
	"html":     each(writePage),
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

// writePage writes a run as a page. What was held and how far triggers came is told by a replay; a record that does not
// replay, because it is truncated or another version of Trommel wrote it, has a page without that.
func writePage(w io.Writer, r *record.Run) error {
	p, err := recordedPlan(r)
	if err != nil {
		return report.HTML(w, r, nil, nil)
	}
	fires, _, err := coordinator.Replay(p, r.Meta.Controllers, r.Events)
	if err != nil || coordinator.CompareReplay(fires, r.Actions) != nil {
		return report.HTML(w, r, p, nil)
	}
	account, err := coordinator.Account(p, r.Meta.Controllers, r.Events)
	if err != nil {
		return err
	}
	return report.HTML(w, r, p, account)
}

func newReportCommand(s streams) *cobra.Command {
	var form string
	forms := strings.Join(slices.Sorted(maps.Keys(reports)), "|")
	c := &cobra.Command{
		Use:   "report DIR...",
		Short: "Show run records as text, Markdown, a timeline in HTML, JSON or JUnit XML",
		Example: `  trommel report trommel-runs/stale-deletion-20260102-150405.000
  trommel report -o html trommel-runs/stale-deletion-20260102-150405.000 > timeline.html`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, dirs []string) error {
			show, ok := reports[form]
			if !ok {
				return &exitError{exitUsage, fmt.Errorf("unknown format %q, want %s", form, forms)}
			}
			if form == "html" && len(dirs) > 1 {
				return &exitError{exitUsage, fmt.Errorf("html shows one run at a time")}
			}
			var runs []*record.Run
			for _, dir := range dirs {
				r, err := record.Open(dir)
				if err != nil {
					return &exitError{exitUsage, err}
				}
				runs = append(runs, r)
			}
			if err := show(s.out, runs); err != nil {
				return &exitError{exitCannotRun, err}
			}
			return nil
		},
	}
	c.Flags().StringVarP(&form, "output", "o", "text", forms)
	return c
}
