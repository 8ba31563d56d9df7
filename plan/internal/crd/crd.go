// Package crd checks custom resources without an API server, by the same CustomResourceDefinition that an API
// server has: its schema and its CEL rules.
package crd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"
	"sync"

	googlecel "github.com/google/cel-go/cel"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
	"gopkg.in/yaml.v3"

	"github.com/trommel-dev/trommel/internal/cel"
)

// Mistake is a mistake in the spec of a resource.
type Mistake struct {
	Path    []string // from the spec to the value, such as apiFault, verbs, 0
	Message string
}

// Definition is a CustomResourceDefinition as far as it is needed to check a spec. It may be used concurrently.
type Definition struct {
	spec     map[string]any // the schema of the spec, as in the file
	compiled *jsonschema.Schema

	mu       sync.Mutex
	programs map[string]googlecel.Program
}

// InFile returns a function that reads the CustomResourceDefinition of that file when it is called first. The file is
// a part of this program: the function panics if there is a mistake in it.
func InFile(files fs.FS, file string) func() *Definition {
	return sync.OnceValue(func() *Definition {
		data, err := fs.ReadFile(files, file)
		if err != nil {
			panic(err)
		}
		d, err := New(data)
		if err != nil {
			panic(fmt.Sprintf("%s: %v", file, err))
		}
		return d
	})
}

// New returns the definition in the YAML text of a CustomResourceDefinition with one version.
func New(data []byte) (*Definition, error) {
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema struct {
						Properties struct {
							Spec map[string]any `yaml:"spec"`
						} `yaml:"properties"`
					} `yaml:"openAPIV3Schema"`
				} `yaml:"schema"`
			} `yaml:"versions"`
		} `yaml:"spec"`
	}
	if err := yaml.Unmarshal(data, &crd); err != nil {
		return nil, err
	}
	if len(crd.Spec.Versions) != 1 {
		return nil, fmt.Errorf("the definition has %d versions", len(crd.Spec.Versions))
	}
	d := &Definition{
		spec: crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties.Spec, programs: map[string]googlecel.Program{},
	}
	text, err := json.Marshal(toJSONSchema(d.spec))
	if err != nil {
		return nil, err
	}
	parsed, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	if err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("spec.json", parsed); err != nil {
		return nil, err
	}
	d.compiled, err = compiler.Compile("spec.json")
	return d, err
}

// Validate returns the mistakes in a spec, as values of JSON or YAML.
func (d *Definition) Validate(spec map[string]any) []Mistake {
	value, err := normal(spec)
	if err != nil {
		return []Mistake{{Message: err.Error()}}
	}
	var mistakes []Mistake
	var invalid *jsonschema.ValidationError
	if err := d.compiled.Validate(value); errors.As(err, &invalid) {
		collect(invalid, &mistakes)
	}
	if len(mistakes) == 0 {
		// Rules may rely on what the schema says.
		value = withDefaults(d.spec, value)
		d.rules(d.spec, value, nil, &mistakes)
	}
	slices.SortStableFunc(mistakes, func(a, b Mistake) int { return slices.Compare(a.Path, b.Path) })
	return mistakes
}

// JSON returns the spec's JSON schema. It is the caller's copy.
func (d *Definition) JSON() map[string]any {
	return toJSONSchema(d.spec).(map[string]any)
}

// normal turns YAML's numbers into JSON's, as far as they differ.
func normal(spec map[string]any) (map[string]any, error) {
	data, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	var value map[string]any
	return value, json.Unmarshal(data, &value)
}

// collect lists the innermost errors.
func collect(e *jsonschema.ValidationError, to *[]Mistake) {
	if len(e.Causes) == 0 {
		text := e.ErrorKind.LocalizedString(message.NewPrinter(language.English))
		*to = append(*to, Mistake{Path: e.InstanceLocation, Message: text})
		return
	}
	for _, c := range e.Causes {
		collect(c, to)
	}
}

// toJSONSchema returns the schema without what only Kubernetes knows. Objects have no other properties than those
// named, which an API server would drop.
func toJSONSchema(schema any) any {
	switch s := schema.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, v := range s {
			if !strings.HasPrefix(k, "x-kubernetes-") && k != "format" {
				out[k] = toJSONSchema(v)
			}
		}
		if _, named := s["properties"].(map[string]any); named && s["type"] == "object" {
			out["additionalProperties"] = false
		}
		if s["x-kubernetes-list-type"] == "set" {
			out["uniqueItems"] = true
		}
		return out
	case []any:
		out := make([]any, len(s))
		for i, v := range s {
			out[i] = toJSONSchema(v)
		}
		return out
	}
	return schema
}

// withDefaults returns the value with the schema's defaults, and whole numbers as integers, as CEL in an API server
// sees them.
func withDefaults(schema map[string]any, value map[string]any) map[string]any {
	properties, _ := schema["properties"].(map[string]any)
	out := map[string]any{}
	for k, v := range value {
		out[k] = defaulted(properties[k], v)
	}
	for name, p := range properties {
		property, _ := p.(map[string]any)
		if d, ok := property["default"]; ok && out[name] == nil {
			out[name] = defaulted(nil, d)
		}
	}
	return out
}

func defaulted(schema, value any) any {
	s, _ := schema.(map[string]any)
	switch v := value.(type) {
	case map[string]any:
		return withDefaults(s, v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = defaulted(s["items"], v[i])
		}
		return out
	case int:
		return int64(v)
	case float64:
		if v == math.Trunc(v) {
			return int64(v)
		}
	}
	return value
}

// rules evaluates the CEL rules of a value and of what is in it. Rules about changes do not apply.
func (d *Definition) rules(schema map[string]any, value any, path []string, mistakes *[]Mistake) {
	rules, _ := schema["x-kubernetes-validations"].([]any)
	for _, r := range rules {
		rule, _ := r.(map[string]any)
		text, _ := rule["rule"].(string)
		if strings.Contains(text, "oldSelf") {
			continue
		}
		if why := d.evaluate(text, value); why != "" {
			if m, ok := rule["message"].(string); ok && why == broken {
				why = m
			}
			*mistakes = append(*mistakes, Mistake{Path: slices.Clone(path), Message: why})
		}
	}
	switch v := value.(type) {
	case map[string]any:
		properties, _ := schema["properties"].(map[string]any)
		for name, p := range properties {
			if property, ok := p.(map[string]any); ok && v[name] != nil {
				d.rules(property, v[name], append(path, name), mistakes)
			}
		}
	case []any:
		if items, ok := schema["items"].(map[string]any); ok {
			for i := range v {
				d.rules(items, v[i], append(path, fmt.Sprint(i)), mistakes)
			}
		}
	}
}

// maxCost limits the evaluation of a rule; an API server has a similar limit.
const maxCost = 1_000_000

// broken means that a rule is not fulfilled.
const broken = "a rule of the definition is not fulfilled"

func (d *Definition) evaluate(rule string, value any) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	program := d.programs[rule]
	if program == nil {
		var err error
		if program, err = cel.Self.Program(rule, maxCost); err != nil {
			return fmt.Sprintf("rule %s: %v", rule, err)
		}
		d.programs[rule] = program
	}
	result, _, err := program.Eval(map[string]any{"self": value})
	if err != nil {
		return fmt.Sprintf("rule %s: %v", rule, err)
	}
	if result.Value() != true {
		return broken
	}
	return ""
}
