package schedule

import (
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline/findings"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/confirm"
	"github.com/trommel-dev/trommel/record"
)

// confirmShare is the part of the budget that confirming may take: a third.
const confirmShare = 3

// confirming is what a schedule knows of findings that are being confirmed, and of those that wait for that.
type confirming struct {
	found     map[string]result.Outcome // by plan that is being confirmed: what its first run has found
	putOff    []*Plan                   // the plan with the greatest harm first
	confirmed time.Duration             // how long the runs took that confirm findings; all runners together
}

// Confirm reports whether a plan is confirmed now. It is put off if another plan with the same findings is being
// confirmed, and if confirming has had its share of the budget and there are plans to begin.
func (s *Schedule) Confirm(p *Plan, o *result.Outcome) bool {
	begins := s.stopped == "" && (s.unbegun() || s.Learning.Unlearned() > 0)
	if s.inWork(o) || begins && s.overdrawn(o) && s.Like(o) == "" {
		s.PutOff(p, o)
		s.ended(p.Name)
		return false
	}
	s.found[p.Name] = result.Outcome{Cause: o.Cause, Findings: slices.Clone(o.Findings), Took: o.Took}
	return true
}

// PutOff lets a plan wait until its findings can be confirmed.
func (s *confirming) PutOff(p *Plan, o *result.Outcome) {
	p.Known = o
	s.putOff = append(s.putOff, p)
	slices.SortStableFunc(s.putOff, func(a, b *Plan) int {
		return record.ByHarm(a.Known.Findings[0], b.Known.Findings[0])
	})
}

// Waiting returns how many plans wait to be confirmed.
func (s *confirming) Waiting() int { return len(s.putOff) }

// Relabel changes the cause of the findings that are being confirmed. It reports whether other plans may go on.
func (s *confirming) Relabel(plan, cause string) bool {
	o, confirming := s.found[plan]
	if !confirming || o.Cause == cause {
		return false
	}
	o.Cause = cause
	s.found[plan] = o
	return true
}

// Confirmed takes in how long a run took that confirms a finding.
func (s *confirming) Confirmed(took time.Duration) { s.confirmed += took }

// goOn returns the plan with the greatest harm that was put off and can go on; nil: there is none. Anyway: also if
// confirming has had its share of the budget.
func (s *Schedule) goOn(anyway bool) *Plan {
	i := slices.IndexFunc(s.putOff, func(p *Plan) bool {
		return !s.inWork(p.Known) && (anyway || !s.overdrawn(p.Known) || s.Like(p.Known) != "")
	})
	if i < 0 {
		return nil
	}
	p := s.putOff[i]
	s.putOff = slices.Delete(s.putOff, i, i+1)
	p.begun = true
	return p
}

// inWork reports whether a plan is being confirmed that has all the same findings.
func (s *confirming) inWork(o *result.Outcome) bool {
	for _, other := range s.found {
		if other.Cause == o.Cause && confirm.Within(o.Findings, other.Findings) {
			return true
		}
	}
	return false
}

// overdrawn reports whether confirming would take more than its share of the budget if an outcome was confirmed, too.
// The first one is confirmed in any case.
func (s *Schedule) overdrawn(o *result.Outcome) bool {
	if s.Limit == 0 {
		return false
	}
	took := s.confirmed
	for _, other := range s.found {
		took += s.toConfirm(&other)
	}
	share := s.Given() / confirmShare * s.runners()
	return took > 0 && took+s.toConfirm(o) > share
}

// owed estimates how long it takes to confirm what does great harm and waits for that.
func (s *Schedule) owed() time.Duration {
	var sum time.Duration
	var counted []*result.Outcome
	for _, p := range s.putOff {
		same := func(o *result.Outcome) bool {
			return o.Cause == p.Known.Cause && confirm.Within(p.Known.Findings, o.Findings)
		}
		if p.Known.Strong() && !s.inWork(p.Known) && s.Like(p.Known) == "" && !slices.ContainsFunc(counted, same) {
			counted = append(counted, p.Known)
			sum += s.toConfirm(p.Known)
		}
	}
	return sum
}

// toConfirm estimates how long it takes to confirm what a plan's first run has found: as many runs as must show it, the
// last one without the plan's actions, and one with a restart only if the plan shows the past.
func (s *Schedule) toConfirm(o *result.Outcome) time.Duration {
	runs := s.Repeat
	if o.Cause == findings.Stale && o.Restarted == "" {
		runs++
	}
	return time.Duration(runs) * o.Took
}
