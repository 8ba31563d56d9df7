package campaign

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/internal/baseline/findings"
	"github.com/trommel-dev/trommel/internal/campaign/lab"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/campaign/schedule"
	"github.com/trommel-dev/trommel/internal/confirm"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// answer is what the n-th run of a plan says.
type answer func(n int, meta *record.Meta) []record.Finding

func answers(by map[string]answer) *fake {
	return &fake{answer: func(p *plan.Plan, n int, meta *record.Meta, found *[]record.Finding, _ *[]string) error {
		if say := by[p.TestName]; say != nil {
			*found = say(n, meta)
		}
		if slices.ContainsFunc(*found, record.Finding.IsBug) {
			meta.Verdict = record.Bug
		}
		return nil
	}}
}

func finding(subject, text string) record.Finding {
	return record.Finding{
		Severity: record.SeverityBug, Judge: record.JudgeBaseline, Subject: subject,
		Title: subject + " differs from the runs without faults: " + text,
	}
}

// statuses returns what became of each plan, in the order of the plans.
func statuses(r *result.Result) []string {
	var all []string
	for _, o := range r.Outcomes {
		text := o.Plan + " " + string(o.Status)
		if o.Of > 0 {
			text += fmt.Sprintf(" %d/%d", o.Came, o.Of)
		}
		all = append(all, text)
	}
	return all
}

func mustRun(t *testing.T, c Config) *result.Result {
	t.Helper()
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestWhatIsBelieved(t *testing.T) {
	gone := finding("secret/default/a", "never created; without faults: exists at the end")
	other := finding("pod/default/a", "created once; without faults: never created")
	always := func(f ...record.Finding) answer {
		return func(int, *record.Meta) []record.Finding { return f }
	}
	once := func(f record.Finding) answer {
		return func(n int, _ *record.Meta) []record.Finding {
			if n == 1 {
				return []record.Finding{f}
			}
			return nil
		}
	}
	for _, tt := range []struct {
		name  string
		by    map[string]answer
		want  string
		found []record.Finding
	}{
		{"nothing", nil, "w-intermediate-1 pass", nil},
		{"every time", map[string]answer{"w-intermediate-1": always(gone)}, "w-intermediate-1 bug 3/3", nil},
		{"once", map[string]answer{"w-intermediate-1": once(gone)}, "w-intermediate-1 unconfirmed 1/3", nil},
		{
			"every time something else", map[string]answer{
				"w-intermediate-1": func(n int, _ *record.Meta) []record.Finding {
					return []record.Finding{finding(fmt.Sprintf("pod/default/%d", n), "never created")}
				},
			}, "w-intermediate-1 unconfirmed 1/3", nil,
		},
		{
			"one of two", map[string]answer{"w-intermediate-1": func(n int, m *record.Meta) []record.Finding {
				return append(always(gone)(n, m), once(other)(n, m)...)
			}}, "w-intermediate-1 bug 3/3", []record.Finding{gone},
		},
		{
			"the workload's own", map[string]answer{
				"w-intermediate-1": always(gone), "w-without-actions": always(gone),
			}, "w-intermediate-1 workload 3/3", nil,
		},
		{
			"partly the workload's own", map[string]answer{
				"w-intermediate-1": always(gone, other), "w-without-actions": always(other),
			}, "w-intermediate-1 bug 3/3", []record.Finding{gone},
		},
		{
			"no action fired", map[string]answer{"w-intermediate-1": func(_ int, m *record.Meta) []record.Finding {
				m.ActionsFired = 0
				return []record.Finding{gone}
			}}, "w-intermediate-1 workload 1/1", nil,
		},
		{
			"no action fired the second time", map[string]answer{
				"w-intermediate-1": func(n int, m *record.Meta) []record.Finding {
					if n == 2 {
						m.ActionsFired = 0
					}
					return []record.Finding{gone}
				},
			}, "w-intermediate-1 workload 3/3", nil,
		},
		{
			"it does not happen the first time", map[string]answer{
				"w-intermediate-1": func(n int, m *record.Meta) []record.Finding {
					if n == 1 {
						m.Verdict, m.Reason, m.ActionsFired = record.Inconclusive, "0 of 1 actions fired", 0
						return nil
					}
					return []record.Finding{gone}
				},
			}, "w-intermediate-1 bug 3/3", nil,
		},
		{
			"a run is not completed", map[string]answer{
				"w-intermediate-1": func(n int, m *record.Meta) []record.Finding {
					if n == 2 {
						m.Verdict, m.Reason = record.Inconclusive, "a process did not answer"
						return nil
					}
					return []record.Finding{gone}
				},
			}, "w-intermediate-1 bug 3/3", nil,
		},
		{
			"no further run is completed", map[string]answer{
				"w-intermediate-1": func(n int, m *record.Meta) []record.Finding {
					if n == 1 {
						return []record.Finding{gone}
					}
					m.Verdict, m.Reason = record.Inconclusive, "a process did not answer"
					return nil
				},
			}, "w-intermediate-1 unconfirmed 1/1", nil,
		},
		{
			"it does not happen", map[string]answer{"w-intermediate-1": func(_ int, m *record.Meta) []record.Finding {
				m.Verdict, m.Reason = record.Inconclusive, "0 of 1 actions fired"
				return nil
			}}, "w-intermediate-1 inconclusive", nil,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := config(t, answers(tt.by), "w")
			c.Patterns = []string{"intermediate"}
			r := mustRun(t, c)
			if diff := cmp.Diff([]string{tt.want}, statuses(r)); diff != "" {
				t.Error(diff)
			}
			if tt.found != nil && !slices.Equal(r.Outcomes[0].Findings, tt.found) {
				t.Errorf("findings %v", r.Outcomes[0].Findings)
			}
		})
	}
}

