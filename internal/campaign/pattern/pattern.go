// Package pattern makes plans from what a workload does without faults. Each pattern is a kind of fault that
// controllers handle wrongly; each of its plans strikes at one moment of the workload.
//
// Package moment describes what a workload offers. There is one file for each pattern, which makes drafts from the
// moments. The planner builds plans from the drafts; strike, length, order and skip decide which plans come first.
//
// The patterns intermediate, stale and unobserved are Sieve's (OSDI '22, section 4), and so are the rules by which
// candidates are dropped. docs/patterns.md describes all patterns.
package pattern

import (
	"slices"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/campaign/pattern/moment"
	"github.com/trommel-dev/trommel/plan"
)

// Pattern is a kind of fault.
type Pattern struct {
	Name string
	// Finds says what is wrong with a controller that such a plan shows a bug of.
	Finds string
	// OnRequest: its plans are made only if the pattern is asked for by name, because what they find may be intended.
	OnRequest bool
	// Endless: the pattern never runs out of plans. Without a request, they are made only if there is a budget.
	Endless bool

	// drafts makes the plans of a workload; nil: they need more than one baseline, see Upgrades.
	drafts func(*moment.Set) drafts
	// needs says what a suite must have for the pattern; nil: nothing.
	needs func(*plan.Suite) bool
	// chance says how likely its plans find something, compared with those of other patterns.
	chance float64
	// foremost: the pattern is one of those that find most. Its plans come first.
	foremost bool
}

// In reports whether a choice of patterns by their names contains the pattern. No names choose all patterns but those
// on request.
func (p Pattern) In(names []string) bool {
	return len(names) == 0 && !p.OnRequest || slices.Contains(names, p.Name)
}

// WithBudget are the names of the patterns of which plans are made if there is a budget and no request.
func WithBudget() (names []string) {
	for _, p := range Patterns() {
		if !p.OnRequest || p.Endless {
			names = append(names, p.Name)
		}
	}
	return names
}

// Chosen reports whether plans of the pattern with that name are made if a user has chosen these patterns.
func Chosen(name string, choice []string) bool {
	return slices.ContainsFunc(Patterns(), func(p Pattern) bool { return p.Name == name && p.In(choice) })
}

// Fits reports whether the suite has what the pattern needs, so that it may have plans.
func (p Pattern) Fits(s *plan.Suite) bool { return p.needs == nil || p.needs(s) }

// Patterns lists all patterns.
func Patterns() []Pattern {
	return []Pattern{
		intermediate, twice, down, stale, unobserved, ownWriteUnseen, lostAnswer, namesake, denied, partition, skew,
		conflict, drift, driftAny, zombie, timers, upgrade, rollback, caches, schedules,
	}
}

// Candidate is a plan, or the reason why there is none.
type Candidate struct {
	Pattern string
	// Signature is what plans of one pattern have in common that are likely to find the same.
	Signature string
	Plan      *plan.Plan // complete and valid; nil if it was dropped
	Why       string     // the moment, in words
	Dropped   string     // the rule that dropped it; empty: none
	// Skipped is by which of the suite's items of generate.skip it was left out, from 1 on; 0: by none.
	Skipped int
	// Without is the plan with what is left of Plan without its actions; nil: the same plan with none.
	Without *plan.Plan

	again strike // the gravest of what a controller that is shown the past may do once more
}

// Generate makes plans for the suite and the baseline's workload, of the patterns with the given names, or of all
// patterns but those on request if there are no names. Those come first that may find most in the time that they take,
// and that differ from all before them.
func Generate(suite *plan.Suite, b *baseline.Baseline, patterns ...string) []Candidate {
	return GenerateFor(suite, nil, b, patterns...)
}

// GenerateFor is Generate for a workload that the suite does not have: the plans have these steps of their own.
func GenerateFor(suite *plan.Suite, steps []plan.Step, b *baseline.Baseline, patterns ...string) []Candidate {
	m := moment.New(suite, b, steps)
	p := newPlanner(m, steps)
	for _, pattern := range Patterns() {
		if pattern.In(patterns) && pattern.drafts != nil {
			p.take(pattern, pattern.drafts(m))
		}
	}
	p.leaveOut()
	return p.ordered()
}
