package judge

import (
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/baseline/findings"
	"github.com/trommel-dev/trommel/record"
)

// own adds to findings about objects whose these are.
func (e Evidence) own(all []record.Finding) {
	if !slices.ContainsFunc(all, func(f record.Finding) bool { return f.About() != "" }) {
		return
	}
	f, err := e.follower()
	if err != nil {
		return // the judges have reported it
	}
	owners := findings.NewOwners(f.Changes(), f.Objects())
	var usual *findings.Owners
	for i := range all {
		about := all[i].About()
		if all[i].Owner != "" || about == "" {
			continue
		}
		all[i].Owner = string(owners.Of(owners.Named(about)))
		if all[i].Owner != "" || all[i].Awaited == "" || e.Baseline == nil {
			continue
		}
		if usual == nil { // what was never created has an owner only in the runs without faults
			usual = findings.NewOwners(e.Baseline.Changes, e.Baseline.Objects)
		}
		all[i].Owner = string(usual.Of(usual.Named(about)))
	}
}

// path is where a field is, as findings have it.
func path(where string) string { return strings.ReplaceAll(where, " ", "_") }
