package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/spf13/cobra"
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
