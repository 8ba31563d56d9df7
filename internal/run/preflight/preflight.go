// Package preflight checks suites and plans before anything is built: what the suite installs, the objects of its
// workloads, and the resource keys of both.
package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/objects/deploy"
	"github.com/trommel-dev/trommel/internal/objects/manifests"
	"github.com/trommel-dev/trommel/internal/run/builds"
	"github.com/trommel-dev/trommel/plan"
)

// Suites are suites whose manifests have been read: kustomizations and charts take a second to build, and the plans of
// a suite share them. The zero value holds none.
type Suites struct {
	suites map[string]*readSuite // by absolute path
	// ReadBuilds also reads the suites' other builds, which may take time and download modules; otherwise they may have
	// any types.
	ReadBuilds bool
	// Warnings gets the warnings about what the suites install, each once; nil: the run shows them.
	Warnings io.Writer
	warned   []string
}

type readSuite struct {
	installed []objects.Located
	notes     []string
	err       error
	builds    []readBuild      // nil: not asked for
	known     *manifests.Known // nil: not asked for
	checked   map[string]error // by workloads, see CheckWorkloads
	reported  []string         // mistakes
}

func (r *Suites) of(suite *plan.Suite) *readSuite {
	file, absErr := filepath.Abs(suite.File)
	file = cmp.Or(file, suite.File)
	if s := r.suites[file]; s != nil && absErr == nil {
		return s
	}
	s := &readSuite{}
	installed, err := manifests.LocatedOfSuite(suite, KubernetesOf(suite))
	s.installed, s.notes, s.err = installed.Objects, installed.Notes, err
	r.warn(installed.Warnings)
	if r.suites == nil {
		r.suites = map[string]*readSuite{}
	}
	r.suites[file] = s
	return s
}

// warn shows the warnings that have not been shown.
func (r *Suites) warn(warnings []string) {
	for _, text := range warnings {
		if r.Warnings != nil && !slices.Contains(r.warned, text) {
			r.warned = append(r.warned, text)
			fmt.Fprintln(r.Warnings, manifests.Warning+text)
		}
	}
}

// Installed returns the suite's manifests, and notes for the user.
func (r *Suites) Installed(suite *plan.Suite) ([]*unstructured.Unstructured, []string, error) {
	s := r.of(suite)
	return manifests.Bare(s.installed), s.notes, s.err
}

// CheckObjects checks the suite's manifests and the objects of its workloads, and that the controllers' Deployments are
// among the manifests.
func (r *Suites) CheckObjects(suite *plan.Suite) (notes []string, err error) {
	s := r.of(suite)
	if s.err != nil {
		return nil, fmt.Errorf("%s: manifests: %w", suite.File, s.err)
	}
	more, err := checkInstalled(suite, s.installed)
	return slices.Concat(s.notes, more), err
}

func checkInstalled(suite *plan.Suite, installed []objects.Located) (notes []string, err error) {
	notes, err = manifests.CheckInstalled(suite, installed, KubernetesOf(suite))
	errs, list := []error{err}, manifests.Bare(installed)
	for i := range suite.Controllers {
		if err := checkDeployment(suite, &suite.Controllers[i], list); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", suite.File, err))
		}
	}
	return notes, errors.Join(errs...)
}

// checkDeployment checks that a controller's Deployment is among the manifests, and that its pods can start.
func checkDeployment(suite *plan.Suite, c *plan.Controller, list []*unstructured.Unstructured) error {
	programs, err := deploy.ProgramsOf(suite, c, "built later")
	if err != nil {
		return err
	}
	own, _, err := deploy.Controller(c, list, programs)
	if err != nil {
		return err
	}
	before, _ := deploy.Missing(suite, own)
	var errs []error
	for _, container := range before {
		errs = append(errs, fmt.Errorf("controller %q: the init container %s has no command: name the executable of "+
			"its image with `executables: {%q: PATH}`", c.Name, container.Name, container.Image))
	}
	return errors.Join(errs...)
}

// readBuild is one of a suite's builds.
type readBuild struct {
	name      string
	suite     *plan.Suite // as this build has it
	installed []objects.Located
	notes     []string
	err       error // why it cannot be read
}

