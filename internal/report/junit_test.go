package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/internal/testing/golden"
	"github.com/trommel-dev/trommel/record"
)

func junit(t *testing.T, runs []*record.Run, options JUnitOptions) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := JUnit(&b, runs, options); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestJUnit(t *testing.T) {
	golden.Compare(t, "testdata/runs.xml", junit(t, runs(), JUnitOptions{}))
}

// junitElement says what an element may contain.
type junitElement struct {
	required, optional []string // attributes
	children           []string
	text               bool
}

// junitRules are those of junit-10.xsd, by which Jenkins' xUnit plugin checks files, as far as there is something to
// check in them: https://github.com/jenkinsci/xunit-plugin. It refuses all other attributes and elements.
var junitRules = map[string]junitElement{
	"testsuites": {nil, []string{"name", "time", "tests", "failures", "errors"}, []string{"testsuite"}, false},
	"testsuite": {[]string{"name", "tests", "failures", "errors"}, []string{"group", "time", "skipped", "timestamp",
		"hostname", "id", "package", "file", "log", "url"},
		[]string{"testsuite", "properties", "testcase", "system-out", "system-err"}, false},
	"testcase": {[]string{"name"}, []string{"time", "classname", "group"}, []string{"skipped", "error", "failure",
		"rerunFailure", "rerunError", "flakyFailure", "flakyError", "system-out", "system-err"}, false},
	"failure":    {nil, []string{"type", "message"}, nil, true},
	"error":      {nil, []string{"type", "message"}, nil, true},
	"skipped":    {nil, []string{"type", "message"}, nil, true},
	"system-out": {nil, nil, nil, true},
	"system-err": {nil, nil, nil, true},
}

var junitTime = regexp.MustCompile(`^(([0-9]{0,3},)*[0-9]{3}|[0-9]{0,3})*(\.[0-9]*)?$`)

// checkJUnit returns what the rules do not allow.
func checkJUnit(data []byte, rules map[string]junitElement) error {
	var errs []error
	d := xml.NewDecoder(bytes.NewReader(data))
	var open []string
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return errors.Join(errs...)
		}
		if err != nil {
			return err
		}
		switch token := token.(type) {
		case xml.StartElement:
			name := token.Name.Local
			rule, ok := rules[name]
			if !ok || token.Name.Space != "" {
				errs = append(errs, fmt.Errorf("there is no element %s", name))
			}
			switch {
			case len(open) == 0 && name != "testsuites":
				errs = append(errs, fmt.Errorf("the root is %s", name))
			case len(open) > 0 && !slices.Contains(rules[open[len(open)-1]].children, name):
				errs = append(errs, fmt.Errorf("%s in %s", name, open[len(open)-1]))
			}
			has := map[string]bool{}
			for _, a := range token.Attr {
				has[a.Name.Local] = true
				if !slices.Contains(rule.required, a.Name.Local) && !slices.Contains(rule.optional, a.Name.Local) {
					errs = append(errs, fmt.Errorf("attribute %s of %s", a.Name.Local, name))
				}
				if a.Name.Local == "time" && name != "testcase" && !junitTime.MatchString(a.Value) {
					errs = append(errs, fmt.Errorf("time %q of %s", a.Value, name))
				}
			}
			for _, a := range rule.required {
				if !has[a] {
					errs = append(errs, fmt.Errorf("no attribute %s of %s", a, name))
				}
			}
			open = append(open, name)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			if len(open) > 0 && !rules[open[len(open)-1]].text && len(bytes.TrimSpace(token)) > 0 {
				errs = append(errs, fmt.Errorf("text in %s: %s", open[len(open)-1], token))
			}
		}
	}
}

