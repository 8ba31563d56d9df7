package campaign

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// newest is what is known of a workload since more was learned, see learnMore.
type newest struct {
	mu      sync.Mutex // held while more is learned
	learned *Learned   // nil: nothing was
}

// newestOf returns the newest of what is learned of a workload; see Learned.id.
func (lr *learner) newestOf(workload string) *newest {
	lr.mu.Lock()
	defer lr.mu.Unlock()
	n := lr.newest[workload]
	if n == nil {
		n = &newest{}
		lr.newest[workload] = n
	}
	return n
}

// uptodate lets a task use what was learned for others.
func (lr *learner) uptodate(t *task) {
	n := lr.newestOf(t.learned.id())
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.learned != nil {
		t.learned = n.learned
	}
}

// learnMore learns a task's workload again if the controllers have written objects in a run of its plan of types that
// they do not touch without faults: their states were not recorded, and nobody knows what becomes of them usually. From
// then on all runs of the workload record these types. It reports whether the plan must run again. That the workload
// cannot be learned again is said; the error is that of ctx.
func (lr *learner) learnMore(ctx context.Context, t *task, run *record.Meta) (again bool, err error) {
	if t.learned.Baseline == nil || len(run.Unrecorded) == 0 {
		return false, nil
	}
	n := lr.newestOf(t.learned.id())
	n.mu.Lock()
	defer n.mu.Unlock()
	l := t.learned
	if n.learned != nil {
		l = n.learned
	}
	var more []plan.ResourceKey
	for _, name := range run.Unrecorded {
		key, err := plan.ParseResourceKey(name)
		if err == nil && !slices.Contains(l.Baseline.Types, key) {
			more = append(more, key)
		}
	}
	if len(more) > 0 {
		all := lr.Learn + 1 // and the plan once more
		if !lr.queue.holdsRuns(all, "", costOf(t, &plan.Plan{})) {
			return false, errBudget
		}
		lr.Say("%s: learning it again: in a run of %s, a controller wrote what it does not touch without faults: %s",
			l.Workload, t.plan.TestName, strings.Join(run.Unrecorded, ", "))
		wider, err := lr.studyMore(ctx, l, more)
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		if err != nil {
			lr.Say("%s: it could not be learned again: %v", l.Workload, err)
			return false, nil
		}
		n.learned = wider
	}
	if n.learned == nil || t.learned == n.learned {
		return false, nil // the run was to record them
	}
	t.learned = n.learned
	return true, nil
}

// studyMore learns a workload again, with further types.
func (lr *learner) studyMore(ctx context.Context, l *Learned, types []plan.ResourceKey) (*Learned, error) {
	w := workload{
		name: l.Baseline.Workload, build: l.build, types: slices.Concat(l.Baseline.Types, types), steps: l.steps,
	}
	if w.steps == nil && lr.Plans != nil {
		i := slices.IndexFunc(lr.Plans, func(p *plan.Plan) bool { return workloadOf(p).id() == l.Workload })
		w.steps = workloadOf(lr.Plans[i]).steps
	}
	all := lr.Learn
	if l.steps == nil {
		all++
	}
	ended := lr.lessons.learning(w, 1, all)
	quiet, first, err := lr.firstLook(ctx, w)
	ended(first, err)
	if err != nil {
		return nil, err
	}
	wider := *l
	wider.Baseline, err = lr.compareRuns(ctx, w, quiet, first, lr.Learn, l.steps == nil)
	if err != nil {
		return nil, err
	}
	wider.Anew = true
	ref := wider.Baseline
	ref.Source, ref.Uneventful = l.source, l.Baseline.Uneventful
	if err := errors.Join(ref.Write(l.File), ref.WriteMasks(l.Masks), ref.ReadAllowed(l.Allowed)); err != nil {
		return nil, err
	}
	edited, err := baseline.ReadMasks(l.Masks)
	ref.Override(edited)
	return &wider, err
}
