package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/record"
	"github.com/trommel-dev/trommel/report"
)

// reports lists the formats in which run records can be shown.
var reports = map[string]func(io.Writer, []*record.Run) error{
	"text":     each(report.Text),
	"html":     each(report.HTML),
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
