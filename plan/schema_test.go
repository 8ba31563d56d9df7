package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"gopkg.in/yaml.v3"

	"github.com/trommel-dev/trommel/plan/internal/yamlfile"
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
	return (&yamlfile.File{}).Value(n.Content[0])
}

// Every valid file in Trommel's own format matches the schema.
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
			continue // accepted, but not in the schema
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

// Files with mistakes that a schema can express do not match it.
func TestSchemaRefuses(t *testing.T) {
	plans, suites := compileSchema(t, PlanJSONSchema), compileSchema(t, SuiteJSONSchema)
	for _, file := range []string{"invalid-words", "invalid-types", "invalid-fit", "invalid-conditions"} {
		text, err := os.ReadFile("testdata/" + file + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		// .inf is not JSON.
		if plans.Validate(yamlValue(t, bytes.ReplaceAll(text, []byte(".inf"), []byte("1")))) == nil {
			t.Errorf("%s matches the schema", file)
		}
	}
	text, err := os.ReadFile("testdata/suite-invalid-1.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if suites.Validate(yamlValue(t, text)) == nil {
		t.Error("the invalid suite matches the schema")
	}
}

// The schemas have the fields, words, numbers and defaults of the Go types that files are read into.
func TestSchemaIsComplete(t *testing.T) {
	for _, tt := range []struct {
		text []byte
		of   reflect.Type
	}{{PlanJSONSchema, reflect.TypeFor[Plan]()}, {SuiteJSONSchema, reflect.TypeFor[Suite]()}} {
		var root map[string]any
		if err := json.Unmarshal(tt.text, &root); err != nil {
			t.Fatal(err)
		}
		c := &schemaChecker{t: t, defs: root["$defs"].(map[string]any)}
		c.check(tt.of.Name(), root, tt.of, &yamlfile.Field{})
		if tt.of == reflect.TypeFor[Suite]() {
			variable := c.alternative(c.defs["variable"], "object")["properties"].(map[string]any)
			sources := variable["valueFrom"].(map[string]any)["properties"].(map[string]any)
			c.same("the sources of variables", slices.Sorted(slices.Values(valueSources)), sortedKeys(sources))
		}
		if c.fields < 30 {
			t.Errorf("only %d fields are compared", c.fields)
		}
	}
}

type schemaChecker struct {
	t      *testing.T
	defs   map[string]any
	fields int
}

func (c *schemaChecker) same(what string, want, got any) {
	c.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		c.t.Errorf("%s (-Go +schema):\n%s", what, diff)
	}
}

// alternative returns the schema, or one of its alternatives, with the JSON type.
func (c *schemaChecker) alternative(node any, typ string) map[string]any {
	m, _ := node.(map[string]any)
	if ref, _ := m["$ref"].(string); ref != "" {
		return c.alternative(c.defs[strings.TrimPrefix(ref, "#/$defs/")], typ)
	}
	if list, _ := m["anyOf"].([]any); list != nil {
		for _, one := range list {
			found := c.alternative(one, typ)
			if typ == "object" && found["properties"] == nil { // a Kubernetes object
				continue
			}
			if found != nil {
				return found
			}
		}
		return nil
	}
	types, _ := m["type"].([]any)
	if m["type"] == nil && m["enum"] == nil && m["const"] == nil && m["oneOf"] == nil || m["type"] != nil &&
		m["type"] != typ && !slices.Contains(types, any(typ)) {
		return nil
	}
	return m
}

func (c *schemaChecker) check(path string, node any, typ reflect.Type, f *yamlfile.Field) {
	c.t.Helper()
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	json := map[reflect.Kind]string{
		reflect.String: "string", reflect.Bool: "boolean", reflect.Int: "integer", reflect.Int64: "string",
		reflect.Slice: "array",
		reflect.Map:   "object", reflect.Struct: "object", reflect.Interface: "object",
	}[typ.Kind()]
	if typ == keyType {
		json = "string"
	}
	m := c.alternative(node, json)
	if m == nil {
		c.t.Errorf("%s is not of type %s in the schema", path, json)
		return
	}
	if f.Words != nil {
		var words []string
		for _, w := range append(listOf(m["enum"]), listOf(m["oneOf"])...) {
			if one, ok := w.(map[string]any); ok {
				w = one["const"]
			}
			words = append(words, w.(string))
		}
		c.same("words of "+path, f.Words, words)
	}
	if len(f.Range) > 0 {
		c.same("bounds of "+path, f.Range, []string{fmt.Sprint(m["minimum"]), fmt.Sprint(m["maximum"])})
	}
	fallback := node.(map[string]any)["default"]
	if fallback == nil {
		fallback = m["const"]
	}
	switch {
	case fallback == nil && f.Default == "":
	case fallback == false || fallback == 0.0 || fallback == string(OnTimeoutFail): // the same as Go's zero value
	default:
		c.same("default of "+path, f.Default, fmt.Sprint(fallback))
	}
	switch {
	case f.As != "" && f.As != "command" || typ == keyType || typ == durationType:
	case typ.Kind() == reflect.Struct:
		sh := layout.ShapeOf(typ)
		properties, _ := m["properties"].(map[string]any)
		c.same("fields of "+path, slices.Sorted(slices.Values(sh.Names)), sortedKeys(properties))
		c.fields += len(sh.Names)
		for _, f := range sh.Fields {
			c.check(path+"."+f.Name, properties[f.Name], typ.FieldByIndex(f.Index).Type, &f)
		}
	case typ.Kind() == reflect.Slice:
		c.check(path+"[]", m["items"], typ.Elem(), &yamlfile.Field{})
	case typ.Kind() == reflect.Map && typ.Elem().Kind() != reflect.Interface:
		c.check(path+"{}", m["additionalProperties"], typ.Elem(), &yamlfile.Field{})
	}
}

func listOf(v any) []any {
	list, _ := v.([]any)
	return list
}
