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
	if typ == keyType || typ == scopeType {
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
	case f.As != "" && f.As != "command" || typ == keyType || typ == scopeType || typ == durationType ||
		typ == offsetType:
	case typ.Kind() == reflect.Struct:
		sh := layout.ShapeOf(typ)
		properties, _ := m["properties"].(map[string]any)
		names := slices.Clone(sh.Names)
		for _, k := range kinds {
			if typ == reflect.TypeFor[Action]() && k.Own != nil { // TestSchemaOfActions compares these fields
				names = append(names, layout.ShapeOf(reflect.TypeOf(k.Own()).Elem()).Names...)
			}
		}
		slices.Sort(names)
		c.same("fields of "+path, slices.Compact(names), sortedKeys(properties))
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

// What the schema of plans says of the types of actions, and of the fields that only one type has, is generated from
// their kinds.
func TestSchemaOfActions(t *testing.T) {
	const file = "plan.schema.json"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	type word struct {
		Const       ActionType `json:"const"`
		Description string     `json:"description"`
	}
	var words []word
	own, had := "", map[string]bool{}
	for _, k := range kinds {
		words = append(words, word{k.Type, k.Summary})
		if k.Own == nil {
			continue
		}
		typ := reflect.TypeOf(k.Own()).Elem()
		for _, f := range layout.ShapeOf(typ).Fields {
			field := typ.FieldByIndex(f.Index)
			if field.Tag.Get("doc") == "" {
				t.Errorf("the field %s of %s has no tag doc", f.Name, k.Type)
			}
			if had[f.Name] {
				continue
			}
			had[f.Name] = true
			schema := property(owners(typ), field, &f)
			own += fmt.Sprintf(",\n        %q: %s", f.Name, indentedJSON(t, "        ", schema))
		}
	}
	want := between(t, text, `"description": "What the action does.",
          "oneOf": `, `
        },
        "actionTarget": {`, indentedJSON(t, "          ", words))
	want = between(t, want, `"description": "patch: a subresource, e.g. status.",
          "type": "string"
        }`, `
      },
      "required": [
        "actionType",`, own)
	generated(t, file, text, want)
}

// between replaces what is between two parts of a text.
func between(t *testing.T, text, before, after, by string) string {
	t.Helper()
	head, rest, ok := strings.Cut(text, before)
	_, tail, ok2 := strings.Cut(rest, after)
	if !ok || !ok2 {
		t.Fatalf("there is no %s before %s", before, after)
	}
	return head + before + by + after + tail
}

func indentedJSON(t *testing.T, by string, v any) string {
	t.Helper()
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent(by, "  ")
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(b.String())
}

// owners names the types of actions that have the fields of a struct.
func owners(fields reflect.Type) string {
	var names []string
	for _, k := range kinds {
		if k.Own != nil && reflect.TypeOf(k.Own()).Elem() == fields {
			names = append(names, string(k.Type))
		}
	}
	return strings.Join(names, ", ")
}

// property is the schema of a field that only one type of action has.
func property(of string, field reflect.StructField, f *yamlfile.Field) any {
	p := struct {
		Description string      `json:"description"`
		Ref         string      `json:"$ref,omitempty"`
		Type        string      `json:"type,omitempty"`
		Enum        []string    `json:"enum,omitempty"`
		Minimum     json.Number `json:"minimum,omitempty"`
		Maximum     json.Number `json:"maximum,omitempty"`
		Default     any         `json:"default,omitempty"`
	}{Description: of + ": " + field.Tag.Get("doc"), Enum: f.Words}
	switch field.Type {
	case durationType:
		p.Ref = "#/$defs/duration"
	case keyType:
		p.Ref = "#/$defs/resourceKey"
	case offsetType:
		p.Ref = "#/$defs/offset"
	}
	switch kind := field.Type.Kind(); {
	case p.Ref != "":
	case kind == reflect.String:
		p.Type = "string"
	case kind == reflect.Bool:
		p.Type, p.Default = "boolean", false
	case kind == reflect.Int:
		p.Type, p.Default = "integer", 0
	case kind == reflect.Slice:
		p.Type = "array"
	case kind == reflect.Map, kind == reflect.Struct:
		p.Type = "object"
	}
	if f.Default != "" {
		p.Default = f.Default
		if p.Type != "string" && p.Type != "" {
			p.Default = json.RawMessage(f.Default)
		}
	}
	if len(f.Range) == 2 {
		p.Minimum, p.Maximum = json.Number(f.Range[0]), json.Number(f.Range[1])
	}
	return p
}
