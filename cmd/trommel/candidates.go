package main

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/trommel-dev/trommel/internal/explore/pattern"
)

// tally says, by pattern, how many plans there are and how many candidates each rule has dropped.
func tally(out io.Writer, candidates []pattern.Candidate) {
	plans, dropped := map[string]int{}, map[string]map[string]int{}
	for _, c := range candidates {
		if c.Plan != nil {
			plans[c.Pattern]++
			continue
		}
		if dropped[c.Pattern] == nil {
			dropped[c.Pattern] = map[string]int{}
		}
		dropped[c.Pattern][c.Dropped]++
	}
	for _, p := range pattern.Patterns() {
		if plans[p.Name] == 0 && dropped[p.Name] == nil {
			continue
		}
		fmt.Fprintf(out, "%s: %d plans\n", p.Name, plans[p.Name])
		for _, rule := range slices.Sorted(maps.Keys(dropped[p.Name])) {
			fmt.Fprintf(out, "  %d candidates without a plan: %s\n", dropped[p.Name][rule], rule)
		}
	}
}
