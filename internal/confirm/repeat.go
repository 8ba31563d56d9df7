package confirm

import (
	"slices"

	"github.com/trommel-dev/trommel/record"
)

const (
	// manyRuns is how often a plan runs if a finding of great harm does not come every time.
	manyRuns = 10
	// rareHits is how often such a finding must come to be sure of it. Before that, the plan runs up to manyRuns times.
	rareHits = 2
)

// Tally counts in how many runs of a plan each of its findings comes. The first run has found them.
type Tally struct {
	findings  []record.Finding
	came      []int // by finding
	of, tries int   // runs that count, and further runs that were tried
	least     int
}

// NewTally begins with the findings of the first run, the worst first. The plan needs at least that many runs.
func NewTally(found []record.Finding, least int) *Tally {
	t := &Tally{findings: found, came: make([]int, len(found)), of: 1, least: least}
	for i := range t.came {
		t.came[i] = 1
	}
	return t
}

// More reports whether the plan has to run again.
func (t *Tally) More() bool {
	if t.tries >= 2*max(t.least, manyRuns) {
		return false
	}
	if t.of < t.least {
		return t.tries < 2*t.least
	}
	return t.of < manyRuns && slices.ContainsFunc(t.rare(), func(i int) bool { return t.came[i] < rareHits })
}

// Wants is how many runs the plan needs, as far as is known now.
func (t *Tally) Wants() int {
	if t.of >= t.least {
		return manyRuns
	}
	return t.least
}

// Of is how many runs count, with the first one.
func (t *Tally) Of() int { return t.of }

// Tries is how many further runs there were, with those that do not count.
func (t *Tally) Tries() int { return t.tries }

// CameFirst is in how many runs the worst finding came.
func (t *Tally) CameFirst() int { return t.came[0] }

// Skip counts a run that says nothing about what the plan finds.
func (t *Tally) Skip() { t.tries++ }

// Take counts a run with its findings.
func (t *Tally) Take(found []record.Finding) {
	t.tries++
	t.of++
	for i, f := range t.findings {
		if slices.ContainsFunc(found, f.Same) {
			t.came[i]++
		}
	}
}

// Kept returns the findings that came most often, and how often. If rare, a worse finding came now and then: then it is
// among them, and came is about it.
func (t *Tally) Kept() (kept []record.Finding, came int, rare bool) {
	seldom, most := t.rare(), 0
	for _, n := range t.came {
		most = max(most, n)
	}
	for i, f := range t.findings {
		if t.came[i] == most || slices.Contains(seldom, i) {
			kept = append(kept, f)
		}
	}
	if len(seldom) > 0 {
		return kept, t.came[seldom[0]], true
	}
	return kept, most, false
}

// rare lists the findings of great harm that do not come every time, unless a finding as bad comes every time.
func (t *Tally) rare() (all []int) {
	sure := slices.IndexFunc(t.came, func(n int) bool { return n == t.of })
	for i, f := range t.findings {
		if t.came[i] < t.of && f.Does().Strong() &&
			(sure < 0 || f.Does().Rank() < t.findings[sure].Does().Rank()) {
			all = append(all, i)
		}
	}
	return all
}
