package propose

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/objects/manifests"
	"github.com/trommel-dev/trommel/plan"
)

// sample is the custom resource that the workloads are about.
type sample struct {
	before []*plan.Step // what it needs
	create *plan.Step   // applies it, and maybe more
	object *unstructured.Unstructured
	key    plan.ResourceKey
	schema *apiextensions.JSONSchemaProps
	others []map[string]any // further samples of its kind, in the suite and in the repository
}

// findSample finds the custom resource in a file, or else the first one that a workload of the suite applies. The
// definitions are those of the suite's manifests.
func findSample(suite *plan.Suite, workload, file string) (*sample, error) {
	kubernetes, err := instrumentation.ResolveKubernetesVersion(suite.Cluster.KubernetesVersion)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", suite.File, err)
	}
	installed, _, err := manifests.OfSuite(suite, kubernetes)
	if err != nil {
		return nil, fmt.Errorf("%s: manifests: %w", suite.File, err)
	}
	defined := objects.Defined(installed)
	if len(defined) == 0 {
		return nil, fmt.Errorf("%s: the manifests contain no CustomResourceDefinition; workloads are derived from its "+
			"schema", suite.File)
	}
	var steps []plan.Step
	if file != "" {
		relative, err := relativeTo(suite.File, file)
		if err != nil {
			return nil, err
		}
		steps = []plan.Step{{Apply: &plan.ApplyStep{File: relative}}}
		if s, err := sampleOf(suite, steps, defined, installed); err != nil || s != nil {
			return s.withOthers(suite), err
		}
		return nil, fmt.Errorf("%s contains no object of a kind that the suite's manifests define", file)
	}
	names := slices.Sorted(maps.Keys(suite.Workloads))
	if workload != "" {
		names = []string{workload}
	}
	for _, name := range names {
		if s, err := sampleOf(suite, suite.Workloads[name].Steps, defined, installed); err != nil || s != nil {
			return s.withOthers(suite), err
		}
	}
	return nil, fmt.Errorf("%s: no workload applies an object of a kind that the manifests define; name a file that "+
		"contains one", suite.File)
}

func relativeTo(suiteFile, file string) (string, error) {
	dir, err := filepath.Abs(filepath.Dir(suiteFile))
	if err != nil {
		return "", err
	}
	if file, err = filepath.Abs(file); err != nil {
		return "", err
	}
	return filepath.Rel(dir, file)
}

// sampleOf finds a custom resource that the steps apply, the first that they also wait for, or else the first; nil if
// there is none.
func sampleOf(
	suite *plan.Suite, steps []plan.Step, defined []objects.Type, installed []*unstructured.Unstructured,
) (*sample, error) {
	var first *sample
	var before []*plan.Step
	for i := range steps {
		step := &steps[i]
		if step.Apply == nil {
			continue
		}
		list, _, err := manifests.OfStep(suite, step.Apply)
		if err != nil {
			return nil, err
		}
		for _, u := range list {
			at := slices.IndexFunc(defined, func(t objects.Type) bool { return t.Kind == u.GroupVersionKind() })
			if at < 0 || u.GetName() == "" {
				continue
			}
			s := sampleIn(step, u, defined[at])
			s.before = before
			if slices.ContainsFunc(steps, func(other plan.Step) bool { return s.named(other.Wait) }) {
				return s.withSchema(installed)
			}
			if first == nil {
				first = s
			}
		}
		before = append(slices.Clip(before), &plan.Step{Name: step.Name, Apply: step.Apply})
	}
	return first.withSchema(installed)
}

// withSchema adds the schema of the sample's kind; s may be nil.
func (s *sample) withSchema(installed []*unstructured.Unstructured) (*sample, error) {
	if s == nil {
		return nil, nil
	}
	var err error
	s.schema, err = schemaOf(installed, s.object.GroupVersionKind())
	return s, err
}

// sampleIn is the sample of an object that a step applies.
func sampleIn(step *plan.Step, u *unstructured.Unstructured, of objects.Type) *sample {
	s := &sample{object: u, create: &plan.Step{Name: step.Name, Apply: step.Apply}}
	if s.create.Name == "" {
		s.create.Name = "create the " + u.GetKind()
	}
	s.key = plan.ResourceKey{Type: of.Singular, Name: u.GetName()}
	if of.Namespaced {
		if s.key.Namespace = u.GetNamespace(); s.key.Namespace == "" {
			s.key.Namespace = "default"
		}
	}
	return s
}

