package judge

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/record"
)

// reverts judges whether a controller under test set a field, but for a status, back to what it was before, and more
// often than without faults: it acted on the past. That it has put it right since does not undo what the object's own
// controller did meanwhile, such as ending the pods of a Job that is suspended and resumed.
type reverts struct{}

func (reverts) Is() Traits { return is("reverts", eachCluster, whatHappened) }

func (reverts) Judge(_ context.Context, e Evidence) ([]record.Finding, error) {
	if e.Baseline == nil || e.writes() {
		return nil, nil // a controller that puts back what the plan has written does its work
	}
	changes, err := e.Changes()
	if err != nil {
		return nil, err
	}
	var findings []record.Finding
	returns := facts.Returns(changes)
	for _, key := range slices.Sorted(maps.Keys(returns)) {
		if e.Baseline.Objects[key] == nil {
			continue // its number may be another one in other runs
		}
		for _, where := range slices.Sorted(maps.Keys(returns[key])) {
			r := returns[key][where]
			ours := slices.DeleteFunc(slices.Clone(r.Times), func(i int) bool {
				return changes[i].By == "" || isMark(&changes[i], where)
			})
			most := e.Baseline.MostReturned(key, where)
			if r.Path[0] == "status" || e.Baseline.Ignores(key, r.Path) || len(ours) == 0 || len(r.Times) <= most {
				continue
			}
			var lines []string
			for _, i := range ours {
				for _, f := range facts.FieldsOf(&changes[i]) {
					if f.Where == where {
						lines = append(lines, fmt.Sprintf("from %s to %s: %s", baseline.Value(f.Prev),
							baseline.Value(f.Cur), e.happened(&changes[i])))
					}
				}
			}
			last := &changes[ours[len(ours)-1]]
			findings = append(findings, record.Finding{
				Severity: record.SeverityBug, Judge: record.JudgeRevert, Subject: string(key), Field: path(where),
				Time: last.Time, Cause: changes[ours[0]].Time, Origin: origin(last),
				Title: fmt.Sprintf("%s of %s is set back to what it was before %s by %s; without faults: %s", where,
					key, wording.Times(len(r.Times)), last.By, wording.Times(most)),
				Detail: strings.Join(lines, "\n"),
			})
		}
	}
	return findings, nil
}

// isMark reports whether a change has only added or removed a field of the metadata: a label, an annotation or a
// finalizer that says what is going on comes and goes with it.
func isMark(c *facts.Change, where string) bool {
	return slices.ContainsFunc(facts.FieldsOf(c), func(f facts.Field) bool {
		return f.Where == where && f.Path[0] == "metadata" && (f.Prev == nil || f.Cur == nil)
	})
}
