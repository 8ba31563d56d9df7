package bugs

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/trommel-dev/trommel/internal/lead"
	"github.com/trommel-dev/trommel/record"
)

// Near is how many lines a line may be away from a bug's cause to lead a reader there.
const Near = 10

// Named is the line of source, among those that a report of the finding shows, that is nearest to the bug's cause.
type Named struct {
	Line string `json:"line"` // as in bug.yaml: pkg/x.go:12
	Off  int    `json:"off"`  // lines from the cause in the same file; -1: the cause is in another file, or unknown
}

// String says which line it is, and how far from the cause.
func (n *Named) String() string {
	switch {
	case n.Off < 0:
		return n.Line
	case n.Off == 0:
		return n.Line + ", the cause"
	}
	return fmt.Sprintf("%s, %d from the cause", n.Line, n.Off)
}

// named returns the line that is nearest to the cause. The lines are those of the call that the finding names with its
// callers, and those of the steps that led to it, if they are known. Nil: the finding names no line.
func (b *Bug) named(f record.Finding, l *lead.Lead) *Named {
	var lines []string
	for _, c := range f.Callers.List() {
		lines = append(lines, fmt.Sprintf("%s:%d", c.File, c.Line))
	}
	if l != nil {
		for _, s := range l.Steps {
			if place, _, _ := strings.Cut(s.Place, " "); s.Wrong && place != "" {
				lines = append(lines, place)
			}
		}
	}
	var best *Named
	for _, line := range lines {
		off := -1
		for _, cause := range b.Cause {
			if n, same := apart(line, cause); same && (off < 0 || n < off) {
				off = n
			}
		}
		if best == nil || off >= 0 && (best.Off < 0 || off < best.Off) {
			best = &Named{Line: line, Off: off}
		}
	}
	return best
}

// apart returns how many lines two lines of the same file are apart. A path may begin at the root of the repository or
// at that of a module in it.
func apart(a, b string) (lines int, same bool) {
	fileA, numberA, okA := strings.Cut(a, ":")
	fileB, numberB, okB := strings.Cut(b, ":")
	if !okA || !okB || !strings.HasSuffix("/"+fileA, "/"+fileB) && !strings.HasSuffix("/"+fileB, "/"+fileA) {
		return 0, false
	}
	x, errX := strconv.Atoi(numberA)
	y, errY := strconv.Atoi(numberB)
	return max(x-y, y-x), errX == nil && errY == nil
}
