package plan

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const sieveDesign = "../testdata/originals/sieve/"

// designed reads an example of the document that proposes Sieve's test plans.
func designed(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(sieveDesign + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// The proposed test plan loads as it stands in the document, apart from its placeholders.
func TestPlanOfSievesDesign(t *testing.T) {
	text := designed(t, "test-plan.yaml")
	_, err := Parse([]byte(text), "f.yaml")
	const want = `f.yaml:12:26: resourceKey "xxx" is not a type/namespace/name such as pod/default/web-0 or node//n1
f.yaml:13:24: prevState must be a mapping, a part of the object, not text
f.yaml:14:23: curState must be a mapping, a part of the object, not text`
	if err == nil || err.Error() != want {
		t.Errorf("with its placeholders:\n%v\nwant\n%s", err, want)
	}
	for _, placeholder := range []struct{ field, value string }{
		{"testName", "restart-after-scaling"}, {"actionTarget", "db-operator"},
		{"resourceKey", "statefulset/default/db"}, {"prevState", "{spec: {replicas: 3}}"},
		{"curState", "{spec: {replicas: 2}}"}, {"observeBy", "db-operator"},
	} {
		filled := strings.Replace(text, placeholder.field+": xxx", placeholder.field+": "+placeholder.value, 1)
		if filled == text {
			t.Errorf("%s has no placeholder", placeholder.field)
		}
		text = filled
	}
	p, err := Parse([]byte(text), "f.yaml")
	if err != nil {
		t.Fatal(err)
	}
	checkRoundTrip(t, p)
	action := &p.Actions[0]
	d := &action.Trigger.Definitions[0]
	if action.Target != "db-operator" || d.Observe.ObserveBy != "db-operator" || d.Condition.Repeat != 1 {
		t.Errorf("%+v", action)
	}
	// The document also calls two of the fields by other names.
	for name, other := range map[string]string{"observationPoint": "observePoint", "triggerName": "conditionName"} {
		renamed := strings.Replace(text, name+":", other+":", 1)
		if renamed == text {
			t.Errorf("no %s", name)
		}
		again, err := Parse([]byte(renamed), "f.yaml")
		if err != nil {
			t.Errorf("%s: %v", other, err)
			continue
		}
		if diff := cmp.Diff(p, again, samePlan); diff != "" {
			t.Errorf("%s is read differently (-%s +%s)\n%s", other, name, other, diff)
		}
	}
	// Both at once are a mistake.
	both := strings.Replace(text, "        - triggerName: cond1\n", "        - triggerName: cond1\n"+
		"          conditionName: cond1\n          observePoint: {timing: afterControllerWrite, observeBy: x}\n", 1)
	const twice = `f.yaml:10:11: duplicate field "triggerName"; first at line 9
f.yaml:18:11: duplicate field "observationPoint"; first at line 11`
	if _, err := Parse([]byte(both), "f.yaml"); err == nil || err.Error() != twice {
		t.Errorf("both names at once:\n%v\nwant\n%s", err, twice)
	}
}

// The proposed expression has the triggers and the graph of the document.
func TestTriggersOfSievesDesign(t *testing.T) {
	text := designed(t, "triggers.yaml")
	// The document leaves out all fields but the names, for simplicity.
	_, of, _ := strings.Cut(text, "    trigger:")
	var lines []string
	for line := range strings.Lines("testName: x\nactions:\n  - actionType: restartController\n    trigger:" + of) {
		lines = append(lines, line)
		if strings.Contains(line, "- triggerName: ") {
			lines = append(lines, "          condition: {triggerType: onTimeout, timeout: 1s}\n")
		}
	}
	p, err := Parse([]byte(strings.Join(lines, "")), "f.yaml")
	if err != nil {
		t.Fatal(err)
	}
	trigger := &p.Actions[0].Trigger
	var defined []string
	for _, d := range trigger.Definitions {
		defined = append(defined, d.Name)
	}
	want := []string{"cond1", "cond2", "cond3", "cond4", "cond5", "cond6"}
	if !slices.Equal(defined, want) {
		t.Errorf("defined: %q", defined)
	}
	// The document's drawing, in which cond4 and cond5;cond6 meet at the star of both.
	const graph = "" +
		"cond1 -> cond2 -> cond3 ----------------> *\n" +
		"             |--> cond4 ---------> (&) -> *\n" +
		"             |--> cond5 -> cond6 --^\n"
	if got := trigger.Graph.String(); got != graph {
		t.Errorf("graph\n%s", got)
	}
}

// The document's "at least": what a plan can do, and what it can wait for.
func TestWordsOfSievesDesign(t *testing.T) {
	for _, action := range []string{
		"restartController", "killController", "startController", "pauseController", "resumeController",
		"pauseAPIServer", "resumeAPIServer",
	} {
		if !slices.Contains(ActionTypes(), ActionType(action)) {
			t.Errorf("no action %s", action)
		}
	}
	for _, trigger := range []string{
		"onObjectUpdate", "onAnyFieldModified", "onAllFieldsModified", "onObjectCreation", "onObjectDeletion",
		"onTimeout", "none",
	} {
		if !slices.Contains(triggerTypes, TriggerType(trigger)) {
			t.Errorf("no trigger %s", trigger)
		}
	}
	for _, timing := range []string{"afterAPIServerRecv", "afterControllerWrite"} {
		if !slices.Contains(timings, Timing(timing)) {
			t.Errorf("no timing %s", timing)
		}
	}
}
