package main

import (
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/internal/campaign/pattern"
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

// listedCandidate is a generated plan as it is listed, or with --explain also a candidate without a plan.
type listedCandidate struct {
	Name     string `json:"name,omitempty"`
	File     string `json:"file,omitempty"`
	Workload string `json:"workload,omitempty"`
	Pattern  string `json:"pattern"`
	Why      string `json:"why"`               // the moment, in words
	Dropped  string `json:"dropped,omitempty"` // why there is no plan
}

// generated is how generated plans are listed with -o.
var generated = output.List[listedCandidate]{
	Columns: []output.Column[listedCandidate]{
		{Title: "NAME", Text: func(c listedCandidate) string { return output.OrDash(c.Name) }},
		{Title: "PATTERN", Text: func(c listedCandidate) string { return c.Pattern }},
		{Title: "WORKLOAD", Text: func(c listedCandidate) string { return output.OrDash(c.Workload) }},
		{Title: "FILE", Text: func(c listedCandidate) string { return output.OrDash(c.File) }},
		{Title: "WHY", Text: func(c listedCandidate) string {
			if c.Dropped != "" {
				return c.Why + " (no plan: " + c.Dropped + ")"
			}
			return c.Why
		}},
	},
	Name: func(c listedCandidate) string { return output.OrDash(c.File) }, None: "no plan can be generated",
}

// listed are the candidates with a plan, and with --explain all.
func (o *testOptions) listed(candidates []pattern.Candidate) []listedCandidate {
	var all []listedCandidate
	for _, c := range candidates {
		each := listedCandidate{Pattern: c.Pattern, Why: c.Why, Dropped: c.Dropped}
		switch {
		case c.Plan != nil:
			each.Name, each.Workload, each.File = c.Plan.TestName, c.Plan.Workload, o.planFile(c)
		case !o.explain || o.format == "name":
			continue
		}
		all = append(all, each)
	}
	return all
}

// planFile is the file of a generated plan.
func (o *testOptions) planFile(c pattern.Candidate) string {
	return filepath.Join(o.dir, "plans", c.Plan.TestName+".yaml")
}

// showCandidates lists the generated plans for people, and with --explain also the candidates without a plan.
func showCandidates(w io.Writer, o *testOptions, candidates []pattern.Candidate) {
	for _, c := range candidates {
		switch {
		case c.Plan != nil:
			fmt.Fprintf(w, "%s\n  %s\n", o.planFile(c), c.Why)
		case o.explain:
			fmt.Fprintf(w, "no plan (%s): %s\n  %s\n", c.Pattern, c.Dropped, c.Why)
		}
	}
}
