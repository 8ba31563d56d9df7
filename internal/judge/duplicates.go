package judge

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// duplicates judges whether an owner had more objects of a type at a time than it asks for, and than it ever has
// without faults. It looks only at objects with generated names: others have a purpose of their own each. A controller
// under test must have created some of them.
//
// It is a bug only where both are known, as fewer objects may be wanted than before, and rolling updates make more for
// a time.
type duplicates struct{}

func (duplicates) Is() Traits { return is("duplicates", eachCluster, whatHappened) }

func (duplicates) Judge(_ context.Context, e Evidence) ([]record.Finding, error) {
	// A plan that writes may change how many are wanted, or take objects away from their owner.
	if e.Plan != nil && slices.ContainsFunc(e.Plan.Actions, func(a plan.Action) bool {
		write := plan.EffectOf[*plan.Write](&a)
		return write != nil && write.Deletes.IsZero() && !Conflicts(&a)
	}) {
		return nil, nil
	}
	changes, err := e.Changes()
	if err != nil {
		return nil, err
	}
	var findings []record.Finding
	for _, s := range facts.Most(changes) {
		last := &changes[s.At]
		if !s.Generated || len(s.By) == 0 || last.Event != record.Created || last.By == "" ||
			s.Wanted >= 0 && s.Most <= s.Wanted {
			continue
		}
		severity := e.severity()
		usual := ""
		switch {
		case e.Baseline != nil:
			most := e.Baseline.Most(s.Owner, s.Type)
			if s.Most <= most {
				continue
			}
			usual = fmt.Sprintf(", without faults %d at most", most)
		case s.Wanted < 0:
			continue // nothing says how many are wanted
		}
		if s.Wanted >= 0 {
			usual = fmt.Sprintf(" instead of %d", s.Wanted) + usual
		} else {
			severity = record.SeverityNote
		}
		findings = append(findings, record.Finding{
			Severity: severity, Judge: record.JudgeDuplicate, Subject: string(s.Owner), Field: s.Type,
			Time: last.Time, Cause: last.Time, Origin: origin(last),
			Title: fmt.Sprintf("%s had too many objects at a time: %d of type %s%s", s.Owner, s.Most, s.Type, usual),
			Detail: fmt.Sprintf("%s: %s\nthere were: %s", nameOf(last), e.happened(last),
				strings.Join(namesAt(changes[:s.At+1], s.Names), ", ")),
		})
	}
	return findings, nil
}

// namesAt are the names in the run of objects that existed after the changes.
func namesAt(changes []facts.Change, keys []facts.Key) []string {
	var names []string
	for _, key := range keys {
		name := string(key)
		for i := range changes {
			if changes[i].Key == key {
				name = nameOf(&changes[i])
			}
		}
		names = append(names, name)
	}
	return names
}
