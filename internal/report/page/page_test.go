package page

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/baseline/findings"
	"github.com/trommel-dev/trommel/internal/report"
	"github.com/trommel-dev/trommel/internal/report/reporttest"
	"github.com/trommel-dev/trommel/internal/testing/golden"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

var (
	start = reporttest.Start
	at    = reporttest.At
	runs  = reporttest.Runs
)

// page writes a run as a page, without its plan.
func page(w io.Writer, r *record.Run) error { return HTML(w, r, nil, nil) }

// data returns what the scripts of a page draw.
func data(t *testing.T, r *record.Run, p *plan.Plan, a *record.Account) pageData {
	t.Helper()
	b := newPage(r, p, a)
	return b.data
}

func TestHTML(t *testing.T) {
	r := runs()[0]
	r.Meta.Steps = []record.Step{{Text: "step 1: create it", Started: at(5 * time.Second)},
		{Text: "it is ready: wait", Started: at(6 * time.Second)}}
	account := &record.Account{
		Holds: []record.Hold{
			{Event: 1, From: at(7 * time.Second), To: at(8 * time.Second), End: record.HoldReleased},
			{Event: 4, Paused: true, From: at(11 * time.Second), End: record.HoldOver},
		},
		Effects: []record.LastingEffect{{By: "apiserver-3", From: at(7 * time.Second), To: at(15 * time.Second)}},
	}
	text, err := json.MarshalIndent(data(t, r, reporttest.Plan(t), account), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/page.json", append(text, '\n'))
	for _, r := range runs() {
		if err := page(io.Discard, r); err != nil {
			t.Error(err)
		}
	}
}

// How long a run took is real time; what it lasted is of its own clock.
func TestTook(t *testing.T) {
	r := runs()[0]
	for name, show := range map[string]func(io.Writer, *record.Run) error{"text": report.Text, "HTML": page} {
		var b bytes.Buffer
		if err := show(&b, r); err != nil {
			t.Fatal(err)
		}
		if want := "took 1.8s (20s of its own time)"; !strings.Contains(b.String(), want) {
			t.Errorf("%s: no %q in\n%.2000s", name, want, b.String())
		}
	}
}

func TestWhyTimeWasReal(t *testing.T) {
	r := runs()[0]
	r.Meta.Clock, r.Meta.RealTime = nil, "the suite says so"
	for name, show := range map[string]func(io.Writer, *record.Run) error{"text": report.Text, "HTML": page} {
		var b bytes.Buffer
		if err := show(&b, r); err != nil {
			t.Fatal(err)
		}
		if want := "took 20s (in real time: the suite says so)"; !strings.Contains(b.String(), want) {
			t.Errorf("%s: no %q in\n%.2000s", name, want, b.String())
		}
	}
}

// Neither the logs of a run nor its objects can end the script that holds them.
func TestDataStaysInItsElement(t *testing.T) {
	const bad = "</script><script>alert(1)</script>"
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, record.LogsDir), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, record.LogsDir, "db.log"), []byte(bad+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := runs()[0]
	r.Dir = dir
	r.Meta.Plan, r.Meta.Reason, r.Findings[0].Title, r.Findings[0].Detail = bad, bad, bad, bad
	r.Actions[1].Error, r.Actions[1].Cause = bad, bad
	r.History[1].Object = json.RawMessage(`{"metadata":{"name":"` + bad + `"}}`)
	r.Events[3].Observation.Name, r.Events[3].Observation.Object = bad, r.History[1].Object
	p := reporttest.Plan(t)
	p.Description = bad
	var clean, b bytes.Buffer
	if err := HTML(&clean, runs()[0], reporttest.Plan(t), nil); err != nil {
		t.Fatal(err)
	}
	if err := HTML(&b, r, p, nil); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "<script>alert") || strings.Contains(b.String(), "</script><script>") {
		t.Error("the page holds a script of the record")
	}
	// One more block: the log.
	if got, want := strings.Count(b.String(), "<script"), strings.Count(clean.String(), "<script")+1; got != want {
		t.Errorf("%d scripts, want %d", got, want)
	}
	if got, want := strings.Count(b.String(), "</script"), strings.Count(b.String(), "<script"); got != want {
		t.Errorf("%d ends of %d scripts", got, want)
	}
}

