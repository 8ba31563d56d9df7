package pattern

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline/findings"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// ranked is a candidate with what decides which of its workload's candidates comes first.
type ranked struct {
	Candidate
	nth   int     // of its signature
	value float64 // what it may find per second
}

// Times for which the length of a run is estimated.
const (
	settleTime  = 2 * time.Second // from the last change to the verdict
	restartTime = 2 * time.Second // until a restarted controller works again
	// takeoverTime is how long it takes until another process leads: client-go's usual lease, and a retry.
	takeoverTime = 17 * time.Second
	// startTime is how long the machine works to start a process.
	startTime = 300 * time.Millisecond
)

// length estimates how much longer a plan makes the run of a workload than from its first change to its last one.
func length(p *plan.Plan) time.Duration { return settleTime + Extra(p, false) }

// Extra estimates how much longer a run is with a plan's actions, by the machine's clock. In virtual time, waiting
// costs nothing.
func Extra(p *plan.Plan, virtual bool) time.Duration {
	var waits, works time.Duration
	for i := range p.Actions {
		a := &p.Actions[i]
		waits += a.WaitBefore + a.WaitAfter
		if e := a.Effects(); e.Starts != "" || e.Upgrades != nil {
			waits += restartTime
			works += startTime
		} else if e.Freezes != "" {
			waits += takeoverTime
		}
		for _, t := range a.Trigger.Definitions {
			waits += t.Condition.Timeout
		}
	}
	if virtual {
		return works
	}
	return waits
}

