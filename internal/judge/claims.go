package judge

import (
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline/findings"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// contradicted hears of titles that the history contradicts. That is a mistake of ours, so tests stop there.
var contradicted = func(string) {}

// bear compares what the titles of all findings say of objects with the history of the run. A title that the history
// contradicts is replaced by what the history says.
func (e Evidence) bear(all []record.Finding) {
	if !slices.ContainsFunc(all, func(f record.Finding) bool { return f.Claims != record.Claims{} }) {
		return
	}
	f, err := e.follower()
	if err != nil {
		return // the judges have reported it
	}
	for i := range all {
		if contradiction := findings.Bear(&all[i], f.Changes(), f.Objects()); contradiction != "" {
			contradicted(contradiction)
		}
	}
}

// recall adds to the run's findings what became of the objects that a step waited for until its timeout: they may have
// come and gone before the step began to wait.
func (e Evidence) recall(found []record.Finding) {
	for i := range found {
		for _, c := range found[i].Claims {
			if c.Says != record.ClaimAbsent {
				continue
			}
			if lines, since := e.came(facts.Key(c.Object)); lines != nil {
				found[i].Detail += "\nearlier in the run:\n  " + strings.Join(lines, "\n  ")
				if found[i].Cause.IsZero() || since.Before(found[i].Cause) {
					found[i].Cause = since
				}
			}
		}
		found[i].Claims = record.Claims{} // the detail has them
	}
}

// maxCame is how many creations and deletions are named of what a step waited for.
const maxCame = 6

// came lists the creations and deletions of the objects of a resource key, the newest first. Since is when the oldest
// of them happened.
func (e Evidence) came(named facts.Key) (lines []string, since time.Time) {
	key, err := plan.ParseResourceKey(named.Local())
	if err != nil {
		return nil, since
	}
	changes, err := e.Changes()
	if err != nil {
		return nil, since // the judges have reported it
	}
	for i := range slices.Backward(changes) {
		c := &changes[i]
		typ, group, _ := strings.Cut(c.Key.Type(), ".")
		_, rest, _ := strings.Cut(c.Key.Local(), "/")
		namespace, _, _ := strings.Cut(rest, "/")
		switch {
		case c.Event != record.Created && c.Event != record.Deleted, c.Key.Cluster() != named.Cluster(),
			!key.Matches(typ, group, true, namespace, c.Name()):
		case len(lines) == maxCame:
			return append(lines, "…"), since
		default:
			since = c.Time
			lines = append(lines, nameOf(c)+": "+e.happened(c))
		}
	}
	return lines, since
}
