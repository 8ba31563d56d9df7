package learn

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/campaign/schedule"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// newest is what is known of a workload since more was learned, see More.
type newest struct {
	// busy has an item while more is learned. Who has put it in may change what follows, with the learner's lock.
	busy       chan struct{}
	learned    *Learned        // nil: nothing was
	err        error           // of Rest: it cannot be judged what plans have found
	uneventful []time.Duration // see Learner.uneventful
}

// begin waits until nothing more is learned of the workload. The caller calls end. The error is that of ctx.
func (n *newest) begin(ctx context.Context) (end func(), err error) {
	select {
	case n.busy <- struct{}{}:
		return func() { <-n.busy }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// hold waits until nothing more is learned of a workload, and returns the newest that is known of it. The caller calls
// end. The error is that of ctx.
func (lr *Learner) hold(ctx context.Context, known *Learned) (n *newest, latest *Learned, end func(), err error) {
	n = lr.newestOf(known.ID())
	if end, err = n.begin(ctx); err != nil {
		return nil, nil, nil, err
	}
	return n, cmp.Or(n.learned, known), end, nil
}

// set sets what is known.
func (lr *Learner) set(n *newest, learned *Learned, err error) {
	lr.mu.Lock()
	defer lr.mu.Unlock()
	n.learned, n.err = learned, err
}

// newestOf returns the newest of what is learned of a workload; see Learned.ID.
func (lr *Learner) newestOf(workload string) *newest {
	lr.mu.Lock()
	defer lr.mu.Unlock()
	n := lr.newest[workload]
	if n == nil {
		n = &newest{busy: make(chan struct{}, 1)}
		lr.newest[workload] = n
	}
	return n
}

// Newest returns the newest of what is known of a workload: it may have been learned again for another plan. It does
// not wait while more is learned.
func (lr *Learner) Newest(l *Learned) *Learned {
	n := lr.newestOf(l.ID())
	lr.mu.Lock()
	defer lr.mu.Unlock()
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
	n, l, end, err := lr.hold(ctx, known)
	if err != nil {
		return known, err
	}
	defer end()
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
		lr.set(n, wider, nil)
	}
	if n.learned != nil {
		return n.learned, nil
	}
	return known, nil // the run was to record them
}

// studyMore learns a workload again, with further types.
func (lr *Learner) studyMore(ctx context.Context, l *Learned, types []plan.ResourceKey) (*Learned, error) {
	w := lr.workloadOf(l)
	w.types = slices.Concat(l.Baseline.Types, types)
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
	begun := []*record.Run{first}
	wider.Baseline, _, err = lr.compareRuns(ctx, w, quiet, begun, lr.Learn, l.Steps == nil)
	if err != nil {
		return nil, err
	}
	wider.Anew = true
	ref := wider.Baseline
	ref.Source, ref.Uneventful = l.Source, slices.Concat(l.Baseline.Uneventful, lr.newestOf(l.ID()).uneventful)
	if err := errors.Join(ref.Write(l.File), ref.WriteMasks(l.Masks)); err != nil {
		return nil, err
	}
	return &wider, wider.readMore()
}
