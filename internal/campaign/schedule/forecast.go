package schedule

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
)

// enough plans have been measured to estimate how long the others take.
const enough = 3

// forecast is what a schedule knows about how long plans take. Durations of runs are by the machine's clock.
type forecast struct {
	ready     bool                     // there are plans
	began     time.Duration            // when the first plan could begin, since the campaign was resumed
	learned   time.Duration            // how long workers had learned by then, all together
	estimates bool                     // the plans have estimates
	begun     int                      // plans that have begun since then
	before    time.Duration            // how long the plans took that were run before that
	measured  int                      // plans that have ended, also before
	estimated time.Duration            // what was estimated for these
	took      time.Duration            // how long one run of each of them took
	said      int                      // how many plans were said to be reached
	lasted    map[string]time.Duration // the newest run, by plan
}

// Ran takes in how long a run of a plan took.
func (f *forecast) Ran(plan string, took time.Duration) { f.lasted[plan] = took }

// Expected estimates how long a run of a plan takes: as long as the plan's newest run, or else as was estimated for it.
// As soon as three plans have run, it goes by these: runs without faults wait for more than plans do. Zero: unknown.
func (f *forecast) Expected(plan string, estimate time.Duration) time.Duration {
	if took := f.lasted[plan]; took > 0 {
		return took
	}
	switch {
	case f.measured < enough:
		return estimate
	case estimate == 0 || f.estimated == 0:
		return f.took / time.Duration(f.measured)
	}
	return time.Duration(float64(f.took) / float64(f.estimated) * float64(estimate))
}

// measure takes in that a plan has ended.
func (f *forecast) measure(p *Plan) {
	f.measured++
	f.estimated += p.cost
	f.took += f.lasted[p.Name]
}

// already takes in a plan that an earlier session has run.
func (f *forecast) already(p *Plan, o *result.Outcome) {
	f.before += o.Took
	f.measured++
	f.estimated += p.cost
	f.took += o.Took / time.Duration(max(1, o.Of))
}

// estimate sets what each plan costs. A plan without an estimate costs as much as an average one.
func (s *Schedule) estimate() {
	var sum time.Duration
	known := 0
	for _, p := range s.plans {
		if p.Estimate > 0 {
			sum += p.Estimate
			known++
		}
	}
	s.estimates = known > 0
	for _, p := range s.plans {
		if p.cost = 0; known > 0 {
			p.cost = cmp.Or(p.Estimate, sum/time.Duration(known))
		}
	}
}

// Ready takes in that there are plans now. The first one may begin. It reports whether there were none before.
func (s *Schedule) Ready(now time.Duration) bool {
	if s.ready || len(s.plans) == 0 {
		return false
	}
	s.ready, s.began, s.learned = true, now, s.Learning.used(now)
	return true
}

// Foresee says how many plans will be run; empty: that is unknown, or there is nothing to run, or no time for it. As
// long as there are workloads to learn, it says only how many.
func (s *Schedule) Foresee(now time.Duration) string {
	reach, in := s.reach(now)
	if reach <= len(s.done) {
		return ""
	}
	all := Grouped(len(s.plans)) + " plan"
	if len(s.plans) != 1 {
		all += "s"
	}
	took := wording.Roughly(s.Learning.used(now) / s.runners())
	if n := s.Learning.Unlearned(); n > 0 {
		text := fmt.Sprintf("%s so far, after %s; %s still to be learned", all, wording.Roughly(now-s.Spent),
			wording.Count(n, "workload"))
		if s.Limit > 0 {
			text = fmt.Sprintf("budget %s (after the builds): %s", plan.FormatDuration(s.Given()), text)
		}
		return text
	}
	s.said = reach
	budget := fmt.Sprintf("budget %s (after the builds), of which learning took %s", plan.FormatDuration(s.Given()),
		took)
	switch {
	case s.Limit == 0:
		return fmt.Sprintf("%s, in about %s; --budget sets a limit", all, wording.Roughly(in))
	case reach == len(s.plans):
		return fmt.Sprintf("%s: all %s, in about %s", budget, all, wording.Roughly(in))
	}
	return fmt.Sprintf("%s: about %s of %s, the most valuable first; fewer if there are findings to confirm", budget,
		Grouped(reach), all)
}

