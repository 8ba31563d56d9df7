package instrumentation

import (
	"slices"
	"testing"
)

// TestProgressOfTwoBuilds checks that the second build does not count the packages that the first one has compiled.
func TestProgressOfTwoBuilds(t *testing.T) {
	var lines []string
	report := func(line string) { lines = append(lines, line) }
	first := &progress{report: report}
	first.needs([]string{"example.com/a", "example.com/b"})
	first.compiled("example.com/a")
	first.compiled("example.com/b")
	second := &progress{report: report}
	second.compiled("example.com/c") // before the list is there
	second.needs([]string{"example.com/a", "example.com/b", "example.com/c", "example.com/d"})
	second.compiled("example.com/d")
	second.compiled("example.com/b") // with other flags
	want := []string{
		"compile 1/2 example.com/a", "compile 2/2 example.com/b",
		"compile 1 example.com/c", "compile 2/2 example.com/d", "compile 3/3 example.com/b",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("got %q, want %q", lines, want)
	}
}