// ordered returns the candidates in the order in which they are worth running, without regard to other workloads.
func (g *generator) ordered() []Candidate {
	slices.SortStableFunc(g.all, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.nth, b.nth), cmp.Compare(b.value, a.value))
	})
	all := make([]Candidate, len(g.all))
	for i, c := range g.all {
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

// strike is what a plan strikes at.
type strike struct {
	typ, what string
	stake     findings.Stake
}

func (s strike) String() string { return s.typ + " " + s.what }

// What a plan strikes at is made, changed, marked for deletion or deleted.
const (
	made    = "created"
	changed = "updated"
	marks   = "marked"
	removed = "deleted"
)

// struck says what a plan strikes at, and what the moment is at which it does. A plan holds or loses what is in the
// scope of its first action with one, which may be another object than the one of the moment. A client's write strikes
// at what it writes.
func struck(p *plan.Plan) (at, moment strike) {
	var all []plan.Definition // of changes and annotated calls, in order
	scope := ""
	for i := range p.Actions {
		a := &p.Actions[i]
		scope = cmp.Or(scope, a.PauseScope, a.CallScope)
		for _, d := range a.Trigger.Definitions {
			if d.Condition.ResourceKey.Type != "" || d.Condition.Call != "" {
				all = append(all, d)
			}
		}
	}
	if len(all) == 0 {
		return at, moment // at a time
	}
	at, moment = strikeAt(&all[0].Condition), strikeAt(&all[len(all)-1].Condition)
	for i := range p.Actions {
		if s, ok := written(&p.Actions[i]); ok {
			return s, moment
		}
	}
	typ, _, _ := strings.Cut(scope, "/")
	for i := range all {
		if d := &all[i].Condition; scope == d.ResourceKey.String() || typ == typeOf(d.ResourceKey) {
			return strikeAt(d), moment
		}
	}
	return at, moment
}

func typeOf(key plan.ResourceKey) string { return facts.Key(key.String()).Type() }

// strikeAt is the change that satisfies a condition, or the call.
func strikeAt(c *plan.Condition) strike {
	if c.Call != "" {
		return strike{typ: c.Call, what: "called", stake: findings.StakeUsual}
	}
	s := strike{typ: typeOf(c.ResourceKey)}
	content := true
	switch c.Type {
	case plan.OnObjectCreation:
		s.what = made
	case plan.OnObjectDeletion:
		s.what = removed
	default:
		s.what = changed
		before, _ := c.PrevState.(object)
		after, _ := c.CurState.(object)
		switch {
		case valueAt(after, []string{"metadata", "deletionTimestamp"}) == plan.Present:
			s.what = marks
		case valueAt(after, []string{"metadata", "finalizers"}) == plan.Absent:
			s.what = removed // it was the last one
		case len(before)+len(after) > 0:
			content = asks(before) || asks(after)
		}
	}
	s.stake = findings.AtStake(s.typ, s.what == marks || s.what == removed, content)
	return s
}

// asks reports whether a part of a state is more than a status and descriptions: the spec, data, or what decides how
// long the object lives.
func asks(state object) bool {
	for field, v := range state {
		if meta, _ := v.(object); field == "metadata" {
			for name := range meta {
				if isContent([]string{field, name}) {
					return true
				}
			}
		} else if isContent([]string{field}) {
			return true
		}
	}
	return false
}

// isContent reports whether a field is part of what asks counts.
func isContent(path []string) bool {
	switch path[0] {
	case "metadata":
		return len(path) > 1 && (path[1] == "finalizers" || path[1] == "ownerReferences")
	case "status":
		return false
	}
	return true
}

// written is what an action writes as another client; ok: it does. An annotation that means nothing to anybody is only
// there to disturb another write.
func written(a *plan.Action) (s strike, ok bool) {
	s.typ = typeOf(a.ResourceKey)
	content := false
	e := a.Effects()
	switch operations, _ := a.Patch.([]any); {
	case e.Deletes.Type != "":
		s.what = removed
	case e.Writes && len(operations) > 0:
		s.what = changed
		for _, o := range operations {
			o, _ := o.(object)
			path, _ := o["path"].(string)
			content = content || isContent(strings.Split(strings.TrimPrefix(path, "/"), "/"))
		}
	default:
		return s, false
	}
	s.stake = findings.AtStake(s.typ, s.what == removed, content)
	return s, true
}

// foremost are the patterns that find most: Sieve's, and lost answers.
var foremost = []string{"intermediate", "stale", "unobserved", "lost-answer"}

// Place is where a candidate is: which workload has it, and where in the list of the workload.
type Place struct{ Workload, Index int }

// placed is a plan with what decides when it is run.
type placed struct {
	Place
	*Candidate
	at, moment strike
	// again is how many plans before it do the same at the same moment, in this workload or another one.
	again     int
	namesake  bool // see Order
	atRest    bool // see Candidate.AtRest
	nth       int  // of its signature, among those that are not the same
	round     int  // its number among the plans of its kind
	foremost  bool
	worth     float64
	turn      int // its number among the plans of its pattern in its class
	moments   int // how many plans its workload has
	kind, key string
}

// Order returns the plans of workloads in the order in which they are worth running. Each list has the candidates of a
// workload, as GenerateFor returns them.
//
// What differs only in the workload around it comes last: a plan that does the same to the same objects, at the same
// moment, as one of another workload. Of the others, first there is one plan of each pattern, type of object and
// operation, over all workloads, then the second one of each, and so on. In each of these rounds the patterns that find
// most come first, and among these the plans with most at stake: see findings.Stake. What a controller may do once more
// that is shown the past counts like what it is shown, and makes another kind of it. Before all else a controller is
// shown the mark for deletion of a namesake of what holds data, once at each kind of its writes: it may delete what is
// in use. An upgrade at rest comes first in each round, of one workload after the other: it shows what all upgrades of
// the workload have in common.
func Order(workloads ...[]Candidate) []Place {
	var all []*placed
	for w, candidates := range workloads {
		plans := 0
		for i := range candidates {
			if c := &candidates[i]; c.Plan != nil {
				plans++
				all = append(all, newPlaced(w, i, c))
			}
		}
		for _, p := range all[len(all)-plans:] {
			p.moments = plans
		}
	}
	// A short workload is quicker. In each, those come first that are likely to find more.
	slices.SortStableFunc(all, func(a, b *placed) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.moments, b.moments),
			cmp.Compare(a.Workload, b.Workload))
	})
	number(all, func(p *placed) string { return p.key }, func(p *placed, n int) { p.again = n })
	slices.SortStableFunc(all, func(a, b *placed) int { return cmp.Compare(a.again, b.again) })
	number(all, func(p *placed) string { return fmt.Sprint(p.again, p.Pattern, " ", p.Signature) },
		func(p *placed, n int) { p.nth = n })
	slices.SortStableFunc(all, func(a, b *placed) int {
		return cmp.Or(cmp.Compare(a.again, b.again), cmp.Compare(a.nth, b.nth), cmp.Compare(b.at.stake, a.at.stake),
			cmp.Compare(b.moment.stake, a.moment.stake))
	})
	number(all, func(p *placed) string { return fmt.Sprint(p.again, p.kind) }, func(p *placed, n int) {
		p.round = n
		p.namesake = p.namesake && n == 0
	})
	class := func(a, b *placed) int {
		return cmp.Or(cmp.Compare(a.again, b.again), first(a.namesake, b.namesake), cmp.Compare(a.round, b.round),
			first(a.atRest, b.atRest), first(a.foremost, b.foremost), cmp.Compare(b.at.stake, a.at.stake))
	}
	slices.SortStableFunc(all, func(a, b *placed) int { return cmp.Or(class(a, b), cmp.Compare(b.worth, a.worth)) })
	number(all, func(p *placed) string {
		return fmt.Sprint(p.again, p.namesake, p.round, p.foremost, p.at.stake, p.Pattern)
	}, func(p *placed, n int) { p.turn = n })
	slices.SortStableFunc(all, func(a, b *placed) int { return cmp.Or(class(a, b), cmp.Compare(a.turn, b.turn)) })
	places := make([]Place, len(all))
	for i, p := range all {
		places[i] = p.Place
	}
	return places
}

