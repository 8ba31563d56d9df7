// Package pattern makes plans from what a workload does without faults. Each pattern is a kind of fault that
// controllers handle wrongly; each of its plans strikes at one moment of the workload.
//
// The patterns intermediate, stale and unobserved are Sieve's (OSDI '22, section 4), and so are the rules by which
// candidates are dropped. docs/patterns.md describes all patterns.
package pattern

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
)

// Pattern is a kind of fault.
type Pattern struct {
	Name string
	// Finds says what is wrong with a controller that such a plan shows a bug of.
	Finds string
	// OnRequest: its plans are made only if the pattern is asked for by name, because what they find may be intended.
	OnRequest bool

	make func(g *generator) // nil: it needs more than one baseline, see Upgrades
	// needs says what a suite must have for the pattern; nil: nothing.
	needs func(*plan.Suite) bool
	// chance says how likely its plans find something, compared with those of other patterns.
	chance float64
}

// In reports whether a choice of patterns by their names contains the pattern. No names choose all patterns but those
// on request.
func (p Pattern) In(names []string) bool {
	return len(names) == 0 && !p.OnRequest || slices.Contains(names, p.Name)
}

// Fits reports whether the suite has what the pattern needs, so that it may have plans.
func (p Pattern) Fits(s *plan.Suite) bool { return p.needs == nil || p.needs(s) }

