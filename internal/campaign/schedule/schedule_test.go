package schedule

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/record"
)

// fake is a plan of a simulated campaign.
type fake struct {
	name  string
	takes int    // seconds for a run
	finds string // the object that its finding is about; empty: it passes; "!": it cannot be run
	harm  record.Harm
	drops string // workload whose plans are dropped when it ends
}

// simulation drives a schedule as workers do, in virtual time.
type simulation struct {
	*Schedule
	fakes map[string]fake
	now   time.Duration
	busy  []work // runs that go on
	log   []string
	err   error
}

// work is what one worker does: the first run of a plan, or the runs that confirm what it has found.
type work struct {
	until time.Duration
	plan  *Plan
	known *result.Outcome // nil: the first run
}

func simulate(s *Schedule, fakes []fake) *simulation {
	m := &simulation{Schedule: s, fakes: map[string]fake{}, now: s.Spent}
	var plans []*Plan
	for _, f := range fakes {
		m.fakes[f.name] = f
		workload, _, _ := strings.Cut(f.name, "-")
		plans = append(plans, &Plan{
			Name: f.name, Workload: workload, Estimate: time.Duration(f.takes) * time.Second,
		})
	}
	s.Arrange(plans)
	return m
}

// run simulates the campaign up to its end. The log has a line for each thing that happens.
func (m *simulation) run() {
	for m.err == nil {
		for len(m.busy) < max(1, m.Runners) {
			p := m.Next(m.now).Plan
			if p == nil {
				break
			}
			if p.Known != nil {
				m.note("goes on", p.Name)
				m.confirm(p, p.Known)
				continue
			}
			m.note("begins", p.Name)
			m.busy = append(m.busy, work{until: m.now + m.takes(p), plan: p})
		}
		if len(m.busy) == 0 {
			break
		}
		i := 0
		for k, w := range m.busy {
			if w.until < m.busy[i].until {
				i = k
			}
		}
		w := m.busy[i]
		m.busy = slices.Delete(m.busy, i, i+1)
		m.now = w.until
		m.ended(w)
	}
	if m.Stopped() != "" {
		m.note("stops:", m.Stopped())
	}
}

func (m *simulation) takes(p *Plan) time.Duration {
	return time.Duration(m.fakes[p.Name].takes) * time.Second
}

func (m *simulation) note(what, about string) {
	m.log = append(m.log, fmt.Sprintf("%s %s %s", m.now, what, about))
}

func (m *simulation) ended(w work) {
	if w.known != nil {
		m.Confirmed(time.Duration(m.Repeat) * m.takes(w.plan))
		w.known.Status, w.known.Of = result.Bug, m.Repeat
		m.end(w.plan, w.known)
		return
	}
	f := m.fakes[w.plan.Name]
	m.Ran(f.name, m.takes(w.plan))
	o := &result.Outcome{Plan: f.name, Took: m.takes(w.plan), Status: result.Passed, Workload: w.plan.Workload}
	switch f.finds {
	case "":
	case "!":
		o.Status, o.Reason = result.Failed, "disk full"
	default:
		o.Findings = []record.Finding{{
			Severity: record.SeverityBug, Judge: record.JudgeBaseline, Subject: f.finds, Title: f.finds, Harm: f.harm,
		}}
		m.confirm(w.plan, o)
		return
	}
	m.end(w.plan, o)
	if f.drops != "" {
		m.note("drops", fmt.Sprint(len(m.Drop(func(p *Plan) bool { return p.Workload == f.drops }))))
	}
}

// confirm confirms what a plan has found, unless another plan has found the same. The runs take as long as the plan's.
func (m *simulation) confirm(p *Plan, o *result.Outcome) {
	if !m.Confirm(p, o) {
		m.note("waits", p.Name)
		return
	}
	if like := m.Like(o); like != "" {
		o.Status, o.Like = result.Bug, like
		m.end(p, o)
		return
	}
	m.note("confirms", p.Name)
	m.busy = append(m.busy, work{until: m.now + time.Duration(m.Repeat)*m.takes(p), plan: p, known: o})
}