func TestLogTimes(t *testing.T) {
	// The machine that logged was two hours ahead.
	lines := map[string]time.Duration{
		`I0102 05:04:06.250000   24100 stateful_set.go:554] "StatefulSet has been deleted"`: 1250 * time.Millisecond,
		"2026/01/02 05:04:07 listening":                              2 * time.Second,
		"2026-01-02T03:04:08Z\tINFO\tdatabase\tCreating the Service": 3 * time.Second,
		"2026-01-02T05:04:08.5+0200 ERROR no":                        3500 * time.Millisecond,
		`{"level":"info","ts":"2026-01-02T03:04:09.000Z","msg":"a"}`: 4 * time.Second,
		`{"level":"info","ts":1767323050.5,"msg":"a"}`:               5500 * time.Millisecond,
		`time=2026-01-02T03:04:11.000Z level=INFO msg="it is"`:       6 * time.Second,
		"panic: no time":                    0,
		"goroutine 1 [running]: 2026 times": 0,
	}
	b := newPage(&record.Run{Meta: record.Meta{Started: start, WorkloadStart: start}}, nil, nil)
	for line, want := range lines {
		if got := b.parseLog([]byte(line + "\n")); got.Times[0] != float64(want.Milliseconds()) {
			t.Errorf("%s: %v ms, want %s", line, got.Times[0], want)
		}
	}
	c := b.parseLog([]byte("I0102 05:04:06.250000 1 a.go:1] a\n  at b\n" +
		"I0102 05:34:06.250000 1 a.go:1] half an hour later\n"))
	if want := []float64{1250, 1250, 1250 + 30*60*1000}; !slices.Equal(c.Times, want) {
		t.Errorf("%v, want %v", c.Times, want)
	}
}

// The lines of an object's versions: etcd has three, the API server is behind while it holds one back, a reconcile
// reads the older one.
func TestVersions(t *testing.T) {
	object := func(version string) json.RawMessage {
		return json.RawMessage(`{"metadata":{"name":"db","namespace":"default","resourceVersion":"` + version + `"}}`)
	}
	see := func(seq int, after time.Duration, by string, point wire.Point, phase wire.Phase, op wire.Operation,
		version string) record.Event {
		o := &record.Observation{By: by, Session: uint64(len(by)), Call: uint64(seq), Point: point, Phase: phase,
			Op: op, Kind: "database", Namespace: "default", Name: "db"}
		if version != "" {
			o.Object = object(version)
		} else {
			o.Error, o.Code = "not found", 404
		}
		if point == wire.ControllerRead {
			o.ReconcileID = "1"
		}
		return record.Event{Seq: seq, Time: at(after), Observation: o}
	}
	past := func(after time.Duration, event string, version uint64) record.HistoryEntry {
		return record.HistoryEntry{Time: at(after), Event: event, ResourceVersion: version, Type: "database",
			Namespace: "default", Name: "db", Object: object("1")}
	}
	const second = time.Second
	r := &record.Run{
		Meta: record.Meta{Started: start, WorkloadStart: start,
			Controllers: []record.Controller{{Name: "op", APIServer: "apiserver-2"}}},
		History: []record.HistoryEntry{past(second, record.Created, 10), past(2*second, record.Updated, 20),
			past(3*second, record.Deleted, 30)},
		Events: []record.Event{
			see(1, second, "apiserver-1", wire.APIServerRecv, wire.After, wire.Create, "10"),
			see(2, second, "op", wire.ControllerRecv, wire.After, wire.Create, "10"),
			see(3, 2*second, "apiserver-1", wire.APIServerRecv, wire.Before, wire.Update, "20"),
			see(4, 3*second, "op", wire.ControllerRead, wire.After, wire.Get, "10"),
			see(5, 4*second, "op", wire.ControllerRead, wire.After, wire.Get, ""),
			{Seq: 6, Time: at(5 * second), Observation: &record.Observation{By: "op", Session: 2, Call: 6,
				Point: wire.Reconcile, Phase: wire.After, ReconcileID: "1", Request: "default/db"}},
			{Seq: 7, Time: at(6 * second), SessionEnd: &record.SessionEnd{By: "op", Session: 2}},
		},
	}
	got := data(t, r, nil, &record.Account{Holds: []record.Hold{{Event: 3, From: at(2 * second), To: at(5 * second)}}})
	if len(got.Series) != 1 || got.Focus != got.Series[0].Object {
		t.Fatalf("%d series, focus %d", len(got.Series), got.Focus)
	}
	want := []versionLine{
		{Name: "etcd", Kind: placeEtcd, Points: []versionPoint{{1000, 0}, {2000, 1}, {3000, 2}}},
		{Name: "apiserver-1", Kind: placeServer, Points: []versionPoint{{1000, 0}, {5000, 1}}, Behind: 3000},
		{Name: "apiserver-2", Kind: placeServer, Derived: true, Points: []versionPoint{{1000, 0}, {6000, unknown}},
			Behind: 4000},
		{Name: "op: its cache", Kind: placeCache, Points: []versionPoint{{1000, 0}, {6000, unknown}}, Behind: 4000},
		{Name: "op: what its reconciles read", Kind: placeRead,
			Points: []versionPoint{{3000, 0}, {4000, 2}, {5000, unknown}}, Behind: 1000},
	}
	if text, _ := json.MarshalIndent(got.Series[0].Lines, "", " "); !reflect.DeepEqual(got.Series[0].Lines, want) {
		t.Errorf("got\n%s", text)
	}
}

