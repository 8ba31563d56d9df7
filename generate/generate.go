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
	"time"

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

// intermediate restarts the controller after each of its effective writes. It must then do what it was about to do.
func (g *generator) intermediate() {
	for i := range g.ref.Changes {
		c := &g.ref.Changes[i]
		if c.By == "" {
			continue
		}
		why := fmt.Sprintf("%s is killed right after its own write: %s", c.By, describe(c))
		signature := g.signature(c)
		d, rule := g.trigger("written", start, i, plan.AfterControllerWrite, c.By)
		if rule != "" {
			g.drop(signature, why, rule)
			continue
		}
		g.add(signature, why, build.RestartController(c.By).When(d))
	}
}

// staleFor is how long a controller is shown the past.
const staleFor = 5 * time.Second

// behind is the API server that is paused; the others go on.
func (g *generator) behind() string {
	names := g.suite.APIServerNames()
	return names[len(names)-1]
}

// stale keeps an API server at a state of an object that is undone later. When the controller has acted on what came
// after, it is restarted at that API server, which shows it the past.
func (g *generator) stale() {
	if len(g.suite.APIServerNames()) < 2 {
		return
	}
	for i := range g.ref.Changes {
		c := &g.ref.Changes[i]
		undone, how := g.undone(i)
		if undone < 0 || len(c.Taken) == 0 {
			continue
		}
		for _, by := range c.Taken {
			if c.By == by {
				continue // a state that the controller itself has written tells it nothing new
			}
			for _, k := range g.reactions(undone, by) {
				w := &g.ref.Changes[k]
				why := fmt.Sprintf("%s is restarted at an API server that shows the past. That API server stops at: "+
					"%s. This is undone: %s. "+
					"%s has reacted: %s", by, describe(c), how, by, describe(w))
				signature := g.signature(c) + " / " + g.signature(w)
				seen, rule := g.trigger("seen", start, i, plan.AfterAPIServerRecv, g.behind())
				var acted *build.Condition
				if rule == "" {
					acted, rule = g.trigger("acted", i, k, plan.AfterAPIServerRecv, g.suite.APIServerNames()[0])
				}
				if rule != "" {
					g.drop(signature, why, rule)
					continue
				}
				scope := string(c.Key)
				g.add(signature, why,
					build.PauseAPIServer(g.behind()).Scope(scope).When(seen),
					build.ReconnectController(by, g.behind()).When(acted),
					build.ResumeAPIServer(g.behind()).Scope(scope).When(build.Timeout(staleFor).Named("later")))
			}
		}
	}
}

// unobserved keeps the controller from reading an object until a change of the object has been undone. It begins at the
// change, or after one of the writes with which the controller has reacted to it.
func (g *generator) unobserved() {
	for i := range g.ref.Changes {
		c := &g.ref.Changes[i]
		undone, how := g.undone(i)
		if undone < 0 {
			continue
		}
		u := &g.ref.Changes[undone]
		for _, by := range c.Taken {
			if !slices.Contains(u.Taken, by) || c.By == by {
				continue
			}
			if u.By == by {
				g.drop(g.signature(c), fmt.Sprintf("%s cannot read %s while it changes and changes back", by, c.Key),
					"the controller itself changes it back, and cannot do so while its reads are held")
				continue
			}
			moments := []int{i}
			for _, k := range g.reactions(i, by) {
				if k < undone {
					moments = append(moments, k)
				}
			}
			for _, k := range moments {
				m := &g.ref.Changes[k]
				timing := plan.AfterControllerRecv
				if k != i {
					timing = plan.AfterControllerWrite
				}
				why := fmt.Sprintf("%s cannot read %s from: %s; until: %s", by, c.Key, describe(m), how)
				signature := g.signature(c) + " / " + g.signature(m)
				from, rule := g.trigger("from", start, k, timing, by)
				var until *build.Condition
				if rule == "" {
					until, rule = g.trigger("until", k, undone, plan.AfterControllerRecv, by)
				}
				if rule != "" {
					g.drop(signature, why, rule)
					continue
				}
				scope := string(c.Key)
				g.add(signature, why,
					build.PauseController(by, plan.BeforeControllerRead).Scope(scope).When(from),
					build.ResumeController(by, plan.BeforeControllerRead).Scope(scope).When(until))
			}
		}
	}
}

