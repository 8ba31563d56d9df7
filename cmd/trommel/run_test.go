package main

import (
	"slices"
	"testing"

	"github.com/trommel-dev/trommel/plan"
)

func TestPlansShareSessions(t *testing.T) {
	one, other := &plan.Suite{File: "one/trommel.yaml"}, &plan.Suite{File: "other/trommel.yaml"}
	again := &plan.Suite{File: "one/trommel.yaml"} // read for another plan
	named := func(name string, s *plan.Suite, variant string) *loaded {
		return &loaded{plan: &plan.Plan{TestName: name}, suite: s, variant: variant}
	}
	groups := bySession([]*loaded{
		named("a", one, ""), named("b", other, ""), named("c", again, ""), named("d", one, "fixed"),
		named("e", other, ""),
	})
	var got []string
	for _, g := range groups {
		names := ""
		for _, l := range g {
			names += l.plan.TestName
		}
		got = append(got, names)
	}
	if want := []string{"ac", "be", "d"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
