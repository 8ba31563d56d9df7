package judge

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/record"
)

const (
	// A field that changes back this often when nothing disturbs the controllers is fought over.
	fightReturns = 5
	// fightEnd is how long before the end the last change may be: a fight goes on.
	fightEnd = 3 * time.Second
)

// fights judges whether a field changes back and forth between two values without end when nothing disturbs the
// controllers any more, and a controller under test takes part. It is a bug if the field does not do that without
// faults.
type fights struct{}

func (fights) Is() Traits { return is("fights", eachCluster, whatHappened) }

func (fights) Judge(_ context.Context, e Evidence) ([]record.Finding, error) {
	if e.calm() < leftFor {
		return nil, nil
	}
	changes, err := e.Changes()
	if err != nil {
		return nil, err
	}
	var findings []record.Finding
	returns := facts.Returns(changes)
	for _, key := range slices.Sorted(maps.Keys(returns)) {
		for _, where := range slices.Sorted(maps.Keys(returns[key])) {
			r := returns[key][where]
			if e.Baseline.Ignores(key, r.Path) {
				continue
			}
			calm := slices.DeleteFunc(slices.Clone(r.Times), func(i int) bool {
				return changes[i].Time.Before(e.Meta.Calm)
			})
			if len(calm) < fightReturns || e.Meta.Observed.Sub(changes[calm[len(calm)-1]].Time) > fightEnd {
				continue
			}
			if e.Baseline.MostReturned(key, where) >= fightReturns {
				continue
			}
			var lines, who []string
			var all []*facts.Change
			ours := false
			for _, i := range calm[len(calm)-fightReturns+1:] {
				c := &changes[i]
				ours, all = ours || c.By != "", append(all, c)
				for _, f := range facts.FieldsOf(c) {
					if f.Where == where {
						lines = append(lines, fmt.Sprintf("from %s to %s: %s", baseline.Value(f.Prev),
							baseline.Value(f.Cur), e.happened(c)))
					}
				}
				if c.By != "" && !slices.Contains(who, c.By) {
					who = append(who, c.By)
				}
			}
			if !ours {
				continue
			}
			findings = append(findings, record.Finding{
				Severity: e.severity(), Judge: record.JudgeFight, Subject: string(key), Field: path(where),
				Time: changes[calm[0]].Time, Cause: changes[calm[len(calm)-fightReturns+1]].Time,
				Title: fmt.Sprintf("%s of %s changes back and forth, and %s takes part: %d times in the last %s", where,
					key, strings.Join(who, ", "), len(calm), e.calm().Round(100*time.Millisecond)),
				Detail: strings.Join(lines, "\n"), Origin: origin(all...),
			})
		}
	}
	return findings, nil
}
