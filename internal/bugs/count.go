package bugs

import (
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/report"
	"github.com/trommel-dev/trommel/record"
)

// Count notes what runs of the source with the bug have shown. The plan that shows it most often counts. Further
// runs of a plan have the names that result.Again returns.
func (r *Result) Count(b *Bug, outcomes []result.Outcome) {
	plans := map[string]*Result{}
	var order []string
	for i := range outcomes {
		out := &outcomes[i]
		if !ran(out) {
			continue
		}
		name := result.FirstOf(out.Plan)
		one := plans[name]
		if one == nil {
			one = &Result{}
			plans[name], order = one, append(order, name)
		}
		one.add(b, out)
	}
	var best *Result
	for _, name := range order {
		if one := plans[name]; best == nil || one.Shown > best.Shown {
			best = one
		}
	}
	if best == nil {
		return
	}
	r.Shown, r.Of, r.Took, r.Named = best.Shown, best.Of, best.Took/time.Duration(best.Of), best.Named
	for _, name := range order {
		if r.Shown == 0 && r.Other == "" {
			r.Other = plans[name].Other
		}
	}
}

// add notes what the runs of one outcome have shown. Took is the time of all runs.
func (r *Result) add(b *Bug, out *result.Outcome) {
	runs := max(out.Of, 1)
	r.Of += runs
	r.Took += out.Took
	// If the finding comes without the plan's actions, too, a difference from the runs without faults is not the
	// plan's: those runs differ among themselves.
	at := slices.IndexFunc(out.Findings, func(f record.Finding) bool {
		return b.Finding.Matches(f) && (out.Status != result.OfWorkload || !f.Of(record.JudgeBaseline))
	})
	if at < 0 {
		if r.Other == "" && len(out.Findings) > 0 {
			r.Other = report.Title(out.Findings[0])
		}
		return
	}
	r.Shown += max(out.Came, 1)
	if n := b.named(out.Findings[at], out.Lead); r.Named == nil || n != nil && n.Off < r.Named.Off {
		r.Named = n
	}
}

// CountFixed notes how many runs of the source without the bug have the finding, too.
func (r *Result) CountFixed(b *Bug, outcomes []result.Outcome) {
	for i := range outcomes {
		out := &outcomes[i]
		if !ran(out) {
			continue
		}
		r.OfFixed++
		if slices.ContainsFunc(out.Findings, b.Finding.Matches) {
			r.ShownFixed++
		}
	}
}

// ran reports whether a plan was run and happened. Otherwise it shows nothing about the source.
func ran(out *result.Outcome) bool {
	return out.Status != result.Inconclusive && out.Status != result.Failed
}
