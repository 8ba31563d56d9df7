// Package generate makes plans from what a workload does without faults. Each pattern is a kind of fault that
// controllers handle wrongly; each of its plans strikes at one moment of the workload.
//
// The patterns intermediate, stale and unobserved are Sieve's (OSDI '22, section 4), and so are the rules by which
// candidates are dropped.
package generate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
	"github.com/trommel-dev/trommel/reference"
)

// Pattern is a kind of fault.
type Pattern struct {
	Name string
	// Finds says what is wrong with a controller that such a plan shows a bug of.
	Finds string
	make  func(g *generator)
}

// Patterns lists all patterns.
func Patterns() []Pattern {
	return []Pattern{
		{"intermediate", "half-done work that is never finished", (*generator).intermediate},
		{"stale", "acting on the past", (*generator).stale},
		{"unobserved", "missed transitions", (*generator).unobserved},
		{
			"own-write-unseen", "duplicates, and decisions that count on the controller's own cache",
			(*generator).ownWriteUnseen,
		},
		{"drift", "objects that are not created again when somebody deletes them", (*generator).drift},
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
}

// perSignature is how many plans of one signature there are at most.
const perSignature = 3

// Generate makes plans for the suite and the reference's workload, of the patterns with the given names, or of all
// patterns if there are no names. Plans that differ from all before them come first.
func Generate(suite *plan.Suite, ref *reference.Reference, patterns ...string) []Candidate {
	g := &generator{suite: suite, ref: ref, count: map[string]int{}}
	for _, p := range Patterns() {
		if len(patterns) == 0 || slices.Contains(patterns, p.Name) {
			g.pattern = p.Name
			p.make(g)
		}
	}
	// First one of each signature, then the second of each, and so on.
	slices.SortStableFunc(g.all, func(a, b ranked) int { return cmp.Compare(a.nth, b.nth) })
	all := make([]Candidate, len(g.all))
	for i, c := range g.all {
		all[i] = c.Candidate
	}
	return all
}

type ranked struct {
	Candidate
	nth int // of its signature
}

type generator struct {
	suite   *plan.Suite
	ref     *reference.Reference
	pattern string
	count   map[string]int // of plans, by signature
	all     []ranked
}

func (g *generator) drop(signature, why, rule string) {
	g.all = append(g.all, ranked{Candidate{Pattern: g.pattern, Signature: signature, Why: why, Dropped: rule},
		perSignature})
}

// add adds a plan, unless there are enough of its signature or it is not valid.
func (g *generator) add(signature, why string, actions ...*build.Action) {
	key := g.pattern + " " + signature
	if g.count[key] == perSignature {
		g.drop(signature, why, fmt.Sprintf("there are %d plans like it", perSignature))
		return
	}
	name := fmt.Sprintf("%s-%s-%d", g.ref.Workload, g.pattern, len(g.all)+1)
	p, err := build.Plan(name).Description(why).Workload(g.ref.Workload).Then(actions...).Build()
	if err == nil {
		p.Complete(g.suite)
		err = p.Validate(g.suite)
	}
	if err != nil {
		g.drop(signature, why, "its plan is not valid: "+err.Error())
		return
	}
	g.count[key]++
	g.all = append(g.all, ranked{Candidate{Pattern: g.pattern, Signature: signature, Plan: p, Why: why}, g.count[key]})
}

// signature of a change: what is done to which type of object.
func (g *generator) signature(c *reference.Change) string {
	return strings.Join(append([]string{c.Key.Type(), verb(c)}, g.ref.Paths(c)...), " ")
}

func verb(c *reference.Change) string {
	if c.Marked() {
		return "marked for deletion"
	}
	return c.Event
}

// describe says what a change is, in words.
func describe(c *reference.Change) string {
	switch {
	case c.Marked():
		return fmt.Sprintf("%s is marked for deletion", c.Key)
	case c.Event == record.Created:
		return fmt.Sprintf("%s is created", c.Key)
	case c.Event == record.Deleted:
		return fmt.Sprintf("%s is deleted", c.Key)
	}
	if fields := reference.Fields(c); len(fields) > 0 {
		return fmt.Sprintf("%s changes (%s)", c.Key, strings.Join(fields, ", "))
	}
	return fmt.Sprintf("%s changes", c.Key)
}
