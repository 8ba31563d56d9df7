package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/plan/internal/yamlfile"
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

// mistakes returns what has been reported in a file, or in a value that was built in Go.
func mistakes(f *yamlfile.File) error {
	all := make(Errors, len(f.Mistakes))
	for i, m := range f.Mistakes {
		all[i] = &Error{File: f.Name, Line: m.Line, Col: m.Col, Path: m.Path, Message: m.Message}
	}
	return all.err()
}