func TestIndex(t *testing.T) {
	bug, pass := runs()[0], runs()[1]
	other := *bug
	other.Findings = slices.Clone(bug.Findings)
	other.Findings[0].Title += ": again, in other words"
	pass.Meta.Plan, pass.Meta.Variant, pass.Meta.Verdict = bug.Meta.Plan, "", record.Pass
	pass.Findings = nil
	entries := []IndexEntry{{Slim(bug), "a.html"}, {Slim(&other), "b.html"}, {Slim(pass), "c.html"}}
	var b bytes.Buffer
	if err := Index(&b, "<3 runs>", entries); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"<title>&lt;3 runs&gt;</title>",
		`<span class="verdict bug">bug</span> 2</span>`, `<span class="verdict pass">pass</span> 1</span>`,
		"invariant: StatefulSet db was deleted although its Database is alive</b> in 2 runs",
		`<a href="a.html">stale-deletion</a> (2 of 3 runs)`,
		`<td class="n">34 %</td>`, // one of three
		`<a href="c.html" title="pass: `,
		"All runs together took 5.1s.", // by the machine's clock
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s in\n%s", want, b.String())
		}
	}
	if got := strings.Count(b.String(), "in other words"); got > 1 { // the title of its run
		t.Errorf("one finding is listed %d times", got)
	}
}

// Regression: times before the workload's start were printed as +-2.9ms, and the page counted from another moment than
// the text.
func TestTimesBeforeTheWorkload(t *testing.T) {
	r := runs()[6]
	for name, show := range reports {
		var b bytes.Buffer
		if err := show(&b, r); err != nil {
			t.Fatal(err)
		}
		if name != "junit" && !strings.Contains(b.String(), "-3ms") || strings.Contains(b.String(), "+-") {
			t.Errorf("%s:\n%s", name, b.String())
		}
		if !strings.Contains(b.String(), "found db running already") {
			t.Errorf("%s has no note:\n%s", name, b.String())
		}
	}
}

var reports = map[string]func(io.Writer, *record.Run) error{
	"text": report.Text, "html": page,
	"junit": func(w io.Writer, r *record.Run) error {
		return report.JUnit(w, []*record.Run{r}, report.JUnitOptions{})
	},
}