// Work that a frozen process leaves undone is not a finding about its behavior after it is thawed.
func TestWhatComesIfTheFrozenProcessIsKilledToo(t *testing.T) {
	gone := finding("secret/default/a", "never created; without faults: exists at the end")
	twice := finding("pod/default/a", "created 2 times; without faults: created once")
	for _, tt := range []struct {
		name   string
		killed []record.Finding
		want   string
		found  []record.Finding
	}{
		{"nothing", nil, "w-zombie-1 bug 3/3", []record.Finding{gone, twice}},
		{"one of two", []record.Finding{gone}, "w-zombie-1 bug 3/3", []record.Finding{twice}},
		{"the same", []record.Finding{gone, twice}, "w-zombie-1 unconfirmed 3/3", []record.Finding{gone, twice}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var kills []bool
			f := &fake{answer: func(p *plan.Plan, _ int, m *record.Meta, found *[]record.Finding, _ *[]string) error {
				m.Controllers[0].Replicas, m.Controllers[0].Locks = 2, []string{"lease.coordination.k8s.io/default/op"}
				switch p.TestName {
				case "w-zombie-1":
					*found, m.Verdict = []record.Finding{gone, twice}, record.Bug
				case "w-zombie-1-killed":
					*found = tt.killed
				default:
					return nil
				}
				kills = append(kills, plan.EffectOf[*plan.Thaw](&p.Actions[1]).Kill)
				return nil
			}}
			c := config(t, f, "w")
			c.Patterns = []string{"zombie"}
			r := mustRun(t, c)
			// The second plan freezes the leader at the end of its lease.
			if diff := cmp.Diff([]string{tt.want, "w-zombie-2 pass"}, statuses(r)); diff != "" {
				t.Error(diff)
			}
			if o := r.Outcomes[0]; !slices.Equal(o.Findings, tt.found) || (o.Reason == "") != (len(tt.killed) < 2) {
				t.Errorf("findings %v, reason %q", o.Findings, o.Reason)
			}
			if diff := cmp.Diff([]bool{false, false, false, true}, kills); diff != "" {
				t.Errorf("runs (-want +got):\n%s", diff)
			}
		})
	}
}

// The consequences of another client's deletion are not a finding about a write that is tried again.
func TestWhatComesIfTheAnswerIsNotLost(t *testing.T) {
	gone := finding("replicaset.apps/default/a", "deleted at the end; without faults: exists at the end")
	wrong := finding("db.example.com/default/a", "status.phase is \"Old\"; without faults: \"New\"")
	for _, tt := range []struct {
		name     string
		answered []record.Finding
		want     string
		found    []record.Finding
		runs     int
	}{
		{"nothing", nil, "w-namesake-1 bug 3/3", []record.Finding{gone, wrong}, 6},
		{"one of two", []record.Finding{gone}, "w-namesake-1 bug 3/3", []record.Finding{wrong}, 6},
		{"the same", []record.Finding{gone, wrong}, "w-namesake-1 unconfirmed 1/1", []record.Finding{gone, wrong}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var actions []int
			f := &fake{answer: func(
				p *plan.Plan, _ int, m *record.Meta, found *[]record.Finding, history *[]string,
			) error {
				const key = "db.example.com/default/a"
				*history = []string{key, "op " + key + ` {"status": {"phase": "New"}}`}
				switch p.TestName {
				case "w-namesake-1":
					*found, m.Verdict = []record.Finding{gone, wrong}, record.Bug
				case "w-namesake-1-answered":
					*found = tt.answered
				default:
					return nil
				}
				actions = append(actions, len(p.Actions))
				return nil
			}}
			c := config(t, f, "w")
			c.Patterns = []string{"namesake"}
			r := mustRun(t, c)
			if diff := cmp.Diff([]string{tt.want}, statuses(r)); diff != "" {
				t.Error(diff)
			}
			if o := r.Outcomes[0]; !slices.Equal(o.Findings, tt.found) || (o.Reason == "") != (len(tt.answered) < 2) {
				t.Errorf("findings %v, reason %q", o.Findings, o.Reason)
			}
			if diff := cmp.Diff([]int{3, 2, 3, 3, 2, 2}[:tt.runs], actions); diff != "" {
				t.Errorf("runs (-want +got):\n%s", diff)
			}
		})
	}
}

