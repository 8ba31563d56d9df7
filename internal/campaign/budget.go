package campaign

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/trommel-dev/trommel/internal/campaign/pattern"
	"github.com/trommel-dev/trommel/internal/confirm"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// forecast is how many plans the budget will reach, and what is known about that.
type forecast struct {
	began     time.Time               // of the first plan, since the campaign was resumed
	costs     map[*task]time.Duration // how long each plan may take, by the machine's clock; nil: nobody knows
	begun     int                     // plans that have begun since then
	before    time.Duration           // how long the plans took that were run before that
	plans     int                     // that have ended, also before
	estimated time.Duration           // what was estimated for these
	took      time.Duration           // how long one run of each of them took, by the machine's clock
	told      int                     // how many plans were said to be reached
}

// usual is how long a run took that is neither among the quick ones nor among the slow ones, by the machine's clock.
func usual(runs []*record.Run) time.Duration {
	var took []time.Duration
	for _, r := range runs {
		took = append(took, r.Meta.Took())
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// cost estimates how long a task's plan runs, by the machine's clock: as long as its workload without faults, and what
// its actions add. Zero: that is not known.
func cost(t *task) time.Duration { return costOf(t, t.plan) }

// costOf is the same of another plan with the task's workload.
func costOf(t *task, p *plan.Plan) time.Duration {
	if t.learned == nil || t.learned.Baseline == nil || t.learned.Baseline.Took == 0 {
		return 0
	}
	ref := t.learned.Baseline
	return ref.Took + pattern.Extra(p, ref.Virtual)
}

// costs estimates how long each task's plan runs. A workload that was not measured is taken for a usual one. It is nil
// if none was.
func (c *campaign) costs() map[*task]time.Duration {
	all := map[*task]time.Duration{}
	var sum time.Duration
	known := 0
	for _, t := range c.tasks {
		if all[t] = cost(t); all[t] > 0 {
			sum += all[t]
			known++
		}
	}
	if known == 0 {
		return nil
	}
	for t := range all {
		all[t] = cmp.Or(all[t], sum/time.Duration(known))
	}
	return all
}

// reach estimates how many plans will have been run when the budget is used up, and how long that takes from now on.
// It goes by the runs without faults and, as soon as plans were run, by how long these took in truth, and by how long
// it took to confirm what they have found, which has a share at most. It is 0 if nobody knows. The caller holds the
// lock.
func (c *campaign) reach() (plans int, in time.Duration) {
	if c.forecast.costs == nil {
		return 0, 0
	}
	runners := time.Duration(max(1, len(c.Runners)))
	scale, confirming := 1.0, 0.0 // how long plans take, of what was estimated; and confirming, of that
	if c.forecast.plans >= enough {
		took := c.forecast.before + time.Since(c.forecast.began)*runners
		running := max(took-c.confirmed, took/10)
		scale = float64(running) / float64(c.forecast.estimated)
		confirming = float64(c.confirmed) / float64(running)
	}
	share := max(0, c.given()/confirmShare*runners-c.confirmed)
	left := (c.Budget - c.elapsed()) * runners
	all := func() time.Duration {
		more := time.Duration(confirming * float64(in))
		if c.Budget > 0 {
			more = min(more, share)
		}
		return in + more
	}
	plans = len(c.tasks)
	for i := c.next; i < len(c.tasks); i++ {
		t := c.tasks[i]
		run := time.Duration(scale * float64(c.forecast.costs[t]))
		switch {
		case c.done[t.plan.TestName] != nil || t.known != nil:
		case c.Budget > 0 && all()+runners*c.needs(run) > left:
			plans--
		default:
			in += run
		}
	}
	return plans, all() / runners
}

// given is the budget as it was given for this session: a campaign that is resumed has spent some before.
func (c *campaign) given() time.Duration {
	if given := c.Budget - c.spent; given > 0 {
		return given
	}
	return c.Budget
}

// usedUp says what the budget was used up by. The caller holds the lock.
func (c *campaign) usedUp() string {
	if c.forecast.begun == 0 && c.spent == 0 {
		return fmt.Sprintf("the budget of %s was used up by learning", plan.FormatDuration(c.given()))
	}
	return fmt.Sprintf("the budget of %s leaves no time for more", plan.FormatDuration(c.given()))
}

// learnShare is the part of a budget that learning has: a quarter. What is learned brings nothing before a plan is run.
const learnShare = 4

// learningShare decides which workloads are learned within the budget, by that many runners at once. Its methods are
// safe for concurrent use.
type learningShare struct {
	c       *campaign
	runners int
	mu      sync.Mutex
	begun   []string // names of workloads
	left    []string // names of those that are not learned
}

func (c *campaign) learningShare(runners int) *learningShare {
	return &learningShare{c: c, runners: max(1, runners)}
}

// begin reports whether another workload is to be learned: if its runs, and those that others still need, take as long
// as the runs so far, they end within the share. The first ones are learned anyway. A workload is learned with all
// builds or with none, because an upgrade needs both. Workloads of plans that the user has chosen are all learned.
func (s *learningShare) begin(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case slices.Contains(s.begun, name):
		return true
	case slices.Contains(s.left, name):
		return false
	case s.c.Budget > 0 && s.c.Plans == nil && len(s.begun) >= s.runners:
		left := s.c.given()/learnShare - time.Since(s.c.began)
		if left <= 0 || s.c.learningTakes(append(s.begun, name)) > left {
			s.left = append(s.left, name)
			return false
		}
	}
	s.begun = append(s.begun, name)
	return true
}

// inPromise returns the indices of workloads in the order in which they are learned. Those that the user has named come
// in his order. Otherwise those come first from which plans promise most: old state of what is deleted does harm when
// it is there again, and a change that comes back may be missed. All begin with a creation, so that the others show
// little more.
func (c *campaign) inPromise(workloads []workload) []int {
	order := make([]int, len(workloads))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := workloads[i], workloads[j]
		if len(c.Workloads) > 0 {
			return cmp.Compare(slices.Index(c.Workloads, a.name), slices.Index(c.Workloads, b.name))
		}
		return cmp.Or(cmp.Compare(c.promise(a), c.promise(b)), cmp.Compare(a.name, b.name)) // its builds beside it
	})
	return order
}

