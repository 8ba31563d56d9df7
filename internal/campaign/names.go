package campaign

import "github.com/trommel-dev/trommel/internal/campaign/result"

// Settings are those of a campaign that its result and its state contain.
type Settings = result.Settings

// The package uses these names of package result unqualified.
type (
	Outcome = result.Outcome
	Result  = result.Result
)

// What became of a plan.
const (
	Passed       = result.Passed
	Bug          = result.Bug
	Unconfirmed  = result.Unconfirmed
	OfWorkload   = result.OfWorkload
	Inconclusive = result.Inconclusive
	Failed       = result.Failed
)