// A status that keeps a hash of all annotations differs because another client adds one, not because of a conflict.
func TestWhatComesWithoutAConflict(t *testing.T) {
	hash := finding("db.example.com/default/a", "status.seen is \"b\"; without faults: \"a\"")
	lost := finding("db.example.com/default/a", "status.phase is absent; without faults: \"New\"")
	hash.Harm, hash.Field, lost.Harm, lost.Field = record.HarmWrong, "status.seen", record.HarmWrong, "status.phase"
	for _, tt := range []struct {
		name    string
		quietly []record.Finding
		want    string
		found   []record.Finding
		runs    int
	}{
		{"nothing", nil, "w-conflict-1 bug 3/3", []record.Finding{hash, lost}, 4},
		{"the hash", []record.Finding{hash}, "w-conflict-1 bug 3/3", []record.Finding{lost}, 4},
		{"all", []record.Finding{hash, lost}, "w-conflict-1 unconfirmed 1/1", []record.Finding{hash, lost}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			runs := 0
			f := &fake{answer: func(
				p *plan.Plan, _ int, m *record.Meta, found *[]record.Finding, history *[]string,
			) error {
				const key = "db.example.com/default/a"
				*history = []string{
					key,
					"op " + key + ` {"metadata": {"resourceVersion": "1"}, "status": {"phase": "New", "seen": "a"}}`,
				}
				switch p.TestName {
				case "w-conflict-1":
					*found, m.Verdict = []record.Finding{hash, lost}, record.Bug
				case "w-conflict-1-quietly":
					last := p.Steps[len(p.Steps)-1]
					if len(p.Actions) > 0 || last.Patch == nil || last.Patch.ResourceKey.String() != key {
						t.Errorf("%d actions; the last step is %+v", len(p.Actions), last)
					}
					*found = tt.quietly
				default:
					return nil
				}
				runs++
				return nil
			}}
			c := config(t, f, "w")
			c.Patterns = []string{"conflict"}
			r := mustRun(t, c)
			if diff := cmp.Diff([]string{tt.want}, statuses(r)); diff != "" {
				t.Error(diff)
			}
			if o := r.Outcomes[0]; !slices.Equal(o.Findings, tt.found) || (o.Reason == "") != (len(tt.quietly) < 2) {
				t.Errorf("findings %v, reason %q", o.Findings, o.Reason)
			}
			if runs != tt.runs {
				t.Errorf("%d runs, want %d", runs, tt.runs)
			}
		})
	}
}