// A suite's timestamp is when it ran on the machine, and not a date of the run's own clock.
func TestJUnitTimestampIsTheMachines(t *testing.T) {
	for _, clock := range []*record.Clock{nil, {Virtual: true}, {Virtual: true, Began: start.Add(-48 * time.Hour)}} {
		want := start
		if clock != nil && !clock.Began.IsZero() {
			want = clock.Began
		}
		run := &record.Run{Meta: record.Meta{Plan: "p", Started: start, Ended: at(time.Second), Clock: clock}}
		text := string(junit(t, []*record.Run{run}, JUnitOptions{}))
		if stamp := want.UTC().Format("2006-01-02T15:04:05"); !strings.Contains(text, `timestamp="`+stamp+`"`) {
			t.Errorf("%+v: no timestamp %s in\n%s", clock, stamp, text)
		}
	}
}

func TestJUnitIsWhatJenkinsAndGitLabRead(t *testing.T) {
	all := append(runs(), &record.Run{Meta: record.Meta{ // what is not allowed in XML
		Plan: "odd \x00 \xff ]]> name", Verdict: record.Error, Reason: "\x1b[31mred\x1b[0m\n<a>&",
		Started: start, Ended: at(1234567 * time.Millisecond),
	}})
	if err := checkJUnit(junit(t, all, JUnitOptions{}), junitRules); err != nil {
		t.Error(err)
	}
	// For GitLab there is one more attribute, which it documents.
	forGitLab := map[string]junitElement{}
	for name, rule := range junitRules {
		if name == "testcase" {
			rule.optional = append(slices.Clone(rule.optional), "file")
		}
		forGitLab[name] = rule
	}
	data := junit(t, all, JUnitOptions{GitLab: true})
	if err := checkJUnit(data, forGitLab); err != nil {
		t.Error(err)
	}
	want := `<testcase name="stale-deletion" classname="testdata" time="1.800" file="testdata/plans/`
	if !bytes.Contains(data, []byte(want)) {
		t.Errorf("no %s in\n%s", want, data)
	}
	// The check finds mistakes.
	for _, bad := range []string{
		`<testsuite name="a" tests="1" failures="0" errors="0"/>`, `<testsuites><testcase name="a"/></testsuites>`,
		`<testsuites><testsuite/></testsuites>`, `<testsuites disabled="1"/>`, `<testsuites time="1.5s"/>`,
		`<testsuites>text</testsuites>`, `<testsuites><suite/></testsuites>`, `<testsuites>`,
		string(data),
	} {
		if checkJUnit([]byte(bad), junitRules) == nil {
			t.Errorf("no mistake found in %.80s", bad)
		}
	}
}

func TestJUnitCountsWhatItContains(t *testing.T) {
	var all junitSuites
	if err := xml.Unmarshal(junit(t, runs(), JUnitOptions{}), &all); err != nil {
		t.Fatal(err)
	}
	var tests, failures, errs, skipped int
	for _, s := range all.Suites {
		tests++
		for _, f := range []struct {
			n     *int
			of    int
			fault *junitFault
		}{
			{&failures, s.Failures, s.Case.Failure}, {&errs, s.Errors, s.Case.Error},
			{&skipped, s.Skipped, s.Case.Skipped},
		} {
			*f.n += f.of
			if (f.fault != nil) != (f.of == 1) {
				t.Errorf("%s: %d faults, but %v", s.Case.Name, f.of, f.fault)
			}
		}
	}
	if all.Tests != tests || all.Failures != failures || all.Errors != errs || tests != len(runs()) || skipped != 1 {
		t.Errorf("%d tests, %d failures, %d errors; counted %d, %d, %d and %d skipped", all.Tests, all.Failures,
			all.Errors, tests, failures, errs, skipped)
	}
}

