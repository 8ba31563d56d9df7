package run

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
	"k8s.io/client-go/discovery"

	"github.com/trommel-dev/trommel/coordinator/machine"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/run/builds"
	"github.com/trommel-dev/trommel/internal/run/clientgo"
	"github.com/trommel-dev/trommel/plan"
)

// served is what a running cluster is, which may be other than what a plan or a suite needs.
type served struct {
	cluster    string // its name
	apiServers []string
	kubernetes string // version
	clock      *clock.Clock
	removed    bool // it serves API versions that Kubernetes has removed
}

// askVersion asks a cluster for its version.
func (s *served) askVersion(c discovery.ServerVersionInterface) error {
	info, err := c.ServerVersion()
	if err != nil {
		return fmt.Errorf("get the cluster's version: %w", err)
	}
	s.kubernetes = info.GitVersion
	return nil
}

// askRemovedAPIs asks a cluster whether it serves API versions that Kubernetes has removed.
func (s *served) askRemovedAPIs(c discovery.ServerGroupsInterface) error {
	groups, err := c.ServerGroups()
	if err != nil {
		return fmt.Errorf("get the cluster's API versions: %w", err)
	}
	for _, group := range groups.Groups {
		for _, version := range group.Versions {
			s.removed = s.removed || version.GroupVersion == "rbac.authorization.k8s.io/v1beta1"
		}
	}
	return nil
}

// checkServers refuses a plan that names API servers which the cluster does not have: a cluster that was already
// running may have fewer than the suite says.
func (s *served) checkServers(p *plan.Plan) error {
	var errs []error
	check := func(name string, where string, action int) {
		if plan.IsAPIServer(name) && !slices.Contains(s.apiServers, name) {
			errs = append(errs, fmt.Errorf("%s: action %d: %s %s: cluster %q has %s only",
				p.File, action+1, where, name, s.cluster, strings.Join(s.apiServers, ", ")))
		}
	}
	for i, a := range p.Actions {
		check(a.Target, "actionTarget", i)
		check(a.ReconnectAPIServer, "reconnectAPIServer", i)
		for _, d := range a.Trigger.Definitions {
			check(d.Observe.ObserveBy, "observeBy", i)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return &UserError{Err: err}
	}
	return nil
}

// checkClock refuses a plan, or steps of its workload, that move clocks if the cluster has none of its own.
func (s *served) checkClock(p *plan.Plan, steps []plan.Step) error {
	if s.clock != nil {
		return nil
	}
	refuse := func(what string) error {
		return &UserError{Err: fmt.Errorf("%s: %s needs a cluster with a clock of its own; cluster %q goes by this "+
			"machine's", p.File, what, s.cluster)}
	}
	if p.Schedule != nil {
		return refuse("a schedule")
	}
	for i, a := range p.Actions {
		if a.Needs(plan.OwnClock) {
			return refuse(fmt.Sprintf("action %d: %s", i+1, a.Type))
		}
	}
	for i, step := range steps {
		if step.AdvanceTime > 0 {
			return refuse(fmt.Sprintf("step %d of the workload: advanceTime", i+1))
		}
	}
	return nil
}

// checkVersion refuses a Kubernetes version other than the suite's.
func (s *served) checkVersion(suite *plan.Suite) error {
	want := "v" + strings.TrimPrefix(suite.Cluster.KubernetesVersion, "v")
	if want != "v" && want != s.kubernetes && want != semver.MajorMinor(s.kubernetes) {
		return &UserError{Err: fmt.Errorf("%s: cluster %q runs Kubernetes %s; the suite's kubernetesVersion is %s",
			suite.File, s.cluster, s.kubernetes, suite.Cluster.KubernetesVersion)}
	}
	return nil
}

// checkRemovedAPIs refuses a cluster that serves other API versions than the suite says. The note, if there is one,
// says that removed ones are served, or that they may be missed.
func (s *served) checkRemovedAPIs(suite *plan.Suite, binaries []builds.Binary) (note string, err error) {
	want, reason := clientgo.RemovedAPIs(suite, binaries)
	said := suite.Cluster.RemovedAPIs != nil
	switch {
	case said && want != s.removed && want:
		return "", &UserError{Err: fmt.Errorf("%s: removedAPIs is true, but cluster %q does not serve them; "+
			"`trommel cluster up --removed-apis` starts one that does", suite.File, s.cluster)}
	case said && want != s.removed:
		return "", &UserError{Err: fmt.Errorf(
			"%s: removedAPIs is false, but cluster %q serves them", suite.File, s.cluster)}
	case want && !s.removed:
		return fmt.Sprintf("cluster %q does not serve API versions that Kubernetes has removed, and %s; if it needs "+
			"them, start the cluster with --removed-apis", s.cluster, reason), nil
	case s.removed && reason != "":
		return fmt.Sprintf("the cluster also serves API versions that Kubernetes has removed: %s "+
			"(`removedAPIs: false` in the suite's cluster turns this off)", reason), nil
	case s.removed:
		return "the cluster also serves API versions that Kubernetes has removed", nil
	}
	return "", nil
}

// checkPoints refuses a plan that observes a controller at a point which its binary does not have.
func checkPoints(p *plan.Plan, suite *plan.Suite, binaries []builds.Binary) error {
	var errs []error
	for i := range suite.Controllers {
		c := &suite.Controllers[i]
		for _, need := range machine.Needs(p, c.Name) {
			// Validation has already refused controllers without hooks.
			if binaries[i].Manifest == nil || !need.In(*binaries[i].Manifest) {
				if need.Fails {
					errs = append(errs, fmt.Errorf("%s: %s cannot make the call %s in controller %q fail: "+
						"the last result of the function is not an error", p.File, need.Where, need.Call, c.Name))
					continue
				}
				errs = append(errs, fmt.Errorf("%s: %s needs the point %s in controller %q, which none of the "+
					"modules it is built from has (trommel build --explain lists them)",
					p.File, need.Where, need.Point, c.Name))
			}
		}
	}
	return errors.Join(errs...)
}
