// Package invariant evaluates the invariants of a suite over the history of a run.
package invariant

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/cel"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// defaultWithin is for suites that were not validated.
const defaultWithin = 30 * time.Second

// maxObjects is the maximum number of objects that one invariant gets findings for.
const maxObjects = 10

// Set is a suite's invariants, compiled. It is immutable and safe for concurrent use.
//
// An expression that reads a missing field, or fails in another way, counts as false for never and eventually and as
// true for always, so that nothing is found by mistake. So that nothing is missed by mistake either, an invariant whose
// expression failed at every evaluation gives a finding of the judge [record.JudgeInvariantError], and one whose
// expression failed at some gives a note. An eventually that fails because of a missing field is only unfulfilled.
type Set struct{ all []invariant }

type invariant struct {
	plan.Invariant
	word    string // never, always, eventually
	expr    *cel.Expression
	message *cel.Expression // nil: Message is plain text
}

// CompileError is a mistake in an expression of an invariant.
type CompileError struct {
	Invariant string // its name
	Field     string // never, always, eventually
	Offset    int    // in the expression; bytes, 0-based
	Message   string
}

func (e *CompileError) Error() string {
	return fmt.Sprintf("invariant %q: %s: column %d: %s", e.Invariant, e.Field, e.Offset+1, e.Message)
}