// unseenFor is how long a controller does not see its own write. Its other events reach it meanwhile.
const unseenFor = 3 * time.Second

// ownWriteUnseen holds the delivery of what the controller itself writes: other events make it reconcile while its
// cache does not have its own write yet.
func (g *generator) ownWriteUnseen() {
	for i := range g.ref.Changes {
		c := &g.ref.Changes[i]
		if c.By == "" || !slices.Contains(c.Taken, c.By) {
			continue
		}
		why := fmt.Sprintf("%s does not see its own write for %s: %s", c.By, unseenFor, describe(c))
		signature := g.signature(c)
		// The delivery may come before the write is answered.
		d, rule := g.trigger("write", start, i, plan.BeforeControllerWrite, c.By)
		if rule != "" {
			g.drop(signature, why, rule)
			continue
		}
		scope := string(c.Key)
		g.add(signature, why,
			build.PauseController(c.By, plan.BeforeControllerRecv).Scope(scope).When(d),
			build.ResumeController(c.By, plan.BeforeControllerRecv).Scope(scope).
				When(build.Timeout(unseenFor).Named("later")))
	}
}

// driftAfter is how long after the controller's last write the steady state begins.
const driftAfter = time.Second

// drift deletes, as another client, each object that the controller has created and that exists at the end: right after
// its creation, and in the steady state.
func (g *generator) drift() {
	last := map[string]int{} // effective write, by controller
	for i := range g.ref.Changes {
		if by := g.ref.Changes[i].By; by != "" {
			last[by] = i
		}
	}
	created := map[reference.Key]int{} // for the last time
	for i := range g.ref.Changes {
		if c := &g.ref.Changes[i]; c.By != "" && c.Event == record.Created {
			created[c.Key] = i
		}
	}
	for i := range g.ref.Changes {
		c := &g.ref.Changes[i]
		if at, ok := created[c.Key]; !ok || at != i || g.ref.Objects[c.Key].End == nil {
			continue
		}
		for _, when := range []struct {
			change int
			wait   time.Duration
			words  string
		}{
			{i, 0, "right after " + c.By + " has created it"},
			{last[c.By], driftAfter, "after the last write of " + c.By},
		} {
			why := fmt.Sprintf("somebody deletes %s, %s", c.Key, when.words)
			signature := fmt.Sprintf("%s %s", c.Key.Type(), when.wait)
			d, rule := g.trigger("moment", start, when.change, plan.AfterControllerWrite, c.By)
			if rule != "" {
				g.drop(signature, why, rule)
				continue
			}
			var moment build.Trigger = d
			if when.wait > 0 {
				moment = build.Sequence(d, build.Timeout(when.wait).Named("later"))
			}
			g.add(signature, why, build.Delete(string(c.Key)).When(moment))
		}
	}
}

// undone is the first later change that undoes this one; -1: none does. How says it in words.
func (g *generator) undone(i int) (at int, how string) {
	c := &g.ref.Changes[i]
	paths := g.ref.Paths(c)
	for k := i + 1; k < len(g.ref.Changes); k++ {
		u := &g.ref.Changes[k]
		if u.Key != c.Key {
			continue
		}
		switch {
		case c.Event == record.Created && u.Event == record.Deleted,
			(c.Event == record.Deleted || c.Marked()) && u.Event == record.Created:
			return k, describe(u)
		case c.Event == record.Updated && u.Event == record.Updated && len(paths) > 0 && g.ref.Reverses(c, u):
			return k, describe(u)
		}
	}
	return -1, ""
}

// reactions returns the controller's effective writes to other objects after a change, until somebody else changes the
// object again.
func (g *generator) reactions(i int, by string) []int {
	c := &g.ref.Changes[i]
	var all []int
	for k := i + 1; k < len(g.ref.Changes); k++ {
		u := &g.ref.Changes[k]
		if u.Key == c.Key && u.By == "" && len(g.ref.Paths(u)) > 0 {
			break
		}
		if u.By == by && u.Key != c.Key {
			all = append(all, k)
		}
	}
	return all
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
