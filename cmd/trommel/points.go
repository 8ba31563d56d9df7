package main

import (
	"errors"
	"fmt"

	"github.com/trommel-dev/trommel/coordinator"
	"github.com/trommel-dev/trommel/run"
)

// checkPoints refuses a plan that observes a controller at a point which its binary does not have.
func checkPoints(l *loaded, binaries []run.Binary) error {
	var errs []error
	for i := range l.suite.Controllers {
		c := &l.suite.Controllers[i]
		for _, need := range coordinator.Needs(l.plan, c.Name) {
			if binaries[i].Manifest == nil {
				errs = append(errs, fmt.Errorf("%s: %s needs the point %s in controller %q, whose binary has no hooks (it is given by `binary:`; use `build:`)",
					l.plan.File, need.Where, need.Point, c.Name))
				continue
			}
			if !need.In(*binaries[i].Manifest) {
				errs = append(errs, fmt.Errorf("%s: %s needs the point %s in controller %q, which none of the modules it is built from has (trommel build --explain lists them)",
					l.plan.File, need.Where, need.Point, c.Name))
			}
		}
	}
	return errors.Join(errs...)
}
