package plan

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const sieveDir = "../testdata/plans/sieve"

// All published plans of Sieve load, and round-trip through our format.
func TestSievePlans(t *testing.T) {
	list := files(t, sieveDir+"/actions/*.yaml", sieveDir+"/modes/*.yaml")
	if len(list) != 45 {
		t.Errorf("%d plans, want 45", len(list))
	}
	for _, file := range list {
		t.Run(filepath.Base(file), func(t *testing.T) {
			p, err := Load(file)
			if err != nil {
				t.Fatal(err)
			}
			checkRoundTrip(t, p)
			text, err := Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			for _, word := range []string{"SIEVE", "kind-control-plane", "occurrence", "Diff", "informer"} {
				if strings.Contains(string(text), word) {
					t.Errorf("%s is still in the canonical plan:\n%s", word, text)
				}
			}
		})
	}
}

func TestSieveGolden(t *testing.T) {
	for _, name := range []string{
		"actions/cassandra-operator-stale-state-2", "actions/casskop-intermediate-state-1", "modes/yugabyte_unobsr_1",
		"modes/elastic_stale_1", "modes/xtradb_intmd_2",
	} {
		p, err := Load(filepath.Join(sieveDir, name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		text, err := Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		checkGolden(t, "testdata/sieve-"+filepath.Base(name)+".canonical", string(text))
	}
}

// Plans of a bug that was published in both formats are the same canonical plan, except for the workload, which the
// older format does not name.
func TestSieveModesAreTheirActions(t *testing.T) {
	operators := map[string]string{
		"cassandra1": "cassandra-operator", "cassandra3": "casskop", "nifi": "nifikop", "elastic": "elastic-operator",
		"xtradb": "xtradb-operator", "yugabyte": "yugabyte-operator",
	}
	kinds := map[string]string{"stale": "stale-state", "unobsr": "unobserved-state", "intmd": "intermediate-state"}
	pairs := 0
	for _, file := range files(t, sieveDir+"/modes/*.yaml") {
		part := strings.Split(strings.TrimSuffix(filepath.Base(file), ".yaml"), "_")
		twin := filepath.Join(sieveDir, "actions", operators[part[0]]+"-"+kinds[part[1]]+"-"+part[2]+".yaml")
		if _, err := os.Stat(twin); err != nil {
			t.Errorf("%s has no twin %s", file, twin)
			continue
		}
		mode, err := Load(file)
		if err != nil {
			t.Fatal(err)
		}
		action, err := Load(twin)
		if err != nil {
			t.Fatal(err)
		}
		if mode.Workload == "" {
			mode.Workload = action.Workload
		}
		mode.TestName = action.TestName // each is named after its file
		modeText, _ := Marshal(mode)
		actionText, _ := Marshal(action)
		if diff := cmp.Diff(string(actionText), string(modeText)); diff != "" {
			t.Errorf("%s (-actions +modes):\n%s", file, diff)
		}
		pairs++
	}
	if pairs != 19 {
		t.Errorf("%d pairs, want 19", pairs)
	}
}

func TestSieveConversion(t *testing.T) {
	action := func(fields, condition, point string) string {
		return "workload: w\nactions:\n- actionType: restartController\n" + fields +
			"  trigger:\n    definitions:\n    - triggerName: t\n      condition: {" + condition +
			"}\n      observationPoint: {" + point + "}\n    expression: t\n"
	}
	const update, written = "conditionType: onObjectUpdate, resourceKey: pod/default/a, occurrence: 1",
		"when: afterControllerWrite, by: pkg.(*T).Reconcile"
	tests := []struct {
		name, text string
		want       []string // in the canonical plan; if it begins with "f.yaml:", the error
	}{
		{
			"annotated call",
			action("  controllerLabel: op\n", "conditionType: onAnnotatedAPICall, module: example.com/db, filePath: "+
				"pkg/volumes/client.go, receiverType: '*Client', funName: Resize, occurrence: 2",
				"when: afterAnnotatedAPICall, by: example.com/db/controllers.(*R)"),
			[]string{"triggerType: onAnnotatedCall\n            repeat: 2\n            call: " +
				"example.com/db/pkg/volumes.(*Client).Resize", "timing: afterAnnotatedCall\n            observeBy: " +
				"op\n            reconciler: example.com/db/controllers.(*R)"},
		},
		{"cluster scope", action("", "conditionType: onObjectDelete, resourceKey: node/n1, occurrence: 1",
			"when: afterControllerRecv, by: informer"), []string{"resourceKey: node//n1",
			"observationPoint:\n            timing: afterControllerRecv\n      expression"}},
		{"skipped items",
			action("", update+`, curStateDiff: '{"l": ["SIEVE-SKIP", {"a": 1.0, "b": "SIEVE-NON-NIL", "c": null}]}'`,
				written), []string{"curState:\n              l:\n                - $present\n                - a: 1\n" +
				"                  b: $present\n                  c: null"}},
		{"writes", "workload: w\nactions:\n- {actionType: pauseControllerWrite, pauseAt: beforeControllerWrite, " +
			"writeTarget: all, waitAfter: 1.5, trigger: {expression: t, definitions: [{triggerName: t, condition: " +
			"{conditionType: onTimeout, timeoutValue: 3, occurrence: 1}, observationPoint: {when: x, by: y}}]}}\n",
			[]string{"actionType: pauseController\n    pauseAt: beforeControllerWrite\n    waitAfter: 1.5s\n",
				"timeout: 3s"}},
		{"unknown condition", action("", "conditionType: onObjectPatch, resourceKey: pod/default/a", written),
			[]string{`f.yaml:7:34: unknown conditionType "onObjectPatch" (known: `}},
		{"unknown API server", action("  apiServerName: master\n", update, written),
			[]string{
				`f.yaml:4:18: unknown API server "master" (known: kind-control-plane, kind-control-plane2 and so on)`}},
		{"bad JSON", action("", update+", prevStateDiff: '{\"a\": }'", written),
			[]string{"f.yaml:7:108: prevState is not JSON: "}},
		{"no object", action("", update+", prevStateDiff: '[1]'", written),
			[]string{"f.yaml:7:108: the state is not a JSON object"}},
		{"two values", action("", update+", prevStateDiff: '{} {}'", written),
			[]string{"f.yaml:7:108: prevState is not JSON: invalid character '{' after top-level value"}},
		{"unknown field", action("  color: red\n", update, written),
			[]string{`f.yaml:4:3: unknown field "color" in an action`}},
		{"seconds", action("  waitBefore: soon\n", update, written),
			[]string{`f.yaml:4:15: expected a number of seconds, not "soon"`}},
		{"whose", "actions:\n- {actionType: restartController, controllerLabel: a, trigger: {definitions: " +
			"[{triggerName: t, condition: {conditionType: onTimeout, timeoutValue: 1}}]}}\n- {actionType: " +
			"restartController, controllerLabel: b, trigger: {expression: t, definitions: [{triggerName: t, " +
			"condition: {" + update + "}, observationPoint: {when: afterControllerRecv, by: informer}}]}}\n",
			[]string{"f.yaml:3:248: by informer: the plan names several controllers, so it does not say which one"}},
		{"unknown trigger", strings.Replace(action("", update, written), "expression: t", "expression: t|u", 1),
			[]string{`f.yaml:9:19: unknown trigger "u" (defined: t)`}},

		{"mode, deletion unobserved", "{mode: unobserved-state, stage: test, project: p, ce-name: a, ce-namespace: " +
			"default, ce-rtype: pod, ce-etype-current: Deleted, ce-counter: '2'}",
			[]string{"triggerType: onObjectDeletion\n            resourceKey: pod/default/a\n            repeat: 2",
				"triggerName: trigger2\n          condition:\n            triggerType: onObjectCreation",
				"triggerName: trigger3\n          condition:\n            triggerType: onObjectUpdate"}},
		{"mode, creation unobserved", "{mode: unobserved-state, ce-name: a, ce-namespace: default, ce-rtype: pod, " +
			"ce-etype-current: Added}",
			[]string{"triggerType: onObjectCreation", "triggerName: trigger2\n          condition:\n" +
				"            triggerType: onObjectUpdate"}},
		{"plural", action("", "conditionType: onObjectDelete, resourceKey: secrets/default/a",
			"when: afterControllerRecv, by: informer"), []string{"resourceKey: secret/default/a"}},
		{"repeat", action("", "conditionType: onObjectDelete, resourceKey: secret/default/a, repeat: 3",
			"when: afterControllerRecv, by: informer"), []string{"repeat: 3"}},
		{"mode, creation with states", "{mode: intermediate-state, project: p, se-name: a, se-namespace: default, " +
			"se-rtype: secret, se-etype-current: Create, se-diff-previous: '{\"metadata\": {}}', se-diff-current: " +
			"'{\"type\": \"Opaque\"}', se-counter: 1}",
			[]string{"condition:\n            triggerType: onObjectCreation\n            resourceKey: " +
				"secret/default/a\n          observationPoint"}},
		{"mode, null states", "{mode: intermediate-state, project: p, se-name: a, se-namespace: default, se-rtype: " +
			"secret, se-etype-current: Update, se-diff-previous: 'null', se-diff-current: 'null'}",
			[]string{"condition:\n            triggerType: onObjectUpdate\n            resourceKey: " +
				"secret/default/a\n          observationPoint"}},
		{"oldest words", "{mode: time-travel, straggler: kind-control-plane3, operator-pod: op, ce-name: a, " +
			"ce-namespace: default, ce-rtype: pod, ce-etype-current: MODIFIED, ce-diff-current: '{\"metadata\": " +
			"{\"deletionTimestamp\": \"SONAR-EXIST\"}}', se-name: b, se-namespace: default, se-rtype: pod, se-etype: " +
			"DELETED}",
			[]string{"deletionTimestamp: $present", "timing: afterAPIServerRecv", "actionTarget: op",
				"onObjectDeletion"}},
		{"unknown mode", "{mode: stale, project: p}",
			[]string{`f.yaml:1:8: unknown mode "stale" (known: stale-state, unobserved-state, intermediate-state)`}},
		{"unknown mode field", "mode: stale-state\nce-color: red\n",
			[]string{`f.yaml:2:1: unknown field "ce-color" in a plan of Sieve's mode format`}},
		{"mode field twice", "mode: stale-state\nproject: a\nproject: b\n",
			[]string{`f.yaml:3:1: duplicate field "project"; first at line 2`}},
		{"mode without its fields", "mode: intermediate-state\n",
			[]string{"f.yaml:1:1: a plan of mode intermediate-state has se-rtype"}},
		{"mode counter", "{mode: unobserved-state, ce-name: a, ce-namespace: default, ce-rtype: pod, " +
			"ce-etype-current: Added, ce-counter: many}",
			[]string{`f.yaml:1:113: ce-counter must be a number from 1, not "many"`}},
		{"mode event", "{mode: unobserved-state, ce-name: a, ce-namespace: default, ce-rtype: pod, ce-etype-current: " +
			"Bent}", []string{`f.yaml:1:94: unknown event type "Bent"`}},
		{"mode of learning", "{mode: unobserved-state, stage: learn, ce-name: a, ce-namespace: default, ce-rtype: " +
			"pod, ce-etype-current: Added}",
			[]string{`f.yaml:1:33: stage "learn": only plans of the stage test can be converted`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := Parse([]byte(tt.text), "f.yaml")
			if strings.HasPrefix(tt.want[0], "f.yaml:") {
				if err == nil || !strings.HasPrefix(err.Error(), tt.want[0]) {
					t.Errorf("got %v\nwant %s", err, tt.want[0])
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			text, err := Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range tt.want {
				if !strings.Contains(string(text), w) {
					t.Errorf("got\n%s\nwithout\n%s", text, w)
				}
			}
		})
	}
}

// The fields that an alias repeats are converted each time.
func TestSieveAliases(t *testing.T) {
	action := func(first, second string) string {
		return "actions:\n- actionType: pauseAPIServer\n  apiServerName: kind-control-plane2\n  trigger:" + first +
			"\n- actionType: resumeAPIServer\n  apiServerName: kind-control-plane2\n  trigger:" + second + "\n"
	}
	const trigger = " {expression: t, definitions: [{triggerName: t, condition: {conditionType: onObjectDelete, " +
		"resourceKey: pods/default/a, occurrence: 2}, observationPoint: {when: afterAPIServerRecv, by: " +
		"kind-control-plane2}}]}"
	var texts []string
	for _, text := range []string{action(" &a"+trigger, " *a"), action(trigger, trigger)} {
		texts = append(texts, canonical(t, text))
	}
	if diff := cmp.Diff(texts[1], texts[0]); diff != "" {
		t.Error(diff)
	}
}

// A Trommel plan with one of Sieve's words is a Trommel plan, with a mistake.
func TestSieveWordInOurPlan(t *testing.T) {
	_, err := Parse([]byte("apiVersion: trommel.dev/v1alpha1\nactions:\n- actionType: killController\n"+
		"  controllerLabel: a\n"), "f.yaml")
	const want = `f.yaml:4:3: unknown field "controllerLabel" in an action; the target of an action is its actionTarget`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}
