package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/record"
)

// TimelineFile is the name in a run's record under which [JUnit] looks for its timeline.
const TimelineFile = "timeline.html"

// JUnitOptions adapt JUnit XML to its reader. The zero value is what the schemas of Jenkins' plugins allow.
type JUnitOptions struct {
	// GitLab is for GitLab, which takes a plan's file from its test case, where Jenkins' xUnit plugin allows none, and
	// attachments relative to the project's directory.
	GitLab bool
	// Dir is the project's directory; paths outside it stay absolute. Only for GitLab.
	Dir string
}

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Time     string       `xml:"time,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

// junitSuite is one plan. It has a suite of its own because the schemas allow the file only there.
type junitSuite struct {
	Name     string    `xml:"name,attr"`
	Tests    int       `xml:"tests,attr"`
	Failures int       `xml:"failures,attr"`
	Errors   int       `xml:"errors,attr"`
	Skipped  int       `xml:"skipped,attr"`
	Time     string    `xml:"time,attr"`
	Stamp    string    `xml:"timestamp,attr,omitempty"`
	File     string    `xml:"file,attr,omitempty"`
	Case     junitCase `xml:"testcase"`
}

type junitCase struct {
	Name      string      `xml:"name,attr"`
	Class     string      `xml:"classname,attr"`
	Time      string      `xml:"time,attr"`
	File      string      `xml:"file,attr,omitempty"`
	Skipped   *junitFault `xml:"skipped"`
	Failure   *junitFault `xml:"failure"`
	Error     *junitFault `xml:"error"`
	SystemOut string      `xml:"system-out,omitempty"`
}

type junitFault struct {
	Type    string `xml:"type,attr"`
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// JUnit writes runs as JUnit XML: a bug is a failure; a run that is inconclusive or could not be carried out is an
// error; a plan that was not begun is skipped. Runs that did not pass have the files of their records attached.
func JUnit(w io.Writer, runs []*record.Run, options JUnitOptions) error {
	var all junitSuites
	var total time.Duration
	for _, r := range runs {
		s, took := junitOf(r, options)
		all.Tests += s.Tests
		all.Failures += s.Failures
		all.Errors += s.Errors
		all.Suites = append(all.Suites, s)
		total += took
	}
	all.Time = seconds(total)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func junitOf(r *record.Run, options JUnitOptions) (s junitSuite, took time.Duration) {
	took = r.Meta.Took()
	file := filepath.ToSlash(r.Meta.PlanFile)
	s = junitSuite{
		Name: class(r), Tests: 1, Time: seconds(took), File: file,
		Case: junitCase{Name: Name(r), Class: class(r), Time: seconds(took), SystemOut: systemOut(r, options)},
	}
	if options.GitLab {
		s.Case.File = relative(options.Dir, r.Meta.PlanFile)
	}
	if began := r.Meta.Began(); !began.IsZero() {
		s.Stamp = began.UTC().Format("2006-01-02T15:04:05")
	}
	message := wording.FirstLine(r.Meta.Reason)
	fault := &junitFault{Type: string(Verdict(r)), Message: message, Text: junitText(r)}
	switch Verdict(r) {
	case record.Pass:
	case record.NotRun:
		s.Skipped, s.Case.Skipped = 1, fault
	case record.Bug:
		s.Failures, s.Case.Failure = 1, fault
	case Unfinished:
		fault.Message = "the run was killed"
		fallthrough
	default:
		s.Errors, s.Case.Error = 1, fault
	}
	return s, took
}

// junitText is the text of a failure or error.
func junitText(r *record.Run) string {
	var b strings.Builder
	for _, text := range []string{Reason(r), r.Meta.NotHappened()} {
		if text != "" {
			fmt.Fprintln(&b, text)
		}
	}
	for _, f := range ByHarm(r) {
		if f.Severity == record.SeverityNote {
			continue
		}
		fmt.Fprintf(&b, "%s: %s\n", f.Judge, f.Title)
		for _, text := range []string{Place(f), f.Detail} {
			if text != "" {
				fmt.Fprintf(&b, "  %s\n", indent(text, "  "))
			}
		}
	}
	return b.String()
}

// systemOut names the record, the notes and, for a run that did not pass, the attachments, in the form that GitLab and
// Jenkins' JUnit Attachments plugin know.
func systemOut(r *record.Run, options JUnitOptions) string {
	if r.Dir == "" {
		return ""
	}
	text := "run record: " + r.Dir
	for _, a := range r.Actions {
		if a.Note != "" {
			text += fmt.Sprintf("\nnote: %s %s", a, a.Note)
		}
	}
	if r.Meta.Verdict == record.Pass {
		return text
	}
	for _, file := range attachments(r) {
		path, err := filepath.Abs(file)
		if err != nil {
			path = file
		}
		if options.GitLab {
			path = relative(options.Dir, path)
		}
		text += "\n[[ATTACHMENT|" + filepath.ToSlash(path) + "]]"
	}
	return text
}

// attachments lists the files of a record that explain its findings. The timeline is the first: GitLab shows only one.
func attachments(r *record.Run) []string {
	var all []string
	for _, name := range []string{TimelineFile, record.PlanFile, record.FindingsFile} {
		all = append(all, filepath.Join(r.Dir, name))
	}
	for _, p := range r.Processes {
		if log := filepath.Join(r.Dir, filepath.FromSlash(p.LogFile)); !slices.Contains(all, log) {
			all = append(all, log)
		}
	}
	return slices.DeleteFunc(all, func(file string) bool {
		info, err := os.Stat(file)
		return err != nil || !info.Mode().IsRegular()
	})
}

// class names the suite of a run by its directory, as a class with its packages: examples.database-operator.
func class(r *record.Run) string {
	if r.Meta.Suite == "" {
		return "trommel"
	}
	dir, err := filepath.Abs(filepath.Dir(r.Meta.Suite))
	if err != nil {
		dir = filepath.Dir(r.Meta.Suite)
	}
	here, err := os.Getwd()
	if err == nil {
		if rel, err := filepath.Rel(here, dir); err == nil && rel != "." && filepath.IsLocal(rel) {
			return strings.ReplaceAll(filepath.ToSlash(rel), "/", ".")
		}
	}
	return filepath.Base(dir)
}

// relative returns a path relative to a directory, with slashes, or as it is if it is not below it. An empty directory
// is the current one.
func relative(dir, path string) string {
	if path == "" {
		return ""
	}
	root, err := filepath.Abs(dir)
	if err != nil {
		return filepath.ToSlash(path)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return filepath.ToSlash(path)
	}
	if rel, err := filepath.Rel(root, abs); err == nil && filepath.IsLocal(rel) {
		return filepath.ToSlash(rel)
	}
	return filepath.ToSlash(path)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }
