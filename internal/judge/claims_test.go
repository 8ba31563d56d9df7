package judge

import (
	"strings"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline/findings"
	"github.com/trommel-dev/trommel/record"
)

// Regression: headlines that the details below them contradict.
func TestHeadlinesAgreeWithTheHistory(t *testing.T) {
	const (
		deployment = `deployment.apps/default/d {"metadata": {"uid": "d", "ownerReferences": [` +
			`{"apiVersion": "db.example/v1", "kind": "Cluster", "name": "db", "uid": "c", "controller": true}]}}`
		marked = `updated cluster.db.example/default/db {"metadata": {"uid": "c", "deletionTimestamp": "now"}}`
		gone   = `deleted cluster.db.example/default/db {"metadata": {"uid": "c", "deletionTimestamp": "now"}}`
		pool   = `pool.db.example/default/pool {"metadata": {"uid": "p"}}`
	)
	// A pod of the pool with a generated name, by one of the letters b, c, d, f.
	pooled := func(letter string) string {
		return `pod/default/pool-bcdf` + letter + ` {"metadata": {"generateName": "pool-", "uid": "pod-` + letter +
			`", "ownerReferences": [{"apiVersion": "db.example/v1", "kind": "Pool", "name": "pool", "uid": "p", ` +
			`"controller": true}]}}`
	}
	claims := func(name, letter string) string {
		return `claim.db.example/default/` + name + ` {"metadata": {"uid": "` + name + `"}, "status": {"pod": ` +
			`"pool-bcdf` + letter + `"}}`
	}
	// A workflow with a generated name, by such a letter; done: it has finished.
	workflow := func(letter string, done bool) string {
		status := ""
		if done {
			status = `, "status": {"phase": "Succeeded"}`
		}
		return `workflow.db.example/default/c-bcdf` + letter + ` {"metadata": {"generateName": "c-", "uid": "w-` +
			letter + `", "ownerReferences": [{"apiVersion": "db.example/v1", "kind": "Cluster", "name": "db", ` +
			`"uid": "c", "controller": true}]}` + status + `}`
	}
	job := func(at, letter string, done bool) []string {
		return []string{at + ".1 op: created " + workflow(letter, false),
			at + ".2 updated " + workflow(letter, done), at + ".3 op: deleted " + workflow(letter, done)}
	}
	jobs := func(all ...[]string) []string {
		lines := []string{"1 created " + cluster}
		for _, j := range all {
			lines = append(lines, j...)
		}
		return lines
	}
	for _, tt := range []struct {
		name         string
		without, run []string
		want         string
		harm         record.Harm
		cause        float64 // when the write was made that it names, in seconds; 0: it does not matter
	}{
		{
			name: "created for an owner that was being deleted", harm: record.HarmReplaced,
			without: []string{"1 created " + cluster, "2 op: created " + deployment, "6 " + marked,
				"6.1 op: deleted " + deployment, "6.3 op: " + gone},
			run: []string{"1 created " + cluster, "6 " + marked, "6.1 op: created " + deployment,
				"6.2 deleted " + deployment, "6.3 op: " + gone},
			want: "deployment default/d of cluster default/db was created too late: created once for an owner that " +
				"was being deleted or gone; without faults: created once",
		},
		{
			name: "two claims share a pod, and another pod is left over", harm: record.HarmMissing,
			cause: 3, // the second claim gets the pod of the first one
			without: []string{
				"1 created " + pool, "1.1 op: created " + pooled("b"), "1.2 op: created " + pooled("c"),
				"2 created " + claims("a", "b"), "2.1 op: created " + pooled("d"),
				"3 created " + claims("b", "c"), "3.1 op: created " + pooled("f"),
			},
			run: []string{
				"1 created " + pool, "1.1 op: created " + pooled("b"), "1.2 op: created " + pooled("c"),
				"2 created " + claims("a", "b"), "3 created " + claims("b", "b"), "3.1 op: created " + pooled("d"),
			},
			want: "claim default/a and claim default/b have the same pod pool-bcdfb; without faults each has its own",
		},
		{
			name: "one pod fewer", harm: record.HarmMissing,
			without: []string{"1 created " + pool, "1.1 op: created " + pooled("b"), "1.2 op: created " + pooled("c")},
			run:     []string{"1 created " + pool, "1.1 op: created " + pooled("b")},
			want:    "pod default/pool-# of pool default/pool is missing: 1 was created; without faults: 2",
		},
		{
			name: "one pod more", harm: record.HarmLeft,
			without: []string{"1 created " + pool, "1.1 op: created " + pooled("b")},
			run:     []string{"1 created " + pool, "1.1 op: created " + pooled("b"), "1.2 op: created " + pooled("c")},
			want: "there was one more pod default/pool-# of pool default/pool than without faults: 2 were created; " +
				"without faults: 1",
		},
		{
			name:    "one more of those that are always deleted",
			without: jobs(job("2", "b", true), job("3", "c", true)),
			run:     jobs(job("2", "b", true), job("3", "c", true), job("4", "d", true)),
			want: "there was one more workflow default/c-# of cluster default/db than without faults: 3 were " +
				"created; without faults: 2",
			harm: record.HarmReplaced,
		},
		{
			name:    "one more, which was deleted before it had finished",
			without: jobs(job("2", "b", true), job("3", "c", true)),
			run:     jobs(job("2", "b", true), job("3", "c", true), job("4", "d", false)),
			want: "workflow default/c-#3 of the living cluster default/db was deleted by op, what belongs to it is " +
				"lost: created once; without faults: never created",
			harm: record.HarmLost,
		},
		{
			name:    "one more, where others are kept",
			without: jobs(job("2", "b", true), job("3", "c", true)[:2]),
			run:     jobs(job("2", "b", true), job("3", "c", true)[:2], job("4", "d", true)),
			want: "workflow default/c-#3 of the living cluster default/db was deleted by op, what belongs to it is " +
				"lost: created once; without faults: never created",
			harm: record.HarmLost,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := evidence(tale(t, tt.run...))
			e.Baseline, e.Plan = usual(t, tale(t, tt.without...)), kills
			found, err := faultFree{}.Judge(t.Context(), e)
			if err != nil {
				t.Fatal(err)
			}
			e.bear(found)
			for _, f := range found {
				if f.IsBug() && f.Title == tt.want && f.Harm == tt.harm &&
					(tt.cause == 0 || f.Cause.Equal(at(tt.cause))) {
					return
				}
			}
			t.Errorf("got %+v, want %s (%s)", found, tt.want, tt.harm)
		})
	}
}

