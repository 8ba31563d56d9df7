package judge

import (
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/reference/findings"
	"github.com/trommel-dev/trommel/record"
)

// own adds to findings about objects whose these are.
func (e Evidence) own(all []record.Finding) {
	if !slices.ContainsFunc(all, func(f record.Finding) bool { return strings.Contains(f.Subject, "/") }) {
		return
	}
	f, err := e.follower()
	if err != nil {
		return // it was told by the judges
	}
	owners := findings.NewOwners(f.Changes(), f.Objects())
	for i := range all {
		if all[i].Owner == "" && strings.Contains(all[i].Subject, "/") {
			all[i].Owner = string(owners.Of(owners.Named(all[i].Subject)))
		}
	}
}

// path is where a field is, as findings have it.
func path(where string) string { return strings.ReplaceAll(where, " ", "_") }
