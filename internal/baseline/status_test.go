package baseline

import (
	"fmt"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/record"
)

// Regression: a status that keeps its last error was a bug after every fault. All other effects of a harmless fault
// still count, and a status that shows a wrong state does in any case.
func TestKeep(t *testing.T) {
	const ready = `{"type": "Ready", "status": "True"}`
	run := func(conditions, more string, lines ...string) *record.Run {
		return story(t, append([]string{
			`created db.example.com/default/a {"spec": {"n": 1}, "status": {"conditions": [` + conditions + `]` + more +
				`}}`,
			`db: created service/default/a {"spec": {"port": 1}, "status": {"lastError": ""}}`,
		}, lines...)...)
	}
	const failed = ready + `, {"type": "Error", "status": "True", "reason": "Refused", "message": "it was refused"}`
	const otherwise = ready + `, {"type": "Error", "status": "True", "reason": "Timeout", "message": "too late"}`
	const unready = `{"type": "Ready", "status": "False", "message": "it was refused"}`
	const usual = `, "phase": "Running", "retryCount": 0, "readyReplicas": 1`
	history := func(phases ...string) string {
		items := []string{`{"phase": "Creating", "message": "it is new"}`}
		for _, phase := range phases {
			items = append(items, fmt.Sprintf(`{"phase": %q, "message": "it is %[1]s"}`, phase))
		}
		return `, "history": [` + strings.Join(items, ", ") + `]`
	}
	members := func(phase string) string { return `, "members": [{"phase": "` + phase + `"}]` }
	for _, tt := range []struct {
		name         string
		more         string      // of the usual status
		harmless, as *record.Run // as: the run that is judged, nil: the same
		counts       string      // a part of the finding; empty: it does not count
	}{
		{name: "an error that is kept", harmless: run(failed, usual)},
		{name: "another error", harmless: run(failed, usual), as: run(otherwise, usual)},
		{name: "a counter", harmless: run(ready, `, "phase": "Running", "retryCount": 1, "readyReplicas": 1`),
			as: run(ready, `, "phase": "Running", "retryCount": 7, "readyReplicas": 1`)},
		{name: "a history with one more item", more: history(), harmless: run(ready, usual+history("Failed")),
			as: run(ready, usual+history("Failed", "Failed", "Failed"))},
		{name: "a shorter history", more: history(), harmless: run(ready, usual+history("Failed")),
			as: run(ready, usual+`, "history": []`)},
		{name: "a history that no harmless fault shows", more: history(), harmless: run(failed, usual+history()),
			as: run(ready, usual+history("Failed")), counts: "status.history[1]"},
		{name: "members", more: members("Ready"), harmless: run(ready, usual+members("Failed")),
			as:     run(ready, usual+members("Failed")),
			counts: "status.members[0].phase"},
		{name: "a previous phase", more: `, "previousPhase": "Creating"`,
			harmless: run(ready, usual+`, "previousPhase": "Failed"`)},
		{name: "a counter that no harmless fault shows", harmless: run(failed, usual),
			as:     run(ready, `, "phase": "Running", "retryCount": 7, "readyReplicas": 1`),
			counts: "status.retryCount is 7"},
		{name: "not ready any more", harmless: run(unready, usual), counts: `status.conditions[type=Ready].status`},
		{name: "not ready, and an error that is kept", harmless: run(failed, usual),
			as: run(unready, usual), counts: `status.conditions[type=Ready].status`},
		{name: "a phase", harmless: run(failed, `, "phase": "Pending", "retryCount": 0, "readyReplicas": 1`),
			counts: "status.phase"},
		{name: "a number of what is ready", harmless: run(failed, `, "phase": "Running", "retryCount": 0,
			"readyReplicas": 0`), counts: "status.readyReplicas"},
		{name: "the harmless fault breaks something else",
			harmless: run(failed, usual, `db: deleted service/default/a {}`), as: run(failed, usual),
			counts: "status.conditions[type=Error]"},
		{name: "a spec differs, too", harmless: run(failed, usual),
			as: run(failed, usual, `updated db.example.com/default/a {"spec": {"n": 2}, "status": {"conditions": [`+
				failed+`]`+usual+`}}`), counts: "spec.n is 2"},
		{name: "of Kubernetes itself", harmless: run(failed, usual),
			as:     run(failed, usual, `updated service/default/a {"spec": {"port": 1}, "status": {"lastError": "x"}}`),
			counts: "status.lastError"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			normal := run(ready, usual+tt.more)
			ref := learn(t, normal, normal)
			if err := ref.Keep(tt.harmless, "after one refused write"); err != nil {
				t.Fatal(err)
			}
			if tt.as == nil {
				tt.as = tt.harmless
			}
			got := strings.Join(compare(t, ref, tt.as), "\n")
			if tt.counts == "" && got != "" || !strings.Contains(got, tt.counts) {
				t.Errorf("got %q", got)
			}
			if len(compare(t, learn(t, normal, normal), tt.as)) == 0 {
				t.Error("it is no difference")
			}
		})
	}
}

// Regression: for a shorter workload it was unknown what the status of the longer one's objects describes.
func TestAdoptKept(t *testing.T) {
	run := func(status string) *record.Run {
		return story(t, `created db.example.com/default/a {"status": {"retryCount": `+status+`, "phase": "Running"}}`)
	}
	longer, shorter := learn(t, run("0"), run("0")), learn(t, run("0"), run("0"))
	if err := longer.Keep(run("1"), "after one refused write"); err != nil {
		t.Fatal(err)
	}
	checkDifferences(t, shorter, run("2"), "db.example.com/default/a: status.retryCount is 2; without faults: 0")
	shorter.Adopt(longer)
	shorter.Adopt(longer)
	if got := compare(t, shorter, run("2")); len(got) > 0 || len(shorter.Kept) != 1 {
		t.Errorf("got %q; kept %v", got, shorter.Kept)
	}
	phase := story(t, `created db.example.com/default/a {"status": {"retryCount": 0, "phase": "Failed"}}`)
	if got := compare(t, shorter, phase); len(got) != 1 {
		t.Errorf("got %q", got)
	}
}

// Regression: a condition that says the same in other words was a bug: "MPIJob a is finished but Running condition was
// never set" instead of "MPIJob a is running". Messages are for people.
func TestMessagesOfConditions(t *testing.T) {
	run := func(condition, more string) *record.Run {
		return story(t, `created db.example.com/default/a {"status": {"conditions": [{"type": "Running", `+condition+
			`}]`+more+`}}`)
	}
	const usual = `"status": "False", "reason": "Done", "message": "it is running"`
	for _, tt := range []struct {
		name, condition, more string
		counts                string // a part of the finding; empty: it does not count
	}{
		{name: "another message", condition: `"status": "False", "reason": "Done", "message": "it has never run"`},
		{name: "another reason", condition: `"status": "False", "reason": "Late", "message": "it has never run"`,
			counts: "status.conditions[type=Running].reason"},
		{name: "another status", condition: `"status": "True", "reason": "Done", "message": "it still runs"`,
			counts: "status.conditions[type=Running].status"},
		{name: "no message", condition: `"status": "False", "reason": "Done"`,
			counts: "status.conditions[type=Running].message"},
		{name: "a message that is no condition's", condition: usual, more: `, "message": "it has never run"`,
			counts: "status.message"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ref := learn(t, run(usual, ""), run(usual, ""))
			got := strings.Join(compare(t, ref, run(tt.condition, tt.more)), "\n")
			if tt.counts == "" && got != "" || !strings.Contains(got, tt.counts) {
				t.Errorf("got %q", got)
			}
		})
	}
}
