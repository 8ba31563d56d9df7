package explore

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/trommel-dev/trommel/internal/explore/pattern"
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
	told      int                     // how many plans were said to be reached
}

// sure is how many plans must have ended to tell how long others will take.
const sure = 10

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
func cost(t *task) time.Duration {
	if t.learned == nil || t.learned.Reference == nil || t.learned.Reference.Took == 0 {
		return 0
	}
	ref := t.learned.Reference
	return ref.Took + pattern.Extra(t.plan, ref.Virtual)
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
	if c.forecast.plans >= sure {
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
		switch {
		case c.done[t.plan.TestName] != nil:
		case c.Budget > 0 && all() > left:
			plans--
		default:
			in += time.Duration(scale * float64(c.forecast.costs[t]))
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
	text := fmt.Sprintf("the budget of %s was used up", plan.FormatDuration(c.given()))
	if c.forecast.begun == 0 {
		text += " by learning"
	}
	return text
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
		}
	}
	reach, in := c.reach()
	if reach <= len(c.done) { // nobody knows, or there is nothing to run, or no time for it
		return
	}
	c.forecast.told = reach
	all := grouped(len(c.tasks))
	budget := fmt.Sprintf("budget %s, of which learning took %s", plan.FormatDuration(c.given()),
		wording.Roughly(time.Since(c.began)))
	switch {
	case c.Budget == 0:
		c.say("%s plans, in about %s; --budget sets a limit", all, wording.Roughly(in))
	case reach == len(c.tasks):
		c.say("%s: all %s plans, in about %s", budget, all, wording.Roughly(in))
	default:
		c.say("%s: about %s of %s plans, the most valuable first; fewer if there are findings to confirm", budget,
			grouped(reach), all)
	}
}

// measure takes in that a plan has ended, and says so if the budget reaches far more plans, or far fewer, than was
// said. The caller holds the lock.
func (c *campaign) measure(t *task) {
	c.forecast.plans++
	c.forecast.estimated += c.forecast.costs[t]
	if c.Budget == 0 || c.stopped != "" || c.forecast.plans < sure {
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