// A title that the history contradicts is replaced by what the history says.
func TestContradictedTitles(t *testing.T) {
	e := evidence(tale(t, "1 created "+cluster, "2 op: created "+service, "3 op: deleted "+service,
		"4 op: created "+service, "5 updated "+waiting))
	follower, err := e.follower()
	if err != nil {
		t.Fatal(err)
	}
	const is = "service/default/db was created 2 times, deleted once, marked for deletion in the end"
	for says, want := range map[record.Statement]string{
		record.ClaimNever: is, record.ClaimGone: is, record.ClaimUnmarked: is,
		record.ClaimThere: "", record.ClaimMarked: "", record.ClaimDeleted: "", record.ClaimAgain: "",
	} {
		f := record.Finding{Title: "it is so", Subject: "service/default/db"}
		f.Claims.Say(f.Subject, says)
		contradiction := findings.Bear(&f, follower.Changes(), follower.Objects())
		switch {
		case want == "" && (contradiction != "" || f.Title != "it is so"):
			t.Errorf("%s: %s, %s", says, contradiction, f.Title)
		case want != "" && (f.Title != want ||
			!strings.Contains(contradiction, "it is so")):
			t.Errorf("%s: %s, %s", says, contradiction, f.Title)
		}
	}
	for n, want := range map[int]bool{1: true, 2: false, 3: true} {
		f := record.Finding{Subject: "service/default/db"}
		f.Claims.Times(f.Subject, n)
		if got := findings.Bear(&f, follower.Changes(), follower.Objects()) != ""; got != want {
			t.Errorf("created %d times: contradicted %t", n, got)
		}
	}
}

// Regression: "no such object existed at any time" was said of a pod that had been created and deleted twice.
func TestAStepThatWaitsForWhatWasThere(t *testing.T) {
	const a, other = `pod/default/a {"metadata": {"uid": "1"}}`, `pod/other/a {"metadata": {"uid": "2"}}`
	for _, tt := range []struct {
		name, awaited string
		want          string
	}{
		{"that object", "pod/default/a", "no such object existed while the step waited\nearlier in the run:\n" +
			"  pod/default/a: deleted by op at +3s (resource version 4)\n" +
			"  pod/default/a: created by op at +2s (resource version 2)"},
		{"any of a name", "pod/default/a*", "no such object existed while the step waited\nearlier in the run:\n" +
			"  pod/default/a: deleted by op at +3s (resource version 4)\n" +
			"  pod/default/a: created by op at +2s (resource version 2)"},
		{"another one", "pod/default/b", "no such object existed while the step waited"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := evidence(tale(t, "1 created "+cluster, "2 op: created "+a, "2 op: created "+other, "3 op: deleted "+a))
			f := record.Finding{Severity: record.SeverityBug, Judge: record.JudgeWorkload, Title: "not within 1s",
				Detail: "no such object existed while the step waited", Time: time.Unix(9, 0)}
			f.Claims.Say(tt.awaited, record.ClaimAbsent)
			e.Found = []record.Finding{f}
			Hear(t.Context(), e, nil)
			if got := e.Found[0].Detail; got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}