// A campaign that is interrupted goes on where it was: it runs the plan again that did not end, and no other. The
// records of runs are whole, or absent.
func TestResume(t *testing.T) {
	f := &fake{}
	c := config(t, f, "v", "w")
	whole := mustRun(t, c)
	if len(whole.Outcomes) < 6 || len(whole.NotRun) > 0 {
		t.Fatalf("%v, not run %v", statuses(whole), whole.NotRun)
	}
	for _, stop := range []int{0, 2, len(whole.Outcomes) - 1} {
		ctx, cancel := context.WithCancel(t.Context())
		plans := 0
		f := &fake{answer: func(p *plan.Plan, _ int, _ *record.Meta, _ *[]record.Finding, _ *[]string) error {
			if len(p.Actions) > 0 || p.CheckCaches {
				if plans++; plans == stop+1 {
					cancel()
				}
			}
			return nil
		}}
		c := config(t, f, "v", "w")
		if _, err := Learn(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		r, err := Run(ctx, c)
		cancel()
		if !errors.Is(err, context.Canceled) || len(r.Outcomes) != stop || len(r.NotRun) != len(whole.Outcomes)-stop {
			t.Fatalf("%v: %v, not run %v", err, statuses(r), r.NotRun)
		}
		partial, err := filepath.Glob(filepath.Join(c.Dir, "runs", "*", "*"+lab.PartialSuffix))
		if err != nil || len(partial) > 0 {
			t.Errorf("%v, %v", partial, err)
		}
		// A killed campaign leaves such a thing.
		leftover := filepath.Join(c.Dir, "runs", r.NotRun[0], "1"+lab.PartialSuffix, record.ObservationsFile)
		if err := os.MkdirAll(filepath.Dir(leftover), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(leftover, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		f.answer, f.all = nil, nil
		r = mustRun(t, c)
		if diff := cmp.Diff(statuses(whole), statuses(r)); diff != "" {
			t.Error(diff)
		}
		if want := len(whole.Outcomes) - stop; len(f.all) != want {
			t.Errorf("stopped after %d: %d runs, want %d: %v", stop, len(f.all), want, f.all)
		}
		if _, err := os.Stat(filepath.Dir(leftover)); err == nil {
			t.Error("what a killed run left is there")
		}
	}
}

// Findings with another suite say nothing.
func TestResumeAfterAChange(t *testing.T) {
	f := &fake{}
	c := config(t, f, "w")
	whole := mustRun(t, c)
	f.all = nil
	mustRun(t, c)
	if len(f.all) > 0 {
		t.Errorf("runs %v again", f.all)
	}
	c.Version = "v2"
	mustRun(t, c)
	if want := 2 + len(whole.Outcomes); len(f.all) != want {
		t.Errorf("%d runs, want %d", len(f.all), want)
	}
}

// A known finding needs no further runs.
func TestTheSameFindingsAgain(t *testing.T) {
	gone := finding("secret/default/a", "never created; without faults: exists at the end")
	gone.Harm = record.HarmMissing
	less := finding("secret/default/a", "data.a is absent; without faults: 1")
	less.Field = "data.a"
	f := answers(map[string]answer{
		"w-drift-10":       func(int, *record.Meta) []record.Finding { return []record.Finding{gone} },
		"w-drift-11":       func(int, *record.Meta) []record.Finding { return []record.Finding{gone} },
		"w-intermediate-1": func(int, *record.Meta) []record.Finding { return []record.Finding{less} },
	})
	r := mustRun(t, config(t, f, "w"))
	confirmed, atOnce := 0, 0
	for _, o := range r.Outcomes {
		switch {
		case o.Status != result.Bug:
		case o.Of == 3:
			confirmed++
		case o.Came == 1 && o.Of == 1 && o.Reason == "the same findings as those of w-drift-10" &&
			o.Plan == "w-drift-11":
			atOnce++
		}
	}
	if confirmed != 2 || atOnce != 1 {
		t.Errorf("%v", statuses(r))
	}
}

// How a run without the plan's actions ends explains only what is like that.
func TestExplainedByARunWithoutActions(t *testing.T) {
	for _, tt := range []struct {
		name    string
		without []string // what is created in the run without actions
		status  result.Status
		left    []string
	}{
		{"as usual", []string{"configmap/default/a", "op secret/default/a"}, result.Bug,
			[]string{"secret/default/a", "configmap/default/b"}},
		{"one of two", []string{"configmap/default/a"}, result.Bug, []string{"configmap/default/b"}},
		{"both", []string{"configmap/default/a", "configmap/default/b"}, result.OfWorkload, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &fake{answer: func(
				p *plan.Plan, _ int, meta *record.Meta, found *[]record.Finding, history *[]string,
			) error {
				if p.TestName != "w-intermediate-1" && p.TestName != "w-without-actions" {
					return nil
				}
				*history = []string{"configmap/default/a", "configmap/default/b"}
				if p.TestName == "w-without-actions" {
					*history = tt.without
				}
				if !slices.Contains(*history, "op secret/default/a") {
					*found = append(*found, finding("secret/default/a", "never created"))
				}
				if slices.Contains(*history, "configmap/default/b") {
					*found = append(*found, finding("configmap/default/b", "exists at the end"))
				}
				if *found != nil {
					meta.Verdict = record.Bug
				}
				return nil
			}}
			c := config(t, f, "w")
			c.Patterns = []string{"intermediate"}
			o := mustRun(t, c).Outcomes[0]
			var left []string
			for _, f := range o.Findings {
				left = append(left, f.Subject)
			}
			if o.Status != tt.status || tt.status == result.Bug && !slices.Equal(left, tt.left) {
				t.Errorf("%s: %v", o.Status, left)
			}
		})
	}
}

// While a finding is being confirmed, other plans with the same finding wait for the outcome, and others do not.
func TestTheSameFindingsSideBySide(t *testing.T) {
	gone := finding("secret/default/a", "never created; without faults: exists at the end")
	whole := mustRun(t, config(t, &fake{}, "w"))
	same := []string{whole.Outcomes[0].Plan, whole.Outcomes[1].Plan} // both interrupt the controller's work
	for _, tt := range []struct {
		name string
		came bool // the finding comes again
		want []string
	}{
		{"a bug", true, []string{"bug 1/1", "bug 3/3"}},
		{"not confirmed", false, []string{"unconfirmed 1/3", "unconfirmed 1/3"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			both, another := make(chan struct{}), make(chan struct{}) // closed when they, and another plan, have begun
			var mu sync.Mutex
			began, others := 0, 0
			f := &fake{answer: func(
				p *plan.Plan, n int, meta *record.Meta, found *[]record.Finding, _ *[]string,
			) error {
				mine := slices.Contains(same, p.TestName)
				mu.Lock()
				switch {
				case mine && n == 1:
					if began++; began == 2 {
						close(both)
					}
				case !mine && len(p.Actions) > 0:
					if others++; others == 1 {
						close(another)
					}
				}
				mu.Unlock()
				switch {
				case mine && n == 1:
					<-both // neither is confirmed before both have found it
				case mine && n == 2:
					<-another // the other runner has something else to do
				}
				if mine && (n == 1 || tt.came) {
					*found, meta.Verdict = []record.Finding{gone}, record.Bug
				}
				return nil
			}}
			c := config(t, f, "w")
			c.Runners = []run.Runner{f, f}
			r := mustRun(t, c)
			var got []string
			for _, o := range r.Outcomes {
				if o.Status != result.Passed {
					got = append(got, fmt.Sprintf("%s %d/%d", o.Status, o.Came, o.Of))
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, tt.want) || len(r.NotRun) > 0 {
				t.Errorf("%v", statuses(r))
			}
		})
	}
}

// A finding that another plan has now and then may come by itself: the workload is run more often without actions.
func TestDoubtfulFindings(t *testing.T) {
	rare := finding("pod/default/a", "created 3 times; without faults: created 2 times")
	f := &fake{answer: func(
		p *plan.Plan, number int, meta *record.Meta, found *[]record.Finding, history *[]string,
	) error {
		*history = []string{"configmap/default/a", "op secret/default/a", "op secret/default/b"}
		switch {
		case p.TestName == "w-intermediate-1" && number == 1,
			p.TestName == "w-intermediate-2",
			p.TestName == "w-without-actions" && number == 2:
			*found, meta.Verdict = []record.Finding{rare}, record.Bug
		}
		return nil
	}}
	c := config(t, f, "w")
	c.Patterns = []string{"intermediate"}
	want := []string{"w-intermediate-1 workload 1/3", "w-intermediate-2 workload 3/3"} // the first joins the second
	if diff := cmp.Diff(want, statuses(mustRun(t, c))); diff != "" {
		t.Error(diff)
	}
}

// An end to which slow controllers also come is not a finding, if it is also that of objects that are created at once.
func TestExplainedBySlowControllers(t *testing.T) {
	const seen = `op service/default/a {"status": {"seen": 1}}`
	for _, tt := range []struct {
		name    string
		steps   int    // of the workload that change something, one after the other
		ends    string // what a is with the plan and with slow controllers
		fresh   string // what it is if it is created at once
		subject string
		status  result.Status
	}{
		{"a field", 1, seen, seen, "service/default/a", result.OfWorkload},
		{
			"a field that is another one if created at once", 1, seen, "op service/default/a", "service/default/a",
			result.Bug,
		},
		{"an object", 1, "", "", "service/default/a", result.Bug},
		{"an object, without waiting", 2, "", "", "service/default/a", result.OfWorkload},
		{"an object that is there if created at once", 2, "", "op service/default/a", "service/default/a", result.Bug},
		{"another one", 2, "", "", "configmap/default/b", result.Bug},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &fake{answer: func(
				p *plan.Plan, _ int, meta *record.Meta, found *[]record.Finding, history *[]string,
			) error {
				slow := strings.HasSuffix(p.TestName, "-slow")
				if slow && len(p.Actions) < 2*confirm.SlowPace.Times() {
					t.Errorf("%s has %d actions", p.TestName, len(p.Actions))
				}
				a := "op service/default/a"
				switch {
				case slow || p.TestName == "w-intermediate-1":
					a = tt.ends
				case p.TestName == "w-fresh":
					a = tt.fresh
					if s := p.Steps[0].Apply; len(p.Steps) != 1 || s == nil || len(s.Objects) != 1 ||
						s.Objects[0]["kind"] != "configmap" {
						t.Errorf("steps %+v", p.Steps)
					}
				}
				*history = []string{"configmap/default/a"}
				if a != "" {
					*history = append(*history, a)
				}
				if p.TestName == "w-intermediate-1" {
					*found = []record.Finding{finding(tt.subject, "it differs")}
					meta.Verdict = record.Bug
				}
				return nil
			}}
			c := config(t, f, "w")
			step := plan.Step{Delete: &plan.DeleteStep{}}
			c.Suite.Workloads["w"] = plan.Workload{Steps: slices.Repeat([]plan.Step{step}, tt.steps)}
			c.Patterns = []string{"intermediate"}
			o := mustRun(t, c).Outcomes[0]
			if o.Status != tt.status {
				t.Errorf("%s (%d of %d): %v", o.Status, o.Came, o.Of, o.Findings)
			}
			if tt.status == result.OfWorkload && f.runs["w-intermediate-1"] != 1 {
				t.Errorf("the plan was run %d times to confirm it", f.runs["w-intermediate-1"])
			}
			if slowly := f.runs["w-slow"]; slowly != 1 && (tt.steps > 1 || tt.ends != "") {
				t.Errorf("the workload was run %d times with slow controllers", slowly)
			}
			if tt.status != result.OfWorkload {
				return
			}
			if o.Reason != "service/default/a ends like that with slow controllers" {
				t.Errorf("reason %q", o.Reason)
			}
			// Others who use the baseline know that, without these runs.
			c.Dir = t.TempDir()
			again := mustRun(t, c)
			if n := f.runs["w-slow"]; n != 1 || len(f.baseline.Alternatives) == 0 {
				t.Errorf("%d slow runs; %d alternatives; %v", n, len(f.baseline.Alternatives), statuses(again))
			}
		})
	}
}

// What has finished may end as it does if it is created at once with slow controllers.
func TestExplainedBySlowCreation(t *testing.T) {
	ended := func(hosts string) string {
		return `op service/default/a {"spec": {"hosts": ` + hosts +
			`}, "status": {"conditions": [{"type": "Complete", "status": "True"}]}}`
	}
	for _, tt := range []struct {
		name, created string // as it is if it is created at once, with slow controllers
		status        result.Status
	}{
		{"the same", ended("0"), result.OfWorkload},
		{"as usual", ended("2"), result.Bug},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &fake{answer: func(
				p *plan.Plan, _ int, meta *record.Meta, found *[]record.Finding, history *[]string,
			) error {
				*history = []string{"configmap/default/a", ended("2")}
				switch p.TestName {
				case "w-intermediate-1":
					(*history)[1] = ended("0")
					*found = []record.Finding{finding("service/default/a", "it differs")}
					meta.Verdict = record.Bug
				case "w-slow":
					(*history)[1] = ended("0")
				case "w-fresh-slow":
					(*history)[1] = tt.created
					if len(p.Actions) < 2*confirm.SlowPace.Times() {
						t.Errorf("%s has %d actions", p.TestName, len(p.Actions))
					}
				}
				return nil
			}}
			c := config(t, f, "w")
			c.Suite.Workloads["w"] = plan.Workload{Steps: []plan.Step{{Delete: &plan.DeleteStep{}}}}
			c.Patterns = []string{"intermediate"}
			o := mustRun(t, c).Outcomes[0]
			if o.Status != tt.status || f.runs["w-fresh-slow"] != 1 {
				t.Errorf("%s (%d of %d), %d runs: %v", o.Status, o.Came, o.Of, f.runs["w-fresh-slow"], o.Findings)
			}
		})
	}
}

