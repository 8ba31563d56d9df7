package report

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/report/reporttest"
	"github.com/trommel-dev/trommel/internal/testing/golden"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

func TestExplain(t *testing.T) {
	r := runs()[0]
	r.Meta.ActionsTotal, r.Meta.ActionsFired = 3, 2
	r.Meta.Unfinished = "2 of 3 actions fired: the workload failed\n" +
		"action 3 (resumeAPIServer apiserver-3): trigger \"later\" still waits for 5s"
	r.Meta.Awaited = &record.Awaited{Action: 2, Triggers: []string{`trigger "later" still waits for 5s`}}
	r.Processes = []record.Process{
		{Controller: "db", Pod: "db-1", Started: at(time.Second), Ended: at(9 * time.Second), ExitCode: 137,
			Planned: true},
		{Controller: "db", Pod: "db-1", Started: at(10 * time.Second), Ended: at(11 * time.Second), ExitCode: 2},
		{Controller: "db", Pod: "db-1", Started: at(13 * time.Second)},
	}
	var b bytes.Buffer
	if err := Explain(&b, r, reporttest.Plan(t)); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/explained.txt", b.Bytes())
	for _, r := range runs() { // also those of which little is known
		if err := Explain(&b, r, nil); err != nil {
			t.Error(err)
		}
	}
	if Explain(full{}, r, nil) == nil {
		t.Error("no error of the writer")
	}
}

// A plan with both a schedule and actions is explained as a whole.
func TestExplainSchedule(t *testing.T) {
	p := reporttest.Plan(t)
	p.Schedule = &plan.Schedule{Strategy: plan.Swarm, Seed: 7}
	var b bytes.Buffer
	if err := Explain(&b, runs()[0], p); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, part := range []string{"What the schedule was to do", "the seed 7", "What the plan was to do", "\n1. "} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing:\n%s", part, text)
		}
	}
	p.Actions = nil
	b.Reset()
	if err := Explain(&b, runs()[0], p); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); strings.Contains(text, "What the plan was to do") || strings.Contains(text, "no actions") {
		t.Errorf("a schedule without actions:\n%s", text)
	}
}

