package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/internal/campaign/result"
)

// TestRepeatedNames makes sure that workloads and patterns can be listed with commas, repeated, and both.
func TestRepeatedNames(t *testing.T) {
	dir := t.TempDir()
	suite := `controllers: [{name: db, build: {dir: .}}]
workloads: {a: [{sleep: 1s}], b: [{sleep: 1s}], c: [{sleep: 1s}]}
`
	if err := os.WriteFile(filepath.Join(dir, "trommel.yaml"), []byte(suite), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"--workload", "b,a", "--pattern", "stale,drift-any"},
		{"--workload", "b", "--workload", "a", "--pattern", "stale", "--pattern", "drift-any"},
		{"--workload", "b, a,b", "--workload=a", "--pattern=stale, drift-any", "--pattern", "stale"},
	} {
		o := testOptions{}
		c := &cobra.Command{}
		o.register(c)
		o.registerPatterns(c)
		if err := c.ParseFlags(append(args, "-c", dir)); err != nil {
			t.Fatal(err)
		}
		o.Repeat = 1
		if _, _, err := o.suite(); err != nil {
			t.Fatal(err)
		}
		if want := []string{"b", "a"}; !slices.Equal(o.Workloads, want) {
			t.Errorf("%q: workloads %q, want %q", args, o.Workloads, want)
		}
		if want := []string{"stale", "drift-any"}; !slices.Equal(o.Patterns, want) {
			t.Errorf("%q: patterns %q, want %q", args, o.Patterns, want)
		}
	}
}

// A campaign whose budget ended before it could say something does not look as if it had found nothing.
func TestExitCodesOfCampaignsThatEndEarly(t *testing.T) {
	passed := result.Outcome{Status: result.Passed}
	unconfirmed := result.Outcome{Status: result.Unconfirmed}
	pending := result.Outcome{
		Status: result.Unconfirmed, Confirmation: result.Confirmation{Pending: true},
	}
	bug := result.Outcome{Status: result.Bug}
	for _, tt := range []struct {
		name     string
		outcomes []result.Outcome
		notRun   []string
		plans    string
		want     int
	}{
		{"all passed", []result.Outcome{passed}, nil, "", exit.Pass},
		{"some were not run", []result.Outcome{passed}, []string{"a"}, "", exit.Pass},
		{"none was run", nil, []string{"a"}, "", exit.Inconclusive},
		{"a finding that did not come again", []result.Outcome{passed, unconfirmed}, nil, "", exit.Pass},
		{"a finding that is still to be confirmed", []result.Outcome{passed, pending}, nil, "", exit.Inconclusive},
		{"and a bug", []result.Outcome{bug, pending}, []string{"a"}, "", exit.Bug},
		{"own plans, some were not run", []result.Outcome{passed}, []string{"a"}, "plans", exit.Inconclusive},
	} {
		r := &result.Result{Outcomes: tt.outcomes, NotRun: tt.notRun}
		r.Plans = tt.plans
		if got := exitCodeOf(r); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}