// Every report says if a bug was found although the plan was not carried out.
func TestPlanThatDidNotHappen(t *testing.T) {
	r := runs()[5]
	for name, show := range reports {
		var b bytes.Buffer
		if err := show(&b, r); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(b.String(),
			"the plan was not carried out: 0 of 1 actions fired: the workload failed"); got != 1 {
			t.Errorf("%s says it %d times:\n%s", name, got, b.String())
		}
	}
	var b bytes.Buffer
	if err := report.JSON(&b, []*record.Run{r}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"actionsFired": 0`, `"actionsTotal": 1`, `"unfinished": "0 of 1 actions fired`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s in\n%s", want, b.String())
		}
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestErrorsOfTheWriterAreReturned(t *testing.T) {
	for name, err := range map[string]error{
		"text": report.Text(full{}, runs()[0]), "JSON": report.JSON(full{}, runs()),
		"JUnit": report.JUnit(full{}, runs(), report.JUnitOptions{}),
		"HTML":  page(full{}, runs()[0]), "index": Index(full{}, "runs", nil),
		"Markdown": report.Markdown(full{}, runs()),
		"GitHub":   report.GitHub(full{}, "", report.Annotations(runs())),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Regression: the index filed one bug under another's title, and had other groups than the summary of a campaign.
func TestIndexGroups(t *testing.T) {
	const db = "cluster.example/default/db"
	found := func(subject string, harm record.Harm, title string) record.Finding {
		return record.Finding{
			Severity: record.SeverityBug, Judge: record.JudgeBaseline, Subject: subject, Owner: db, Harm: harm,
			Title: title,
		}
	}
	lost := found("persistentvolumeclaim/default/a", record.HarmLost, "the claim a is lost")
	never := found("persistentvolumeclaim/default/b", record.HarmMissing, "the claim b is missing")
	service := found("service/default/db", record.HarmMissing, "the service is missing")
	status := found(db, record.HarmStatus, "the status is wrong")
	const atOnce = ", trigger: {definitions: [{triggerName: t, condition: {triggerType: none}}], expression: t}}]}"
	const kill = "{testName: p, workload: w, actions: [{actionType: killController, actionTarget: op" + atOnce
	const pause = "{testName: p, workload: w, actions: [{actionType: pauseAPIServer, actionTarget: apiserver-1, " +
		"pauseScope: '*'" + atOnce
	var entries []IndexEntry
	for i, one := range []struct {
		plan     string
		findings []record.Finding
	}{
		{pause, []record.Finding{status, never}}, {pause, []record.Finding{status, lost}},
		{kill, []record.Finding{status, service}}, {pause, []record.Finding{status}},
	} {
		entries = append(entries, IndexEntry{Page: "a.html", Run: &record.Run{
			Meta: record.Meta{Plan: fmt.Sprint("plan-", i), Verdict: record.Bug}, Plan: []byte(one.plan),
			Findings: one.findings,
		}})
	}
	for i, want := range map[int]string{0: findings.Stale, 2: findings.Interrupted} {
		if cause, struck := causeOf(entries[i].Run); cause != want || struck != "" {
			t.Errorf("cause %q, struck %q", cause, struck)
		}
	}
	var b bytes.Buffer
	if err := Index(&b, "runs", entries); err != nil {
		t.Fatal(err)
	}
	var got []string
	entry := regexp.MustCompile(`<b>(.*)</b> in (.*) <span class="soft">.*</p>`)
	for _, m := range entry.FindAllStringSubmatch(b.String(), -1) {
		got = append(got, m[1]+", "+m[2])
	}
	want := []string{"baseline: the claim a is lost, 3 runs", "baseline: the service is missing, 1 run"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if !strings.Contains(b.String(), `<p class="soft">baseline: the status is wrong</p>`) {
		t.Errorf("what else the run has found is not told: %s", b.String())
	}
}
