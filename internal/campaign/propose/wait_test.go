package propose

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// history makes changes of lines such as "updated pod/default/a {…}"; each line has the object's new state.
func history(t *testing.T, lines ...string) (changes []facts.Change) {
	t.Helper()
	last := map[facts.Key]map[string]any{}
	for _, line := range lines {
		parts := strings.SplitN(line, " ", 3)
		c := facts.Change{Event: parts[0], Key: facts.Key(parts[1])}
		c.Prev = last[c.Key]
		if c.Event != record.Deleted {
			if err := json.Unmarshal([]byte(parts[2]), &c.Cur); err != nil {
				t.Fatal(err)
			}
		}
		last[c.Key] = c.Cur
		changes = append(changes, c)
	}
	return changes
}

func describe(s *plan.Step) string {
	switch {
	case s == nil:
		return ""
	case s.Wait.Absent:
		return s.Wait.ResourceKey.String() + " is gone"
	}
	return s.Wait.ResourceKey.String() + " has " + s.Wait.Condition
}

func TestFindBarrier(t *testing.T) {
	const sample = "database/default/db"
	before := []string{
		"created " + sample + " {}",
		`created statefulset.apps/default/db {"spec": {"replicas": 2, "c": [{"image": "a:1"}]}}`,
		`created pod/default/db-1 {"spec": {}}`,
	}
	for _, tt := range []struct {
		name       string
		after      []string
		wait, back string
	}{
		{name: "nothing else changes", after: []string{"updated " + sample + ` {"status": {"a": 1}}`}},
		{
			name: "a field of a list", after: []string{
				`updated statefulset.apps/default/db {"spec": {"replicas": 2, "c": [{"image": "a:2"}]}}`,
				`updated statefulset.apps/default/db {"spec": {"replicas": 2, "c": [{"image": "a:2"}]}, ` +
					`"status": {"x": 1}}`,
			},
			wait: `statefulset.apps/default/db has object.spec.c[0].image == "a:2"`,
			back: `statefulset.apps/default/db has object.spec.c[0].image == "a:1"`,
		},
		{
			name: "a value that comes back says nothing", after: []string{
				`updated statefulset.apps/default/db {"spec": {"replicas": 0, "c": [{"image": "a:1"}]}}`,
				`updated statefulset.apps/default/db {"spec": {"replicas": 2, "c": [{"image": "a:1"}]}}`,
			},
		},
		{
			name: "the volume with a pod's token has another name each time", after: []string{
				`updated pod/default/db-1 {"spec": {"mounts": [{"name": "kube-api-access-x7k2p"}], "policy": "None"}}`,
			},
			wait: `pod/default/db-1 has object.spec.policy == "None"`,
		},
		{
			name:  "a new field cannot be waited to go",
			after: []string{`updated pod/default/db-1 {"spec": {"node": "n"}}`},
			wait:  `pod/default/db-1 has object.spec.node == "n"`,
		},
		{
			name: "the last object that goes", after: []string{
				`updated statefulset.apps/default/db {"spec": {"replicas": 1}}`, "deleted pod/default/db-1",
			},
			wait: "pod/default/db-1 is gone", back: "pod/default/db-1 has has(object.metadata)",
		},
		{
			name:  "an object that is replaced is no barrier by itself",
			after: []string{"deleted pod/default/db-1", `created pod/default/db-1 {"spec": {}}`},
		},
		{
			name:  "a new object",
			after: []string{`created pod/default/db-2 {"spec": {}}`, `created pod/default/x-#1 {}`},
			wait:  "pod/default/db-2 has has(object.metadata)", back: "pod/default/db-2 is gone",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			changes := history(t, append(before, tt.after...)...)
			b := findBarrier(changes, len(before)-1, sample)
			if b == nil {
				b = &barrier{}
			}
			if got := describe(b.wait); got != tt.wait {
				t.Errorf("wait %q, want %q", got, tt.wait)
			}
			if got := describe(b.back); got != tt.back {
				t.Errorf("back %q, want %q", got, tt.back)
			}
		})
	}
}

func TestReconcilesThatKeepFailing(t *testing.T) {
	for _, tt := range []struct {
		name     string
		outcomes string // of reconciles after the change: . is good, x failed
		want     bool
	}{
		{"none", "", false},
		{"twice", "..xx", false},
		{"in the end good", "xxxxx.", false},
		{"until the end", ".xxx", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &record.Run{}
			add := func(at int, failed string) {
				r.Events = append(r.Events, record.Event{Time: time.Unix(int64(at), 0),
					Observation: &record.Observation{
						By: "db", Point: wire.Reconcile, Phase: wire.After, Request: "default/db", Error: failed,
					}})
			}
			for i := range 5 {
				add(i, "before the change")
			}
			for i, outcome := range tt.outcomes {
				add(10+i, strings.Trim(string(outcome), "."))
			}
			p := &proposer{result: &Result{}}
			p.failing(Workload{}, &trial{run: r}, time.Unix(10, 0))
			if got := len(p.result.Findings) == 1; got != tt.want {
				t.Errorf("findings: %v", p.result.Findings)
			}
		})
	}
}

func TestReacts(t *testing.T) {
	const sample = "database/default/db"
	for _, tt := range []struct {
		name, by string
		lines    []string
		want     bool
	}{
		{name: "somebody else", lines: []string{"created pod/default/a {}"}},
		{name: "creation", by: "db", lines: []string{"created pod/default/a {}"}, want: true},
		{name: "deletion", by: "db", lines: []string{"deleted pod/default/a"}, want: true},
		{
			name: "it has seen the change", by: "db",
			lines: []string{"updated " + sample +
				` {"status": {"observedGeneration": 2, "conditions": [{"type": "A"}]}}`},
		},
		{name: "status", by: "db", lines: []string{"updated " + sample + ` {"status": {"ready": 2}}`}, want: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			changes := history(t, append([]string{"created " + sample + " {}"}, tt.lines...)...)[1:]
			for i := range changes {
				changes[i].By = tt.by
			}
			if got := reacts(changes, sample); got != tt.want {
				t.Errorf("%t", got)
			}
		})
	}
}