// promise is the lower, the more the plans of a workload promise.
func (c *campaign) promise(w workload) int {
	deleted, again, changes := false, false, 0
	for _, s := range slices.Concat(w.steps, c.Suite.Workloads[w.name].Steps) {
		switch {
		case s.Delete != nil:
			deleted = true
		case s.Apply != nil, s.Patch != nil:
			again = again || deleted
			changes++
		}
	}
	switch {
	case again:
		return 0
	case deleted:
		return 1
	case changes > 2:
		return 2
	}
	return 3
}

// errBudget says that a run does not begin, because it is not expected to end within the budget.
var errBudget = errors.New("the budget ended")

// inTime reports whether what takes that long from now on ends within the budget.
func (c *campaign) inTime(d time.Duration) bool { return c.Budget == 0 || c.elapsed()+d <= c.Budget }

// expected estimates how long a run takes: as long as the newest run of the same plan, or else as its workload without
// faults and its actions let expect. As soon as three plans have run, it goes by these: runs without faults wait for
// more than plans do, see await.Rest. Zero: unknown. The caller holds the lock.
func (c *campaign) expected(t *task, p *plan.Plan) time.Duration {
	if took := c.lasted[p.TestName]; took > 0 {
		return took
	}
	estimate := costOf(t, p)
	switch {
	case c.forecast.plans < enough:
		return estimate
	case estimate == 0 || c.forecast.estimated == 0:
		return c.forecast.took / time.Duration(c.forecast.plans)
	}
	return time.Duration(float64(c.forecast.took) / float64(c.forecast.estimated) * float64(estimate))
}

