package campaign

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/campaign/learn"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/record"
)

// Faultless counts the runs of a workload in which no action of a plan was carried out. The runs that the workload was
// learned from are not counted: all of them have passed.
type Faultless struct {
	Runs   int `json:"runs"`
	Failed int `json:"failed"` // a step of the workload failed in that many of them
	// Step and Record are of the first of these: the finding's title, and the run's record.
	Step   string `json:"step,omitempty"`
	Record string `json:"record,omitempty"`
	Source string `json:"source"` // hash of what the workload's baseline is made from

	learned *learn.Learned
	dropped int // plans that are not run for this reason
}

// count takes in a run in which no action of a plan was carried out. If a step of the workload fails in it, no further
// plan with the workload is begun: what such a plan finds may come without its actions, too. Runs count that are like
// those that the workload was learned from.
func (c *confirmer) count(t *task, r *record.Run) {
	ref := t.learned.Baseline
	if ref == nil || t.without != nil || t.plan.Pace != ref.Pace || r.Meta.Verdict == record.Inconclusive {
		return
	}
	failed := ""
	if i := slices.IndexFunc(r.Findings, func(f record.Finding) bool {
		return f.IsBug() && f.Judge == record.JudgeWorkload
	}); i >= 0 {
		failed = r.Findings[i].Title
	}
	c.queue.count(t.learned, failed, r.Dir)
}

// sourceHash is a hash of what a workload's baseline is made from.
func sourceHash(s baseline.Source) string {
	data, err := json.Marshal(s)
	if err != nil { // it consists of texts and numbers
		return ""
	}
	hash := sha256.Sum256(data)
	return learn.ShortHash(hash[:])
}

// String says how often the workload fails without faults.
func (f *Faultless) String() string {
	text := fmt.Sprintf("workload %q fails in %d of %s without faults, and is not used for more plans until that is "+
		"mended: %s (%s)", f.learned.ID(), f.Failed, wording.Count(f.learned.Baseline.Runs+f.Runs, "run"), f.Step,
		f.Record)
	if f.dropped > 0 {
		text += fmt.Sprintf("\n%s not run", wording.Count(f.dropped, "plan"))
	}
	return text
}

// join takes away, from what plans have found, what runs without a plan's actions have shown since. So it does not
// matter which of them came first. A plan that was taken to have found the same as another one joins with it.
func (c *confirmer) join() error {
	var joined []*result.Outcome
	tasks, outcomes := c.queue.all()
	for i, t := range tasks {
		o := outcomes[i]
		if o == nil || o.Status != result.Bug && (o.Status != result.Unconfirmed || o.Pending) ||
			len(o.Findings) == 0 || !t.plan.Disturbs() {
			continue
		}
		before := *o
		if explained, err := c.explained(t, o); err != nil {
			c.Say("%s: whether it is found without the plan's actions too is not known: %v", o.Plan, err)
			*o = before
		} else if explained {
			o.Like, joined = "", append(joined, o)
		} else if len(o.Findings) < len(before.Findings) {
			joined = append(joined, o)
		}
	}
	for _, o := range outcomes {
		if o == nil || o.Like == "" || c.queue.done(o.Like) == nil {
			continue
		}
		// A finding is confirmed by the other plan only as long as that plan still has it.
		like := c.queue.done(o.Like)
		left := slices.DeleteFunc(slices.Clone(o.Findings), func(f record.Finding) bool {
			return like.Status != result.Bug || !slices.ContainsFunc(like.Findings, f.Same)
		})
		switch {
		case len(left) == len(o.Findings):
			continue
		case len(left) == 0:
			o.Status, o.Like = result.OfWorkload, ""
			o.Reason = "runs without the plan's actions show the same as those of " + like.Plan
		default:
			o.Findings = left
		}
		joined = append(joined, o)
	}
	if joined == nil {
		return nil
	}
	for _, o := range joined {
		if o.Status == result.OfWorkload {
			c.Say("%s: no bug of the plan: %s", o.Plan, o.WithoutActions())
		}
	}
	return c.queue.keep()
}