// A status that describes an event is not a finding if a harmless fault leads to it, too. The harmless faults come only
// when they are needed.
func TestStatusThatKeepsErrors(t *testing.T) {
	for _, tt := range []struct {
		name     string
		status   string // with the plan
		harmless string // with harmless faults
		want     string
	}{
		{"an error", `"lastError": "x"`, `"lastError": "y"`, "w-intermediate-1 pass"},
		{"an error that no harmless fault shows", `"lastError": "x"`, ``, "w-intermediate-1 bug 3/3"},
		{"a phase", `"phase": "Failed"`, `"phase": "Failed"`, "w-intermediate-1 bug 3/3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &fake{}
			f.answer = func(
				p *plan.Plan, _ int, meta *record.Meta, found *[]record.Finding, history *[]string,
			) error {
				status := ""
				switch {
				case strings.HasPrefix(p.TestName, "w-harmless-"):
					status = tt.harmless
				case p.TestName == "w-intermediate-1":
					status = tt.status
					if len(f.baseline.Kept) == 0 { // otherwise the judges would find nothing
						*found = []record.Finding{finding("db.example.com/default/a", "it differs")}
						meta.Verdict = record.Bug
					}
				}
				*history = []string{`db.example.com/default/a {"status": {` + status + `}}`, "op secret/default/a"}
				return nil
			}
			c := config(t, f, "w")
			c.Patterns = []string{"intermediate"}
			if got := statuses(mustRun(t, c))[0]; got != tt.want {
				t.Errorf("%s, want %s; runs %v", got, tt.want, f.all)
			}
			if n := f.runs["w-harmless-1"] + f.runs["w-harmless-2"]; tt.name == "a phase" && n > 0 ||
				tt.name != "a phase" && n == 0 {
				t.Errorf("%d harmless faults: %v", n, f.all)
			}
		})
	}
}

