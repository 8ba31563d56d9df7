package judge

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Regression: what others than the controllers under test deleted and made again was no difference, even if it held
// data.
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
			e.Reference = usual(t, tale(t, usually...))
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
	e.Reference = usual(t, tale(t, run("it is ready")))
	expect(t, judged(t, faultFree{}, e), `note database/default/db: status.conditions[type=Ready].message is `+
		`"it was slow"; without faults: "it is ready", which says the same`)
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
	e.Reference = usual(t, run("s3cr3tOne"), run("pAssw0rd2"))
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
			e.Reference = ref
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
