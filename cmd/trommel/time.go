package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/trommel-dev/trommel/plan"
)

// timeFlag is the value of --time; empty: as the suite says.
type timeFlag plan.Time

func (t *timeFlag) register(f *pflag.FlagSet) {
	f.Var(t, "time", "`how` time passes: virtual (it moves ahead while nothing happens) or real (default: as the suite says)")
}

func (t *timeFlag) String() string { return string(*t) }
func (t *timeFlag) Type() string   { return "how" }

func (t *timeFlag) Set(text string) error {
	switch plan.Time(text) {
	case plan.VirtualTime, plan.RealTime:
		*t = timeFlag(text)
		return nil
	}
	return fmt.Errorf("must be %s or %s", plan.VirtualTime, plan.RealTime)
}

// apply makes the suite's runs pass time as the flag says.
func (t timeFlag) apply(suite *plan.Suite) {
	if t != "" {
		suite.Time = plan.Time(t)
	}
}
