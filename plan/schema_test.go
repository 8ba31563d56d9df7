package plan

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"gopkg.in/yaml.v3"
)

func compileSchema(t *testing.T, text []byte) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func yamlValue(t *testing.T, text []byte) any {
	t.Helper()
	var n yaml.Node
	if err := yaml.Unmarshal(text, &n); err != nil {
		t.Fatal(err)
	}
	return (&decoder{}).value(n.Content[0])
}

// Everything that loads and is written in our own words fits the schema.
func TestSchemaAcceptsValidFiles(t *testing.T) {
	plans, suites := compileSchema(t, PlanJSONSchema), compileSchema(t, SuiteJSONSchema)
	check := func(s *jsonschema.Schema, file string, text []byte) {
		t.Helper()
		if err := s.Validate(yamlValue(t, text)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	for _, file := range files(t, "testdata/valid-*.yaml", "testdata/*.canonical", sieveDir+"/*/*.yaml") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(file, "seed-words.yaml") {
			continue // it is read, and not suggested
		}
		if strings.HasPrefix(file, sieveDir) {
			p, err := Load(file)
			if err != nil {
				t.Fatal(err)
			}
			if text, err = Marshal(p); err != nil {
				t.Fatal(err)
			}
		}
		check(plans, file, text)
	}
	examples, err := filepath.Glob("../examples/*/plans/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range examples {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		check(plans, file, text)
	}
	exampleSuites, err := filepath.Glob("../examples/*/trommel.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(exampleSuites, "testdata/trommel.yaml") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		check(suites, file, text)
	}
	blocks := documented(t)
	check(plans, "the documented plan", []byte(blocks[0]))
	check(suites, "the documented suite", []byte(blocks[1]))
}

// What has a mistake that a schema can know of does not fit it.
func TestSchemaRefuses(t *testing.T) {
	plans, suites := compileSchema(t, PlanJSONSchema), compileSchema(t, SuiteJSONSchema)
	for _, file := range []string{"invalid-words", "invalid-types", "invalid-fit", "invalid-conditions"} {
		text, err := os.ReadFile("testdata/" + file + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		// .inf is no JSON.
		if plans.Validate(yamlValue(t, bytes.ReplaceAll(text, []byte(".inf"), []byte("1")))) == nil {
			t.Errorf("%s fits the schema", file)
		}
	}
	text, err := os.ReadFile("testdata/suite-invalid-1.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if suites.Validate(yamlValue(t, text)) == nil {
		t.Error("the invalid suite fits the schema")
	}
}

// The schemas have the fields and words that the decoder has, each with a description.
func TestSchemaIsComplete(t *testing.T) {
	type node = map[string]any
	load := func(text []byte) node {
		var n node
		if err := json.Unmarshal(text, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	at := func(n any, path ...string) any {
		for _, p := range path {
			m, ok := n.(node)
			if !ok || m[p] == nil {
				t.Fatalf("no %s in the schema", strings.Join(path, "."))
			}
			n = m[p]
		}
		return n
	}
	alternative := func(n any, i int) any { return at(n, "anyOf").([]any)[i] }
	p, s := load(PlanJSONSchema), load(SuiteJSONSchema)
	step := at(s, "$defs", "step", "properties")
	for _, tt := range []struct {
		schema *schema
		got    any
	}{
		{planSchema, p}, {actionSchema, at(p, "$defs", "action")}, {triggerSchema, at(p, "$defs", "trigger")},
		{definitionSchema, at(p, "$defs", "definition")}, {conditionSchema, at(p, "$defs", "condition")},
		{observeSchema, at(p, "$defs", "observationPoint")},
		{suiteSchema, s}, {manifestSchema, alternative(at(s, "$defs", "manifest"), 1)},
		{valueFromSchema, alternative(at(s, "$defs", "variable"), 1)}, {clusterSchema, at(s, "$defs", "cluster")}, {answerSchema, at(s, "$defs", "answer")},
		{controllerSchema, at(s, "$defs", "controller")},
		{buildSchema, at(s, "$defs", "build")}, {callSchema, at(s, "$defs", "annotatedCall")},
		{workloadSchema, alternative(at(s, "$defs", "workload"), 1)}, {stepSchema, at(s, "$defs", "step")},
		{applySchema, alternative(at(step, "apply"), 3)}, {deleteSchema, alternative(at(step, "delete"), 1)},
		{patchSchema, at(step, "patch")}, {waitSchema, at(step, "wait")}, {execSchema, alternative(at(step, "exec"), 1)},
		{invariantSchema, at(s, "$defs", "invariant")}, {variantSchema, at(s, "$defs", "variant")},
		{variantControllerSchema, alternative(at(s, "$defs", "variant", "properties", "controllers", "additionalProperties"), 0)},
		{variantClusterSchema, at(s, "$defs", "variant", "properties", "cluster")}, {timeoutsSchema, at(s, "$defs", "timeouts")},
	} {
		want := slices.Sorted(slices.Values(tt.schema.fields))
		if diff := cmp.Diff(want, sortedKeys(at(tt.got, "properties").(node))); diff != "" {
			t.Errorf("fields of %s (-decoder +schema):\n%s", tt.schema.what, diff)
		}
	}
	words := func(n any) []string {
		var list []string
		if m := n.(node); m["enum"] != nil {
			for _, w := range m["enum"].([]any) {
				list = append(list, w.(string))
			}
		} else {
			for _, w := range m["oneOf"].([]any) {
				list = append(list, w.(node)["const"].(string))
			}
		}
		return list
	}
	for _, tt := range []struct {
		want []string
		got  any
	}{
		{stringsOf(actionTypes), at(p, "$defs", "action", "properties", "actionType")},
		{stringsOf(triggerTypes), at(p, "$defs", "condition", "properties", "triggerType")},
		{stringsOf(timings), at(p, "$defs", "timing")},
		{stringsOf(reconnects), at(p, "$defs", "action", "properties", "reconnectBy")},
		{patchTypes, at(p, "$defs", "action", "properties", "patchType")},
		{clusterTypes, at(s, "$defs", "cluster", "properties", "type")},
		{controlPlanes, at(s, "$defs", "build", "properties", "controlPlane")},
	} {
		if diff := cmp.Diff(tt.want, words(tt.got)); diff != "" {
			t.Errorf("words (-decoder +schema):\n%s", diff)
		}
	}
}