func (r *Suites) builds(ctx context.Context, suite *plan.Suite) []readBuild {
	s := r.of(suite)
	if s.builds != nil {
		return s.builds
	}
	for _, name := range suite.BuildNames() {
		b := readBuild{name: name}
		if b.suite, b.err = builds.Of(ctx, suite, name); b.err == nil {
			installed, err := manifests.LocatedOfSuite(b.suite, KubernetesOf(b.suite))
			if err != nil {
				b.err = fmt.Errorf("build %q: %s: manifests: %w", name, b.suite.File, err)
			}
			b.installed, b.notes = installed.Objects, installed.Notes
			r.warn(installed.Warnings)
		}
		s.builds = append(s.builds, b)
	}
	return s.builds
}

// CheckBuilds checks that the sources of the suite's builds are there, and what they install.
func (r *Suites) CheckBuilds(ctx context.Context, suite *plan.Suite) (notes []string, err error) {
	var errs []error
	for _, b := range r.builds(ctx, suite) {
		if b.err != nil {
			errs = append(errs, b.err)
			continue
		}
		more, err := checkInstalled(b.suite, b.installed)
		for _, note := range append(b.notes, more...) {
			notes = append(notes, "build "+b.name+": "+note)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("build %q: %w", b.name, err))
		}
	}
	return notes, errors.Join(errs...)
}

// known returns the types that are known of a suite.
func (r *Suites) known(ctx context.Context, suite *plan.Suite) *manifests.Known {
	s := r.of(suite)
	if s.known != nil {
		return s.known
	}
	s.known = manifests.NewKnown(suite, manifests.Bare(s.installed), KubernetesOf(suite))
	if s.err != nil {
		s.known.Doubt("the manifests cannot be read")
	}
	if !r.ReadBuilds && len(suite.Builds) > 0 {
		s.known.Doubt("another build of the suite may define types")
		return s.known
	}
	for _, b := range r.builds(ctx, suite) {
		if b.err != nil {
			s.known.Doubt("build " + b.name + " cannot be read")
		}
		s.known.Add(manifests.Bare(b.installed))
	}
	return s.known
}

// CheckKeys checks the resource keys of a plan, or of a suite if there is no plan, which check goes through.
func (r *Suites) CheckKeys(ctx context.Context, suite *plan.Suite, p *plan.Plan,
	check func(func(plan.ResourceKey) error) error) (notes []string, err error) {
	known := r.known(ctx, suite)
	if p != nil {
		known = known.Clone()
		known.Plan(suite, p)
	}
	return known.Check(check)
}

// CheckPlan checks what can be checked of a plan before anything is built: the suite's manifests, the objects of the
// plan's workload, and the resource keys of both. What only other workloads have does not matter to the plan.
func (r *Suites) CheckPlan(ctx context.Context, suite *plan.Suite, p *plan.Plan) error {
	var err error
	if p.Build == "" { // another build has other manifests
		err = r.CheckWorkloads(ctx, suite, []string{p.Workload})
	}
	_, keysErr := r.CheckKeys(ctx, suite, p, p.CheckResources)
	return errors.Join(err, keysErr)
}

// CheckWorkloads checks what can be checked of a suite before anything is built, and of workloads. It reports each
// mistake once.
func (r *Suites) CheckWorkloads(ctx context.Context, suite *plan.Suite, workloads []string) error {
	s, key := r.of(suite), strings.Join(workloads, "\n")
	err, known := s.checked[key]
	if !known {
		only := *suite
		only.Workloads = maps.Clone(suite.Workloads)
		maps.DeleteFunc(only.Workloads, func(name string, _ plan.Workload) bool {
			return !slices.Contains(workloads, name)
		})
		_, objectsErr := r.CheckObjects(&only)
		_, keysErr := r.CheckKeys(ctx, suite, nil, only.CheckResources)
		err = errors.Join(objectsErr, keysErr)
		if s.checked == nil {
			s.checked = map[string]error{}
		}
		s.checked[key] = err
	}
	if err == nil {
		return nil
	}
	if slices.Contains(s.reported, err.Error()) {
		return fmt.Errorf("the suite %s has mistakes", suite.File)
	}
	s.reported = append(s.reported, err.Error())
	return err
}

// KubernetesOf returns the version of Kubernetes that the suite will run on.
func KubernetesOf(suite *plan.Suite) string {
	return cmp.Or(suite.Cluster.KubernetesVersion, instrumentation.KubernetesVersion)
}