// Regression: that a plan made an object Ready which is not Ready without faults was confirmed as a bug of the plan.
func TestNearerToItsPromiseThanWithoutFaults(t *testing.T) {
	const object, field = "db.example.com/default/a", "status.conditions[type=Ready].status"
	for _, tt := range []struct {
		name          string
		usual, plan   string // status of the condition Ready
		want, because string
	}{
		{"ready with the plan only", "False", "True", "w-intermediate-1 workload 1/1",
			"without any fault, " + object + " is farther from what its status promises than in this run: " + field +
				` is "True"; without faults: "False"`},
		{"ready without the plan only", "True", "False", "w-intermediate-1 bug 3/3", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &fake{answer: func(
				p *plan.Plan, _ int, meta *record.Meta, found *[]record.Finding, history *[]string,
			) error {
				is := tt.usual
				if p.TestName == "w-intermediate-1" {
					is = tt.plan
					*found = []record.Finding{{
						Severity: record.SeverityBug, Judge: record.JudgeBaseline, Subject: object, Field: field,
						Harm: findings.OfField(field, tt.usual, tt.plan), Title: "it differs",
					}}
					meta.Verdict = record.Bug
				}
				*history = []string{"configmap/default/a", "op secret/default/a", fmt.Sprintf(
					`op %s {"status": {"conditions": [{"type": "Ready", "status": %q}]}}`, object, is)}
				return nil
			}}
			c := config(t, f, "w")
			c.Patterns = []string{"intermediate"}
			r := mustRun(t, c)
			if got := statuses(r)[0]; got != tt.want || r.Outcomes[0].Reason != tt.because {
				t.Errorf("%s, want %s; reason %q", got, tt.want, r.Outcomes[0].Reason)
			}
		})
	}
}

