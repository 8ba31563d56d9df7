package plan

import (
	"fmt"
	"slices"
	"strings"
)

// Error is one mistake in a plan or suite.
type Error struct {
	File    string // empty if it was built in Go
	Line    int    // 1-based; 0 where there is no file
	Col     int    // 1-based, in characters
	Path    string // without a file: the place in the value, e.g. actions[0].trigger
	Message string
}

func (e *Error) Error() string {
	switch {
	case e.Line > 0:
		return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Col, e.Message)
	case e.File != "":
		return e.File + ": " + e.Message
	case e.Path != "":
		return e.Path + ": " + e.Message
	}
	return e.Message
}

// Errors holds all mistakes of a file, ordered by position.
type Errors []*Error

// Error returns all mistakes, one per line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find each mistake.
func (e Errors) Unwrap() []error {
	list := make([]error, len(e))
	for i, err := range e {
		list[i] = err
	}
	return list
}

// err returns e sorted, or nil when there is nothing to report.
func (e Errors) err() error {
	if len(e) == 0 {
		return nil
	}
	slices.SortStableFunc(e, func(a, b *Error) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Col - b.Col
	})
	// Fields that are merged into several mappings are read, and reported, several times.
	return slices.CompactFunc(e, func(a, b *Error) bool { return a.Line > 0 && *a == *b })
}

// didYouMean completes a message about an unknown word with the most similar known word, or else with all of them.
func didYouMean(word string, known []string) string {
	if best := closest(word, known); best != "" {
		return fmt.Sprintf("; did you mean %q?", best)
	}
	if len(known) == 0 || len(known) > 16 {
		return ""
	}
	return fmt.Sprintf(" (known: %s)", strings.Join(known, ", "))
}

// closest returns the known word within a few edits of word, or "".
func closest(word string, known []string) string {
	if len(word) > 64 {
		return ""
	}
	lower := strings.ToLower(word)
	limit := 1 + len(word)/4
	best := ""
	for _, k := range known {
		d := distance(lower, strings.ToLower(k))
		// A prefix or suffix of a known word counts as similar too: onObjectCreate, controllerWrite.
		if d > limit && len(word) >= 4 && (strings.HasPrefix(strings.ToLower(k), lower) ||
			strings.HasSuffix(strings.ToLower(k), lower)) {
			d = limit
		}
		if d <= limit && (best == "" || d < distance(lower, strings.ToLower(best))) {
			best = k
		}
	}
	return best
}

// distance is the number of letters to insert, delete, replace or swap between a and b.
func distance(a, b string) int {
	if diff := len(a) - len(b); diff > 16 || diff < -16 {
		return 99
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