func newPlaced(workload, index int, c *Candidate) *placed {
	p := &placed{
		Place: Place{workload, index}, Candidate: c, foremost: slices.Contains(foremost, c.Pattern),
		worth: chanceOf(c.Pattern) / length(c.Plan).Seconds(),
	}
	p.at, p.moment = struck(c.Plan)
	p.kind = c.Pattern + " " + p.at.String()
	if p.namesake = c.Pattern == "stale" && p.at.what == marks && p.at.stake == findings.StakeLoss; p.namesake {
		p.kind += " " + p.moment.String()
	}
	if c.again.stake > p.at.stake {
		p.at.stake = c.again.stake
		p.kind += " " + c.again.String()
	}
	if p.atRest = c.AtRest(); p.atRest {
		p.kind, p.key = p.kind+" at rest", fmt.Sprint("after workload ", workload, " ")
	}
	// Times differ between workloads.
	p.key += c.Pattern + " " + c.Signature
	for i := range c.Plan.Actions {
		a := &c.Plan.Actions[i]
		p.key += fmt.Sprintf(" %s %s", a.Type, record.In(a.Cluster, a.ResourceKey.String()))
		for _, d := range a.Trigger.Definitions {
			p.key += fmt.Sprintf(" %s %d", record.In(d.Observe.Cluster, d.Condition.ResourceKey.String()),
				d.Condition.Repeat)
		}
	}
	return p
}

// chanceOf is how likely a pattern's plans find something.
func chanceOf(name string) float64 {
	for _, p := range Patterns() {
		if p.Name == name {
			return p.chance
		}
	}
	return 1
}

// number numbers the plans that have something in common, from 0 on.
func number(all []*placed, common func(*placed) string, set func(p *placed, n int)) {
	seen := map[string]int{}
	for _, p := range all {
		key := common(p)
		set(p, seen[key])
		seen[key]++
	}
}

// first compares: what has something comes before what has not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// OfDeletion reports whether the candidate's plan strikes at the deletion of an object, or at its mark for deletion.
func (c *Candidate) OfDeletion() bool {
	at, _ := struck(c.Plan)
	return at.what == marks || at.what == removed
}
