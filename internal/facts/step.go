package facts

import (
	"time"

	"github.com/trommel-dev/trommel/record"
)

// StepFailure is a step of the workload that failed or timed out.
type StepFailure struct {
	Step   string // its number and name
	Title  string // what the step did and how it failed, in one line
	Detail string
	Time   time.Time
	Excuse Excuse
	// What the step waits for or writes, what it means that this did not come, and what the title says of objects; see
	// the finding's fields.
	Awaited string
	Harm    record.Harm
	Claims  record.Claims
}

// Excuse is what made a step fail other than the controllers.
type Excuse int

// The excuses.
const (
	// NoExcuse: only the controllers can be the cause.
	NoExcuse Excuse = iota
	// ExcusedByRenewal: the plan had deleted the step's object and had not yet created it again.
	ExcusedByRenewal
	// ExcusedByHolds: the step succeeded after the plan's holds, pauses and kills were undone.
	ExcusedByHolds
	// ExcusedByWebhook: a webhook could not be called, and the webhook itself is not to blame.
	ExcusedByWebhook
	// ExcusedByFunction: a Go function did not try again after a failure that the plan may have caused.
	ExcusedByFunction
)
