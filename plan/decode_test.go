package plan

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// march has the fields of a type of action that only the test knows.
type march struct {
	Steps int    `yaml:"steps" range:"1 10"`
	Foot  string `yaml:"foot" words:"left right" default:"left"`
}

func registerMarch(t *testing.T) {
	RegisterKind(ActionKind{
		Type: "march", Target: TargetController,
		Own: func() any { return &march{} },
		Check: func(c *ActionCheck) {
			if m := c.Action.Own.(*march); m.Steps == 7 {
				c.Errorf("steps", "7 steps are too many")
			}
		},
		Explain: func(a *Action) string { return "march with " + a.Target },
	})
	t.Cleanup(func() {
		kinds = kinds[:len(kinds)-1]
		layout.SetWords(reflect.TypeFor[ActionType](), actionTypes())
	})
}

// A type of action can have fields that nothing else in this package knows.
func TestOwnFieldsOfAnActionType(t *testing.T) {
	registerMarch(t)
	const now = "trigger: {definitions: [{triggerName: now, condition: {triggerType: none}}]}"
	text := "testName: t\nactions:\n- {actionType: march, actionTarget: db, steps: 3, " + now + "}\n" +
		"- {actionType: march, foot: right, steps: 2, " + now + "}\n- {actionType: killController, " + now + "}\n"
	p, err := Parse([]byte(text), "f.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]any{&march{3, "left"}, &march{2, "right"}, nil},
		[]any{p.Actions[0].Own, p.Actions[1].Own, p.Actions[2].Own}); diff != "" {
		t.Error(diff)
	}
	if text := Explain(p); !strings.Contains(text, "march with db.") {
		t.Error(text)
	}
	data, err := Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(data, "f.yaml")
	if err != nil || !reflect.DeepEqual(again.Actions[1].Own, p.Actions[1].Own) ||
		strings.Contains(string(data), "left") {
		t.Errorf("written as %s: %v", data, err)
	}

	built := &Plan{TestName: "t", Actions: []Action{
		{Type: "march", Own: &march{Steps: 1}, Trigger: p.Actions[0].Trigger},
	}}
	if err := built.Validate(nil); err != nil || *built.Actions[0].Own.(*march) != (march{Steps: 1}) {
		t.Errorf("Validate changed the action to %+v: %v", built.Actions[0].Own, err)
	}

	built.Actions[0].Own = nil
	if err := built.Validate(nil); err != nil {
		t.Errorf("an action without the fields, which all have a default: %v", err)
	}
	built.Actions[0].Own = &Clocking{}
	wrong := "actions[0]: march takes *plan.march in its field Own, not *plan.Clocking"
	if err := built.Validate(nil); err == nil || err.Error() != wrong {
		t.Errorf("%v, want %s", err, wrong)
	}

	_, err = Parse([]byte("testName: t\nactions:\n- {actionType: march, steps: 11, foot: lef, fot: left, "+now+"}\n"+
		"- {actionType: march, steps: 7, pauseAt: beforeControllerRead, "+now+
		"}\n- {actionType: killController, steps: 1, "+now+"}\n"), "f.yaml")
	want := `f.yaml:3:30: steps is 11; it can be 1 to 10
f.yaml:3:40: unknown foot "lef"; did you mean "left"?
f.yaml:3:45: unknown field "fot" in an action; did you mean "foot"?
f.yaml:4:30: 7 steps are too many
f.yaml:4:42: march has no pauseAt; it has: actionTarget, steps, foot
f.yaml:5:32: unknown field "steps" in an action`
	if err == nil {
		t.Fatal("no mistake was reported")
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(err.Error(), "\n")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Validate must not fill in defaults and names while it checks.
func TestValidateChangesNothing(t *testing.T) {
	built := func() *Plan {
		return &Plan{TestName: "scale", Actions: []Action{
			{Type: ReconnectController, Reconnecting: Reconnecting{ReconnectAPIServer: "apiserver-2"},
				Trigger: Trigger{Expression: " a ", Definitions: []Definition{
					{Name: "a", Condition: Condition{Type: OnReconcile},
						Observe: ObservationPoint{Timing: AfterReconcile}},
				}}},
			{Type: PatchObject,
				Writing: Writing{ResourceKey: ResourceKey{Type: "node", Name: "a"}, Patch: map[string]any{}},
				Trigger: Trigger{Definitions: []Definition{
					{Name: "b", Condition: Condition{Call: "example.com/x.F"},
						Observe: ObservationPoint{Timing: BeforeAnnotatedCall}},
				}}},
		}}
	}
	suite := &Suite{
		Cluster: ClusterSpec{APIServers: 2}, Workloads: map[string]Workload{"scale": {}, "other": {}},
		Controllers: []Controller{{Name: "db", Build: &Build{},
			AnnotatedCalls: []AnnotatedCall{{Name: "f", Package: "example.com/x", Function: "F"}}}},
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

// rows returns the cells of the table with that header line.
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
		elsewhere    []string // described in the text
	}{
		{"plan-format.md", "| field | meaning |", reflect.TypeFor[Plan](), []string{"apiVersion", "kind"}},
		{"suite.md", "## `cluster`\n\n| field | default | |", reflect.TypeFor[ClusterSpec](), nil},
		{"suite.md", "process node*, whose pods are local processes.\n\n| field | default | |",
			reflect.TypeFor[Controller](), nil},
		{"suite.md", "| step | |", reflect.TypeFor[Step](), []string{"name", "cluster"}},
		{"suite.md", "## `timeouts`\n\n| | default | |", reflect.TypeFor[Timeouts](), nil},
	} {
		sh, names := layout.ShapeOf(tt.of), slices.Clone(tt.elsewhere)
		for _, row := range rows(t, tt.page, tt.header) {
			fields := codes(row[0])
			defaults := strings.Split(strings.ReplaceAll(row[1], "`", ""), ", ")
			for i, name := range fields {
				if strings.Contains(name, ".") {
					continue // they belong to the field before
				}
				names = append(names, name)
				if f := sh.Field(name); f != nil && f.Default != "" &&
					(len(defaults) <= i || defaults[i] != f.Default) {
					t.Errorf("%s of %s: the default is %s, documented is %q", name, tt.of.Name(), f.Default, row[1])
				}
			}
		}
		same("fields of "+tt.of.Name(), sh.Names, names)
	}
	types := []string{}
	for _, row := range rows(t, "plan-format.md", "| `triggerType` | its fields | satisfied by |") {
		types = append(types, codes(row[0])...)
		want := slices.DeleteFunc(slices.Clone(conditionFields[TriggerType(codes(row[0])[0])]),
			func(f string) bool { return f == "repeat" })
		same("fields of "+row[0], want, codes(row[1]))
	}
	same("trigger types", stringsOf(triggerTypes), types)
}

// The defaults in tags agree with the constants.
func TestDefaultTags(t *testing.T) {
	for _, of := range []reflect.Type{reflect.TypeFor[Plan](), reflect.TypeFor[Suite]()} {
		if got := layout.ShapeOf(of).Field("apiVersion").Default; got != APIVersion {
			t.Errorf("default apiVersion of %s is %q", of.Name(), got)
		}
	}
	action := layout.ShapeOf(reflect.TypeFor[Action]())
	if got := Reconnect(action.Field("reconnectBy").Default); got != ReconnectRestart {
		t.Errorf("default reconnectBy is %q", got)
	}
}

// Messages name the types of actions in this order; further ones follow.
func TestOrderOfActionTypes(t *testing.T) {
	first := []string{
		"restartController", "killController", "startController", "pauseController", "resumeController",
		"reconnectController", "failCall", "restoreCalls", "freezeController", "thawController",
		"pauseAPIServer", "resumeAPIServer", "killAPIServer", "startAPIServer", "apply", "patch", "delete",
		"disrupt", "endDisruption", "cycleNodes", "endCycle",
	}
	all := actionTypes()
	if diff := cmp.Diff(first, all[:min(len(first), len(all))]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The table of actions is generated from their kinds.
func TestTableOfActions(t *testing.T) {
	const page, begin, end = "../docs/plan-format.md", "<!-- begin: actions -->\n", "<!-- end: actions -->"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", page)
	}
	table := "| `actionType` | its fields besides `trigger` | effect |\n| --- | --- | --- |\n"
	for _, k := range kinds {
		if k.Summary == "" || k.Doc == "" {
			t.Errorf("%s has no Summary or no Doc", k.Type)
		}
		fields := ""
		if names := k.fields(); len(names) > 0 {
			fields = "`" + strings.Join(names, "`, `") + "`"
		}
		table += fmt.Sprintf("| `%s` | %s | %s |\n", k.Type, fields, k.Doc)
	}
	generated(t, page, string(text), head+begin+table+end+tail)
}

// generated checks a file that is generated, or writes it.
func generated(t *testing.T, file, is, want string) {
	t.Helper()
	if is == want {
		return
	}
	if !*update {
		t.Fatalf("%s is out of date; write it with go test ./plan -update", file)
	}
	if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}