// Patterns lists all patterns.
func Patterns() []Pattern {
	return []Pattern{
		{
			Name: "intermediate", Finds: "half-done work that is never finished",
			make: (*generator).intermediate, chance: 4,
		},
		{
			Name: "twice", Finds: "work that a second crash leaves in a state nobody thought of",
			make: (*generator).twice, chance: 2,
		},
		{
			Name: "down", Finds: "what is missed while the controller is down", make: (*generator).down, chance: 2,
		},
		{Name: "stale", Finds: "acting on the past", make: (*generator).stale, chance: 4},
		{Name: "unobserved", Finds: "missed transitions", make: (*generator).unobserved, chance: 4},
		{
			Name: "own-write-unseen", Finds: "duplicates, and decisions that count on the controller's own cache",
			make: (*generator).ownWriteUnseen, chance: 2,
		},
		{
			Name: "lost-answer", Finds: "writes that are done twice, and errors that are swallowed",
			make: (*generator).lostAnswer, chance: 3,
		},
		{
			Name: "namesake", Finds: "what is done to another object of the same name",
			make: (*generator).namesake, chance: 2,
		},
		{
			Name: "denied", Finds: "errors that are swallowed, and work that is given up",
			make: (*generator).denied, chance: 1,
		},
		{
			Name: "partition", Finds: "work that is given up because another cluster did not answer",
			make: (*generator).partition, chance: 1,
			needs: func(s *plan.Suite) bool { return s.FirstCluster() != "" },
		},
		{
			Name: "skew", Finds: "decisions from two different moments",
			make: (*generator).skew, chance: 1,
		},
		{
			Name: "conflict", Finds: "updates that are given up after a conflict with another client",
			make: (*generator).conflict, chance: 1,
		},
		{
			Name: "drift", Finds: "objects that are not created again, and fields that are not put back",
			make: (*generator).drift, chance: 2,
		},
		{
			Name: "drift-any", Finds: "what a controller leaves as others make it, perhaps intentionally",
			OnRequest: true, make: (*generator).driftAny, chance: 2,
		},
		{
			Name: "zombie", Finds: "writes after the lease was lost that undo what the new leader has done",
			make: (*generator).zombie, chance: 2,
		},
		{
			Name: "time", Finds: "work that is missed when it comes due, and timers that are lost with the process",
			make: (*generator).timed, chance: 2,
		},
		{
			Name: Upgrade, Finds: "what a former version has left, and the new one does not take up", chance: 4,
			needs: func(s *plan.Suite) bool { return len(s.Builds) > 0 },
		},
		{
			Name: Rollback, Finds: "what the new version has left, and the former one does not take up",
			OnRequest: true, chance: 2,
		},
		{
			Name: "caches", Finds: "objects of its cache that a controller changes",
			make: (*generator).caches, chance: 1,
		},
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
func Generate(suite *plan.Suite, ref *baseline.Baseline, patterns ...string) []Candidate {
	return GenerateFor(suite, nil, ref, patterns...)
}

// GenerateFor is Generate for a workload that the suite does not have: the plans have these steps of their own.
func GenerateFor(suite *plan.Suite, steps []plan.Step, ref *baseline.Baseline, patterns ...string) []Candidate {
	g := newGenerator(suite, ref)
	if g.own = steps; len(steps) > 0 {
		g.steps = steps
	}
	for _, p := range Patterns() {
		if p.In(patterns) && p.make != nil {
			g.pattern = p
			p.make(g)
		}
	}
	g.skip()
	return g.ordered()
}

type generator struct {
	suite     *plan.Suite
	ref       *baseline.Baseline
	steps     []plan.Step // of the workload
	own       []plan.Step // the same, if it is not one of the suite's
	runs      []*trace    // without faults; the first is that of ref.Changes
	changed   [][]facts.Field
	writes    map[string][]int     // of each controller
	words     []string             // what describe says of each change
	where     map[facts.Key]string // what triggers also ask of objects
	positions map[int][]int        // of changes that triggers were made of: where they are in each run
	steadies  map[string]moment    // of each controller
	duration  time.Duration        // of the workload
	pattern   Pattern
	build     string         // with which the plans begin
	label     string         // in the plans' names; empty: the pattern's
	count     map[string]int // of plans, by signature
	all       []ranked
}

func newGenerator(suite *plan.Suite, ref *baseline.Baseline) *generator {
	g := &generator{
		suite: suite, ref: ref, count: map[string]int{}, positions: map[int][]int{},
		changed: make([][]facts.Field, len(ref.Changes)), writes: map[string][]int{},
		words:    make([]string, len(ref.Changes)),
		steadies: map[string]moment{}, steps: suite.Workloads[ref.Workload].Steps,
	}
	for _, changes := range slices.Concat([][]facts.Change{ref.Changes}, ref.Others) {
		g.runs = append(g.runs, newTrace(changes))
	}
	for i := range ref.Changes {
		g.changed[i] = ref.Changed(&ref.Changes[i])
		if by := ref.Changes[i].By; by != "" {
			g.writes[by] = append(g.writes[by], i)
		}
	}
	if n := len(ref.Changes); n > 0 {
		g.duration = ref.Changes[n-1].Time.Sub(ref.Changes[0].Time)
	}
	return g
}

// drop notes that there is no plan for a moment.
func (g *generator) drop(signature, why, rule string) {
	g.all = append(g.all, ranked{
		Candidate: Candidate{Pattern: g.pattern.Name, Signature: signature, Why: why, Dropped: rule},
		nth:       math.MaxInt,
	})
}

// add adds a plan, unless it is not valid.
func (g *generator) add(signature, why string, actions ...*build.Action) {
	g.addWith(1, signature, why, actions...)
}

// addWith adds a plan that is more or less likely than others of its pattern to find something.
func (g *generator) addWith(chance float64, signature, why string, actions ...*build.Action) {
	g.addPlan(g.begin(why).Then(actions...), chance, signature, why)
}

// begin is the plan that is added next, still without actions.
func (g *generator) begin(why string) *build.PlanBuilder {
	name := fmt.Sprintf("%s-%s-%d", g.ref.Workload, cmp.Or(g.label, g.pattern.Name), len(g.all)+1)
	b := build.Plan(name).Description(why).From(g.build).Steps(g.own...)
	if len(g.own) == 0 {
		b.Workload(g.ref.Workload)
	}
	return b
}

func (g *generator) addPlan(b *build.PlanBuilder, chance float64, signature, why string) {
	p, err := b.Build()
	if err == nil {
		p.Complete(g.suite)
		err = p.Validate(g.suite)
	}
	if err != nil {
		g.drop(signature, why, "its plan is not valid: "+err.Error())
		return
	}
	key := g.pattern.Name + " " + signature
	g.count[key]++
	g.all = append(g.all, ranked{
		Candidate: Candidate{Pattern: g.pattern.Name, Signature: signature, Plan: p, Why: why},
		nth:       g.count[key], value: chance * g.pattern.chance / (g.duration + length(p)).Seconds(),
	})
}

// signature of the i-th change: what is done to which type of object.
func (g *generator) signature(i int) string {
	c := &g.ref.Changes[i]
	typ := record.In(c.Key.Cluster(), c.Key.Type())
	return strings.Join(append([]string{typ, verb(c)}, facts.Paths(g.changed[i])...), " ")
}

func verb(c *facts.Change) string {
	if c.Marked() {
		return "marked for deletion"
	}
	return c.Event
}

// describe says what the i-th change is, in words.
func (g *generator) describe(i int) string {
	if g.words[i] == "" {
		g.words[i] = describe(&g.ref.Changes[i])
	}
	return g.words[i]
}

// namedFields is how many of the fields that change are named.
const namedFields = 4

// describe says what a change is, in words.
func describe(c *facts.Change) string {
	switch {
	case c.Marked():
		return fmt.Sprintf("%s is marked for deletion", c.Key)
	case c.Event == record.Created:
		return fmt.Sprintf("%s is created", c.Key)
	case c.Event == record.Deleted:
		return fmt.Sprintf("%s is deleted", c.Key)
	}
	if fields := baseline.Fields(c); len(fields) > 0 {
		if more := len(fields) - namedFields; more > 1 {
			fields = append(fields[:namedFields], fmt.Sprintf("and %d more fields", more))
		}
		return fmt.Sprintf("%s changes (%s)", c.Key, strings.Join(fields, ", "))
	}
	return fmt.Sprintf("%s changes", c.Key)
}