// Compile compiles invariants; it reports all mistakes at once, each a [CompileError].
func Compile(invariants []plan.Invariant) (*Set, error) {
	c := &Set{}
	var errs []error
	for _, i := range invariants {
		v := invariant{Invariant: i}
		scope, text := cel.History, ""
		switch {
		case i.Never != "":
			v.word, text = "never", i.Never
		case i.Always != "":
			v.word, text = "always", i.Always
		case i.Eventually != "":
			v.word, text, scope = "eventually", i.Eventually, cel.Objects
		default:
			errs = append(errs, &CompileError{i.Name, "never", 0,
				"the invariant has no expression (one of never, always and eventually)"})
			continue
		}
		var err error
		if v.expr, err = scope.Compile(text); err != nil {
			e := &CompileError{Invariant: i.Name, Field: v.word, Message: err.Error()}
			var syntax *cel.SyntaxError
			if errors.As(err, &syntax) {
				e.Offset = syntax.Offset
			}
			errs = append(errs, e)
			continue
		}
		// A message that is not a valid expression is plain text.
		if v.message, err = scope.CompileText(i.Message); err != nil {
			v.message = nil
		}
		c.all = append(c.all, v)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return c, nil
}

// say explains a violation in one line: by the invariant's message, or else by what happened. The expression is in the
// finding's detail.
func (v *invariant) say(variables map[string]any, happened string) string {
	text := v.Message
	if v.message != nil {
		said, err := v.message.Text(variables)
		if err != nil {
			said = fmt.Sprintf("%s (its message failed: %v)", v.Message, err)
		}
		text = said
	}
	if text == "" {
		text = happened
	}
	return fmt.Sprintf("invariant %s: %s", v.Name, strings.Join(strings.Fields(text), " "))
}

// violation describes the event that violated an invariant. Did says what it was and who did it, as far as that is
// known.
func violation(e *record.HistoryEntry, did string) string {
	return fmt.Sprintf("violated when %s was %s", objectKey(e), cmp.Or(did, e.Event))
}

// tally counts the results of an invariant's evaluations.
type tally struct {
	clean, failed int
	err           error          // the first failure
	errAt         string         // its object
	violated      map[string]int // by object: index of the finding
	more          map[int]int    // by index of the finding: further violations
	// excused are the objects for which the invariant does not hold since the plan's own write.
	excused map[string]bool
}

// Check evaluates never and always over a history, which must be ordered. The first violation of an invariant by an
// object becomes a finding, which also counts the further ones.
func (c *Set) Check(history []record.HistoryEntry) []record.Finding {
	return c.CheckExcept(history, nil, nil)
}

// Deed is what a change did: a clause that may name who did it, and the places in the controller's source that wrote
// it.
type Deed struct {
	Text   string
	Origin record.Origin
}

// CheckExcept is Check without violations by the entries with these indexes. Did has the changes, by the resource
// versions of the entries. What the plan itself writes does not count either, and neither does what follows until the
// invariant holds again: it says nothing about the controllers.
func (c *Set) CheckExcept(
	history []record.HistoryEntry, except map[int]bool, did map[uint64]Deed,
) []record.Finding {
	var findings []record.Finding
	tallies := make([]tally, len(c.all))
	all := worlds{}
	for n := range history {
		e := &history[n]
		object, old, err := all.of(e.Cluster).step(e)
		if err != nil {
			findings = append(findings,
				record.Finding{Severity: record.SeverityInconclusive, Judge: record.JudgeHistory, Title: err.Error(),
					Time: e.Time})
			continue
		}
		if e.Event == record.Existing {
			continue // not an event of this run
		}
		for i := range c.all {
			v, t := &c.all[i], &tallies[i]
			if v.Cluster != e.Cluster && v.On != nil {
				continue
			}
			variables := all.variables(v.Cluster, map[string]any{"object": nil, "oldObject": nil, "event": e.Event})
			subject := ""
			switch {
			case v.word == "eventually":
				continue
			case v.On != nil:
				if !v.On.Matches(e.Type, e.Group, true, e.Namespace, e.Name) {
					continue
				}
				variables["object"], variables["oldObject"] = object, old
				subject = objectKey(e)
			}
			holds, err := v.expr.Holds(variables)
			if err != nil {
				t.failed++
				if t.err == nil {
					t.err, t.errAt = err, objectKey(e)
				}
				continue
			}
			t.clean++
			if holds == (v.word == "always") {
				delete(t.excused, subject)
				continue
			}
			if _, known := t.violated[subject]; !known && byPlan(e) {
				if t.excused == nil {
					t.excused = map[string]bool{}
				}
				t.excused[subject] = true
			}
			if except[n] || t.excused[subject] {
				continue
			}
			if at, ok := t.violated[subject]; ok {
				t.more[at]++
				continue
			}
			if t.violated == nil {
				t.violated, t.more = map[string]int{}, map[int]int{}
			}
			if len(t.violated) == maxObjects {
				continue
			}
			t.violated[subject] = len(findings)
			findings = append(findings, record.Finding{
				Severity: record.SeverityBug,
				Judge:    record.JudgeInvariant, Title: v.say(variables, violation(e, did[e.ResourceVersion].Text)),
				Subject: objectKey(e), Origin: did[e.ResourceVersion].Origin,
				Time: e.Time, Detail: fmt.Sprintf("%s was %s at resource version %d\n%s: %s", objectKey(e), e.Event,
					e.ResourceVersion, v.word, v.expr),
			})
		}
	}
	for i := range tallies {
		v, t := &c.all[i], &tallies[i]
		for at, n := range t.more {
			findings[at].Detail += fmt.Sprintf("\nand %d more times", n)
		}
		if t.clean == 0 && t.failed > 0 {
			findings = append(findings,
				v.unevaluated(t.err, fmt.Sprintf("it failed on all of %d events, first on %s", t.failed, t.errAt)))
		} else if t.failed > 0 {
			f := v.unevaluated(t.err, "first on "+t.errAt)
			f.Severity = record.SeverityNote
			f.Title = fmt.Sprintf("invariant %s could not be evaluated on %d of %d events: %v", v.Name, t.failed,
				t.failed+t.clean, t.err)
			findings = append(findings, f)
		}
	}
	return findings
}

// byPlan reports whether the plan itself has written a state.
func byPlan(e *record.HistoryEntry) bool {
	return slices.ContainsFunc(e.Writers, func(w record.FieldManager) bool { return w.Manager == record.PlanManager })
}

func (v *invariant) unevaluated(err error, detail string) record.Finding {
	hint := ""
	if errors.Is(err, cel.ErrMissing) {
		hint = "\nif a field may be missing, use has(object.a.b) or object.?a.?b.orValue(…)"
	}
	return record.Finding{
		Severity: record.SeverityInconclusive, Judge: record.JudgeInvariantError, Subject: v.Name,
		Title:  fmt.Sprintf("invariant %s could never be evaluated: %v", v.Name, err),
		Detail: fmt.Sprintf("%s\n%s: %s%s", detail, v.word, v.expr, hint),
	}
}
