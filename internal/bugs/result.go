package bugs

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"
)

// Result is what the runs of a bug's plans have shown. A run shows the bug if it has the expected finding.
type Result struct {
	Shown int `json:"shown"` // runs of the plan that shows it most often
	Of    int `json:"of"`    // and all of that plan's runs
	// ShownFixed and OfFixed are the same for the source without the bug, of all plans; OfFixed is 0 if there is none.
	ShownFixed int `json:"shownFixed,omitempty"`
	OfFixed    int `json:"ofFixed,omitempty"`
	// Other is what was found instead of the expected finding; empty: nothing, or the expected one was found.
	Other string `json:"other,omitempty"`
	// Named is the line of source that the finding names; nil: it names none.
	Named *Named `json:"named,omitempty"`
	// Took is how long one run took, by the machine's clock, without builds.
	Took time.Duration `json:"nanoseconds"`
	// Total is how long everything took, with builds.
	Total   time.Duration `json:"totalNanoseconds"`
	Date    string        `json:"date"`    // of the run, such as 2026-03-31
	Trommel string        `json:"trommel"` // its version
}

// Good reports whether the bug is shown in each run, and in none without it.
func (r *Result) Good() bool { return r.Of > 0 && r.Shown == r.Of && r.ShownFixed == 0 }

// String says what was shown, in one line. A nil Result is that of a bug that was not run.
func (r *Result) String() string {
	if r == nil {
		return "not run yet"
	}
	text := "not shown"
	if r.Shown > 0 {
		text = fmt.Sprintf("shown %d of %d in %s", r.Shown, r.Of, r.Took.Round(time.Second))
	}
	switch {
	case r.OfFixed > 0 && r.ShownFixed == 0:
		text += "; gone at the fix"
	case r.OfFixed > 0:
		text += fmt.Sprintf("; shown %d of %d at the fix", r.ShownFixed, r.OfFixed)
	}
	if r.Other != "" {
		text += "; found instead: " + r.Other
	}
	return text
}

// Results are the last results by the names of the bugs.
type Results map[string]*Result

// ReadResults reads a file of results; without the file there are none.
func ReadResults(file string) (Results, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return Results{}, nil
	}
	if err != nil {
		return nil, err
	}
	all := Results{}
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return all, nil
}

// Write writes the results of the bugs that are in the table to a file.
func (r Results) Write(file string, table []*Bug) error {
	kept := maps.Clone(r)
	maps.DeleteFunc(kept, func(name string, _ *Result) bool {
		return !slices.ContainsFunc(table, func(b *Bug) bool { return b.Name == name })
	})
	data, err := json.MarshalIndent(kept, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}
