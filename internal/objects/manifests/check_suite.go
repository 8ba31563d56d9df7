package manifests

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/plan"
)

// CheckInstalled checks the suite's manifests, which have been read, and the objects of its workloads with a [Checker].
// It returns notes for the user. The error holds all mistakes, each with its place.
func CheckInstalled(suite *plan.Suite, installed []objects.Located, kubernetes string) (notes []string, err error) {
	list := Bare(installed)
	for _, namespace := range MissingNamespaces(list) {
		notes = append(notes, fmt.Sprintf("no manifest creates namespace %s, which others use; the run creates it",
			namespace.GetName()))
	}
	checker, err := NewChecker(list, kubernetes)
	errs := []error{wrapEach(suite.File+": manifests", err)}
	// Asked for only if a type is unknown: it reads the objects of all steps, too.
	doubtful := sync.OnceValue(func() bool { return len(NewKnown(suite, list, kubernetes).doubts) > 0 })
	errs = append(errs, twice(installed)...)
	for _, l := range installed {
		errs = append(errs, placed(l, "", checker.Check(l.Unstructured))...)
	}
	for _, name := range slices.Sorted(maps.Keys(suite.Workloads)) {
		for i, step := range suite.Workloads[name].Steps {
			if step.Apply == nil {
				continue
			}
			where := fmt.Sprintf("%s: workload %q, step %d", suite.File, name, i+1)
			applied, more, err := ofStep(suite, step.Apply)
			errs = append(errs, wrapEach(where, err))
			for _, note := range more {
				notes = append(notes, where+": "+note)
			}
			for _, l := range applied {
				for _, err := range placed(l, where, checker.Check(l.Unstructured)) {
					var value *valueError
					switch {
					case errors.Is(err, objects.ErrNotServed) && (len(checker.defined) == 0 || doubtful()):
						notes = append(notes,
							err.Error()+"; the controller must define this type before the object is applied")
					case errors.As(err, &value) && mutated(list, l.GroupVersionKind().Group):
						notes = append(notes, err.Error()+"; a mutating webhook may change that")
					default:
						errs = append(errs, err)
					}
				}
			}
		}
	}
	return notes, errors.Join(errs...)
}

// placed prefixes each of the joined errors of [Checker.Check] with the place of the field that it is about, or with
// where if the object has no place of its own.
func placed(l objects.Located, where string, err error) (errs []error) {
	for _, err := range each(err) {
		place := l.Where
		if cause := errors.Unwrap(err); cause != nil {
			place = l.At(fieldOf(cause.Error()))
		}
		errs = append(errs, fmt.Errorf("%s: %w", cmp.Or(place, where), err))
	}
	return errs
}

// fieldOf returns the path of the field that a mistake is about: most messages begin with it.
func fieldOf(message string) string {
	if m := unknownField.FindStringSubmatch(message); m != nil {
		return m[1]
	}
	word, _, _ := strings.Cut(message, " ")
	return strings.Trim(word, ".:")
}

// twice finds objects that are installed twice in a cluster with different contents. Which of them would count is
// undefined, because manifests are applied concurrently.
func twice(installed []objects.Located) (errs []error) {
	type identity struct {
		cluster         string
		kind            schema.GroupKind
		namespace, name string
	}
	first := map[identity]objects.Located{}
	defined := objects.Defined(Bare(installed))
	for _, l := range installed {
		id := identity{l.Cluster, l.GroupVersionKind().GroupKind(), l.GetNamespace(), l.GetName()}
		if in, known := namespaced(l.Unstructured, defined); known && !in {
			id.namespace = ""
		} else if id.namespace == "" {
			id.namespace = defaultNamespace
		}
		other, ok := first[id]
		switch {
		case id.name == "":
		case !ok:
			first[id] = l
		case !equality.Semantic.DeepEqual(other.Object, l.Object):
			errs = append(errs, fmt.Errorf("%s: %s is also in %s, with other contents: leave one of them out of the "+
				"suite's manifests", l.Where, describe(l.Unstructured), other.Where))
		}
	}
	return errs
}

// mutated reports whether a webhook of the manifests may change objects of the group before they are validated.
func mutated(list []*unstructured.Unstructured, group string) bool {
	for _, u := range list {
		if u.GetKind() != "MutatingWebhookConfiguration" {
			continue
		}
		for _, webhook := range mappings(u.Object["webhooks"]) {
			for _, rule := range mappings(webhook["rules"]) {
				groups, _ := rule["apiGroups"].([]any)
				if slices.Contains(groups, any(group)) || slices.Contains(groups, any("*")) {
					return true
				}
			}
		}
	}
	return false
}

// CheckSkips checks the types of the plans that a suite leaves out: they must be Kubernetes' own or defined among the
// manifests, unless the manifests define none, so that the controllers may. A type with a group may also be one that
// something defines during a run. The error has their positions.
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
	doubtful := sync.OnceValue(func() bool { return len(NewKnown(suite, installed, kubernetes).doubts) > 0 })
	return suite.CheckSkips(func(s plan.Skip) (string, error) {
		if s.Type == "" {
			return "", nil
		}
		typ, group, _ := strings.Cut(s.Type, ".")
		t, err := objects.FindKey(types, plan.ResourceKey{Type: typ, Group: group})
		if group != "" && errors.Is(err, objects.ErrNotServed) && doubtful() {
			return "", nil // something may define it
		}
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
	var errs []error
	for _, err := range each(err) {
		errs = append(errs, fmt.Errorf("%s: %w", where, err))
	}
	return errors.Join(errs...)
}

// each returns the joined errors; none of nil.
func each(err error) (all []error) {
	if err == nil {
		return nil
	}
	list, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	for _, err := range list.Unwrap() {
		all = append(all, each(err)...)
	}
	return all
}

// OfStep returns the objects that an apply step applies. See [Served].
func OfStep(suite *plan.Suite, s *plan.ApplyStep) (list []*unstructured.Unstructured, notes []string, err error) {
	all, notes, err := ofStep(suite, s)
	return Bare(all), notes, err
}

// ofStep also returns the places of objects in files.
func ofStep(suite *plan.Suite, s *plan.ApplyStep) (list []objects.Located, notes []string, err error) {
	if s.File != "" {
		return readServed(plan.Beside(suite.File, s.File))
	}
	for _, o := range s.Objects {
		u, err := objects.FromMap(o)
		if err != nil {
			return nil, nil, err
		}
		list = append(list, objects.Located{Unstructured: u})
	}
	return convertAll(list)
}
