package pattern

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/campaign/pattern/moment"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
)

// planner builds the plans of a workload from drafts, and numbers them.
type planner struct {
	suite    *plan.Suite
	workload string
	steps    []plan.Step    // of the plans' own, if the workload is not one of the suite's
	build    string         // with which the plans begin
	label    string         // in the plans' names; empty: the pattern's
	duration time.Duration  // of the workload
	count    map[string]int // of plans, by pattern and signature
	all      []ranked
}

// ranked is a candidate with what decides which of its workload's candidates comes first.
type ranked struct {
	Candidate
	nth   int     // of its signature
	value float64 // what it may find per second
}

func newPlanner(m *moment.Set, steps []plan.Step) *planner {
	return &planner{
		suite: m.Suite, workload: m.Baseline.Workload, steps: steps, duration: m.Duration(), count: map[string]int{},
	}
}

// take adds the candidates of a pattern.
func (p *planner) take(pattern Pattern, all drafts) {
	for i := range all {
		d := &all[i]
		key := pattern.Name + " " + d.signature
		if d.once && p.count[key] > 0 {
			continue
		}
		r := ranked{
			Candidate: Candidate{Pattern: pattern.Name, Signature: d.signature, Why: d.why, Dropped: d.dropped},
			nth:       math.MaxInt,
		}
		if d.dropped == "" {
			built, err := p.plan(cmp.Or(p.label, pattern.Name), d)
			if err != nil {
				r.Dropped = "its plan is not valid: " + err.Error()
			} else {
				p.count[key]++
				r.Plan, r.again, r.nth = built, d.again, p.count[key]
				r.value = d.chance * pattern.chance / (p.duration + length(built)).Seconds()
			}
		}
		p.all = append(p.all, r)
	}
}

// plan builds the plan of a draft, which is the next candidate.
func (p *planner) plan(label string, d *draft) (*plan.Plan, error) {
	b := build.Plan(fmt.Sprintf("%s-%s-%d", p.workload, label, len(p.all)+1)).Description(d.why).From(p.build).
		Steps(p.steps...).Then(d.actions...)
	if len(p.steps) == 0 {
		b.Workload(p.workload)
	}
	if d.checkCaches {
		b.CheckCaches()
	}
	built, err := b.Build()
	if err != nil {
		return nil, err
	}
	built.Schedule = d.schedule
	built.Complete(p.suite)
	return built, built.Validate(p.suite)
}

// leaveOut leaves out the plans that the suite does not want.
func (p *planner) leaveOut() {
	for i := range p.all {
		c := &p.all[i].Candidate
		if c.Plan == nil {
			continue
		}
		about := aboutOf(c.Plan)
		n := slices.IndexFunc(p.suite.Generate.Skip, func(s plan.Skip) bool { return skips(s, c.Pattern, about) })
		if n < 0 {
			continue
		}
		c.Plan, c.Skipped = nil, n+1
		c.Dropped = "left out by " + p.suite.SkipAt(n) + ": " + p.suite.Generate.Skip[n].String()
	}
}

// ordered returns the candidates in the order in which they are worth running, without regard to other workloads.
func (p *planner) ordered() []Candidate {
	slices.SortStableFunc(p.all, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.nth, b.nth), cmp.Compare(b.value, a.value))
	})
	all := make([]Candidate, len(p.all))
	for i, c := range p.all {
		all[i] = c.Candidate
	}
	var ordered []Candidate
	for _, place := range Order(all) {
		ordered = append(ordered, all[place.Index])
	}
	for _, c := range all {
		if c.Plan == nil {
			ordered = append(ordered, c)
		}
	}
	return ordered
}
