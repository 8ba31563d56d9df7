package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const merged = `testName: merged
actions:
  - actionType: killController
    trigger: &trigger
      definitions:
        - &base
          triggerName: first
          condition: &condition
            triggerType: onObjectUpdate
            resourceKey: pod/default/a
            curState: &state {spec: {nodeName: $present}, status: {phase: Running}}
          observationPoint: &point {timing: afterControllerRecv, observeBy: op}
        - <<: *base
          triggerName: second
          condition:
            repeat: 2
            <<: *condition
            curState:
              <<: *state
              status: {phase: Failed}
        - triggerName: third
          condition: {<<: [{resourceKey: pod/default/c}, *condition], triggerType: onObjectCreation}
          observationPoint: {<<: *point, timing: beforeControllerRecv}
      expression: first;second|third
  - actionType: startController
    trigger:
      <<: *trigger
      expression: third
`

func TestMergeKeys(t *testing.T) {
	const written = `testName: merged
actions:
  - actionType: killController
    trigger:
      definitions: &definitions
        - triggerName: first
          condition: {triggerType: onObjectUpdate, resourceKey: pod/default/a,
            curState: {spec: {nodeName: $present}, status: {phase: Running}}}
          observationPoint: {timing: afterControllerRecv, observeBy: op}
        - triggerName: second
          condition: {triggerType: onObjectUpdate, resourceKey: pod/default/a, repeat: 2,
            curState: {spec: {nodeName: $present}, status: {phase: Failed}}}
          observationPoint: {timing: afterControllerRecv, observeBy: op}
        - triggerName: third
          condition: {triggerType: onObjectCreation, resourceKey: pod/default/c,
            curState: {spec: {nodeName: $present}, status: {phase: Running}}}
          observationPoint: {timing: beforeControllerRecv, observeBy: op}
      expression: first;second|third
  - actionType: startController
    trigger: {definitions: *definitions, expression: third}
`
	var texts []string
	for _, text := range []string{merged, written} {
		texts = append(texts, canonical(t, text))
	}
	if diff := cmp.Diff(texts[1], texts[0]); diff != "" {
		t.Errorf("-written +merged:\n%s", diff)
	}
}

func TestMergeKeyMistakes(t *testing.T) {
	const head = "actions:\n- actionType: killController\n  trigger:\n    definitions:\n"
	for _, test := range []struct {
		name, text string
		want       []string
	}{
		{"of text", head + "    - {<<: a, triggerName: t, condition: {triggerType: none}}\n",
			[]string{"f.yaml:5:12: << merges a mapping or a list of mappings, not text"}},
		{"of nothing", head + "    - {<<: , triggerName: t, condition: {triggerType: none}}\n",
			[]string{"f.yaml:5:12: << merges a mapping or a list of mappings, not nothing"}},
		{
			"of a list with more than mappings", head + "    - &a {triggerName: t, condition: {triggerType: none}}\n" +
				"    - {<<: [*a, 5], triggerName: u}\n    expression: t\n",
			[]string{"f.yaml:6:17: << merges a mapping or a list of mappings, not a number"},
		},
		{
			"twice", head + "    - &a {triggerName: t, condition: {triggerType: none}}\n    - {<<: *a, triggerName: " +
				"u, <<: *a}\n    expression: t\n",
			[]string{"f.yaml:6:32: duplicate <<; first at line 6; to merge several mappings give it a list of them"},
		},
		{
			"a mistake in a merged mapping is reported once, where it is written",
			head + "    - &a {triggerName: t, color: red, condition: {triggerType: onTimeout, timeout: soon}}\n" +
				"    - {<<: *a, triggerName: u}\n    - {<<: *a, triggerName: v}\n    expression: t;u;v\n",
			[]string{
				`f.yaml:5:27: unknown field "color" in a trigger definition ` +
					`(known: triggerName, condition, observationPoint)`,
				`f.yaml:5:84: timeout: "soon" is not a duration; write it like 20s, 1m30s or 500ms`,
			},
		},
		{
			"a field that does not fit", head + "    - &a {triggerName: t, condition: {triggerType: none}}\n" +
				"    expression: t\n- {<<: *a, actionType: killController, trigger: {definitions: [*a], expression: " +
				"t}}\n",
			[]string{
				`f.yaml:5:11: unknown field "triggerName" in an action`,
				`f.yaml:5:27: unknown field "condition" in an action`,
			},
		},
		{"a quoted << is a field like any other", "'<<': {testName: a}\nactions: []\n",
			[]string{`f.yaml:1:1: unknown field "<<" in a plan`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Parse([]byte(test.text), "f.yaml")
			if err == nil {
				t.Fatal("no error")
			}
			lines := strings.Split(err.Error(), "\n")
			for i, line := range lines {
				if i < len(test.want) && strings.HasPrefix(line, test.want[i]) {
					lines[i] = test.want[i]
				}
			}
			if diff := cmp.Diff(test.want, lines); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMergeKeysInSuite(t *testing.T) {
	s, err := ParseSuite([]byte("controllers:\n- &a {name: a, binary: ./a, env: {A: b}}\n- {<<: *a, name: b}\n"+
		"workloads: {w: []}\n"), "testdata/f.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Controllers) != 2 || s.Controllers[1].Name != "b" || s.Controllers[1].Env["A"] != "b" {
		t.Errorf("got %+v", s.Controllers)
	}
}

// canonical is a plan as it is written back.
func canonical(t *testing.T, text string) string {
	t.Helper()
	p, err := Parse([]byte(text), "f.yaml")
	if err != nil {
		t.Fatal(err)
	}
	written, err := Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(written)
}
