package propose

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

const (
	// manyChanges is from how many changes on several of them are tried in one run, to see which ones the controllers
	// react to.
	manyChanges = 24
	// perProbe is how many changes such a run tries: if one of them is refused, the rest needs another run.
	perProbe = 12
)

// probes are the changes that are tried several in a run. Large resources have hundreds of fields, and controllers
// react to few of them.
type probes struct {
	left []ranked // that no run has tried yet, in the order of the fields
	// done has what is known of a change by its text. One that is not in it is tried alone.
	done map[string]probed
}

// ranked is a change with the rank of its field.
type ranked struct {
	Change
	rank int
}

// probed is what a run with several changes has shown of one of them.
type probed struct {
	reason string // why no workload has this change; empty: the controllers react to it
	// effect is what the controllers do, see effect.
	effect string
}

// toProbe lists the changes that can be tried several in a run: those that can be undone, if there are many.
// Controllers ignore changes of a finished sample, so that this says nothing.
func (p *proposer) toProbe(fields []Field) {
	p.probes = probes{done: map[string]probed{}}
	if p.Differential || p.ends[1] == nil || facts.Finished(p.ends[1]) {
		return
	}
	for _, f := range fields {
		for _, c := range f.Changes {
			if !c.OneWay && p.wanted(f) {
				p.probes.left = append(p.probes.left, ranked{c, f.rank})
			}
		}
	}
	if len(p.probes.left) < manyChanges {
		p.probes.left = nil
	}
}

// probe returns what is known of a change. If no run has tried it yet, some run does, with the next ones.
func (p *proposer) probe(ctx context.Context, c Change) (known probed, ok bool, err error) {
	for {
		if known, ok = p.probes.done[c.String()]; ok {
			return known, true, nil
		}
		at := slices.IndexFunc(p.probes.left, func(o ranked) bool { return o.String() == c.String() })
		if at < 0 {
			return probed{}, false, nil
		}
		batch := p.probes.left[at:min(len(p.probes.left), at+perProbe)]
		tried, err := p.probeAll(ctx, batch)
		if err != nil {
			return probed{}, false, err
		}
		p.probes.left = slices.Delete(p.probes.left, at, at+max(1, tried))
	}
}

// probeAll tries changes in one run, each undone before the next one. It returns how many of them need not be tried in
// such a run any more, from the first on.
func (p *proposer) probeAll(ctx context.Context, batch []ranked) (tried int, err error) {
	rest := func() *plan.Step {
		return &plan.Step{Name: "the controllers come to rest", Sleep: p.Suite.Timeouts.Quiet}
	}
	w := Workload{Name: "probe", Comment: "Tries several changes.", Steps: p.start(rest())}
	first := len(w.Steps)
	const each = 4 // steps
	for _, c := range batch {
		patch, undo := patchStep(p.created, c.Path, c.To), undoStep(p.created, c.Change)
		patch.ResourceKey, undo.ResourceKey = p.sample.key, p.sample.key
		w.Steps = append(w.Steps, &plan.Step{Name: c.String(), Patch: patch}, rest(),
			&plan.Step{Name: c.Back(), Patch: undo}, rest())
	}
	t, err := p.try(ctx, w)
	if errors.Is(err, errInconclusive) {
		return len(batch), nil // each is tried alone
	}
	if err != nil {
		return 0, err
	}
	begun := t.run.Meta.Steps
	refused := len(batch) // the change at which the run ended
	if t.verdict != record.Pass {
		refused = max(0, len(begun)-1-first) / each
		onlyStep := !slices.ContainsFunc(t.findings, func(f record.Finding) bool {
			return f.Judge != record.JudgeWorkload
		})
		if !onlyStep || len(t.findings) == 0 || len(begun) <= first || refused >= len(batch) {
			return len(batch), nil // something else is wrong
		}
		// After others it may be refused for what these have left. Then it is tried alone.
		if len(begun) == first+1 {
			p.probes.done[batch[0].String()] = probed{reason: t.findings[0].Title}
		}
	}
	if len(begun) < first+each*refused {
		return len(batch), nil
	}
	for i, c := range batch[:refused] {
		from, until := begun[first+each*i].Started, begun[first+each*i+2].Started
		p.probes.done[c.String()] = p.seen(c, between(t.changes, from, until))
	}
	return min(len(batch), refused+1), nil
}

// seen is what the changes of objects after a change show of it.
func (p *proposer) seen(c ranked, changes []facts.Change) probed {
	at := slices.IndexFunc(changes, func(change facts.Change) bool { return p.makes(c.Change, change) })
	switch {
	case at < 0:
		return probed{reason: keepsOld(c.Change)}
	case !reacts(changes[at+1:], p.key):
		return probed{reason: noReaction(c.Change)}
	}
	return probed{effect: effect(c.rank, changes[at+1:], p.key)}
}

// between are the changes of objects in a time.
func between(all []facts.Change, from, until time.Time) (in []facts.Change) {
	for _, c := range all {
		if !c.Time.Before(from) && c.Time.Before(until) {
			in = append(in, c)
		}
	}
	return in
}

// tell reports how many fields were tried, and estimates the time for the others.
func (p *proposer) tell(began time.Time, done, of int) {
	if done == 0 || done == of {
		return
	}
	left := time.Since(began) / time.Duration(done) * time.Duration(of-done)
	p.Progress("%d of %d fields tried, %s so far, about %s left", done, of,
		wording.Count(len(p.result.Workloads), "workload"), wording.Roughly(left))
}
