package main

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/internal/campaign/pattern"
	"github.com/trommel-dev/trommel/plan"
)

func TestTally(t *testing.T) {
	var out bytes.Buffer
	tally(&out, []pattern.Candidate{
		{Pattern: "drift", Dropped: "others change it"}, {Pattern: "stale", Plan: &plan.Plan{}},
		{Pattern: "drift", Plan: &plan.Plan{}}, {Pattern: "drift", Dropped: "a record"},
		{Pattern: "drift", Dropped: "others change it"},
	})
	want := `stale: 1 plans
drift: 1 plans
  1 candidates without a plan: a record
  2 candidates without a plan: others change it
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}