func TestEndBeforeAllPlans(t *testing.T) {
	found := answers(map[string]answer{"w-intermediate-1": func(int, *record.Meta) []record.Finding {
		return []record.Finding{finding("secret/default/a", "never created")}
	}})
	c := config(t, found, "w")
	c.FailFast = true
	r := mustRun(t, c)
	if len(r.With(result.Bug)) != 1 || r.Outcomes[len(r.Outcomes)-1].Status != result.Bug || len(r.NotRun) == 0 ||
		r.Stopped != "the campaign stops at the first bug" {
		t.Errorf("fail fast: %v, %q", statuses(r), r.Stopped)
	}

	c = config(t, &fake{}, "w")
	if _, err := Learn(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	c.Budget = 1
	r = mustRun(t, c)
	if len(r.Outcomes) != 0 || len(r.NotRun) == 0 || !strings.HasPrefix(r.Stopped, "the budget of") {
		t.Errorf("budget: %v, %q", statuses(r), r.Stopped)
	}

	broken := &fake{answer: func(p *plan.Plan, _ int, _ *record.Meta, _ *[]record.Finding, _ *[]string) error {
		if len(p.Actions) > 0 || p.CheckCaches {
			return errors.New("disk full")
		}
		return nil
	}}
	c = config(t, broken, "v", "w")
	r, err := Run(t.Context(), c)
	if err == nil || !strings.Contains(err.Error(), "disk full") ||
		len(r.With(result.Failed)) != schedule.ManyFailures {
		t.Errorf("failures: %v, %v", statuses(r), err)
	}
	// They are tried again.
	broken.answer = nil
	if r = mustRun(t, c); len(r.With(result.Failed)) > 0 || len(r.NotRun) > 0 {
		t.Errorf("after the failures: %v", statuses(r))
	}
}

func TestSideBySide(t *testing.T) {
	// Each run waits for another one.
	meet := make(chan struct{})
	f := &fake{answer: func(p *plan.Plan, _ int, _ *record.Meta, _ *[]record.Finding, _ *[]string) error {
		if len(p.Actions) == 0 {
			return nil
		}
		select {
		case meet <- struct{}{}:
		case <-meet:
		}
		return nil
	}}
	c := config(t, f, "v", "w")
	c.Patterns = []string{"intermediate", "drift"} // an even number of plans
	c.Runners = []run.Runner{f, f}
	r := mustRun(t, c)
	if len(r.With(result.Passed)) != len(r.Outcomes) || len(r.Outcomes)%2 != 0 || f.most != 2 {
		t.Errorf("%v; at most %d at once", statuses(r), f.most)
	}
}

// unready is a runner that gets ready first.
type unready struct {
	*fake
	began, ended *int
	most         *int
	err          error
}

func (u *unready) Start(context.Context) error {
	u.mu.Lock()
	*u.began++
	*u.most = max(*u.most, *u.began-*u.ended)
	u.mu.Unlock()
	time.Sleep(time.Second)
	u.mu.Lock()
	defer u.mu.Unlock()
	*u.ended++
	return u.err
}

// Runners get ready one after the other, and only as many as there is work for.
func TestRunnersGetReady(t *testing.T) {
	for _, tt := range []struct {
		name     string
		patterns []string
		run      time.Duration // how long a run takes
		learn    int
		err      error
		want     int // runners
	}{
		{"nothing to do side by side", []string{"stale"}, time.Millisecond, 2, nil, 1},
		{"enough to do", nil, time.Minute, 3, nil, 4},
		{"they are soon not needed", nil, time.Millisecond, 3, nil, 2},
		{"none can start", nil, time.Minute, 3, errors.New("no memory"), 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{answer: func(*plan.Plan, int, *record.Meta, *[]record.Finding, *[]string) error {
					time.Sleep(tt.run)
					return nil
				}}
				c := config(t, f, "w")
				c.Patterns, c.Learn = tt.patterns, tt.learn
				c.Runners = nil
				var began, ended, most int
				for range 4 {
					r := &unready{fake: f, began: &began, ended: &ended, most: &most, err: tt.err}
					c.Runners = append(c.Runners, r)
				}
				r := mustRun(t, c)
				if len(r.With(result.Passed)) != len(r.Outcomes) {
					t.Errorf("%v", statuses(r))
				}
				if began != tt.want || ended != began || most != 1 {
					t.Errorf("%d began to get ready, %d at once, %d ended; want %d, one at a time", began, most, ended,
						tt.want)
				}
			})
		})
	}
}

// Every plan is in one shard, and in the same one if there are other plans.
func TestShards(t *testing.T) {
	shard := func(workloads ...string) map[string]int {
		in := map[string]int{}
		for i := 1; i <= 3; i++ {
			c := config(t, &fake{}, workloads...)
			c.Shard = result.Shard{I: i, Of: 3}
			r := mustRun(t, c)
			for _, o := range r.Outcomes {
				if in[o.Plan] != 0 {
					t.Errorf("%s is in the shards %d and %d", o.Plan, in[o.Plan], i)
				}
				in[o.Plan] = i
			}
			if len(workloads) > 1 && (len(r.Outcomes) == 0 || r.Elsewhere == 0) {
				t.Errorf("shard %d has %d plans, others %d", i, len(r.Outcomes), r.Elsewhere)
			}
		}
		return in
	}
	few, many := shard("w"), shard("u", "v", "w")
	if all := mustRun(t, config(t, &fake{}, "u", "v", "w")); len(all.Outcomes) != len(many) {
		t.Errorf("%d plans in all shards, want %d", len(many), len(all.Outcomes))
	}
	for name, i := range few {
		if many[name] != i {
			t.Errorf("%s is in shard %d, and with more plans in %d", name, i, many[name])
		}
	}
	for text, want := range map[string]string{
		"1/4": "1/4", "4/4": "4/4", "": "", "0/4": "bad", "5/4": "bad", "x/4": "bad", "1": "bad",
		"1/": "bad", "-1/4": "bad",
	} {
		s, err := result.ParseShard(text)
		if got := s.String(); err == nil && got != want || (err != nil) != (want == "bad") {
			t.Errorf("ParseShard(%q) = %q, %v", text, got, err)
		}
	}
}