// named reports whether the step waits for the sample.
func (s *sample) named(wait *plan.WaitStep) bool {
	return wait != nil && wait.ResourceKey.Matches(s.key.Type, s.object.GroupVersionKind().Group, true,
		s.key.Namespace, s.key.Name)
}

// schemaOf finds the schema of a kind's version.
func schemaOf(installed []*unstructured.Unstructured, kind schema.GroupVersionKind) (*apiextensions.JSONSchemaProps,
	error) {
	for _, u := range installed {
		if !slices.ContainsFunc(objects.Defined([]*unstructured.Unstructured{u}),
			func(t objects.Type) bool { return t.Kind == kind }) {
			continue
		}
		definition := &apiextensions.CustomResourceDefinition{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, definition); err != nil {
			return nil, fmt.Errorf("CustomResourceDefinition %s: %w", u.GetName(), err)
		}
		for _, v := range definition.Spec.Versions {
			if v.Name == kind.Version && v.Schema != nil && v.Schema.OpenAPIV3Schema != nil {
				return v.Schema.OpenAPIV3Schema, nil
			}
		}
	}
	return nil, fmt.Errorf("the definition of %s has no schema", kind)
}

// second is a step that creates another object like the sample, and the other's key.
func (s *sample) second() (*plan.Step, plan.ResourceKey) {
	other := s.object.DeepCopy()
	key := s.key
	key.Name += "-2"
	other.SetName(key.Name)
	other.SetNamespace(s.key.Namespace)
	return &plan.Step{Name: "create a second one", Apply: &plan.ApplyStep{Objects: []map[string]any{other.Object}}}, key
}

// with is a step that creates the sample with a change, and what the sample needs besides.
func (s *sample) with(suite *plan.Suite, c Change) (*plan.Step, error) {
	list, _, err := manifests.OfStep(suite, s.create.Apply)
	if err != nil {
		return nil, err
	}
	step := &plan.Step{Name: s.create.Name + " with the change", Apply: &plan.ApplyStep{}}
	for _, u := range list {
		if u.GroupVersionKind() == s.object.GroupVersionKind() && u.GetName() == s.object.GetName() {
			if u.Object, err = changed(u.Object, c); err != nil {
				return nil, err
			}
		}
		step.Apply.Objects = append(step.Apply.Objects, u.Object)
	}
	return step, nil
}

// errNoPlace says that a change cannot be made in an object that was not defaulted.
var errNoPlace = errors.New("the field's parents are set by the API server or by a webhook")

// changed returns a copy of an object with a change.
func changed(object map[string]any, c Change) (map[string]any, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var copied map[string]any
	if err := json.Unmarshal(data, &copied); err != nil {
		return nil, err
	}
	var at any = copied
	for i, step := range c.Path[:len(c.Path)-1] {
		switch v := at.(type) {
		case map[string]any:
			if v[step] == nil {
				if isIndex(c.Path[i+1]) {
					return nil, errNoPlace
				}
				v[step] = map[string]any{}
			}
			at = v[step]
		default:
			if at = lookup(map[string]any{"": at}, []string{"", step}); at == nil {
				return nil, errNoPlace
			}
		}
	}
	m, ok := at.(map[string]any)
	if !ok {
		return nil, errNoPlace
	}
	last := c.Path[len(c.Path)-1]
	if c.To == nil {
		delete(m, last)
	} else {
		m[last] = c.To
	}
	return copied, nil
}

// shortName is the name of a field, for names of workloads: as many of its last steps as tell it from the others.
func shortName(path []string, all [][]string) string {
	for n := 1; ; n++ {
		name := lastWords(path, n)
		if n >= len(path) || !slices.ContainsFunc(all, func(other []string) bool {
			return !slices.Equal(other, path) && lastWords(other, n) == name
		}) {
			return shortened(name, maxFieldName)
		}
	}
}

// lastWords are the last n steps of a path that tell people something, as a name.
func lastWords(path []string, n int) string {
	var words []string
	for _, step := range path {
		if !isIndex(step) && step != "spec" && step != "metadata" && step != markKey {
			words = append(words, kebab(step))
		}
	}
	return strings.Join(words[max(0, len(words)-n):], "-")
}
