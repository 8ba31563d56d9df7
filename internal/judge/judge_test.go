package judge

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/internal/judge/invariant"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

type judge struct {
	name string
	f    func() ([]record.Finding, error)
}

func (j judge) Is() Traits { return is(j.name, allClusters, whatHappened) }
func (j judge) Judge(context.Context, Evidence) ([]record.Finding, error) {
	return j.f()
}

// Regression: an error of one judge hid the findings of all others.
func TestAFailingJudgeIsAFinding(t *testing.T) {
	found := record.Finding{Severity: record.SeverityBug, Title: "found"}
	findings := Hear(t.Context(), Evidence{}, []Judge{
		judge{"errors", func() ([]record.Finding, error) { return []record.Finding{found}, errors.New("no more") }},
		judge{"panics", func() ([]record.Finding, error) { panic("oh") }},
		judge{"others", func() ([]record.Finding, error) { return []record.Finding{found}, nil }},
	})
	var got []string
	for _, f := range findings {
		got = append(got, string(f.Severity)+" "+f.Title)
	}
	want := []string{
		"bug found", "inconclusive judge \"errors\" failed: no more",
		"inconclusive judge \"panics\" failed: panic: oh", "bug found",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if !strings.Contains(findings[2].Detail, "judge_test.go") {
		t.Errorf("no stack in the detail: %s", findings[2].Detail)
	}
	if verdict, _ := Verdict(findings, true); verdict != record.Bug {
		t.Errorf("verdict %s", verdict)
	}
}

// Regression: a run that was not whole was a bug if it ended differently. A machine that was always slow confirmed it.
func TestRunsThatAreNotWhole(t *testing.T) {
	invariants, err := invariant.Compile([]plan.Invariant{{
		Name: "made", Eventually: `objects.exists(o, o.kind == "Pod")`,
	}})
	if err != nil {
		t.Fatal(err)
	}
	held := record.Finding{Severity: record.SeverityInconclusive, Judge: record.JudgeHold, Title: "held for 40s"}
	note := held
	note.Severity = record.SeverityNote
	action := record.Finding{Severity: record.SeverityInconclusive, Judge: record.JudgeAction, Title: "it failed"}
	panics := judge{"panics", func() ([]record.Finding, error) {
		return []record.Finding{{Severity: record.SeverityBug, Judge: record.JudgePanic}}, nil
	}}
	const bug, doubtful = record.SeverityBug, record.SeverityInconclusive
	for _, c := range []struct {
		name   string
		found  []record.Finding
		gaps   []string
		stood  string
		want   record.Severity
		waited record.Severity // of a workload whose wait timed out
	}{
		{"whole", nil, nil, "", bug, bug},
		{"a hold that expired", []record.Finding{held}, nil, "", doubtful, doubtful},
		{"a note", []record.Finding{note}, nil, "", bug, bug},
		{"an action that failed", []record.Finding{action}, nil, "", bug, doubtful},
		{"a gap in the history", nil, []string{"the watch of pods was interrupted"}, "", doubtful, doubtful},
		{"a standstill", nil, nil, "trommel itself did not run for 9s", doubtful, doubtful},
	} {
		waited := record.Finding{Severity: bug, Judge: record.JudgeWorkload, Title: "step 1: not within 1m"}
		e := Evidence{Invariants: invariants, Found: append([]record.Finding{waited}, c.found...), Gaps: c.gaps,
			Stood: c.stood,
			Meta:  record.Meta{CaughtUp: time.Unix(1, 0), GivenBack: time.Unix(2, 0)}}
		findings := Hear(t.Context(), e, []Judge{eventually{}, gaps{}, panics})
		if got := findings[0]; got.Judge != record.JudgeInvariant || got.Severity != c.want {
			t.Errorf("%s: %s, want %s", c.name, got.Severity, c.want)
		}
		if last := findings[len(findings)-1]; !last.IsBug() {
			t.Errorf("%s: a panic is no bug", c.name)
		}
		if got := e.Found[0].Severity; got != c.waited {
			t.Errorf("%s: a workload that waited in vain is %s, want %s", c.name, got, c.waited)
		}
	}
}

// The judges need only the record.
func TestExitsAreJudgedFromTheRecord(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, record.LogsDir), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"a.log": "leader election lost\n", "b.log": "bye\n"} {
		if err := os.WriteFile(filepath.Join(dir, record.LogsDir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Unix(1000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	process := func(controller, log string, ended int) record.Process {
		return record.Process{Controller: controller, Started: at(-10), Ended: at(ended), ExitCode: 1,
			LogFile: "logs/" + log}
	}
	kill := plan.Action{Type: plan.KillAPIServer, Target: "apiserver-1"}
	pause := plan.Action{
		Type: plan.PauseController, Target: "a",
		Pausing: plan.Pausing{PauseAt: plan.BeforeControllerWrite,
			PauseScope: plan.MustScope("configmap/default/lock")},
	}
	refuse := plan.Action{Type: plan.FailCall, Target: "b",
		Failing: plan.Failing{Answer: plan.Refused, UntilRestored: true}}
	restore := plan.Action{Type: plan.RestoreCalls, Target: "b"}
	freeze := []plan.Action{{Type: plan.FreezeController, Target: "a"}, {Type: plan.ThawController, Target: "a"}}
	froze := []record.Action{{Began: at(1), Done: at(1)}, {Index: 1, Began: at(3), Done: at(3)}}
	other := slices.Clone(freeze)
	other[0].Target, other[1].Target = "b", "b"
	a := record.Controller{Name: "a", APIServer: "apiserver-2", Locks: []string{"configmap/default/lock"}}
	b := record.Controller{Name: "b", APIServer: "apiserver-1"}
	for _, test := range []struct {
		name      string
		plan      plan.Plan
		actions   []record.Action
		processes []record.Process
		want      []string
	}{
		{"on its own", plan.Plan{}, nil, []record.Process{process("b", "b.log", 5)},
			[]string{"bug controller b exited on its own: exit code 1"}},
		{"before the workload", plan.Plan{}, nil, []record.Process{process("b", "b.log", -5)}, nil},
		{
			"its API server was down", plan.Plan{Actions: []plan.Action{kill}},
			[]record.Action{{Began: at(1), Done: at(2)}}, []record.Process{process("b", "b.log", 5)},
			[]string{"note controller b exited on its own: exit code 1, while the plan had killed its API server " +
				"apiserver-1"},
		},
		{
			"its calls were refused", plan.Plan{Actions: []plan.Action{refuse, restore}},
			[]record.Action{{Began: at(1), Done: at(2)}, {Index: 1, Began: at(4), Done: at(4)}},
			[]record.Process{process("b", "b.log", 4)},
			[]string{"note controller b exited on its own: exit code 1, when the plan had made its calls fail"},
		},
		{
			"long after its calls were refused", plan.Plan{Actions: []plan.Action{refuse, restore}},
			[]record.Action{{Began: at(1), Done: at(2)}, {Index: 1, Began: at(3), Done: at(3)}},
			[]record.Process{process("b", "b.log", 5)},
			[]string{"bug controller b exited on its own: exit code 1"},
		},
		{
			"its leadership is gone", plan.Plan{}, nil, []record.Process{process("a", "a.log", 5)},
			[]string{"inconclusive controller a lost its leader election and exited: exit code 1"},
		},
		{
			"its lock was paused", plan.Plan{Actions: []plan.Action{pause}}, nil,
			[]record.Process{process("a", "a.log", 5)},
			[]string{"note controller a lost its leader election and exited: exit code 1, because the plan paused " +
				"its lock"},
		},
		{
			"it was frozen and has lost its leadership", plan.Plan{Actions: freeze}, froze,
			[]record.Process{process("a", "a.log", 60)},
			[]string{"note controller a lost its leader election and exited: exit code 1, when the plan had frozen a " +
				"process"},
		},
		{
			"it lost its leadership before it was frozen", plan.Plan{Actions: freeze},
			[]record.Action{{Began: at(8), Done: at(8)}}, []record.Process{process("a", "a.log", 5)},
			[]string{"inconclusive controller a lost its leader election and exited: exit code 1"},
		},
		{
			"another controller was frozen", plan.Plan{Actions: other}, froze,
			[]record.Process{process("a", "a.log", 5)},
			[]string{"inconclusive controller a lost its leader election and exited: exit code 1"},
		},
		{
			"it was frozen a moment ago", plan.Plan{Actions: other}, froze, []record.Process{process("b", "b.log", 3)},
			[]string{"note controller b exited on its own: exit code 1, when the plan had frozen a process"},
		},
		{
			"it was frozen long ago", plan.Plan{Actions: other}, froze, []record.Process{process("b", "b.log", 5)},
			[]string{"bug controller b exited on its own: exit code 1"},
		},
	} {
		findings, err := exits{}.Judge(t.Context(), Evidence{
			Plan: &test.plan, Dir: dir, Meta: record.Meta{WorkloadStart: start, Controllers: []record.Controller{a, b}},
			Actions: test.actions, Processes: test.processes,
		})
		var got []string
		for _, f := range findings {
			got = append(got, string(f.Severity)+" "+f.Title)
		}
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, %v; want %q", test.name, got, err, test.want)
		}
	}
}

// Regression: a plan that deletes an object violated an invariant by itself, and that looked like a bug.
func TestWhatThePlanDeletesIsNoBug(t *testing.T) {
	p, err := plan.Parse([]byte(`testName: t
actions:
- actionType: delete
  resourceKey: secret/default/a
  trigger: {definitions: [{triggerName: now, condition: {triggerType: none}}]}
`), "p.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p.Complete(nil)
	invariants, err := invariant.Compile([]plan.Invariant{{
		Name: "kept", On: &plan.ResourceKey{Type: "secret", Namespace: "*", Name: "*"},
		Never: `event == "deleted" || has(object.metadata.deletionTimestamp) && ` +
			`!has(oldObject.metadata.deletionTimestamp)`,
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, events string
		fired        int64
		failed       string
		want         int
	}{
		{name: "the plan", events: "created secret/default/a {}\ndeleted secret/default/a {}", want: 0},
		{name: "the controller, before", events: "created secret/default/a {}\ndeleted secret/default/a {}", fired: 5,
			want: 1},
		{name: "the controller, after", want: 1, events: "created secret/default/a {}\ndeleted secret/default/a {}\n" +
			"created secret/default/a {}\ndeleted secret/default/a {}"},
		{name: "the plan marks it", want: 0, events: "created secret/default/a {\"metadata\": {}}\n" +
			`updated secret/default/a {"metadata": {"deletionTimestamp": "now"}}` + "\ndeleted secret/default/a {}"},
		{name: "the controller marks the next one", want: 1, events: "created secret/default/a {\"metadata\": {}}\n" +
			`updated secret/default/a {"metadata": {"deletionTimestamp": "now"}}` + "\ndeleted secret/default/a {}\n" +
			"created secret/default/a {\"metadata\": {}}\n" +
			`updated secret/default/a {"metadata": {"deletionTimestamp": "now"}}`},
		{name: "another object", events: "created secret/default/b {}\ndeleted secret/default/b {}", want: 1},
		{name: "an action that failed", failed: "no", want: 1,
			events: "created secret/default/a {}\ndeleted secret/default/a {}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			findings, err := invariantJudge{}.Judge(t.Context(), Evidence{
				Plan: p, Invariants: invariants, History: history(t, tt.events),
				Actions: []record.Action{{Fired: time.Unix(tt.fired, 0), Error: tt.failed}},
			})
			findings = slices.DeleteFunc(findings, func(f record.Finding) bool { return !f.IsBug() })
			if err != nil || len(findings) != tt.want {
				t.Errorf("%d bugs, want %d: %+v, %v", len(findings), tt.want, findings, err)
			}
		})
	}
}

func TestClockSet(t *testing.T) {
	for by, want := range map[time.Duration]string{
		-time.Hour:      "this machine's clock was set back by 1h0m0s during the run",
		2 * time.Second: "this machine slept, or its clock was set forward, for 2s during the run",
	} {
		findings := []record.Finding{
			{Severity: record.SeverityBug, Title: "a"}, {Severity: record.SeverityNote, Title: "b"},
		}
		set := ClockSet(by, time.Time{})
		Doubt(findings, set.Title)
		verdict, why := Verdict(append(findings, set), true)
		if verdict != record.Inconclusive || why != "a (and 1 more)" || set.Title != want ||
			!strings.HasSuffix(findings[0].Detail, want) || findings[1].Detail != "" {
			t.Errorf("%s, %s, %+v, %+v", verdict, why, set, findings)
		}
	}
}
