package plan

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type common struct {
	Kind string        `yaml:"kind"`
	Wait time.Duration `yaml:"wait"`
}

func (*common) sound() {}

type animal interface{ sound() }

type dog struct {
	common
	Legs  int    `yaml:"legs"`
	Breed string `yaml:"breed" words:"poodle pug" default:"pug"`
}

type fish struct {
	common
	Fins int `yaml:"fins"`
}

// A mapping is read into the type that one of its fields asks for.
func TestDecodeChosenType(t *testing.T) {
	choices[reflect.TypeFor[animal]()] = &choice{
		field: "kind", words: []string{"dog", "fish"}, types: []reflect.Type{reflect.TypeFor[dog](), reflect.TypeFor[fish]()},
		all: reflect.TypeFor[common](),
	}
	defer delete(choices, reflect.TypeFor[animal]())
	for _, tt := range []struct {
		text string
		want []animal
		err  string
	}{
		{text: "animals: [{kind: dog, legs: 4, wait: 1s}, {fins: 3, kind: fish}]", want: []animal{
			&dog{common: common{Kind: "dog", Wait: time.Second}, Legs: 4, Breed: "pug"}, &fish{common: common{Kind: "fish"}, Fins: 3},
		}},
		{text: "animals: [{kind: fish, legs: 4, wait: soon, wings: 2}]", err: "f.yaml:1:30: fish has no legs; it has: fins\n" +
			"f.yaml:1:39: wait: \"soon\" is no duration; write it like 20s, 1m30s or 500ms\n" +
			"f.yaml:1:45: unknown field \"wings\" in an animal; did you mean \"fins\"?"},
		{text: "animals: [{kind: dgo, legs: x, wait: 5, wings: 2}, {legs: 2}, fish]", err: "f.yaml:1:18: unknown kind \"dgo\"; did you mean \"dog\"?\n" +
			"f.yaml:1:38: wait: a duration has a unit; write 5s\n" +
			"f.yaml:1:41: unknown field \"wings\" in an animal (known: kind, wait)\n" +
			"f.yaml:1:52: an animal has no kind (known: dog, fish)\n" +
			"f.yaml:1:63: an animal is a mapping, not text"},
	} {
		var farm struct {
			Animals []animal `yaml:"animals" item:"an animal"`
		}
		s := &source{file: "f.yaml"}
		s.root = s.parse([]byte(tt.text), "farm")
		v := reflect.ValueOf(&farm).Elem()
		s.decode(&s.root, v, &shapeField{called: "a farm"})
		complete(v, s.whole())
		if err := s.errs.err(); err != nil || tt.err != "" {
			if diff := cmp.Diff(strings.Split(tt.err, "\n"), strings.Split(s.errs.Error(), "\n")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.text, diff)
			}
			continue
		}
		if !reflect.DeepEqual(farm.Animals, tt.want) {
			t.Errorf("%s: got %+v, %+v", tt.text, farm.Animals[0], farm.Animals[1])
		}
	}
}

// Validate used to fill in defaults and names while it checked.
func TestValidateChangesNothing(t *testing.T) {
	built := func() *Plan {
		return &Plan{TestName: "scale", Actions: []Action{
			{Type: ReconnectController, ReconnectAPIServer: "apiserver-2", Trigger: Trigger{Expression: " a ", Definitions: []Definition{
				{Name: "a", Condition: Condition{Type: OnReconcile}, Observe: ObservationPoint{Timing: AfterReconcile}},
			}}},
			{Type: PatchObject, ResourceKey: ResourceKey{Type: "node", Name: "a"}, Patch: map[string]any{}, Trigger: Trigger{Definitions: []Definition{
				{Name: "b", Condition: Condition{Call: "example.com/x.F"}, Observe: ObservationPoint{Timing: BeforeAnnotatedCall}},
			}}},
		}}
	}
	suite := &Suite{
		Cluster: ClusterSpec{APIServers: 2}, Workloads: map[string]Workload{"scale": {}, "other": {}},
		Controllers: []Controller{{Name: "db", Build: &Build{}, AnnotatedCalls: []AnnotatedCall{{Name: "f", Package: "example.com/x", Function: "F"}}}},
	}
	p := built()
	if err := p.Validate(suite); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(built(), p, cmp.AllowUnexported(Plan{})); diff != "" {
		t.Errorf("Validate changed the plan (-before +after):\n%s", diff)
	}
	p.Complete(suite)
	for i, a := range p.Actions {
		if a.Trigger.Graph == nil {
			t.Errorf("action %d has no graph", i+1)
		}
	}
	want := built()
	want.APIVersion, want.Kind, want.Workload = APIVersion, "TestPlan", "scale"
	a, b := &want.Actions[0], &want.Actions[1]
	a.Target, a.ReconnectBy, a.Trigger.Expression = "db", ReconnectRestart, "a"
	a.Trigger.Definitions[0].Condition.Repeat, a.Trigger.Definitions[0].Observe.ObserveBy = 1, "db"
	b.PatchType, b.Trigger.Expression = "merge", "b"
	b.Trigger.Definitions[0].Condition = Condition{Type: OnAnnotatedCall, Call: "f", Repeat: 1}
	b.Trigger.Definitions[0].Observe.ObserveBy = "db"
	if diff := cmp.Diff(want, p, samePlan); diff != "" {
		t.Errorf("completed (-want +got):\n%s", diff)
	}
}

// rows are the cells of the table with that header line.
func rows(t *testing.T, page, header string) [][]string {
	t.Helper()
	text, err := os.ReadFile("../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), header)
	if !ok {
		t.Fatalf("%s has no table %q", page, header)
	}
	var rows [][]string
	for _, line := range strings.Split(table, "\n")[1:] {
		if !strings.HasPrefix(line, "|") {
			break
		}
		if !strings.HasPrefix(line, "| ---") {
			rows = append(rows, strings.Split(strings.Trim(line, "| "), " | "))
		}
	}
	return rows
}

var code = regexp.MustCompile("`([^`]+)`")

func codes(cell string) []string {
	words := []string{}
	for _, m := range code.FindAllStringSubmatch(cell, -1) {
		words = append(words, m[1])
	}
	return words
}

// The tables of the documentation have the fields that the Go types have, with their defaults.
func TestDocumentedFields(t *testing.T) {
	same := func(what string, want, got []string) {
		t.Helper()
		if diff := cmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got))); diff != "" {
			t.Errorf("%s (-Go +docs):\n%s", what, diff)
		}
	}
	for _, tt := range []struct {
		page, header string
		of           reflect.Type
		elsewhere    []string // told in the text
	}{
		{"plan-format.md", "| field | meaning |", reflect.TypeFor[Plan](), []string{"apiVersion", "kind"}},
		{"suite.md", "## `cluster`\n\n| field | default | |", reflect.TypeFor[ClusterSpec](), nil},
		{"suite.md", "process node*, whose pods are local processes.\n\n| field | default | |", reflect.TypeFor[Controller](), nil},
		{"suite.md", "| step | |", reflect.TypeFor[Step](), []string{"name"}},
		{"suite.md", "## `timeouts`\n\n| | default | |", reflect.TypeFor[Timeouts](), nil},
	} {
		sh, names := shapeOf(tt.of), slices.Clone(tt.elsewhere)
		for _, row := range rows(t, tt.page, tt.header) {
			fields := codes(row[0])
			defaults := strings.Split(strings.ReplaceAll(row[1], "`", ""), ", ")
			for i, name := range fields {
				if strings.Contains(name, ".") {
					continue // of the field before
				}
				names = append(names, name)
				if f := sh.field(name); f != nil && f.fallback != "" && (len(defaults) <= i || defaults[i] != f.fallback) {
					t.Errorf("%s of %s: the default is %s, documented is %q", name, tt.of.Name(), f.fallback, row[1])
				}
			}
		}
		same("fields of "+tt.of.Name(), sh.names, names)
	}
	types := []string{}
	for _, row := range rows(t, "plan-format.md", "| `actionType` | its fields besides `trigger` | effect |") {
		types = append(types, codes(row[0])...)
		same("fields of "+row[0], fits[ActionType(codes(row[0])[0])], codes(row[1]))
	}
	same("action types", stringsOf(actionTypes), types)
	types = nil
	for _, row := range rows(t, "plan-format.md", "| `triggerType` | its fields | satisfied by |") {
		types = append(types, codes(row[0])...)
		want := slices.DeleteFunc(slices.Clone(conditionFields[TriggerType(codes(row[0])[0])]), func(f string) bool { return f == "repeat" })
		same("fields of "+row[0], want, codes(row[1]))
	}
	same("trigger types", stringsOf(triggerTypes), types)
}

// The defaults that are tags agree with the constants.
func TestDefaultTags(t *testing.T) {
	for _, of := range []reflect.Type{reflect.TypeFor[Plan](), reflect.TypeFor[Suite]()} {
		if got := shapeOf(of).field("apiVersion").fallback; got != APIVersion {
			t.Errorf("default apiVersion of %s is %q", of.Name(), got)
		}
	}
	if got := Reconnect(shapeOf(reflect.TypeFor[Action]()).field("reconnectBy").fallback); got != ReconnectRestart {
		t.Errorf("default reconnectBy is %q", got)
	}
}
