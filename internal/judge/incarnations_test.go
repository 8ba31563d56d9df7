package judge

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Regression: an object that others than the controllers under test deleted and made again did not count as a
// difference, even if it held data.
func TestIncarnationsByOthers(t *testing.T) {
	usually := []string{
		`1 op: created database/default/db {}`,
		`2 created persistentvolumeclaim/default/data {"metadata": {"uid": "a"}}`,
		`3 created pod/default/db-0 {}`,
		`3 created pod/default/db-1 {}`,
	}
	claim := []string{
		`5 deleted persistentvolumeclaim/default/data {"metadata": {"uid": "a"}}`,
		`6 created persistentvolumeclaim/default/data {"metadata": {"uid": "b"}}`,
	}
	pods := []string{
		`5 deleted pod/default/db-0 {}`, `6 created pod/default/db-0 {}`,
		`7 deleted pod/default/db-1 {}`, `8 created pod/default/db-1 {}`,
	}
	for _, tt := range []struct {
		name string
		more []string
		plan *plan.Plan
		want []string
	}{
		{name: "a claim", more: claim, want: []string{
			"bug volume claim default/data was created too often: created 2 times; " +
				"without faults: created once"}},
		{name: "pods", more: pods, want: []string{
			"note pod/default/db-0: created 2 times; without faults: created once, by others than the controllers " +
				"(and 1 object more)"}},
		{name: "both", more: slices.Concat(claim, pods), want: []string{
			"bug volume claim default/data was created too often: created 2 times; " +
				"without faults: created once",
			"note pod/default/db-0: created 2 times; without faults: created once, by others than the controllers " +
				"(and 1 object more)"}},
		{name: "the plan writes", more: slices.Concat(claim, pods), plan: patches},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := evidence(tale(t, slices.Concat(usually, tt.more)...))
			e.Baseline = usual(t, tale(t, usually...))
			if tt.plan != nil {
				e.Plan = tt.plan
			}
			expect(t, judged(t, faultFree{}, e), tt.want...)
		})
	}
}

// Another message of a condition that says the same is worth a note.
func TestOtherMessages(t *testing.T) {
	run := func(message string) string {
		return `1 op: created database/default/db {"status": {"conditions": [{"type": "Ready", "status": "True", ` +
			`"message": "` + message + `"}]}}`
	}
	e := evidence(tale(t, run("it was slow")))
	e.Baseline = usual(t, tale(t, run("it is ready")))
	expect(t, judged(t, faultFree{}, e), `note database/default/db: status.conditions[type=Ready].message is `+
		`"it was slow"; without faults: "it is ready", which says the same`)
}