// An invariant that something exists eventually is found violated long after the deletion that it is about, which
// another invariant has noticed at once.
func TestCauseComesBeforeItsConsequences(t *testing.T) {
	a, b := object("a", "1"), object("b", "1")
	r := &record.Run{
		History: []record.HistoryEntry{
			{Time: at(time.Second), ResourceVersion: 7, Event: record.Existing, Type: "a", Name: "a", Object: a},
			{Time: at(2 * time.Second), ResourceVersion: 10, Event: record.Created, Type: "a", Name: "b", Object: b},
			{Time: at(3 * time.Second), ResourceVersion: 20, Event: record.Deleted, Type: "a", Name: "b", Object: b},
		},
		Findings: []record.Finding{
			{Severity: record.SeverityNote, Title: "a note", Time: at(0)},
			{Severity: record.SeverityInconclusive, Title: "not carried out"},
			{Severity: record.SeverityBug, Title: "reads fail", Time: at(9 * time.Second)},
			{Severity: record.SeverityBug, Title: "b is never there again", Time: at(17 * time.Second),
				Cause:  at(3 * time.Second),
				Detail: "a/default/b: deleted at +3s (resource version 20)\nit was there at resource version 7"},
			{Severity: record.SeverityBug, Title: "unknown when"},
			{Severity: record.SeverityBug, Title: "reads fail", Time: at(10 * time.Second)},
			{Severity: record.SeverityBug, Title: "reads fail", Time: at(11 * time.Second)},
		},
	}
	var got []string
	for _, f := range ByCause(r) {
		got = append(got, f.Title+f.Times())
	}
	want := []string{
		"b is never there again", "reads fail (and 2 more times)", "unknown when", "not carried out", "a note",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Regression: an event that happened to several objects of one owner was described once for each of them.
func TestTheSameOfSeveralObjectsIsToldOnce(t *testing.T) {
	finding := func(subject, owner, field string) record.Finding {
		return record.Finding{
			Severity: record.SeverityBug, Judge: record.JudgeBaseline, Subject: subject, Owner: owner, Field: field,
			Harm: record.HarmWrong, Title: subject + " differs",
		}
	}
	note := finding("pod/default/a-0", "cluster/default/a", "spec.x")
	note.Severity = record.SeverityNote
	r := &record.Run{Findings: []record.Finding{
		finding("pod/default/a-0", "cluster/default/a", "spec.x"),
		finding("pod/default/a-1", "cluster/default/a", "spec.x"),
		finding("pod/default/b-0", "cluster/default/b", "spec.x"),
		finding("pod/default/a-0", "cluster/default/a", "spec.y"),
		finding("service/default/a", "cluster/default/a", "spec.x"), note,
	}}
	var got []string
	for _, f := range ByCause(r) {
		got = append(got, f.Title+f.Times())
	}
	want := []string{
		"pod/default/a-0 differs (and once more)", "pod/default/b-0 differs", "pod/default/a-0 differs",
		"service/default/a differs", "pod/default/a-0 differs",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// For a long run, only the objects of the plan and of findings are described.
func TestExplainedChangesAreNotTooMany(t *testing.T) {
	r := &record.Run{Meta: record.Meta{Plan: "long", Verdict: record.Bug, WorkloadStart: start}}
	for i := range 500 {
		r.History = append(r.History, record.HistoryEntry{
			Time: at(time.Duration(i+1) * time.Second), ResourceVersion: uint64(i + 1), Event: record.Created,
			Type: "pod", Namespace: "default", Name: fmt.Sprintf("p%d", i), Object: object(fmt.Sprintf("p%d", i), "1"),
		})
	}
	r.Findings = []record.Finding{{Severity: record.SeverityBug, Title: "t", Subject: "pod/default/p77"}}
	var b bytes.Buffer
	if err := Explain(&b, r, nil); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"pod/default/p77 is created.", "(499 changes of objects that neither"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if lines := strings.Count(b.String(), "\n"); lines > 20 {
		t.Errorf("%d lines", lines)
	}
}

func TestCompare(t *testing.T) {
	same := func(change func(*record.Run)) *record.Run {
		r := runs()[0]
		shift := 3 * time.Second // another run is at another time, has other versions, and another order of processes
		r.Meta.Started, r.Meta.WorkloadStart = r.Meta.Started.Add(shift), r.Meta.WorkloadStart.Add(shift)
		for i := range r.Events {
			r.Events[i].Time = r.Events[i].Time.Add(shift)
		}
		r.Events[3], r.Events[4] = r.Events[4], r.Events[3]
		for i := range r.Actions {
			r.Actions[i].Fired = r.Actions[i].Fired.Add(shift + time.Millisecond)
			r.Actions[i].Began = r.Actions[i].Began.Add(shift + time.Millisecond)
			r.Actions[i].FiredBy += 2
		}
		for i := range r.History {
			r.History[i].ResourceVersion += 1000
		}
		change(r)
		return r
	}
	for _, tt := range []struct {
		name   string
		change func(*record.Run)
		want   string // the expected text; empty: nothing
	}{
		{"the same", func(*record.Run) {}, ""},
		{"another verdict", func(r *record.Run) { r.Meta.Verdict = record.Pass }, "B: stale-deletion: pass"},
		{"an action less", func(r *record.Run) { r.Actions = r.Actions[:1] },
			"action 2 (apply pod/default/a): only in A, at +4s"},
		{"an action more", func(r *record.Run) {
			more := record.Action{Index: 2, Type: "killController", Target: "db", Fired: at(19 * time.Second)}
			r.Actions = append(r.Actions, more)
		}, "action 3 (killController db): only in B, at +11s"},
		{"another cause", func(r *record.Run) { r.Actions[0].Cause = "a timeout" },
			"action 1 (pauseAPIServer apiserver-3): fired by:\n    A, at +2s: update of database/default/db"},
		{"no error", func(r *record.Run) { r.Actions[1].Error = "" }, "B, at +4s: none"},
		{"another finding", func(r *record.Run) { r.Findings[0].Subject = "statefulset/default/other" },
			"only in A: invariant: StatefulSet db was deleted although its Database is alive\n  only in B: "},
		{"a note more", func(r *record.Run) {
			r.Findings = append(r.Findings, record.Finding{Severity: record.SeverityNote, Title: "a note"})
		}, ""},
		{"an object that stays", func(r *record.Run) { r.History = r.History[:3] },
			"statefulset.apps/default/db: A: deleted at the end, B: exists at the end"},
		{"an observation less", func(r *record.Run) { r.Events = r.Events[1:] },
			"they part first at apiserver-3, after apiServerRecv of database/default/db, from the start:\n" +
				"    A, event 1 at +2s: update\n    B: nothing more"},
		{"another operation", func(r *record.Run) { r.Events[0].Observation.Op = wire.Delete },
			"A, event 1 at +2s: update\n    B, event 1 at +2s: delete"},
		{"an observation more", func(r *record.Run) {
			more := r.Events[0]
			more.Seq, more.Time = 9, at(20*time.Second)
			r.Events = append(r.Events, more)
		}, "after the first 1 observations, which are the same:\n    A: nothing more\n    B, event 9 at +12s: update"},
		{"a heartbeat more", func(r *record.Run) {
			more := *r.Events[0].Observation
			more.Kind, more.Namespace = "lease", "kube-node-lease"
			r.Events = append(r.Events, record.Event{Seq: 9, Time: at(20 * time.Second), Observation: &more})
		}, ""},
	} {
		a, b := runs()[0], same(tt.change)
		d, err := Compare(a, b, nil)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := d.Text(&out, a, b); err != nil {
			t.Fatal(err)
		}
		if d.Same() != (tt.want == "") || !strings.Contains(out.String(), tt.want) {
			t.Errorf("%s: want %q, got\n%s", tt.name, tt.want, out.String())
		}
	}
}

func TestCompareSettings(t *testing.T) {
	a, b := runs()[0], runs()[0]
	a.Plan, b.Plan = []byte("a"), []byte("b")
	a.Meta.Controllers = []record.Controller{{Name: "db", ClientGo: "v0.36.3"}, {Name: "x"}}
	b.Meta.Controllers = []record.Controller{{Name: "db", ClientGo: "v0.37.0"}}
	b.Meta.Kubernetes, b.Meta.Variant = "v1.35.8", "fixed"
	d, err := Compare(a, b, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"the plan is not the same", "variant: A: none, B: fixed", "Kubernetes: A: v1.36.3, B: v1.35.8",
		"client-go of db: A: v0.36.3, B: v0.37.0", "only A has the controller x",
	}
	if !slices.Equal(d.Settings, want) || !d.Same() {
		t.Errorf("%q, want %q", d.Settings, want)
	}
}

// Of plans and suites that differ it is said in what.
func TestCompareFiles(t *testing.T) {
	for _, tt := range []struct {
		name, a, b string
		want       []string
	}{
		{"the same with other blanks", "a: 1", "a:   1", nil},
		{"the variant is noted on its own", "testName: a\nvariant: fixed", "testName: a", nil},
		{"a field", "testName: a\nwatch: true", "testName: b", []string{
			"plan: testName: A: a, B: b", "plan: watch: A: true, B: none"}},
		{"an item", "actions: [{a: 1}, {b: {c: x}}]", "actions: [{a: 1}, {b: {c: y}}, {d: 1}]", []string{
			"plan: actions[1].b.c: A: x, B: y", `plan: actions[2]: A: none, B: {"d":1}`}},
		{"another type", "a: [1]", "a: {b: 1}", []string{`plan: a: A: [1], B: {"b":1}`}},
		{"text of several lines", `a: "1\n2"`, "a: b", []string{`plan: a: A: "1\n2", B: b`}},
		{"not YAML", "a: [", "a: 1", []string{"the plan is not the same"}},
		{"not a mapping", "a", "b", []string{"the plan is not the same"}},
		{"nothing", "", "a: 1", []string{"plan: a: A: none, B: 1"}},
		{"many fields", "a: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]", "a: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0]", []string{
			"plan: a[0]: A: 1, B: 0", "plan: a[1]: A: 2, B: 0", "plan: a[2]: A: 3, B: 0", "plan: a[3]: A: 4, B: 0",
			"plan: a[4]: A: 5, B: 0", "plan: a[5]: A: 6, B: 0", "plan: a[6]: A: 7, B: 0", "plan: a[7]: A: 8, B: 0",
			"plan: 2 more fields"}},
	} {
		a, b := runs()[0], runs()[0]
		a.Plan, b.Plan = []byte(tt.a), []byte(tt.b)
		d, err := Compare(a, b, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(d.Settings, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, d.Settings, tt.want)
		}
	}
}

func TestUIDsTimesAndGeneratedNamesDoNotCount(t *testing.T) {
	times := 0
	run := func(uid, name string) *record.Run {
		times++
		raw := fmt.Appendf(nil,
			`{"metadata":{"name":"a","labels":{"owner":%q}},"status":{"since":"2026-01-02T03:04:05.%dZ"}}`,
			uid, times)
		return &record.Run{
			History: []record.HistoryEntry{{
				Event: record.Created, Type: "pod", Namespace: "default", Name: "a", Object: raw,
			}},
			Events: []record.Event{{Seq: 1, Observation: &record.Observation{
				By: "apiserver-1", Point: wire.APIServerRecv, Phase: wire.After, Op: wire.Create, Kind: "endpointslice",
				Namespace: "default", Name: name,
			}}},
			Actions: []record.Action{{
				Type: "restartController", Target: "db",
				Cause: "create of endpointslice/default/" + name + " (after apiServerRecv at apiserver-1)",
			}},
			Findings: []record.Finding{{
				Severity: record.SeverityBug, Judge: "invariant", Subject: "endpointslice.discovery.k8s.io/default/" +
					name,
				Title: "invariant a: it is",
			}},
		}
	}
	const one, other = "0e31f64c-92d2-487f-b41a-1f4b993d6adf", "491b204e-5945-4bbd-a0f0-4359f3cfaacd"
	for _, tt := range []struct {
		name string
		b    *record.Run
		same bool
	}{
		{"another UID and generated name", run(other, "db-7f76fd4d9-kz4mk"), true},
		{"no UID", run("none", "db-cdd7b4bc8-x2x5z"), false},
		{"another name", run(one, "db-proxy"), false},
	} {
		d, err := Compare(run(one, "db-cdd7b4bc8-x2x5z"), tt.b, nil)
		if err != nil {
			t.Fatal(err)
		}
		if d.Same() != tt.same {
			t.Errorf("%s: same is %v: %+v", tt.name, d.Same(), d)
		}
		if another := tt.name == "another name"; another == (len(d.Actions) == 0) || another == (len(d.Findings) == 0) {
			t.Errorf("%s: actions %q, findings %q", tt.name, d.Actions, d.Findings)
		}
	}
	if d, err := Compare(run(one, "db.18eaae64e8a1032f"), run(one, "db.18eaae65a0b1c2d3"), nil); err != nil ||
		!d.Same() {
		t.Errorf("events: %+v, %v", d, err)
	}
	broken := &record.Run{History: []record.HistoryEntry{{Object: []byte("{")}}}
	if _, err := Compare(run(one, "a"), broken, nil); err == nil {
		t.Error("no error about a history that cannot be read")
	}
}

func TestAgain(t *testing.T) {
	var b bytes.Buffer
	first := runs()[0]
	for _, change := range []func(*record.Run){
		func(*record.Run) {},
		func(r *record.Run) {
			r.Meta.Verdict, r.Meta.Trommel, r.Actions, r.Findings = record.Inconclusive, "v0.2.0", r.Actions[1:], nil
		},
	} {
		again := runs()[0]
		change(again)
		d, err := Compare(first, again, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(d.Again(&b, first, again)); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%v\n\n", d.SameOutcome())
	}
	golden.Compare(t, "testdata/again.txt", b.Bytes())
}
