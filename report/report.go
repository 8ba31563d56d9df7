package report

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/record"
)

// name returns the plan's name with its variant, or the directory of a run that was killed before it recorded them.
func name(r *record.Run) string {
	if r.Meta.Plan == "" {
		return r.Dir
	}
	if r.Meta.Variant != "" {
		return r.Meta.Plan + " (" + r.Meta.Variant + ")"
	}
	return r.Meta.Plan
}

// Text writes a run's result: the verdict, the findings and the actions.
func Text(w io.Writer, r *record.Run) error {
	p := newPainter(w)
	var b strings.Builder
	verdict := r.Meta.Verdict
	if verdict == "" {
		verdict = "unfinished"
	}
	fmt.Fprintf(&b, "%s: %s\n", p.bold(name(r)), p.verdict(verdict))
	for _, text := range []string{reason(r), r.Meta.NotHappened()} {
		if text != "" {
			fmt.Fprintf(&b, "  %s\n", indent(text, "  "))
		}
	}
	details := map[string]string{} // of notes
	for _, f := range r.Findings {
		if f.Severity == record.SeverityNote {
			details[f.Title] = f.Detail
			continue
		}
		paint := p.red
		if !f.IsBug() {
			paint = p.yellow
		}
		fmt.Fprintf(&b, "  %s %s\n", paint(f.Oracle+":"), f.Title)
		if f.Detail != "" {
			fmt.Fprintf(&b, "      %s\n", p.dim(indent(shorten(f.Detail, 20), "      ")))
		}
	}
	for _, note := range r.Meta.Notes {
		fmt.Fprintf(&b, "  note: %s\n", note)
		if details[note] != "" {
			fmt.Fprintf(&b, "      %s\n", p.dim(indent(shorten(details[note], 20), "      ")))
		}
	}
	for _, stale := range r.Meta.StaleReads {
		fmt.Fprintf(&b, "  stale read: %s (%s)\n", stale, since(r, stale.Time))
	}
	for _, e := range r.Events {
		if o := e.Observation; o != nil && o.Failed != "" {
			fmt.Fprintf(&b, "  failed call: %s by %s; %s (%s)\n", describeObject(o), o.By, failed(o), since(r, e.Time))
		}
	}
	if len(r.Actions) > 0 {
		fmt.Fprintf(&b, "  actions carried out:\n")
	}
	for _, a := range r.Actions {
		fmt.Fprintf(&b, "    %s at %s, took %s%s", a, since(r, a.Fired), round(a.Done.Sub(a.Began)), firedBy(a))
		if a.Note != "" {
			fmt.Fprintf(&b, "\n      %s %s", p.yellow("note:"), indent(a.Note, "      "))
		}
		if a.Error != "" {
			fmt.Fprintf(&b, "\n      %s %s", p.red("failed:"), indent(a.Error, "      "))
		}
		b.WriteByte('\n')
	}
	var phases []string
	for _, ph := range r.Meta.Phases {
		phases = append(phases, fmt.Sprintf("%s %s", ph.Name, round(ph.Duration)))
	}
	if len(phases) > 0 {
		fmt.Fprintf(&b, "  took %s: %s\n", round(r.Meta.Ended.Sub(r.Meta.Started)), strings.Join(phases, ", "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// reason returns the verdict's reason, unless a finding, printed below it, says the same.
func reason(r *record.Run) string {
	for _, f := range r.Findings {
		if r.Meta.Reason == f.Title || strings.HasPrefix(r.Meta.Reason, f.Title+" (and ") {
			return ""
		}
	}
	return r.Meta.Reason
}

// firedBy says what fired an action, as the end of a sentence.
func firedBy(a record.Action) string {
	switch {
	case a.Cause != "":
		return ", fired by " + a.Cause
	case a.FiredBy > 0:
		return fmt.Sprintf(", fired by event %d", a.FiredBy)
	}
	return ""
}

// zero returns the moment from which the times in a report count: the workload's start or else the run's.
func zero(r *record.Run) time.Time {
	if r.Meta.WorkloadStart.IsZero() {
		return r.Meta.Started
	}
	return r.Meta.WorkloadStart
}

// since returns a moment relative to zero. It can be negative: an action that fires at once does so before the workload
// starts.
func since(r *record.Run, t time.Time) string { return signed(t.Sub(zero(r))) }

func signed(d time.Duration) string {
	if d = round(d); d < 0 {
		return d.String()
	}
	return "+" + d.String()
}

func round(d time.Duration) time.Duration {
	switch {
	case d.Abs() >= time.Second:
		return d.Round(10 * time.Millisecond)
	case d.Abs() >= time.Millisecond:
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}

func indent(text, by string) string { return strings.ReplaceAll(text, "\n", "\n"+by) }

// shorten keeps the first lines of a text.
func shorten(text string, lines int) string {
	all := strings.Split(text, "\n")
	if len(all) <= lines {
		return text
	}
	return strings.Join(all[:lines], "\n") +
		fmt.Sprintf("\n… %d more lines in %s", len(all)-lines, record.FindingsFile)
}

// summary is the JSON form of a run.
type summary struct {
	record.Meta
	Record   string           `json:"record"`
	Findings []record.Finding `json:"findings"`
	Actions  []record.Action  `json:"actions"`
	Events   int              `json:"events"`
	History  int              `json:"history"`
}

// JSON writes runs as a list with metadata, findings and actions. Of observations and history it contains only the
// counts.
func JSON(w io.Writer, runs []*record.Run) error {
	all := make([]summary, len(runs))
	for i, r := range runs {
		all[i] = summary{r.Meta, r.Dir, r.Findings, r.Actions, len(r.Events), len(r.History)}
		if all[i].Findings == nil {
			all[i].Findings = []record.Finding{}
		}
		if all[i].Actions == nil {
			all[i].Actions = []record.Action{}
		}
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(all)
}

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Time     string       `xml:"time,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Time     string      `xml:"time,attr"`
	Stamp    string      `xml:"timestamp,attr,omitempty"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name      string      `xml:"name,attr"`
	Class     string      `xml:"classname,attr"`
	Time      string      `xml:"time,attr"`
	Failure   *junitFault `xml:"failure"`
	Error     *junitFault `xml:"error"`
	SystemOut string      `xml:"system-out,omitempty"`
}

type junitFault struct {
	Type    string `xml:"type,attr"`
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// JUnit writes runs as JUnit XML, one test case for each run: a bug is a failure; an inconclusive run or one that could
// not be carried out is an error.
func JUnit(w io.Writer, runs []*record.Run) error {
	suite := junitSuite{Name: "trommel", Tests: len(runs)}
	var total time.Duration
	for i, r := range runs {
		if i == 0 {
			suite.Stamp = r.Meta.Started.UTC().Format("2006-01-02T15:04:05")
		}
		took := r.Meta.Ended.Sub(r.Meta.Started)
		if r.Meta.Ended.IsZero() {
			took = 0
		}
		total += took
		c := junitCase{Name: name(r), Class: "trommel", Time: seconds(took), SystemOut: "run record: " + r.Dir}
		var text strings.Builder
		for _, f := range r.Findings {
			if f.Severity == record.SeverityNote {
				continue
			}
			fmt.Fprintf(&text, "%s: %s\n", f.Oracle, f.Title)
			if f.Detail != "" {
				fmt.Fprintf(&text, "  %s\n", indent(f.Detail, "  "))
			}
		}
		for _, a := range r.Actions {
			if a.Note != "" {
				c.SystemOut += fmt.Sprintf("\nnote: %s %s", a, a.Note)
			}
		}
		message, _, _ := strings.Cut(r.Meta.Reason, "\n")
		var told string
		for _, t := range []string{reason(r), r.Meta.NotHappened()} {
			if t != "" {
				told += t + "\n"
			}
		}
		fault := &junitFault{Type: string(r.Meta.Verdict), Message: message, Text: told + text.String()}
		switch r.Meta.Verdict {
		case record.Pass:
		case record.Bug:
			suite.Failures++
			c.Failure = fault
		default:
			if fault.Type == "" {
				fault.Type, fault.Message = "unfinished", "the run was killed"
			}
			suite.Errors++
			c.Error = fault
		}
		suite.Cases = append(suite.Cases, c)
	}
	suite.Time = seconds(total)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	err := e.Encode(junitSuites{
		Tests: suite.Tests, Failures: suite.Failures, Errors: suite.Errors, Time: suite.Time,
		Suites: []junitSuite{suite},
	})
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, "\n")
	return err
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }
