package yamlfile

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"
)

// drink, cup and milk are types that nothing but this test knows.
type drink struct {
	Name    string         `yaml:"name"`
	Kind    string         `yaml:"kind" words:"tea coffee" default:"tea"`
	Sugar   int            `yaml:"sugar" range:"0 3"`
	Wait    time.Duration  `yaml:"wait" default:"3m"`
	Cups    []cup          `yaml:"cups" item:"a cup"`
	Labels  map[string]any `yaml:"labels"`
	Further any            `part:""`
}

type cup struct {
	Size string `yaml:"size" also:"volume"`
}

type milk struct {
	Warm bool `yaml:"warm"`
}

var drinks = &Format{
	Hints: map[string]map[string]string{"a drink": {"honey": "here it is sugar"}},
	Short: map[reflect.Type]func(*File, *yaml.Node) *yaml.Node{
		reflect.TypeFor[cup](): func(_ *File, n *yaml.Node) *yaml.Node {
			if n.Kind != yaml.ScalarNode {
				return nil
			}
			return &yaml.Node{Kind: yaml.MappingNode, Line: n.Line, Column: n.Column, Content: []*yaml.Node{
				{Kind: yaml.ScalarNode, Tag: "!!str", Value: "size", Line: n.Line, Column: n.Column}, n,
			}}
		},
	},
	Prepare: map[reflect.Type]func(v any, n *yaml.Node){
		reflect.TypeFor[drink](): func(v any, n *yaml.Node) {
			if _, warm := Entry(n, "warm"); warm != nil {
				v.(*drink).Further = &milk{}
			}
		},
	},
}

// read reads a drink, with its defaults.
func read(text string) (*drink, *File) {
	f, d := &File{Name: "d.yaml", Format: drinks}, &drink{}
	if f.Parse([]byte(text), "drink") && f.Decode(d, "a drink") {
		drinks.Complete(reflect.ValueOf(d).Elem(), f.Whole())
	}
	return d, f
}

// A value that is read, written and read again is the same.
func TestReadAndWrite(t *testing.T) {
	got, f := read("name: a\nsugar: 0x2\nwait: 90s\nwarm: true\nlabels: {a: [1, 1.5, 010, 1e3]}\n" +
		"cups: [small, {volume: large}]\n")
	if len(f.Mistakes) > 0 {
		t.Fatal(f.Mistakes)
	}
	want := &drink{
		Name: "a", Kind: "tea", Sugar: 2, Wait: 90 * time.Second, Further: &milk{Warm: true},
		Labels: map[string]any{"a": []any{int64(1), 1.5, int64(10), int64(1000)}},
		Cups:   []cup{{"small"}, {"large"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	text, err := drinks.Marshal(reflect.ValueOf(*got))
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := read(string(text)); !reflect.DeepEqual(want, again) || strings.Contains(string(text), "tea") {
		t.Errorf("written as:\n%s", text)
	}
}

// All mistakes of a file are found, and each has its position.
func TestMistakes(t *testing.T) {
	for _, test := range []struct {
		text string
		want []string
	}{
		{"", []string{"1:1: the file is empty; a drink is a YAML mapping"}},
		{"a: [", []string{"1:1: not YAML: did not find expected node content"}},
		{"name: 1\nkind: tee\nsugar: 4\nwait: 3\ncups: a\n", []string{
			`1:7: name must be text, not a number; write "1"`,
			`2:7: unknown kind "tee"; did you mean "tea"?`,
			"3:8: sugar is 4; it can be 0 to 3",
			"4:7: wait: a duration needs a unit; write 3s",
			"5:7: cups must be a list, not text",
		}},
		{"honey: 1\nnam: a\nname: b\nname: c\n", []string{
			`1:1: unknown field "honey" in a drink; here it is sugar`,
			`2:1: unknown field "nam" in a drink; did you mean "name"?`,
			`4:1: duplicate field "name"; first at line 3`,
		}},
		{"warm: hot\ncups:\n- {size: a, volume: b}\n", []string{
			"1:7: warm must be true or false, not text",
			`3:13: duplicate field "size"; first at line 3`,
		}},
		// Lines end here for YAML 1.1, and not for an editor.
		{"name: \"a\u2028b\u0085c\"\nkind: tee # \u2029\n{", []string{
			"3:1: not YAML: could not find expected ':'",
		}},
		{"name: \"a\u2028b\"\nkind: tee\ncups: [\"\u0085\", {a: 1}]\n", []string{
			`2:7: unknown kind "tee"; did you mean "tea"?`,
			`3:14: unknown field "a" in a cup (known: size)`,
		}},
	} {
		_, f := read(test.text)
		var got []string
		for _, m := range f.Mistakes {
			got = append(got, fmt.Sprintf("%d:%d: %s", m.Line, m.Col, m.Message))
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", test.text, diff)
		}
	}
}
