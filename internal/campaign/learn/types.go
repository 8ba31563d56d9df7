package learn

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/campaign/schedule"
	"github.com/trommel-dev/trommel/plan"
)

// newest is what is known of a workload since more was learned, see More.
type newest struct {
	mu      sync.Mutex // held while more is learned
	learned *Learned   // nil: nothing was
}

// newestOf returns the newest of what is learned of a workload; see Learned.ID.
func (lr *Learner) newestOf(workload string) *newest {
	lr.mu.Lock()
	defer lr.mu.Unlock()
	n := lr.newest[workload]
	if n == nil {
		n = &newest{}
		lr.newest[workload] = n
	}
	return n
}

// Newest returns the newest of what is known of a workload: it may have been learned again for another plan.
func (lr *Learner) Newest(l *Learned) *Learned {
	n := lr.newestOf(l.ID())
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.learned != nil {
		return n.learned
	}
	return l
}

// More learns a workload again if the controllers have written objects in a run of a plan of types that they do not
// touch without faults: their states were not recorded, and what usually becomes of them is unknown. From then on all
// runs of the workload record these types. More returns what is known now. If that is new, the plan must run again. It
// says if the workload cannot be learned again. The error is that of ctx, or schedule.ErrBudget.
func (lr *Learner) More(ctx context.Context, known *Learned, planName string, unrecorded []string) (*Learned, error) {
	if known.Baseline == nil || len(unrecorded) == 0 {
		return known, nil
	}
	n := lr.newestOf(known.ID())
	n.mu.Lock()
	defer n.mu.Unlock()
	l := known
	if n.learned != nil {
		l = n.learned
	}
	var more []plan.ResourceKey
	for _, name := range unrecorded {
		key, err := plan.ParseResourceKey(name)
		if err == nil && !slices.Contains(l.Baseline.Types, key) {
			more = append(more, key)
		}
	}
	if len(more) > 0 {
		all := lr.Learn + 1 // and the plan once more
		if !lr.HoldsRuns(all, known.Cost(&plan.Plan{})) {
			return known, schedule.ErrBudget
		}
		lr.Say("%s: learning it again: in a run of %s, a controller wrote what it does not touch without faults: %s",
			l.Workload, planName, strings.Join(unrecorded, ", "))
		wider, err := lr.studyMore(ctx, l, more)
		if ctx.Err() != nil {
			return known, context.Cause(ctx)
		}
		if err != nil {
			lr.Say("%s: it could not be learned again: %v", l.Workload, err)
			return known, nil
		}
		n.learned = wider
	}
	if n.learned != nil {
		return n.learned, nil
	}
	return known, nil // the run was to record them
}

// studyMore learns a workload again, with further types.
func (lr *Learner) studyMore(ctx context.Context, l *Learned, types []plan.ResourceKey) (*Learned, error) {
	w := workload{
		name: l.Baseline.Workload, build: l.Build, types: slices.Concat(l.Baseline.Types, types), steps: l.Steps,
	}
	if w.steps == nil && lr.Plans != nil {
		i := slices.IndexFunc(lr.Plans, func(p *plan.Plan) bool { return workloadOf(p).id() == l.Workload })
		w.steps = workloadOf(lr.Plans[i]).steps
	}
	all := lr.Learn
	if l.Steps == nil {
		all++
	}
	ended := lr.lessons.learning(w, 1, all)
	quiet, first, err := lr.firstLook(ctx, w)
	ended(first, err)
	if err != nil {
		return nil, err
	}
	wider := *l
	wider.Baseline, err = lr.compareRuns(ctx, w, quiet, first, lr.Learn, l.Steps == nil)
	if err != nil {
		return nil, err
	}
	wider.Anew = true
	ref := wider.Baseline
	ref.Source, ref.Uneventful = l.Source, l.Baseline.Uneventful
	if err := errors.Join(ref.Write(l.File), ref.WriteMasks(l.Masks), ref.ReadAllowed(l.Allowed)); err != nil {
		return nil, err
	}
	edited, err := baseline.ReadMasks(l.Masks)
	ref.Override(edited)
	return &wider, err
}
