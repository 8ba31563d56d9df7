package flags

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/trommel-dev/trommel/plan"
)

// Time is the value of --time; empty: as the suite says.
type Time plan.Time

// Register adds the flag to a command.
func (t *Time) Register(f *pflag.FlagSet) {
	f.Var(t, "time",
		"`how` time passes: virtual (it moves ahead while nothing happens) or real (default: as the suite says)")
}

func (t *Time) String() string { return string(*t) }

// Type is the name of the flag's value in help texts.
func (t *Time) Type() string { return "how" }

// Set refuses unknown values.
func (t *Time) Set(text string) error {
	switch plan.Time(text) {
	case plan.VirtualTime, plan.RealTime:
		*t = Time(text)
		return nil
	}
	return fmt.Errorf("must be %s or %s", plan.VirtualTime, plan.RealTime)
}

// Apply makes the suite's runs pass time as the flag says.
func (t Time) Apply(suite *plan.Suite) {
	if t != "" {
		suite.Time = plan.Time(t)
	}
}