// Annotations that keep a history, or count what was done, tell of one step more. What is kept to be put back must be
// right, and so must be what was counted less.
func TestAnnotationsThatTellOfWhatHasHappened(t *testing.T) {
	run := func(annotations string) string {
		return `1 op: created replicaset.apps/default/a {"metadata": {"annotations": {` + annotations + `}}}`
	}
	const is = "replicaset.apps/default/a"
	for _, tt := range []struct{ name, usual, got, want string }{
		{"a history", `"a.io/revision": "1"`, `"a.io/revision": "1", "a.io/revision-history": "1"`,
			`note ` + is + `: metadata.annotations.a.io/revision-history is "1"; without faults: absent, ` +
				`which tells of what has happened`},
		{"a counter", `"a.io/revision": "2"`, `"a.io/revision": "10"`,
			`note ` + is + `: metadata.annotations.a.io/revision is "10"; without faults: "2", ` +
				`which tells of what has happened`},
		{"it counts less", `"a.io/revision": "2"`, `"a.io/revision": "1"`,
			`bug ` + is + ` differs from the runs without faults: metadata.annotations.a.io/revision is "1"; ` +
				`without faults: "2"`},
		{"no number", `"a.io/revision": "abc"`, `"a.io/revision": "abd"`,
			`bug ` + is + ` differs from the runs without faults: metadata.annotations.a.io/revision is "abd"; ` +
				`without faults: "abc"`},
		{"to be put back", `"a.io/previous-replicas": "2"`, `"a.io/previous-replicas": "3"`,
			`bug ` + is + ` differs from the runs without faults: metadata.annotations.a.io/previous-replicas is ` +
				`"3"; without faults: "2"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := evidence(tale(t, run(tt.got)))
			e.Baseline = usual(t, tale(t, run(tt.usual)))
			expect(t, judged(t, faultFree{}, e), tt.want)
		})
	}
}

// How long something has taken is the clock's; how long it may take is a setting.
func TestHowLongItTook(t *testing.T) {
	run := func(status string) string {
		return `1 op: created job.example.com/default/a {"status": {` + status + `}}`
	}
	const is = "job.example.com/default/a"
	for _, tt := range []struct{ name, usual, got, want string }{
		{"seconds", `"accumulatedSeconds": 2`, `"accumulatedSeconds": 9`,
			`note ` + is + `: status.accumulatedSeconds is 9; without faults: 2, which is how long it took`},
		{"a text", `"steps": {"a": {"duration": "2s"}}`, `"steps": {"a": {"duration": "1m9.5s"}}`,
			`note ` + is + `: status.steps.a.duration is "1m9.5s"; without faults: "2s", which is how long it took`},
		{"a setting", `"timeoutSeconds": 2`, `"timeoutSeconds": 9`,
			`bug ` + is + ` differs from the runs without faults: status.timeoutSeconds is 9; without faults: 2`},
		{"another number", `"replicas": 2`, `"replicas": 9`,
			`bug ` + is + ` differs from the runs without faults: status.replicas is 9; without faults: 2`},
		{"not there", `"elapsedSeconds": 2`, `"phase": ""`,
			`bug ` + is + ` differs from the runs without faults: status.elapsedSeconds is absent; without faults: 2`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := evidence(tale(t, run(tt.got)))
			e.Baseline = usual(t, tale(t, run(tt.usual)))
			expect(t, judged(t, faultFree{}, e), tt.want)
		})
	}
}

// Of most fields it is not known whether their random values may be replaced.
func TestRenewalsThatAreNotes(t *testing.T) {
	run := func(first string, others ...string) *record.Run {
		lines := []string{`1 op: created db.example.com/default/a {"spec": {"cluster": "` + first + `"}}`}
		for i, value := range others {
			lines = append(lines, fmt.Sprintf(`%d op: updated db.example.com/default/a {"spec": {"cluster": %q}}`,
				i+2, value))
		}
		r := tale(t, lines...)
		r.Meta.Rested = true
		return r
	}
	e := evidence(run("7hirdOneX", "f0urthOne"))
	e.Baseline = usual(t, run("s3cr3tOne"), run("pAssw0rd2"))
	expect(t, judged(t, faultFree{}, e),
		"note db.example.com/default/a: spec.cluster was replaced once; without faults: never")
	e.Plan = patches
	expect(t, judged(t, faultFree{}, e))
}

// Regression: a run that passed only because slow controllers end like that did not say so.
func TestExcusesAreNamed(t *testing.T) {
	run := func(seen, port string) []string {
		return []string{
			`1 op: created database/default/db {"status": {"seen": ` + seen + `}}`,
			`2 op: created database/default/other {"status": {"seen": ` + seen + `}}`,
			`3 op: created service/default/db {"spec": {"port": ` + port + `}}`,
		}
	}
	ref := usual(t, tale(t, run("2", "1")...))
	slow := tale(t, run("1", "1")...)
	if err := ref.AllowSlow(slow, slow, nil, true); err != nil {
		t.Fatal(err)
	}
	const note = "note database/default/db: status.seen is 1; without faults: 2; it also ends like that with slow " +
		"controllers (and 1 object more)"
	for _, tt := range []struct {
		name  string
		lines []string
		want  []string
	}{
		{"as usual", run("2", "1"), nil},
		{"as with slow controllers", run("1", "1"), []string{note}},
		{"and something else", run("1", "2"), []string{
			"bug service/default/db differs from the runs without faults: spec.port is 2; without faults: 1", note}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := evidence(tale(t, tt.lines...))
			e.Baseline = ref
			expect(t, judged(t, faultFree{}, e), tt.want...)
			found, err := faultFree{}.Judge(t.Context(), e)
			excused := ""
			if slices.Contains(tt.want, note) {
				excused = strings.TrimPrefix(note, "note ")
			}
			if got := Excused(found); err != nil || got != excused {
				t.Errorf("%q is excused, want %q; %v", got, excused, err)
			}
		})
	}
}