// needs is how much of the budget must be left for a new plan to begin: the time for its run. As soon as a plan has
// found something, it is also the time for the runs that confirm what the new one may find. The caller holds the lock.
func (c *campaign) needs(run time.Duration) time.Duration {
	if c.confirmed == 0 && len(c.confirming) == 0 {
		return run
	}
	return run * time.Duration(1+c.Repeat)
}

// room reports whether the budget leaves time for a plan, for confirming what it may find, and for confirming what
// does great harm and waits for that. The caller holds the lock.
func (c *campaign) room(t *task) bool {
	return c.Budget == 0 ||
		c.inTime(c.needs(c.expected(t, t.plan))+c.owed()/time.Duration(max(1, len(c.Runners))))
}

// owed estimates how long it takes to confirm what does great harm and waits for that. The caller holds the lock.
func (c *campaign) owed() time.Duration {
	var sum time.Duration
	var counted []*Outcome
	for _, t := range c.putOff {
		same := func(o *Outcome) bool {
			return o.Cause == t.known.Cause && confirm.Within(t.known.Findings, o.Findings)
		}
		if t.known.Strong() && !c.inWork(t.known) && !c.known(t.known) && !slices.ContainsFunc(counted, same) {
			counted = append(counted, t.known)
			sum += c.toConfirm(t.known)
		}
	}
	return sum
}

// foresee says how many plans will be run, before the first one begins.
func (c *campaign) foresee() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forecast = forecast{began: time.Now(), costs: c.costs()}
	for _, t := range c.tasks {
		if o := c.done[t.plan.TestName]; o != nil {
			c.forecast.before += o.Took
			c.forecast.plans++
			c.forecast.estimated += c.forecast.costs[t]
			c.forecast.took += o.Took / time.Duration(max(1, o.Of))
		}
	}
	reach, in := c.reach()
	if reach <= len(c.done) { // nobody knows, or there is nothing to run, or no time for it
		return
	}
	c.forecast.told = reach
	all := grouped(len(c.tasks)) + " plan"
	if len(c.tasks) != 1 {
		all += "s"
	}
	budget := fmt.Sprintf("budget %s (after the builds), of which learning took %s", plan.FormatDuration(c.given()),
		wording.Roughly(time.Since(c.began)))
	switch {
	case c.Budget == 0:
		c.say("%s, in about %s; --budget sets a limit", all, wording.Roughly(in))
	case reach == len(c.tasks):
		c.say("%s: all %s, in about %s", budget, all, wording.Roughly(in))
	default:
		c.say("%s: about %s of %s, the most valuable first; fewer if there are findings to confirm", budget,
			grouped(reach), all)
	}
}

// measure takes in that a plan has ended, and says so if the budget reaches far more plans, or far fewer, than was
// said. The caller holds the lock.
func (c *campaign) measure(t *task) {
	c.forecast.plans++
	c.forecast.estimated += c.forecast.costs[t]
	c.forecast.took += c.lasted[t.plan.TestName]
	if c.Budget == 0 || c.stopped != "" || c.forecast.plans < enough {
		return
	}
	reach, _ := c.reach()
	if told := c.forecast.told; reach == 0 || told == 0 || 2*max(reach, told) < 3*min(reach, told) {
		return
	}
	c.forecast.told = reach
	c.say("budget %s: now about %s of %s plans, by the time that plans have taken so far",
		plan.FormatDuration(c.given()), grouped(reach), grouped(len(c.tasks)))
}

// grouped is a number as people read it: 1,316.
func grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// progressed says how many plans were run, and how many there are to run.
func (c *campaign) progressed() (text string, reach int) {
	if reach, _ = c.reach(); c.Budget == 0 || reach == 0 || reach == len(c.tasks) {
		return fmt.Sprintf("%d of %d plans", len(c.done), len(c.tasks)), 0
	}
	return fmt.Sprintf("%d of about %d plans (%s in all)", len(c.done), reach, grouped(len(c.tasks))), reach
}