// For each group of bugs, the simplest plan is made smaller, once.
func TestSmallerPlans(t *testing.T) {
	gone := []record.Finding{finding("secret/default/a", "never created")}
	other := []record.Finding{finding("pod/default/a", "never created")}
	f := answers(map[string]answer{
		"w-intermediate-1": func(int, *record.Meta) []record.Finding { return gone },
		"v-intermediate-1": func(int, *record.Meta) []record.Finding { return gone },
		"u-intermediate-1": func(int, *record.Meta) []record.Finding { return other },
	})
	c := config(t, f, "u", "v", "w")
	c.Patterns = []string{"intermediate"}
	var tried []string
	c.Shrink = func(_ context.Context, _ run.Runner, s Shrinking) (alone bool, err error) {
		tried = append(tried, s.Finding.Subject)
		if s.Finding == other[0] {
			return false, errors.New("it does not come")
		}
		return true, nil
	}
	r := mustRun(t, c)
	slices.Sort(tried)
	if !slices.Equal(tried, []string{"pod/default/a", "secret/default/a"}) {
		t.Errorf("tried %q", tried)
	}
	smaller := 0
	for i := range r.Outcomes {
		o := &r.Outcomes[i]
		if o.Smaller == "" {
			continue
		}
		smaller++
		if got, want := r.Show(o), "trommel -p "+filepath.Join(c.Dir, "smaller", o.Plan+".yaml"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if smaller != 1 {
		t.Errorf("%d smaller plans", smaller)
	}
	tried = nil
	if mustRun(t, c); !slices.Equal(tried, []string{"pod/default/a"}) {
		t.Errorf("tried %q again", tried)
	}
}

// Regression: smaller plans were judged by the baseline alone, and not by what the campaign has allowed.
func TestSmallerPlansKnowWhatIsAllowed(t *testing.T) {
	f := &fake{answer: func(
		p *plan.Plan, _ int, meta *record.Meta, found *[]record.Finding, history *[]string,
	) error {
		if strings.Contains(p.TestName, "-without-actions") {
			*history = append(*history, "configmap/default/b")
		}
		if p.TestName == "w-intermediate-1" {
			*found, meta.Verdict = []record.Finding{finding("secret/default/a", "never created")}, record.Bug
		}
		return nil
	}}
	c := config(t, f, "w")
	c.Patterns = []string{"intermediate"}
	allowed := 0
	c.Shrink = func(_ context.Context, _ run.Runner, s Shrinking) (bool, error) {
		allowed = len(s.Options.Baseline.Alternatives)
		return false, nil
	}
	mustRun(t, c)
	all, err := Learn(t.Context(), c) // as trommel -p --baseline does
	if err != nil {
		t.Fatal(err)
	}
	if known := len(all[0].Baseline.Alternatives); allowed != 1 || known != 1 {
		t.Errorf("%d allowed for smaller plans, %d for single ones", allowed, known)
	}
}

// Plans of one's own are judged by the baseline of their workload if there is one.
func TestOwnPlans(t *testing.T) {
	f := &fake{answer: func(p *plan.Plan, n int, _ *record.Meta, _ *[]record.Finding, history *[]string) error {
		if p.Workload == "unstable" && len(p.Actions) == 0 && n%2 == 0 {
			*history = nil
		}
		return nil
	}}
	c := config(t, f, "w", "unstable", "unused")
	for _, w := range []string{"w", "unstable"} {
		text := fmt.Sprintf(`{testName: own-%s, workload: %s, actions: [{actionType: restartController,
			actionTarget: op, trigger: {definitions: [{
			triggerName: t, condition: {triggerType: onTimeout, timeout: 1s}}]}}]}`, w, w)
		p, err := plan.Parse([]byte(text), "own.yaml")
		if err != nil {
			t.Fatal(err)
		}
		c.Plans = append(c.Plans, p)
	}
	// One has a workload of its own, and the name of another workload.
	p, err := plan.Parse([]byte("{testName: w, steps: [{sleep: 1s}], actions: []}"), "steps.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c.Plans = append(c.Plans, p)
	c.Settings.Plans = "plans"
	r := mustRun(t, c)
	if diff := cmp.Diff([]string{"own-w pass", "own-unstable pass", "w pass"}, statuses(r)); diff != "" {
		t.Error(diff)
	}
	if o := r.Outcomes[2]; !o.Judged || o.Workload != "plan-w" || f.runs["plan-w-without-faults"] != 2 {
		t.Errorf("%+v; runs %v", o, f.runs)
	}
	if !r.Outcomes[0].Judged || r.Outcomes[1].Judged || len(r.Unlearned) != 1 || r.Unlearned[0].Workload != "unstable" {
		t.Errorf("%+v, unlearned %v", r.Outcomes, r.Unlearned)
	}
	if slices.Contains(f.all, "unused-without-faults") {
		t.Error("a workload was learned that no plan uses")
	}
	want := "trommel -p own.yaml --suite " + c.Suite.File + " --baseline " + c.Baselines
	if got := r.Show(&r.Outcomes[0]); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A generated plan's file can be run by itself.
func TestFilesOfGeneratedPlans(t *testing.T) {
	c := config(t, &fake{}, "w")
	r := mustRun(t, c)
	for _, o := range r.Outcomes {
		suite, err := plan.FindSuite(o.File)
		if err != nil {
			t.Fatal(err)
		}
		s, err := plan.LoadSuite(suite)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := plan.LoadWith(o.File, s); err != nil || o.Why == "" || o.Record == "" {
			t.Errorf("%s: %v", o.Plan, err)
		}
	}
}

func TestCapacity(t *testing.T) {
	for _, tt := range []struct {
		n, cores int
		memory   int64
		want     string
	}{
		{1, 1, 1, "1"}, // a single one is not refused
		{4, 2, 8e9, "4"},
		{0, 2, 16e9, "2"},
		{0, 8, 5e9, "3"},
		{0, 1, 1, "1"},
		{0, 2, 0, "2"},
		{5, 2, 16e9, "at most 4 fit here: a cluster needs about 1.6 GB of memory and half a core; " +
			"available: 16.0 GB of memory and 2 cores"},
		{4, 8, 5e9, "at most 3 fit here: a cluster needs about 1.6 GB of memory and half a core; " +
			"available: 5.0 GB of memory and 8 cores"},
		{3, 1, 0, "at most 2 fit here: a cluster needs about 1.6 GB of memory and half a core; " +
			"available: 1 core"},
	} {
		n, err := parallel(tt.n, tt.cores, tt.memory)
		got := fmt.Sprint(n)
		if err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%d with %d cores and %d bytes: %q, want %q", tt.n, tt.cores, tt.memory, got, tt.want)
		}
	}
}
