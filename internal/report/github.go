package report

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/trommel-dev/trommel/record"
)

// Annotation is a message at a place in a file, which GitHub shows beside the file.
type Annotation struct {
	Warning bool   // otherwise an error
	File    string // relative to the repository; empty: none
	Line    int    // from 1; 0: none
	Column  int    // from 1; 0: none
	Title   string
	Message string
}

// GitHub writes annotations as workflow commands. Their files are made relative to the repository's directory if they
// are in it.
func GitHub(w io.Writer, repository string, all []Annotation) error {
	var b strings.Builder
	for _, a := range all {
		level := "error"
		if a.Warning {
			level = "warning"
		}
		var properties []string
		add := func(name, value string) {
			if value != "" && value != "0" {
				properties = append(properties, name+"="+githubProperty.Replace(value))
			}
		}
		add("file", relative(repository, a.File))
		add("line", fmt.Sprint(a.Line))
		add("col", fmt.Sprint(a.Column))
		add("title", a.Title)
		fmt.Fprintf(&b, "::%s %s::%s\n", level, strings.Join(properties, ","), githubData.Replace(a.Message))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// The characters that end a workflow command or one of its properties.
var (
	githubData     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	githubProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// Annotations says of each run that did not pass what was found: at the line of the controller's source that wrote what
// is wrong, if it is known and the file is there. Otherwise it is at the action that it is about: for a bug the last
// one before it, for a plan that was not carried out the first one that did not fire. An inconclusive run is a warning.
// It reads the runs' plan files for the lines; a file that is not there any more has no lines.
func Annotations(runs []*record.Run) []Annotation {
	var all []Annotation
	for _, r := range runs {
		if r.Meta.Verdict == record.Pass || r.Meta.Verdict == record.NotRun {
			continue
		}
		a := Annotation{
			Warning: r.Meta.Verdict == record.Inconclusive, File: r.Meta.PlanFile,
			Title: Name(r) + ": " + string(Verdict(r)), Message: r.Meta.Reason,
		}
		if a.Message == "" {
			a.Message = "the run was killed"
		}
		if text := r.Meta.NotHappened(); text != "" {
			a.Message += "\n" + text
		}
		if r.Dir != "" {
			a.Message += "\nrun record: " + r.Dir
		}
		if lines := actionLines(r.Meta.PlanFile); lines != nil {
			a.Line = lines[min(actionOf(r), len(lines)-1)]
		}
		if file, line := sourceOf(r); file != "" {
			a.Message += "\nplan: " + a.File
			a.File, a.Line = file, line
		}
		all = append(all, a)
	}
	return all
}

// actionOf returns the index of the action that a run's verdict is about.
func actionOf(r *record.Run) int {
	if r.Meta.Verdict != record.Bug {
		for i := range r.Meta.ActionsTotal {
			if !slices.ContainsFunc(r.Actions, func(a record.Action) bool { return a.Index == i }) {
				return i
			}
		}
	}
	found := r.Meta.Ended
	for _, f := range r.Findings {
		if f.IsBug() && !f.Time.IsZero() {
			found = f.Time
			break
		}
	}
	before := slices.DeleteFunc(slices.Clone(r.Actions), func(a record.Action) bool { return a.At().After(found) })
	if len(before) == 0 {
		return 0
	}
	return slices.MaxFunc(before, func(a, b record.Action) int {
		return cmp.Or(a.At().Compare(b.At()), cmp.Compare(a.Index, b.Index))
	}).Index
}

// actionLines returns the lines of a plan's actions; nil if they are not known.
func actionLines(planFile string) []int {
	data, err := os.ReadFile(planFile)
	if err != nil {
		return nil
	}
	var plan struct {
		Actions []yaml.Node `yaml:"actions"`
	}
	if yaml.Unmarshal(data, &plan) != nil {
		return nil
	}
	var lines []int
	for _, a := range plan.Actions {
		lines = append(lines, a.Line)
	}
	return lines
}
