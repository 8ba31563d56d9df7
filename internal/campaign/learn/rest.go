package learn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/campaign/schedule"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// ErrNoBaseline says that a workload of which plans were made ends differently, or fails, in a further run without
// faults. What a plan of it finds cannot be judged.
var ErrNoBaseline = errors.New("it cannot be judged")

// Rest makes the runs without faults that a workload was not learned from yet, if there are any, and returns what is
// known then. All of them may excuse a difference, so that a plan that has found something is judged after them. What
// passed before passes with them, too. They are made once; who comes meanwhile waits for them.
//
// The error is that of ctx, schedule.ErrBudget, or ErrNoBaseline.
func (lr *Learner) Rest(ctx context.Context, known *Learned, planName string) (*Learned, error) {
	n, l, end, err := lr.hold(ctx, known)
	if err != nil {
		return known, err
	}
	defer end()
	switch {
	case n.err != nil:
		return known, n.err
	case l.Baseline == nil || l.Baseline.Begun == nil:
		return l, nil
	case !lr.HoldsRuns(lr.Learn+1-len(l.Baseline.Begun), l.Cost(&plan.Plan{})):
		return known, schedule.ErrBudget
	}
	lr.Say("%s: making the other runs without faults, to judge what %s has found", l.Workload, planName)
	whole, err := lr.complete(ctx, l)
	switch {
	case ctx.Err() != nil:
		return known, context.Cause(ctx)
	case err != nil:
		// The next campaign learns it from the beginning.
		err = errors.Join(fmt.Errorf("learn workload %q: %w: %w", l.Workload, ErrNoBaseline, err), forget(l.File))
		lr.set(n, nil, err)
		lr.Say("%v", err)
		return known, err
	}
	lr.set(n, whole, nil)
	return whole, nil
}

// complete learns a workload from all runs, after it was learned from some. Plans are still made from the first ones.
func (lr *Learner) complete(ctx context.Context, l *Learned) (*Learned, error) {
	begun := make([]*record.Run, len(l.Baseline.Begun))
	for i, dir := range l.Baseline.Begun {
		var err error
		if begun[i], err = record.Open(dir); err != nil {
			return nil, err
		}
	}
	w := lr.workloadOf(l)
	w.types = l.Baseline.Types
	quiet, err := lr.withoutFaults(w)
	if err != nil {
		return nil, err
	}
	quiet.Pace = l.Baseline.Pace
	lr.SetNumber(quiet.TestName, max(lr.Number(quiet.TestName), len(begun))) // the records of the first ones are kept
	whole := *l
	if whole.Baseline, _, err = lr.compareRuns(ctx, w, quiet, begun, lr.Learn, true); err != nil {
		return nil, err
	}
	whole.Anew = true
	ref := whole.Baseline
	ref.Source, ref.Uneventful = l.Source, slices.Concat(l.Baseline.Uneventful, lr.newestOf(l.ID()).uneventful)
	first, err := baseline.Read(l.File) // without what people have stated, which is read each time
	if err != nil {
		return nil, err
	}
	first.Begun = nil
	err = errors.Join(first.Write(l.firstFile()), ref.Write(l.File), ref.WriteMasks(l.Masks))
	whole.first = l.Baseline
	return &whole, errors.Join(err, whole.readMore())
}

// workloadOf is the workload that was learned, with the steps of its own if the suite does not have it.
func (lr *Learner) workloadOf(l *Learned) workload {
	w := workload{name: l.Baseline.Workload, build: l.Build, steps: l.Steps}
	if w.steps == nil && lr.Plans != nil {
		i := slices.IndexFunc(lr.Plans, func(p *plan.Plan) bool { return workloadOf(p).id() == l.Workload })
		w.steps = workloadOf(lr.Plans[i]).steps
	}
	return w
}

// areThere reports whether the records of runs can still be read.
func areThere(dirs []string) bool {
	return !slices.ContainsFunc(dirs, func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, record.MetaFile))
		return err != nil
	})
}

// uneventful notes, for the next campaign, that the controllers change nothing when a time has passed after a workload.
func (lr *Learner) uneventful(ctx context.Context, before *Learned, by time.Duration) error {
	n, before, end, err := lr.hold(ctx, before)
	if err != nil {
		return err
	}
	defer end()
	n.uneventful = append(n.uneventful, by)
	own := *before.Baseline // plans that are running read it
	own.Uneventful = slices.Concat(own.Uneventful, n.uneventful)
	return own.Write(before.File)
}
