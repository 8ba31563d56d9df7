// Package runsdir has the names of the directories where commands write if the user names none.
package runsdir

import (
	"path/filepath"

	"github.com/trommel-dev/trommel/plan"
)

// Name is the directory that holds what commands write if no other directory is named.
const Name = "trommel-runs"

// BaselinesDir holds the baselines of suites that have no other directory.
var BaselinesDir = filepath.Join(Name, "baselines")

// Baselines returns the directory of the suite's baselines.
func Baselines(suite *plan.Suite, variant string) (string, error) {
	file, err := filepath.Abs(suite.File)
	if err != nil {
		return "", err
	}
	name := filepath.Base(filepath.Dir(file))
	if variant != "" {
		name += "-" + variant
	}
	return filepath.Join(BaselinesDir, name), nil
}
