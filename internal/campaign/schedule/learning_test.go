package schedule

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/internal/campaign/result"
)

// simulated is a campaign whose lessons and plans take fixed times.
type simulated struct {
	*Schedule
	lesson, plan time.Duration // how long each takes
	plans        int           // of each workload

	firstPlan time.Duration // when it began; -1: never
	lessons   []string      // in the order in which they began
	learned   int
	alone     []time.Duration // how long workers had learned when a lesson began while plans waited
	begins    []time.Duration // when that was
}

// campaignOf runs a campaign with these workloads to its end, or until the budget ends.
func campaignOf(budget Budget, lesson, plan time.Duration, plans int, workloads ...string) *simulated {
	s := &simulated{
		Schedule: New(Config{Budget: budget, Repeat: 3}), lesson: lesson, plan: plan, plans: plans, firstPlan: -1,
	}
	for _, name := range workloads {
		s.Learning.Wait(name, name, false)
		s.Learning.ToLearn(name, 2)
	}
	type work struct {
		Job
		ends time.Duration
	}
	var going []work
	now := time.Duration(0)
	for {
		for len(going) < max(1, budget.Runners) {
			waits, used := s.unbegun(), s.Learning.used(now)
			job := s.Next(now)
			switch {
			case job.Lesson != "":
				if waits {
					s.alone, s.begins = append(s.alone, used), append(s.begins, now)
				}
				s.lessons = append(s.lessons, job.Lesson)
				going = append(going, work{job, now + s.lesson})
			case job.Plan != nil:
				if s.firstPlan < 0 {
					s.firstPlan = now
				}
				going = append(going, work{job, now + s.plan})
			}
			if job.Lesson == "" && job.Plan == nil {
				break
			}
		}
		if len(going) == 0 {
			return s
		}
		next := slices.IndexFunc(going, func(w work) bool {
			return !slices.ContainsFunc(going, func(o work) bool { return o.ends < w.ends })
		})
		done := going[next]
		going = slices.Delete(going, next, next+1)
		now = done.ends
		if done.Plan != nil {
			s.Ran(done.Plan.Name, s.plan)
			_ = s.End(done.Plan, &result.Outcome{Plan: done.Plan.Name, Status: result.Passed, Took: s.plan})
			continue
		}
		s.learned++
		for range 2 {
			s.Learning.Ended(done.Lesson, true, s.lesson/2)
		}
		s.Learning.End(now, done.Lesson)
		all := slices.Clone(s.Plans())
		for i := range s.plans {
			all = append(all, &Plan{
				Name: fmt.Sprintf("%s-%d", done.Lesson, i), Workload: done.Lesson, Estimate: s.plan,
			})
		}
		s.Arrange(all)
		s.Ready(now)
	}
}

// The first plan begins as soon as a workload is learned, however many there are. If that takes at most a quarter of
// the budget, so does learning before the first plan. While plans wait, learning takes a quarter of what all workers
// together have, and a single worker learns at most a quarter of the time.
func TestLearningBesidePlans(t *testing.T) {
	const budget, lesson, plan = 10 * time.Minute, 30 * time.Second, 10 * time.Second
	for _, runners := range []int{1, 2, 3, 4, 8} {
		for _, n := range []int{1, 2, 5, 18, 40} {
			var workloads []string
			for i := range n {
				workloads = append(workloads, fmt.Sprintf("w%02d", i))
			}
			s := campaignOf(Budget{Limit: budget, Runners: runners}, lesson, plan, 500, workloads...)
			what := fmt.Sprintf("%d runners, %d workloads", runners, n)
			if s.firstPlan != lesson || s.firstPlan > budget/learnShare {
				t.Errorf("%s: the first plan began at %s", what, s.firstPlan)
			}
			share := budget / learnShare * time.Duration(runners)
			if s.learned > max(runners, int(share/lesson)) || !slices.IsSorted(s.lessons) {
				t.Errorf("%s: learned %d, in the order %q", what, s.learned, s.lessons)
			}
			if left := len(s.Learning.Waiting(false)); left+s.learned != n {
				t.Errorf("%s: %d learned and %d not", what, s.learned, left)
			}
			for i, used := range s.alone {
				if runners == 1 && used*learnShare > s.begins[i] {
					t.Errorf("%s: at %s a lesson begins after %s of others", what, s.begins[i], used)
				}
			}
		}
	}
	// Without plans that wait, all workers learn.
	s := campaignOf(Budget{Limit: budget, Runners: 2}, lesson, plan, 1, "a", "b", "c", "d", "e", "f")
	if s.learned != 6 || len(s.Outcomes()) != 6 {
		t.Errorf("%d learned, %d plans", s.learned, len(s.Outcomes()))
	}
	s = campaignOf(Budget{Runners: 1}, lesson, plan, 3, "a", "b", "c")
	if s.learned != 3 || len(s.Outcomes()) != 9 || s.Stopped() != "" {
		t.Errorf("without a budget: %d learned, %d plans; stopped: %s", s.learned, len(s.Outcomes()), s.Stopped())
	}
}

// A workload is learned with all builds or with none. The user's choice leaves nothing out. In the last two thirds of
// the budget nothing is learned in which time passes.
func TestWhatIsLearned(t *testing.T) {
	second := time.Second
	for _, tt := range []struct {
		name   string
		change func(*Learning)
		now    time.Duration
		plans  bool
		want   string
	}{
		{"there is room", func(*Learning) {}, 50 * second, true, "w"},
		{"none for both builds", func(l *Learning) { l.Wait("w@v1", "w", false); l.ToLearn("w@v1", 5) }, 50 * second,
			true, ""},
		{"the first build has begun", func(l *Learning) { l.begun = append(l.begun, "w"); l.ToLearn("w", 50) },
			50 * second, true, "w"},
		{"chosen", func(l *Learning) { l.All = true; l.ToLearn("w", 50) }, 50 * second, true, "w"},
		{"no plans wait", func(l *Learning) { l.ToLearn("w", 8) }, 50 * second, false, "w"},
		{"no plans wait, and little is left", func(l *Learning) { l.ToLearn("w", 8) }, 70 * second, false, ""},
		{"there never was a plan", func(l *Learning) { l.planned = false }, 99 * second, false, "w"},
		{"the budget is used up", func(l *Learning) { l.planned = false }, 100 * second, false, ""},
		{"much later, early", func(l *Learning) { l.waiting[0].later = true }, 33 * second, true, "w"},
		{"much later, late", func(l *Learning) { l.waiting[0].later = true }, 50 * second, true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := &Learning{Budget: Budget{Limit: 100 * second}}
			l.Wait("v", "v", false)
			l.ToLearn("v", 2)
			if got := l.Next(0, false); got != "v" || !l.Busy() {
				t.Fatalf("%q begins", got)
			}
			l.Ended("v", true, 4*second)
			l.Ended("v", true, 4*second)
			l.End(8*second, "v")
			l.planned = true
			l.Wait("w", "w", false)
			l.ToLearn("w", 2)
			tt.change(l)
			if got := l.Next(tt.now, tt.plans); got != tt.want {
				t.Errorf("%q begins, want %q", got, tt.want)
			}
		})
	}
}