func (m *simulation) end(p *Plan, o *result.Outcome) {
	what := string(o.Status)
	if o.Like != "" {
		what += " like " + o.Like + ":"
	}
	m.note(what, p.Name)
	m.err = m.End(p, o)
}

func TestWholeCampaigns(t *testing.T) {
	for _, tt := range []struct {
		name   string
		config Config
		fakes  []fake
		before []*result.Outcome // of an earlier session
		want   []string
	}{
		{
			name: "two runners and no budget", config: Config{Budget: Budget{Runners: 2}},
			fakes: []fake{{name: "v-1", takes: 3}, {name: "v-2", takes: 1}, {name: "v-3", takes: 1}},
			want: []string{
				"0s begins v-1", "0s begins v-2", "1s pass v-2", "1s begins v-3", "2s pass v-3", "3s pass v-1",
			},
		},
		{
			name:   "of two plans with the same finding, one is confirmed",
			config: Config{Budget: Budget{Runners: 2}, Repeat: 3},
			fakes: []fake{
				{name: "v-1", takes: 1, finds: "a"}, {name: "v-2", takes: 2, finds: "a"}, {name: "v-3", takes: 1},
			},
			want: []string{
				"0s begins v-1", "0s begins v-2", "1s confirms v-1", "2s waits v-2", "2s begins v-3", "3s pass v-3",
				"4s bug v-1", "4s goes on v-2", "4s bug like v-1: v-2",
			},
		},
		{
			name: "the budget is for what can end", config: Config{Budget: Budget{Limit: 10 * time.Second}, Repeat: 3},
			fakes: []fake{
				{name: "v-1", takes: 4}, {name: "v-2", takes: 20}, {name: "v-3", takes: 5}, {name: "v-4", takes: 2},
			},
			want: []string{
				"0s begins v-1", "4s pass v-1", "4s begins v-3", "9s pass v-3",
				"9s stops: the budget of 10s leaves no time for more",
			},
		},
		{
			name: "as soon as something was found, time is left to confirm", config: Config{
				Budget: Budget{Limit: 11 * time.Second}, Repeat: 3,
			},
			fakes: []fake{{name: "v-1", takes: 2, finds: "a"}, {name: "v-2", takes: 2}},
			want: []string{
				"0s begins v-1", "2s confirms v-1", "8s bug v-1", "8s stops: the budget of 11s leaves no time for more",
			},
		},
		{
			name:   "when confirming has had its share, plans begin first, and then the greatest harm goes on",
			config: Config{Budget: Budget{Limit: 40 * time.Second}, Repeat: 3},
			fakes: []fake{
				{name: "v-1", takes: 4, finds: "a", harm: record.HarmStatus},
				{name: "v-2", takes: 1, finds: "b", harm: record.HarmStatus},
				{name: "v-3", takes: 1, finds: "c", harm: record.HarmLost}, {name: "v-4", takes: 1},
			},
			want: []string{
				"0s begins v-1", "4s confirms v-1", "16s bug v-1", "16s begins v-2", "17s waits v-2", "17s begins v-3",
				"18s waits v-3", "18s begins v-4", "19s pass v-4", "19s goes on v-3", "19s confirms v-3",
				"22s bug v-3", "22s goes on v-2", "22s confirms v-2", "25s bug v-2",
			},
		},
		{
			name: "the first bug ends it", config: Config{Repeat: 1, FailFast: true},
			fakes: []fake{{name: "v-1", takes: 1, finds: "a"}, {name: "v-2", takes: 1}},
			want: []string{
				"0s begins v-1", "1s confirms v-1", "2s bug v-1", "2s stops: the campaign stops at the first bug",
			},
		},
		{
			name: "five plans in a row cannot be run",
			fakes: []fake{
				{name: "v-1", takes: 1, finds: "!"}, {name: "v-2", takes: 1, finds: "!"},
				{name: "v-3", takes: 1, finds: "!"}, {name: "v-4", takes: 1, finds: "!"},
				{name: "v-5", takes: 1, finds: "!"}, {name: "v-6", takes: 1},
			},
			want: []string{
				"0s begins v-1", "1s failed v-1", "1s begins v-2", "2s failed v-2", "2s begins v-3", "3s failed v-3",
				"3s begins v-4", "4s failed v-4", "4s begins v-5", "5s failed v-5",
				"5s stops: 5 plans in a row could not be run",
			},
		},
		{
			name:  "a workload fails without faults",
			fakes: []fake{{name: "v-1", takes: 1, drops: "v"}, {name: "v-2", takes: 1}, {name: "w-1", takes: 1}},
			want:  []string{"0s begins v-1", "1s pass v-1", "1s drops 1", "1s begins w-1", "2s pass w-1"},
		},
		{
			name:   "a campaign is resumed",
			config: Config{Budget: Budget{Limit: time.Hour, Spent: time.Minute}, Repeat: 1},
			fakes: []fake{
				{name: "v-1", takes: 1}, {name: "v-2", takes: 1}, {name: "v-3", takes: 1, finds: "a"},
				{name: "v-4", takes: 1}, {name: "v-5", takes: 1},
			},
			before: []*result.Outcome{
				{Plan: "v-1", Status: result.Passed, Took: time.Second},
				{Plan: "v-2", Status: result.Passed, Key: "of another plan"},
				{
					Plan: "v-3", Status: result.Unconfirmed, Took: time.Second,
					Confirmation: result.Confirmation{Pending: true},
					Findings:     []record.Finding{{Subject: "a"}},
				},
				{Plan: "v-4", Status: result.Failed},
			},
			want: []string{
				"1m0s goes on v-3", "1m0s confirms v-3", "1m1s bug v-3", "1m1s begins v-2", "1m2s pass v-2",
				"1m2s begins v-4", "1m3s pass v-4", "1m3s begins v-5", "1m4s pass v-5",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := simulate(New(tt.config), tt.fakes)
			m.Resume(tt.config.Spent, tt.before)
			claimed := m.Arrange(m.Plans())
			m.Forget()
			for i, p := range claimed.Pending {
				m.PutOff(p, claimed.Outcomes[i])
			}
			m.Ready(m.now)
			m.run()
			if diff := cmp.Diff(tt.want, m.log); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What is said of the budget before the first plan, and when plans take longer than was estimated.
func TestForesee(t *testing.T) {
	var fakes []fake
	for i := range 100 {
		fakes = append(fakes, fake{name: fmt.Sprintf("v-%d", i), takes: 2})
	}
	for _, tt := range []struct {
		limit time.Duration
		want  string
	}{
		{0, "100 plans, in about 3 min; --budget sets a limit"},
		{time.Hour, "budget 1h (after the builds), of which learning took 20 s: all 100 plans, in about 3 min"},
		{2 * time.Minute, "budget 2m (after the builds), of which learning took 20 s: about 50 of 100 plans, the " +
			"most valuable first; fewer if there are findings to confirm"},
		{20 * time.Second, ""},
	} {
		m := simulate(New(Config{Budget: Budget{Limit: tt.limit}}), fakes)
		m.Learning.spent = 20 * time.Second
		if got := m.Foresee(20 * time.Second); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
	m := simulate(New(Config{Budget: Budget{Limit: 2 * time.Minute}}), fakes)
	m.Learning.spent = 20 * time.Second
	m.Ready(20 * time.Second)
	m.Foresee(20 * time.Second)
	for i, p := range m.Plans()[:3] {
		now := 20*time.Second + time.Duration(i+1)*10*time.Second
		if next := m.Next(now - 10*time.Second); next.Plan != p {
			t.Fatalf("%v begins, not %s", next, p.Name)
		}
		m.Ran(p.Name, 10*time.Second)
		if err := m.End(p, &result.Outcome{Plan: p.Name, Status: result.Passed, Took: 10 * time.Second}); err != nil {
			t.Fatal(err)
		}
		want := ""
		if i == 2 {
			want = "budget 2m: now about 10 of 100 plans, by the time that plans have taken so far"
		}
		if got := m.Reforesee(now); got != want {
			t.Errorf("after plan %d: %q, want %q", i+1, got, want)
		}
	}
}