func TestAttachments(t *testing.T) {
	project := t.TempDir()
	dir := filepath.Join(project, "runs", "a")
	if err := os.MkdirAll(filepath.Join(dir, record.LogsDir), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{TimelineFile, record.PlanFile, "logs/db.log"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r := &record.Run{
		Dir: dir, Meta: record.Meta{Plan: "a", Verdict: record.Bug},
		Processes: []record.Process{{LogFile: "logs/db.log"}, {LogFile: "logs/db.log"}, {LogFile: "logs/gone.log"}},
	}
	for _, tt := range []struct {
		name    string
		options JUnitOptions
		want    []string
	}{
		{"Jenkins", JUnitOptions{}, []string{dir + "/timeline.html", dir + "/plan.yaml", dir + "/logs/db.log"}},
		{"GitLab", JUnitOptions{GitLab: true, Dir: project},
			[]string{"runs/a/timeline.html", "runs/a/plan.yaml", "runs/a/logs/db.log"}},
		{"GitLab, outside the project", JUnitOptions{GitLab: true, Dir: t.TempDir()},
			[]string{dir + "/timeline.html", dir + "/plan.yaml", dir + "/logs/db.log"}},
	} {
		var got []string
		for _, m := range regexp.MustCompile(`\[\[ATTACHMENT\|(.+?)\]\]`).FindAllStringSubmatch(
			string(junit(t, []*record.Run{r}, tt.options)), -1) {
			got = append(got, m[1])
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	r.Meta.Verdict = record.Pass
	if got := junit(t, []*record.Run{r}, JUnitOptions{}); bytes.Contains(got, []byte("ATTACHMENT")) {
		t.Errorf("a run that passed has attachments: %s", got)
	}
}

func TestClass(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for suite, want := range map[string]string{
		"": "trommel", "trommel.yaml": "report", "testdata/trommel.yaml": "testdata",
		filepath.Join(here, "a", "b-operator", "trommel.yaml"): "a.b-operator", "../plan/trommel.yaml": "plan",
	} {
		if got := class(&record.Run{Meta: record.Meta{Suite: suite}}); got != want {
			t.Errorf("%q: %q, want %q", suite, got, want)
		}
	}
}

func TestMarkdown(t *testing.T) {
	var b bytes.Buffer
	all := runs()
	all[0].Findings[0].Detail = strings.Repeat("a line\n", markdownLines) + "```\nwithin a block"
	if err := Markdown(&b, all); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/runs.md", b.Bytes())
	b.Reset()
	var many []*record.Run
	for range 500 {
		many = append(many, all[0])
	}
	if err := Markdown(&b, many); err != nil {
		t.Fatal(err)
	}
	if b.Len() > 1<<20 {
		t.Errorf("%d bytes, GitHub takes 1 MiB", b.Len())
	}
}

func TestAnnotations(t *testing.T) {
	var b bytes.Buffer
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	all := append(Annotations(runs()), Annotation{
		File: filepath.Join(here, "testdata", "a,b:c.yaml"), Line: 3, Column: 7, Title: "100%", Message: "a: b, c\n50%",
	})
	if err := GitHub(&b, filepath.Dir(here), all); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/annotations.txt", b.Bytes())
}

func TestActionThatAVerdictIsAbout(t *testing.T) {
	actions := []record.Action{{Index: 1, Fired: at(1)}, {Index: 0, Fired: at(2)}, {Index: 2, Fired: at(9)}}
	for _, tt := range []struct {
		name    string
		verdict record.Verdict
		total   int
		actions []record.Action
		found   time.Time
		want    int
	}{
		{"the last action before the finding", record.Bug, 3, actions, at(5), 0},
		{"a finding at the end", record.Bug, 3, actions, time.Time{}, 2},
		{"a finding before all actions", record.Bug, 3, actions, at(0), 0},
		{"the first action that did not fire", record.Inconclusive, 4, actions, at(5), 3},
		{"all fired", record.Inconclusive, 3, actions, time.Time{}, 2},
		{"no action", record.Bug, 0, nil, at(5), 0},
	} {
		r := &record.Run{
			Meta:     record.Meta{Verdict: tt.verdict, ActionsTotal: tt.total, Ended: at(20)},
			Actions:  tt.actions,
			Findings: []record.Finding{{Severity: record.SeverityBug, Time: tt.found}},
		}
		if got := actionOf(r); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}
