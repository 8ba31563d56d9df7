package oracle

import (
	"fmt"
	"strings"

	"github.com/trommel-dev/trommel/record"
)

// Judge gives the verdict on a run that could be carried out. Complete says that every action of the plan was carried out. A bug is
// a bug also where the plan was not; what else went wrong with the run makes it inconclusive. The reason is one line, empty for a
// pass.
func Judge(findings []record.Finding, complete bool) (record.Verdict, string) {
	var bug, other []string
	for _, f := range findings {
		if f.IsBug() {
			bug = append(bug, f.Title)
		} else {
			other = append(other, f.Title)
		}
	}
	switch {
	case len(bug) > 0:
		return record.Bug, first(bug)
	case !complete:
		return record.Inconclusive, "not every action of the plan was carried out"
	case len(other) > 0:
		return record.Inconclusive, first(other)
	}
	return record.Pass, ""
}

func first(titles []string) string {
	if len(titles) == 1 {
		return titles[0]
	}
	return fmt.Sprintf("%s (and %d more)", titles[0], len(titles)-1)
}

// NoneStale is the finding of a run that could not show what its plan is about: an API server was paused, and no controller was shown
// anything stale. The causes are not empty.
func NoneStale(causes []string) record.Finding {
	f := record.Finding{Oracle: record.OracleStaleness, Title: "no controller was shown stale state: " + causes[0]}
	if len(causes) > 1 {
		f.Detail = strings.Join(causes[1:], "\n")
	}
	return f
}
