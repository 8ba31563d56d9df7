package manifests

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/plan"
)

// CheckSuite reads the suite's manifests, and checks them and the objects of its workloads with a [Checker]. It returns
// the manifests, which are nil if they cannot be read, and notes for the user. The error holds all mistakes.
func CheckSuite(suite *plan.Suite, kubernetes string) (installed []*unstructured.Unstructured, notes []string,
	err error) {
	installed, notes, err = OfSuite(suite, kubernetes)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: manifests: %w", suite.File, err)
	}
	more, err := CheckInstalled(suite, installed, kubernetes)
	return installed, append(notes, more...), err
}

// CheckInstalled is [CheckSuite] for manifests that have been read.
func CheckInstalled(suite *plan.Suite, installed []*unstructured.Unstructured, kubernetes string) (notes []string,
	err error) {
	for _, namespace := range MissingNamespaces(installed) {
		notes = append(notes, fmt.Sprintf("no manifest creates namespace %s, which others use; the run creates it",
			namespace.GetName()))
	}
	checker, err := NewChecker(installed, kubernetes)
	errs := []error{wrapEach(suite.File+": manifests", err)}
	for _, u := range installed {
		errs = append(errs, wrapEach(suite.File+": manifests", checker.Check(u)))
	}
	for _, name := range slices.Sorted(maps.Keys(suite.Workloads)) {
		for i, step := range suite.Workloads[name].Steps {
			if step.Apply == nil {
				continue
			}
			where := fmt.Sprintf("%s: workload %q, step %d", suite.File, name, i+1)
			list, more, err := OfStep(suite, step.Apply)
			errs = append(errs, wrapEach(where, err))
			for _, note := range more {
				notes = append(notes, where+": "+note)
			}
			for _, u := range list {
				err := checker.Check(u)
				if errors.Is(err, objects.ErrNotServed) && len(checker.defined) == 0 {
					notes = append(notes,
						fmt.Sprintf("%s: %v; the controller must define this type before the object is applied",
							where, err))
					continue
				}
				errs = append(errs, wrapEach(where, err))
			}
		}
	}
	return notes, errors.Join(errs...)
}

// CheckSkips checks the types of the plans that a suite leaves out: they must be Kubernetes' own or defined among the
// manifests, unless the manifests define none, so that the controllers may. The error has their positions.
func CheckSkips(suite *plan.Suite, kubernetes string) error {
	if !slices.ContainsFunc(suite.Generate.Skip, func(s plan.Skip) bool { return s.Type != "" }) {
		return nil
	}
	installed, _, err := OfSuite(suite, kubernetes)
	if err != nil {
		return fmt.Errorf("%s: manifests: %w", suite.File, err)
	}
	checker, err := NewChecker(installed, kubernetes)
	if err != nil || len(checker.defined) == 0 {
		return wrapEach(suite.File+": manifests", err)
	}
	types := checker.types()
	return suite.CheckSkips(func(s plan.Skip) (string, error) {
		if s.Type == "" {
			return "", nil
		}
		typ, group, _ := strings.Cut(s.Type, ".")
		t, err := objects.FindKey(types, plan.ResourceKey{Type: typ, Group: group})
		if err == nil && t.Singular != typ {
			err = fmt.Errorf("type %q: write %q", s.Type, t.Singular)
		}
		return "type", err
	})
}

// wrapEach prefixes each of the joined errors with where it occurred.
func wrapEach(where string, err error) error {
	if err == nil {
		return nil
	}
	if list, ok := err.(interface{ Unwrap() []error }); ok {
		var errs []error
		for _, err := range list.Unwrap() {
			errs = append(errs, wrapEach(where, err))
		}
		return errors.Join(errs...)
	}
	return fmt.Errorf("%s: %w", where, err)
}

// OfStep returns the objects that an apply step applies. See [Served].
func OfStep(suite *plan.Suite, s *plan.ApplyStep) (list []*unstructured.Unstructured, notes []string, err error) {
	if s.File != "" {
		return ReadServed(plan.Beside(suite.File, s.File))
	}
	for _, o := range s.Objects {
		u, err := objects.FromMap(o)
		if err != nil {
			return nil, nil, err
		}
		list = append(list, u)
	}
	return Served(list)
}
