package judge

import (
	"testing"
	"time"
)

// Regression: of a sample with a placeholder, which never works, a run without a baseline said only that it passed.
func TestStatusesThatSayWhatIsWrong(t *testing.T) {
	const (
		made    = `1 created secretx.example.com/default/a {"metadata": {"uid": "a"}}`
		updated = `2 op: updated secretx.example.com/default/a {"metadata": {"uid": "a"}, "status": `
		synced  = `{"conditions": [{"type": "Synced", "status": "False", "message": "illegal base64"}]}}`
	)
	for _, test := range []struct {
		name string
		run  []string
		want []string
	}{
		{"a condition", []string{made, updated + synced},
			[]string{"note secretx default/a ended with condition Synced=False: illegal base64"}},
		{"a phase", []string{made, updated + `{"phase": "Failed"}}`},
			[]string{"note secretx default/a ended with status.phase Failed"}},
		{"all is well", []string{made, updated + `{"conditions": [{"type": "Synced", "status": "True"}]}}`}, nil},
		{"what is not done yet", []string{made, updated + `{"phase": "Pending"}}`}, nil},
		{"gone", []string{made, updated + synced, `3 deleted secretx.example.com/default/a {"metadata": {"uid": "a"}}`},
			nil},
		{"made by a controller", []string{"1 op: " + made[2:], updated + synced}, nil},
		{"of another object", []string{
			`1 created secretx.example.com/default/a {"metadata": {"uid": "a", "ownerReferences": [{"uid": "b"}]}}`,
			updated + synced}, nil},
		{"of Kubernetes", []string{`1 created job.batch/default/a {"metadata": {"uid": "a"}}`,
			`2 updated job.batch/default/a {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}`}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := evidence(tale(t, test.run...))
			expect(t, judged(t, complaints{}, e), test.want...)
			e.Meta.GivenBack = time.Time{}
			expect(t, judged(t, complaints{}, e)) // the workload has failed
			e = evidence(tale(t, test.run...))
			e.Baseline = usual(t, tale(t, test.run...))
			expect(t, judged(t, complaints{}, e)) // it is compared
		})
	}
}
