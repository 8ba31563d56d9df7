package schedule

import (
	"errors"
	"time"
)

// ErrBudget says that a run does not begin, because it is not expected to end within the budget.
var ErrBudget = errors.New("the budget ended")

// Budget is the time that a campaign may take.
type Budget struct {
	Limit   time.Duration // 0: no limit
	Spent   time.Duration // before the campaign was resumed
	Runners int           // how many runs go on side by side
}

// Holds reports whether something that begins now and takes that long ends within the budget.
func (b Budget) Holds(now, takes time.Duration) bool { return b.Limit == 0 || now+takes <= b.Limit }

// Given returns the budget as it was given for this session: a campaign that is resumed has spent some before.
func (b Budget) Given() time.Duration {
	if given := b.Limit - b.Spent; given > 0 {
		return given
	}
	return b.Limit
}

// runners returns the number of runners as a factor of durations.
func (b Budget) runners() time.Duration { return time.Duration(max(1, b.Runners)) }
