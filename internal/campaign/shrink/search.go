package shrink

import (
	"bytes"
	"context"
	"fmt"

	"github.com/trommel-dev/trommel/plan"
)

// search looks for the smallest plan of which something holds.
type search struct {
	suite *plan.Suite
	// shows reports whether it holds of a plan, which is complete and valid, and says in words what was seen.
	shows func(ctx context.Context, p *plan.Plan) (ok bool, seen string, err error)
	told  func(format string, args ...any)
	// stepsLast: other workloads are tried last, as they are expensive.
	stepsLast bool
	scopes    []plan.ResourceKey // objects that a pause can be narrowed to

	best  *plan.Plan
	text  string // of best
	tried map[string]bool
	tries int
}

func newSearch(
	suite *plan.Suite, first *plan.Plan, shows func(context.Context, *plan.Plan) (bool, string, error),
) *search {
	s := &search{suite: suite, shows: shows, told: func(string, ...any) {}, best: first, tried: map[string]bool{}}
	s.text = textOf(first)
	s.tried[s.text] = true
	return s
}

// smallest makes best as small as it gets: until no single reduction is left. The error is that of shows.
func (s *search) smallest(ctx context.Context) error {
	for {
		before := s.text
		for _, k := range s.kinds() {
			if err := s.takeAway(ctx, k); err != nil {
				return err
			}
		}
		if err := s.simplify(ctx); err != nil {
			return err
		}
		if s.text == before {
			return nil
		}
	}
}

// kinds lists the kinds of parts in the order in which they are taken away.
func (s *search) kinds() []parts {
	workload := []parts{steps(s.suite), documents(s.suite)}
	rest := []parts{names(), fields()}
	if s.stepsLast {
		return append(append([]parts{actions(), lateSteps()}, rest...), workload...)
	}
	return append(append([]parts{actions(), lateSteps()}, workload...), rest...)
}

// takeAway removes parts of a kind: all of them, then each half, each quarter and so on, at last one by one until all
// that are left are needed. It begins with the last ones, on which the fewest others rest.
func (s *search) takeAway(ctx context.Context, k parts) error {
	for size := len(k.list(s.best)); size > 0; {
		removed := false
		for end := len(k.list(s.best)); end > 0; {
			all := k.list(s.best) // taking one away may take others off the list
			end = min(end, len(all))
			if end == 0 {
				break
			}
			begin := max(0, end-size)
			what := "without " + all[begin]
			if end-begin > 1 {
				what = fmt.Sprintf("without %s and %d more", all[begin], end-begin-1)
			}
			ok, err := s.try(ctx, edit{what, func(p *plan.Plan) bool {
				return k.drop(p, func(i int) bool { return i >= begin && i < end })
			}})
			if err != nil {
				return err
			}
			removed = removed || ok
			end = begin
		}
		if size > 1 || !removed {
			size /= 2
		}
	}
	return nil
}

// simplify tries all single changes until none of them keeps what best shows.
func (s *search) simplify(ctx context.Context) error {
	for again := true; again; {
		again = false
		for _, e := range simplifications(s.best, s.scopes) {
			ok, err := s.try(ctx, e)
			if err != nil {
				return err
			}
			if ok {
				again = true
				break // the others are about the plan as it was
			}
		}
	}
	return nil
}

// try makes an edit of best the new best if it is a valid plan that shows what it must. Nothing is tried twice.
func (s *search) try(ctx context.Context, e edit) (bool, error) {
	p, text := s.edited(e)
	if p == nil || s.tried[text] {
		return false, nil
	}
	ok, seen, err := s.shows(ctx, p)
	if err != nil {
		return false, err
	}
	s.tries++
	s.tried[text] = true
	answer := "needed"
	if ok {
		answer, s.best, s.text = "not needed", p, text
	}
	s.told("%3d. %s: %s (%s)", s.tries, e.what, answer, seen)
	return ok, nil
}

// edited returns the best plan after an edit; nil if that is not a valid plan.
func (s *search) edited(e edit) (p *plan.Plan, text string) {
	p, err := clone(s.best)
	if err != nil || !e.change(p) {
		return nil, ""
	}
	if p, err = clone(p); err != nil {
		return nil, ""
	}
	p.Complete(s.suite)
	if p.Validate(s.suite) != nil {
		return nil, ""
	}
	return p, textOf(p)
}

// textOf is the plan's canonical form.
func textOf(p *plan.Plan) string {
	data, err := plan.Marshal(p)
	if err != nil {
		return err.Error() // it was read from YAML, so this cannot be
	}
	return string(data)
}

// clone copies a plan by writing and reading it, which also completes it. The error says that it is not valid.
func clone(p *plan.Plan) (*plan.Plan, error) {
	data, err := plan.Marshal(p)
	if err != nil {
		return nil, err
	}
	return plan.Parse(data, p.File)
}

// size is that of a plan, which is written like another one.
func size(suite *plan.Suite, p, written *plan.Plan) Size {
	q := *p
	q.Description = ""
	if all := stepsOf(suite, p); len(all) > 0 {
		q.Workload, q.Steps = "", all
	}
	text, err := plan.MarshalLike(&q, written, suite)
	if err != nil {
		text = nil // it was read from YAML, so this cannot be
	}
	return Size{Actions: len(p.Actions), Steps: len(q.Steps), Lines: bytes.Count(text, []byte("\n"))}
}
