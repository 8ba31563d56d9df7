package campaign

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/coordinator/order"
	"github.com/trommel-dev/trommel/internal/campaign/learn"
	"github.com/trommel-dev/trommel/internal/campaign/pattern"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// orderBatch is how many plans of the pattern order a workload gets at a time, when its plans before are nearly run.
// Without a budget, seedsUnbudgeted is how many plans with a seed there are, and there are none with two late steps or
// with faults.
const (
	orderBatch      = 5
	seedsUnbudgeted = 40
)

// orders are a workload's plans of the pattern order. Plans with a late step, seeds, and seeds with faults take turns.
// When each step was late once, two steps are late.
type orders struct {
	covered result.Orders
	traces  map[string]bool      // see order.Trace: the different orders that were run
	pending int                  // plans that were made and have not ended
	singles []orderPlan          // with one late step, not made yet
	pairs   []orderPlan          // with two
	known   map[string]bool      // all with two, made or not, by their late steps
	made    map[string]orderPlan // by name of the plan
	faults  []*plan.Plan         // of other patterns, the most promising first; one begins again after the last
	seed    int                  // the last one without faults
	faulty  int                  // the last one with
	turn    int                  // batches made, with a budget
}

// orderPlan is a plan that may still have to be made.
type orderPlan struct {
	label, why string
	schedule   *plan.Schedule
	from       int           // the choice at which its last late step would have gone on
	actions    []plan.Action // the faults
}

// ordered takes in that a plan of the pattern order has ended, and makes further ones.
func (c *campaign) ordered(t *task, o *result.Outcome) error {
	if t.pattern != pattern.Schedules || o.Record == "" {
		return nil
	}
	r, err := record.Open(o.Record)
	if err != nil {
		c.Say("%s: no further orders follow from it: %v", o.Plan, err)
		return nil
	}
	choices, _ := r.Choices()
	c.mu.Lock()
	defer c.mu.Unlock()
	k := slices.IndexFunc(c.known, func(l *learn.Learned) bool { return l.ID() == t.learned.ID() })
	if k < 0 {
		return nil
	}
	l := c.known[k]
	w := c.orders[l.ID()]
	if w == nil {
		w = &orders{
			covered: result.Orders{Workload: l.Workload}, traces: map[string]bool{}, known: map[string]bool{},
			made: map[string]orderPlan{}, pending: 1, faults: c.faultsOf(l),
		}
		c.orders[l.ID()] = w
	}
	w.take(t.plan, o, choices)
	share := c.Budget * time.Duration(max(1, len(c.Runners))) / orderShare
	if c.ordering += o.Took; !slices.Contains(c.Patterns, pattern.Schedules) && c.ordering >= share {
		return nil
	}
	if w.pending >= max(1, len(c.Runners)) {
		return nil
	}
	for _, p := range w.next(c.Budget > 0) {
		if err := c.addOrder(l, w, p); err != nil {
			return err
		}
	}
	c.queue.take(c.inOrder(c.queue.begun()), c.SetNumber, "")
	return nil
}

// faultsOf returns the plans of a workload that are run in other orders, too. Without a budget there are none.
func (c *campaign) faultsOf(l *learn.Learned) (all []*plan.Plan) {
	if c.Budget == 0 {
		return nil
	}
	candidates := pattern.GenerateFor(c.Suite, l.Steps, l.Moments(), pattern.Faults()...)
	for _, at := range pattern.Order(candidates) {
		all = append(all, candidates[at.Index].Plan)
	}
	return all
}

