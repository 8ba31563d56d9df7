package clientgo

import (
	"fmt"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"

	"github.com/trommel-dev/trommel/internal/run/builds"
	"github.com/trommel-dev/trommel/plan"
)

// removedSince is the first client-go released with a Kubernetes that no longer serves API versions which older
// controllers use: 1.22 removed most of them, 1.25 the last that were in wide use, such as policy/v1beta1.
const removedSince = "v0.25.0-0"

// removedAt is the release date of removedSince.
var removedAt = time.Date(2022, time.August, 23, 0, 0, 0, 0, time.UTC)

// RemovedAPIs reports whether the cluster has to serve API versions that Kubernetes has removed: if the suite says so,
// or if it says nothing and a controller is built with a client-go older than the removal, which is then the reason.
func RemovedAPIs(suite *plan.Suite, binaries []builds.Binary) (serve bool, reason string) {
	if suite.Cluster.RemovedAPIs != nil {
		return *suite.Cluster.RemovedAPIs, ""
	}
	for i := range suite.Controllers {
		c := &suite.Controllers[i]
		if v := Describe(c, binaries[i].Manifest).ClientGo; beforeRemoval(v) {
			return true, fmt.Sprintf("%s has client-go %s, older than 0.25", c.Name, v)
		}
	}
	return false, ""
}

// beforeRemoval reports whether a version of client-go is older than removedSince; false for a version that does not
// show it.
func beforeRemoval(version string) bool {
	switch {
	case !semver.IsValid(version) || version == "v0.0.0": // a fork in a directory
		return false
	case semver.Major(version) != "v0": // v2.0.0 to v12.0.0+incompatible came before v0.17
		return true
	case strings.HasPrefix(version, "v0.0.0-"):
		committed, err := module.PseudoVersionTime(version)
		return err == nil && committed.Before(removedAt)
	}
	return semver.Compare(version, removedSince) < 0
}
