package records

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/internal/report"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Outputs are the flags for the files that a command writes beside its result on stdout, for programs and CI systems.
type Outputs struct {
	junit    string
	json     string
	markdown string
	github   bool
}

// Register adds the flags to a command.
func (o *Outputs) Register(f *pflag.FlagSet) {
	f.StringVar(&o.junit, "junit", "", "write the verdicts of all plans to this `file` as JUnit XML")
	f.StringVar(&o.json, "json", "", "write the result to this `file` as JSON")
	f.StringVar(&o.markdown, "markdown", "", "append a summary to this `file` as Markdown")
	f.BoolVar(&o.github, "github", os.Getenv("GITHUB_ACTIONS") == "true",
		"write annotations for GitHub to stdout, and the summary to $GITHUB_STEP_SUMMARY (default: in GitHub Actions)")
}

// OutputFlagNames are the names of the flags.
var OutputFlagNames = []string{"junit", "json", "markdown", "github"}

// Contents are what a command writes.
type Contents struct {
	JSON        func(io.Writer) error
	Markdown    func(io.Writer) error
	Runs        []*record.Run // all plans that were asked for
	Annotations []report.Annotation
}

// Prepare makes the directories of the files and checks that the files can be written, before anything else is done. It
// removes the results of an earlier command, so that they are not taken for this one's if this one is killed.
func (o *Outputs) Prepare() error {
	for _, out := range []struct {
		flag, file string
		keep       bool
	}{{"--junit", o.junit, false}, {"--json", o.json, false}, {"--markdown", o.markdown, true}} {
		if out.file == "" {
			continue
		}
		if err := output.MakeWritable(out.file, out.keep); err != nil {
			return fmt.Errorf("%s: %w", out.flag, err)
		}
	}
	return nil
}

// Write writes all that was asked for, even if one of the files cannot be written.
func (o *Outputs) Write(s output.Streams, c Contents) error {
	var errs []error
	file := func(name string, flags int, write func(io.Writer) error) {
		if name != "" {
			errs = append(errs, writeFile(name, flags, write))
		}
	}
	file(o.json, os.O_TRUNC, c.JSON)
	file(o.markdown, os.O_APPEND, c.Markdown)
	if summary := os.Getenv("GITHUB_STEP_SUMMARY"); o.github && summary != o.markdown {
		file(summary, os.O_APPEND, c.Markdown)
	}
	if o.junit != "" {
		for _, r := range c.Runs {
			errs = append(errs, attachTimeline(r))
		}
		file(o.junit, os.O_TRUNC, func(w io.Writer) error { return report.JUnit(w, c.Runs, junitOptions()) })
	}
	if o.github {
		errs = append(errs, report.GitHub(s.Out, os.Getenv("GITHUB_WORKSPACE"), c.Annotations))
	}
	return errors.Join(errs...)
}

// junitOptions adapts JUnit XML to the CI system that this runs in.
func junitOptions() report.JUnitOptions {
	return report.JUnitOptions{GitLab: os.Getenv("GITLAB_CI") == "true", Dir: os.Getenv("CI_PROJECT_DIR")}
}

// attachTimeline writes the timeline of a run that did not pass into its record, where JUnit XML refers to it.
func attachTimeline(r *record.Run) error {
	if r.Dir == "" || r.Meta.Verdict == record.Pass {
		return nil
	}
	return writeFile(filepath.Join(r.Dir, report.TimelineFile), os.O_TRUNC,
		func(w io.Writer) error { return WritePage(w, r) })
}

func writeFile(file string, flags int, write func(io.Writer) error) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|flags, record.FileMode)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		_ = f.Close()
		return fmt.Errorf("write %s: %w", file, err)
	}
	return f.Close()
}

// Mistakes are the annotations of a user's mistakes: those in plans and suites are at their places.
func Mistakes(err error, file string) []report.Annotation {
	var all []report.Annotation
	var walk func(error)
	walk = func(err error) {
		switch e := err.(type) { //nolint:errorlint // it unwraps them itself
		case *plan.Error:
			all = append(all, report.Annotation{File: cmp.Or(e.File, file), Line: e.Line, Column: e.Col,
				Title: "Trommel", Message: e.Message})
		case interface{ Unwrap() []error }:
			for _, each := range e.Unwrap() {
				walk(each)
			}
		default:
			if placed := new(plan.Error); errors.As(err, &placed) {
				walk(errors.Unwrap(err))
				return
			}
			all = append(all, report.Annotation{File: file, Title: "Trommel", Message: err.Error()})
		}
	}
	walk(err)
	return all
}
