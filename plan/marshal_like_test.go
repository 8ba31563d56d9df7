package plan

import (
	"strings"
	"testing"
)

// A plan that was made from another one keeps its comments, order, flow style and anchors where both are the same.
func TestMarshalLike(t *testing.T) {
	const text = `# Why there is this plan.
testName: a
actions:
  # The first one goes.
  - actionType: restartController
    trigger:
      definitions:
        - {conditionName: t, condition: &none {triggerType: none}}
  - actionTarget: op # the only one
    actionType: killController
    trigger:
      definitions: [{triggerName: u, condition: *none}]
workload: w
`
	for _, tt := range []struct {
		name   string
		change func(p *Plan)
		want   string
	}{
		{"nothing", func(*Plan) {}, text},
		{"another name", func(p *Plan) { p.TestName = "b" }, strings.Replace(text, "testName: a", "testName: b", 1)},
		{"without the action with the anchor", func(p *Plan) { p.Actions = p.Actions[1:] },
			`# Why there is this plan.
testName: a
actions:
  - actionTarget: op # the only one
    actionType: killController
    trigger:
      definitions: [{triggerName: u, condition: &none {triggerType: none}}]
workload: w
`},
		{"without the last action, and with another workload", func(p *Plan) {
			p.Actions, p.Workload, p.Variant = p.Actions[:1], "v", "x"
		}, `# Why there is this plan.
testName: a
actions:
  # The first one goes.
  - actionType: restartController
    trigger:
      definitions:
        - {conditionName: t, condition: &none {triggerType: none}}
workload: v
variant: x
`},
	} {
		p, err := Parse([]byte(text), "a.yaml")
		if err != nil {
			t.Fatal(err)
		}
		q := *p
		tt.change(&q)
		for range 2 { // the plan that it was made from is not changed
			got, err := MarshalLike(&q, p, nil)
			if err != nil || string(got) != tt.want {
				t.Errorf("%s: %v\n%s", tt.name, err, got)
			}
		}
	}
	built := &Plan{TestName: "a"}
	got, err := MarshalLike(built, built, nil)
	if want, _ := Marshal(built); err != nil || string(got) != string(want) {
		t.Errorf("%v\n%s", err, got)
	}
}
