package learn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/baseline/findings"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/confirm"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// unsteady notes a workload that ends differently although nothing was done to the controllers. If each step began when
// they were at rest, and they were at rest in the end, that is a bug of theirs: a finding of its own, with both ends.
// The error is that of learning the workload from the runs, of which those that were not made are nil. Two runs do not
// show which is right, so there is a third.
func (lr *Learner) unsteady(
	ctx context.Context, w workload, quiet *plan.Plan, runs []*record.Run, options run.RunOptions, err error,
) {
	var unstable *baseline.UnstableError
	if !errors.As(err, &unstable) || quiet.Pace != plan.PaceRest ||
		confirm.Jumps(slices.Concat(w.steps, lr.Suite.Workloads[w.name].Steps)) {
		return
	}
	there := slices.DeleteFunc(slices.Clone(runs), func(r *record.Run) bool { return r == nil })
	if slices.ContainsFunc(there, func(r *record.Run) bool { return !r.Meta.Rested }) {
		return
	}
	if len(there) == 2 {
		options.Shift = Shift(len(runs))
		r, err := lr.fine(ctx, quiet, options)
		if err != nil || !r.Meta.Rested {
			return
		}
		there = append(there, r)
	}
	o := result.Outcome{
		Plan: quiet.TestName, Workload: w.name, Status: result.Bug, Cause: findings.Undisturbed, Faultless: true,
		Why: "nothing is done to the controllers, and each step of the workload begins when they are at rest",
	}
	ends := make([]*facts.Follower, len(there))
	for i, r := range there {
		if ends[i], err = facts.Follow(r); err != nil {
			return // learning has said it
		}
		o.Took += r.Meta.Took()
	}
	for _, key := range unstable.Keys {
		f, odd, times := differentEnds(key, ends)
		if times == 0 {
			continue // only generated names differ
		}
		var lines []string
		for i, r := range there {
			lines = append(lines, fmt.Sprintf("%s: %s", r.Dir, facts.EndOf(ends[i].Objects()[key])))
			for _, cause := range (baseline.Difference{Key: key, Own: key}).Caused(ends[i].Changes()) {
				text := "  " + cause.String()
				if cause.By != "" {
					text += " by " + cause.By
				}
				lines = append(lines, fmt.Sprintf("%s at +%s (resource version %d)", text,
					cause.Time.Sub(r.Meta.WorkloadStart).Round(10*time.Millisecond), cause.Version))
			}
		}
		f.Title = fmt.Sprintf("without any fault, in %d of %s: %s", times, wording.Count(len(there), "run"), f.Title)
		f.Detail = strings.Join(lines, "\n")
		if o.Findings = append(o.Findings, f); o.Record == "" {
			o.Record, o.Came, o.Of = there[odd].Dir, times, len(there)
		}
	}
	if o.Findings == nil {
		return
	}
	slices.SortStableFunc(o.Findings, record.ByHarm)
	lr.mu.Lock()
	defer lr.mu.Unlock()
	lr.found = append(lr.found, o)
}

// differentEnds says what is wrong with an object that is there at the end of some runs only: of those runs that are
// fewer. It returns one of these, and how many there are; 0: all end alike. If they are equally many, those are wrong
// in which it is missing.
func differentEnds(key facts.Key, runs []*facts.Follower) (f record.Finding, odd, times int) {
	var with, without []int
	for i, r := range runs {
		if o := r.Objects()[key]; o != nil && o.End != nil {
			with = append(with, i)
		} else {
			without = append(without, i)
		}
	}
	usual, wrong := with, without
	if len(without) > len(with) {
		usual, wrong = without, with
	}
	if len(wrong) == 0 {
		return f, 0, 0
	}
	right, run := runs[usual[0]], runs[wrong[0]]
	r := findings.Run{
		Baseline: &baseline.Baseline{Objects: right.Objects(), Changes: right.Changes()},
		Changes:  run.Changes(), Objects: run.Objects(),
	}
	f = r.Parts([]baseline.Difference{{
		Key: key, Own: key, Want: facts.EndOf(right.Objects()[key]), Got: facts.EndOf(run.Objects()[key]),
	}})[0].Finding
	f.Title = strings.Replace(f.Title, "; without faults: ", "; in other runs: ", 1)
	return f, wrong[0], len(wrong)
}