// Reforesee says so if the budget reaches far more plans, or far fewer, than was said; empty: it does not.
func (s *Schedule) Reforesee(now time.Duration) string {
	if s.Limit == 0 || s.stopped != "" || s.measured < enough {
		return ""
	}
	reach, _ := s.reach(now)
	if reach == 0 || s.said == 0 || 2*max(reach, s.said) < 3*min(reach, s.said) {
		return ""
	}
	s.said = reach
	return fmt.Sprintf("budget %s: now about %s of %s plans, by the time that plans have taken so far",
		plan.FormatDuration(s.Given()), Grouped(reach), Grouped(len(s.plans)))
}

// reach estimates how many plans will have been run when the budget is used up, and how long that takes from now on. It
// goes by the runs without faults and, as soon as plans were run, by how long these took, and by how long it took to
// confirm what they have found, which has a share at most. Zero: unknown.
func (s *Schedule) reach(now time.Duration) (plans int, in time.Duration) {
	if !s.estimates {
		return 0, 0
	}
	scale, confirming := 1.0, 0.0 // how long plans take, of what was estimated; and confirming, of that
	if s.measured >= enough && s.estimated > 0 {
		took := s.before + max(0, (now-s.began)*s.runners()-(s.Learning.used(now)-s.learned))
		running := max(took-s.confirmed, took/10)
		scale = float64(running) / float64(s.estimated)
		confirming = float64(s.confirmed) / float64(running)
	}
	share := max(0, s.Given()/confirmShare*s.runners()-s.confirmed)
	left := (s.Limit - now) * s.runners()
	all := func() time.Duration {
		more := time.Duration(confirming * float64(in))
		if s.Limit > 0 {
			more = min(more, share)
		}
		return in + more
	}
	plans = len(s.plans)
	for _, p := range s.plans {
		run := time.Duration(scale * float64(p.cost))
		switch {
		case !s.mayBegin(p):
		case s.Limit > 0 && all()+s.runners()*s.needs(run) > left:
			plans--
		default:
			in += run
		}
	}
	return plans, all() / s.runners()
}

// Left estimates how long the campaign will still take, and not longer than the budget: as the plans to come are
// expected to take or, if that is unknown, as long for each as for those that have ended. Zero: unknown.
func (s *Schedule) Left(now time.Duration) time.Duration {
	if len(s.done) < enough {
		return 0
	}
	var took time.Duration
	for _, o := range s.done {
		took += o.Took
	}
	left := took / time.Duration(len(s.done)) * time.Duration(len(s.plans)-len(s.done)) / s.runners()
	if s.estimates {
		_, left = s.reach(now)
	}
	if s.Limit > 0 {
		left = min(left, max(s.Limit-now, time.Second))
	}
	return left
}

// Progress is how far a campaign is.
type Progress struct {
	Text    string // all of it in one line
	Done    int    // plans that have ended
	Of      int    // all plans
	Reach   int    // how many plans the budget is expected to reach; 0: all, or unknown
	Bugs    int    // plans with bugs
	Left    time.Duration
	Running []string
}

// Progress returns how far the campaign is.
func (s *Schedule) Progress(now time.Duration) Progress {
	p := Progress{Done: len(s.done), Of: len(s.plans), Left: s.Left(now), Running: slices.Clone(s.running)}
	for _, o := range s.done {
		if o.Status == result.Bug {
			p.Bugs++
		}
	}
	if reach, _ := s.reach(now); s.Limit == 0 || reach == 0 || reach == p.Of {
		p.Text = fmt.Sprintf("%d of %d plans", p.Done, p.Of)
	} else {
		p.Reach = reach
		p.Text = fmt.Sprintf("%d of about %d plans (%s in all)", p.Done, reach, Grouped(p.Of))
	}
	p.Text += ", " + wording.Count(p.Bugs, "bug")
	if p.Left > 0 {
		p.Text += ", about " + wording.Roughly(p.Left) + " left"
	}
	if len(p.Running) > 0 {
		p.Text += "; " + strings.Join(p.Running, ", ")
	}
	return p
}

// Grouped returns a number as people read it: 1,316.
func Grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