// orderedBefore is ordered for all plans that an earlier campaign has run, which this one goes on with.
func (c *campaign) orderedBefore() error {
	taken := map[*task]bool{}
	for more := true; more; {
		more = false
		tasks, outcomes := c.queue.all()
		for i, t := range tasks {
			if t.pattern != pattern.Schedules || outcomes[i] == nil || taken[t] {
				continue
			}
			taken[t], more = true, true
			if err := c.ordered(t, outcomes[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// addOrder makes a task of a plan. The caller holds the lock.
func (c *campaign) addOrder(l *learn.Learned, w *orders, p orderPlan) error {
	// A step that is late in one workload, or a seed, is not the same in another one.
	signature := fmt.Sprint(l.Workload, " ", *p.schedule, " ", p.label)
	candidate, err := pattern.Scheduled(c.Suite, l.Workload, p.label, signature, p.why, p.schedule, p.actions...)
	if err != nil {
		return fmt.Errorf("plan %s: %w", p.label, err)
	}
	l.Candidates = append(l.Candidates, candidate)
	w.made[candidate.Plan.TestName] = p
	if err := c.add(&task{
		plan: candidate.Plan, learned: l, candidate: &candidate, pattern: candidate.Pattern, why: candidate.Why,
	}); err != nil {
		return err
	}
	if tasks := c.tasks[l]; tasks[len(tasks)-1] != nil { // otherwise it is in another shard
		w.pending++
	}
	return nil
}

// take takes in a plan's run.
func (w *orders) take(p *plan.Plan, o *result.Outcome, choices []record.Choice) {
	w.pending--
	trace := order.Trace(choices)
	ran := w.traces[trace] // in this order, as far as steps do not commute
	if o.Status != result.Inconclusive && o.Status != result.Failed {
		w.traces[trace] = true
		w.covered.Different = len(w.traces)
	}
	of := &w.covered.Seeds
	switch late := len(p.Schedule.Late); {
	case len(p.Actions) > 0:
		of = &w.covered.Faults
	case p.Schedule.Strategy != plan.FIFO:
	case late == 0:
		// What only one controller sees late finds more than what all see late, the control plane too.
		var late, lateForAll []orderPlan
		for _, at := range order.Points(choices, 0) {
			p := orderPlan{
				label: fmt.Sprintf("late-%d", at.Number), why: at.What + " comes late", from: at.Number,
				schedule: &plan.Schedule{Late: []plan.LateStep{at.Late}},
			}
			if at.OfAPIServer() {
				lateForAll = append(lateForAll, p)
			} else {
				late = append(late, p)
			}
		}
		w.singles = append(late, lateForAll...)
		w.covered.One.Of = len(w.singles)
		return
	case late == 1:
		of = &w.covered.One
		if o.Status == result.Passed && !ran { // what has found something already is not continued
			w.goOn(p, choices)
		}
	default:
		of = &w.covered.Two
	}
	of.Run++
	if o.Status == result.Bug {
		of.Found++
	}
}

// goOn adds the plans with one more late step than a plan that was run.
func (w *orders) goOn(p *plan.Plan, choices []record.Choice) {
	first, before := p.Schedule.Late[0], w.made[p.TestName]
	for _, at := range order.Points(choices, before.from) {
		key := []string{fmt.Sprint(first), fmt.Sprint(at.Late)}
		slices.Sort(key)
		if at.Late == first || w.known[fmt.Sprint(key)] {
			continue
		}
		w.known[fmt.Sprint(key)] = true
		w.pairs = append(w.pairs, orderPlan{
			label: fmt.Sprintf("%s-%d", before.label, at.Number), why: before.why + ", and " + at.What + " does",
			from: at.Number, schedule: &plan.Schedule{Late: []plan.LateStep{first, at.Late}},
		})
	}
	w.covered.Two.Of = len(w.known)
}

// next returns the next plans to make.
func (w *orders) next(budget bool) (all []orderPlan) {
	if !budget {
		switch {
		case len(w.singles) > 0:
			return takeBatch(&w.singles)
		case w.seed < seedsUnbudgeted:
			return w.seeds()
		}
		return nil
	}
	for {
		w.turn++
		switch {
		case w.turn%3 == 2:
			return w.seeds()
		case w.turn%3 == 0 && len(w.faults) > 0:
			return w.withFaults()
		case w.turn%3 == 1 && len(w.singles) > 0:
			return takeBatch(&w.singles)
		case w.turn%3 == 1 && len(w.pairs) > 0:
			return takeBatch(&w.pairs)
		}
	}
}

// takeBatch takes the next plans from a list.
func takeBatch(from *[]orderPlan) (all []orderPlan) {
	n := min(len(*from), orderBatch)
	all, *from = (*from)[:n], (*from)[n:]
	return all
}

// seeds returns plans in which a seed chooses the order.
func (w *orders) seeds() (all []orderPlan) {
	for range orderBatch {
		w.seed++
		all = append(all, orderPlan{
			label: fmt.Sprintf("swarm-%d", w.seed), why: fmt.Sprintf("steps go on as the seed %d chooses", w.seed),
			schedule: &plan.Schedule{Strategy: plan.Swarm, Seed: w.seed},
		})
	}
	w.covered.Seeds.Of = w.seed
	return all
}

// withFaults returns plans in which something fails while a seed chooses the order, each with a seed of its own.
func (w *orders) withFaults() (all []orderPlan) {
	for range orderBatch {
		p := w.faults[w.faulty%len(w.faults)]
		w.faulty++
		all = append(all, orderPlan{
			label:    fmt.Sprintf("swarm-%d-%s", w.faulty, strings.TrimPrefix(p.TestName, p.Workload+"-")),
			why:      fmt.Sprintf("%s, while steps go on as the seed %d chooses", p.Description, w.faulty),
			schedule: &plan.Schedule{Strategy: plan.Swarm, Seed: w.faulty}, actions: p.Actions,
		})
	}
	w.covered.Faults.Of = w.faulty
	return all
}

// orderShare is how many plans there are for each one of the pattern order, it included, and the part of the budget
// that the pattern has, unless a user asks for it.
const orderShare = 4

// share returns the tasks in an order in which those of the pattern order take turns with the others, of which those
// that have begun count. Otherwise neither their order nor that of the others changes.
func share(tasks []*task, begun map[*task]bool) (all []*task) {
	var ordered, others []*task
	n := 0 // of the pattern order, in all
	for _, t := range tasks {
		switch {
		case begun[t]:
			all = append(all, t)
			if t.pattern == pattern.Schedules {
				n++
			}
		case t.pattern == pattern.Schedules:
			ordered = append(ordered, t)
		default:
			others = append(others, t)
		}
	}
	for len(ordered) > 0 && len(others) > 0 {
		if (n+1)*orderShare <= len(all)+1 {
			all, ordered = append(all, ordered[0]), ordered[1:]
			n++
		} else {
			all, others = append(all, others[0]), others[1:]
		}
	}
	return slices.Concat(all, others, ordered)
}
