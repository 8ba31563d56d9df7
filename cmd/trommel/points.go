package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/trommel-dev/trommel/coordinator"
	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/run"
)

// checkBinaries refuses executables that are none, before anything is built.
func checkBinaries(suite *plan.Suite) error {
	for _, c := range suite.Controllers {
		if c.Build != nil {
			continue
		}
		path := plan.Beside(suite.File, c.Binary)
		info, err := os.Stat(path)
		if err == nil && (!info.Mode().IsRegular() || info.Mode()&0o111 == 0) {
			err = fmt.Errorf("%s is no executable file", path)
		}
		if err != nil {
			return &instrumentation.InputError{Reason: fmt.Sprintf("%s: controller %q: binary: %v", suite.File, c.Name, err)}
		}
	}
	return nil
}

// checkPoints refuses a plan that observes a controller at a point which its binary does not have.
func checkPoints(l *loaded, binaries []run.Binary) error {
	var errs []error
	for i := range l.suite.Controllers {
		c := &l.suite.Controllers[i]
		for _, need := range coordinator.Needs(l.plan, c.Name) {
			// One without hooks was refused with the plan.
			if binaries[i].Manifest == nil || !need.In(*binaries[i].Manifest) {
				errs = append(errs, fmt.Errorf("%s: %s needs the point %s in controller %q, which none of the modules it is built from has (trommel build --explain lists them)",
					l.plan.File, need.Where, need.Point, c.Name))
			}
		}
	}
	return errors.Join(errs...)
}
