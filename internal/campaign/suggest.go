package campaign

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/campaign/learn"
	"github.com/trommel-dev/trommel/internal/campaign/pattern"
	"github.com/trommel-dev/trommel/internal/campaign/propose"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// suggest says what workloads would add, if a pattern has no plans because no workload does what it is about. It says
// nothing if a workload was not or could not be learned, which may do it.
func (c *campaign) suggest(all []*learn.Learned) []result.Suggestion {
	if c.Plans != nil || !c.queue.learnedAll() ||
		slices.ContainsFunc(all, func(l *learn.Learned) bool { return l.Baseline == nil }) {
		return []result.Suggestion{}
	}
	var types []string // of the custom resources that workloads create
	recreates, returns := false, false
	var plans []pattern.Candidate
	for i := range all {
		u := usersOf(all[i].Baseline)
		for _, typ := range u.types {
			if !slices.Contains(types, typ) {
				types = append(types, typ)
			}
		}
		recreates, returns = recreates || u.recreates, returns || u.returns
		for _, candidate := range all[i].Candidates {
			if candidate.Plan != nil {
				plans = append(plans, candidate)
			}
		}
	}
	if len(types) == 0 {
		return []result.Suggestion{} // propose makes workloads of custom resources
	}
	what := strings.Join(types, " or ")
	found := []result.Suggestion{}
	if !recreates && pattern.Chosen("stale", c.Patterns) && len(c.Suite.APIServerNames()) > 1 &&
		!slices.ContainsFunc(plans, func(p pattern.Candidate) bool { return p.Pattern == "stale" && p.OfDeletion() }) {
		found = append(found, result.Suggestion{Pattern: "stale", Lacks: fmt.Sprintf("no plan of stale shows the "+
			"controllers a deletion that is past, because no workload deletes a %s and creates it again", what)})
	}
	if !returns && pattern.Chosen("unobserved", c.Patterns) &&
		!slices.ContainsFunc(plans, func(p pattern.Candidate) bool { return p.Pattern == "unobserved" }) {
		found = append(found, result.Suggestion{Pattern: "unobserved", Lacks: fmt.Sprintf("there is no plan of "+
			"unobserved, because no workload changes a %s and changes it back", what)})
	}
	var others []string
	for _, name := range slices.Sorted(maps.Keys(c.Suite.Workloads)) {
		if len(c.Workloads) > 0 && !slices.Contains(c.Workloads, name) {
			others = append(others, name)
		}
	}
	words := []string{"trommel", "propose", "-c", filepath.Dir(c.SuiteFile)}
	if filepath.Base(c.SuiteFile) != plan.SuiteFile {
		words[len(words)-1] = c.SuiteFile
	}
	if c.Variant != "" {
		words = append(words, "--variant", c.Variant)
	}
	for i := range found {
		if found[i].Workloads = others; len(others) == 0 && propose.Check(c.Suite, "", "") == nil {
			found[i].Command = result.Command(append(words, "--write"))
		}
	}
	return found
}

// users is what others than the controllers do to custom resources in a workload.
type users struct {
	types     []string // of those that they create
	recreates bool     // they delete one and create it again
	returns   bool     // they change a field and change it back
}

func usersOf(ref *baseline.Baseline) users {
	var u users
	deleted := map[facts.Key]bool{}
	updates := map[facts.Key][][]facts.Field{} // by others
	for i := range ref.Changes {
		change := &ref.Changes[i]
		if !facts.IsCustom(change.Key.Type()) {
			continue
		}
		switch {
		case change.Marked() || change.Event == record.Deleted:
			deleted[change.Key] = true
		case change.By != "":
		case change.Event == record.Created:
			u.recreates = u.recreates || deleted[change.Key]
			if typ := change.Key.Type(); !slices.Contains(u.types, typ) {
				u.types = append(u.types, typ)
			}
		case change.Event == record.Updated:
			fields := ref.Changed(change)
			u.returns = u.returns || slices.ContainsFunc(updates[change.Key], func(before []facts.Field) bool {
				return facts.Reverses(before, fields)
			})
			updates[change.Key] = append(updates[change.Key], fields)
		}
	}
	return u
}
