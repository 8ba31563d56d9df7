package baseline

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/record"
)

// Regression: whatever slow controllers ended with was right, even what they had only missed, such as a Secret that was
// not made anew, a leaked claim, or a phase that never came.
func TestSlowEndsThatAreWrong(t *testing.T) {
	const (
		secret  = `db: created secret/default/s {"data": {"v": "2"}}`
		stale   = `db: created secret/default/s {"data": {"v": "1"}}`
		claim   = `created persistentvolumeclaim/default/c {}`
		noClaim = `deleted persistentvolumeclaim/default/c {}`
	)
	set := func(status string) string {
		return `created set/default/a {"spec": {"size": 1}, "status": ` + status + `}`
	}
	const usual = `{"phase": "Ready", "seen": 3, "rolls": 2}`
	for _, tt := range []struct {
		name             string
		slow, fresh, run []string // fresh: nil, there is none
		fieldsOnly       bool
		counts           string // a part of the finding; empty: it does not count
	}{
		{name: "as created at once", slow: []string{set(`{"phase": "Ready", "seen": 1, "rolls": 1}`), secret},
			fresh: []string{set(`{"phase": "Ready", "seen": 1, "rolls": 1}`), secret}},
		{name: "not as created at once", slow: []string{set(usual), stale}, fresh: []string{set(usual), secret},
			counts: `data.v is "1"`},
		{name: "a phase", slow: []string{set(`{"phase": "Updating", "seen": 3, "rolls": 2}`), secret},
			counts: "status.phase"},
		{name: "data, and nothing created at once", slow: []string{set(usual), stale}, counts: `data.v is "1"`},
		{name: "a counter, and nothing created at once", slow: []string{
			set(`{"phase": "Ready", "seen": 1, "rolls": 2}`), secret}},
		{name: "mixed", slow: []string{set(`{"phase": "Ready", "seen": 1, "rolls": 1}`), secret},
			fresh:  []string{set(`{"phase": "Ready", "seen": 1, "rolls": 1}`), secret},
			run:    []string{set(`{"phase": "Ready", "seen": 1, "rolls": 2}`), secret},
			counts: "status.seen"},
		{name: "left over", slow: []string{set(usual), secret, claim},
			fresh:  []string{set(usual), secret, claim},
			counts: "persistentvolumeclaim/default/c: exists at the end"},
		{name: "data is missing", slow: []string{set(usual)}, fresh: []string{set(usual)},
			counts: "secret/default/s: never created"},
		{name: "stuck in its deletion", slow: []string{set(usual), secret,
			`updated secret/default/s {"metadata": {"deletionTimestamp": "now"}, "data": {"v": "2"}}`},
			fresh:  []string{set(usual), secret},
			counts: "metadata.beingDeleted is true"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			normal := story(t, set(usual), secret, claim, noClaim)
			ref := learn(t, normal, normal)
			var fresh *record.Run
			if tt.fresh != nil {
				fresh = story(t, tt.fresh...)
			}
			if err := ref.AllowSlow(story(t, tt.slow...), fresh, nil, tt.fieldsOnly); err != nil {
				t.Fatal(err)
			}
			if tt.run == nil {
				tt.run = tt.slow
			}
			got := strings.Join(compare(t, ref, story(t, tt.run...)), "\n")
			if tt.counts == "" && got != "" || !strings.Contains(got, tt.counts) {
				t.Errorf("got %q", got)
			}
		})
	}
}

// Regression: a job that ends before its slow controller has seen its workers, so that what belongs to it never names
// them, was a bug. But a status counts, and so does what the controller missed of what users did.
func TestSlowEndsOfWhatHasFinished(t *testing.T) {
	lines := func(done, hosts, workers string) []string {
		return []string{
			`created job.example.com/default/j {"metadata": {"uid": "j"}, "status": {"workers": ` + workers +
				`, "conditions": [{"type": "Succeeded", "status": "` + done + `"}]}}`,
			`db: created configmap/default/hosts {"data": {"hosts": "` + hosts + `"}, ` +
				`"metadata": {"ownerReferences": [{"uid": "j", "controller": true}]}}`,
		}
	}
	usual := lines("True", "a b", "2")
	for _, tt := range []struct {
		name                    string
		usual, slow, slowlyMade []string
		counts                  string // a part of the finding; empty: it does not count
	}{
		{name: "made at once, and slowly", usual: usual, slow: lines("True", "", "2"),
			slowlyMade: lines("True", "", "2")},
		{name: "not if it is made at once", usual: usual, slow: lines("True", "a", "2"),
			slowlyMade: lines("True", "", "2"), counts: `data.hosts is "a"`},
		{name: "not tried", usual: usual, slow: lines("True", "", "2"), counts: `data.hosts is ""`},
		{name: "a status", usual: usual, slow: lines("True", "a b", "1"), slowlyMade: lines("True", "a b", "1"),
			counts: "status.workers is 1"},
		{name: "it goes on", usual: lines("False", "a b", "2"), slow: lines("False", "", "2"),
			slowlyMade: lines("False", "", "2"), counts: `data.hosts is ""`},
		{name: "missing", usual: usual, slow: usual[:1], slowlyMade: usual[:1],
			counts: "configmap/default/hosts: never created"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ref := learn(t, story(t, tt.usual...), story(t, tt.usual...))
			var slowlyMade *record.Run
			if tt.slowlyMade != nil {
				slowlyMade = story(t, tt.slowlyMade...)
			}
			if err := ref.AllowSlow(story(t, tt.slow...), story(t, tt.usual...), slowlyMade, true); err != nil {
				t.Fatal(err)
			}
			got := strings.Join(compare(t, ref, story(t, tt.slow...)), "\n")
			if tt.counts == "" && got != "" || !strings.Contains(got, tt.counts) {
				t.Errorf("got %q", got)
			}
		})
	}
}

// Regression: what belongs to the second job of a name was a bug where the first job's was none, because the
// controllers were not slow any more when it was created.
func TestSlowEndsOfWhatIsCreatedAnew(t *testing.T) {
	job := func(hosts string) []string {
		return []string{
			`created job.example.com/default/j {"metadata": {"uid": "j"}, "status": {"conditions": [` +
				`{"type": "Succeeded", "status": "True"}]}}`,
			`db: created configmap/default/hosts {"data": {"hosts": "` + hosts + `"}, ` +
				`"metadata": {"ownerReferences": [{"uid": "j", "controller": true}]}}`,
		}
	}
	gone := []string{`db: deleted configmap/default/hosts {}`, `deleted job.example.com/default/j {}`}
	twice := func(first, second string) []string { return slices.Concat(job(first), gone, job(second)) }
	for _, tt := range []struct {
		name                string
		usual, slow, judged []string
		counts              bool
	}{
		{"created anew", twice("a", "a"), twice("", "a"), twice("a", ""), false},
		{"created once", job("a"), job("a"), job(""), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ref := learn(t, story(t, tt.usual...), story(t, tt.usual...))
			err := ref.AllowSlow(story(t, tt.slow...), story(t, job("a")...), story(t, job("")...), true)
			if err != nil {
				t.Fatal(err)
			}
			if got := compare(t, ref, story(t, tt.judged...)); (len(got) > 0) != tt.counts {
				t.Errorf("got %q", got)
			}
		})
	}
}

// Regression: whatever a run without pauses ended with was right, also the wrong end of a race.
func TestUnpacedEndsThatAreWrong(t *testing.T) {
	const (
		secret = `db: created secret/default/s {"data": {"v": "2"}}`
		old    = `db: created secret/default/s {"data": {"v": "1"}}`
		claim  = `created persistentvolumeclaim/default/c {}`
		none   = `deleted persistentvolumeclaim/default/c {}`
	)
	for _, tt := range []struct {
		name           string
		unpaced, fresh []string // fresh: nil, there is none
		fieldsOnly     bool
		counts         string // a part of the finding; empty: it does not count
	}{
		{name: "as without a race", unpaced: []string{secret, claim, none}},
		{name: "as created at once", unpaced: []string{old}, fresh: []string{old}},
		{name: "not as created at once", unpaced: []string{old}, fresh: []string{secret}, counts: `data.v is "1"`},
		{name: "nothing created at once", unpaced: []string{old}, counts: `data.v is "1"`},
		{name: "left over", unpaced: []string{secret, claim}, fresh: []string{secret, claim},
			counts: "persistentvolumeclaim/default/c: exists at the end"},
		{name: "data is missing", unpaced: []string{claim, none}, fresh: []string{claim, none},
			counts: "secret/default/s: never created"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			normal := story(t, secret, claim, none)
			ref := learn(t, normal, normal)
			var fresh *record.Run
			if tt.fresh != nil {
				fresh = story(t, tt.fresh...)
			}
			if err := ref.AllowUnpaced(story(t, tt.unpaced...), fresh, tt.fieldsOnly); err != nil {
				t.Fatal(err)
			}
			got := strings.Join(compare(t, ref, story(t, tt.unpaced...)), "\n")
			if tt.counts == "" && got != "" || !strings.Contains(got, tt.counts) {
				t.Errorf("got %q", got)
			}
		})
	}
}

// Regression: one of two objects was allowed to be gone since another run had the other one in its place, and the other
// one to be missing as usual.
func TestWhatIsThereInstead(t *testing.T) {
	uid := func(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }
	const a, b, c = "job/default/a", "job/default/b", "job/default/c"
	run := func(n int, jobs ...string) *record.Run {
		lines := []string{`created set/default/web {"metadata": {"uid": "` + uid(n) + `"}}`}
		for _, key := range jobs {
			lines = append(lines, "db: "+named("created", key, uid(n+1+len(lines)), uid(n), ""))
		}
		return story(t, lines...)
	}
	const missing, surplus = ": never created; without faults: exists at the end",
		": exists at the end; without faults: never created"
	for _, tt := range []struct {
		name  string
		other []string // of another run without faults; usual are a and c
		run   []string
		want  []string
	}{
		{"as in the other run", []string{b, c}, []string{b, c}, nil},
		{"neither of them", []string{b, c}, []string{c}, []string{a + missing}},
		{"both of them", []string{b, c}, []string{a, b, c}, []string{b + surplus}},
		{"one of two that are missing", []string{}, []string{c}, nil},
		{"one of two that are more", []string{a, b, c, "job/default/d"}, []string{a, b, c}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ref := learn(t, run(10, a, c), run(20, a, c))
			if err := ref.Allow(run(30, tt.other...)); err != nil {
				t.Fatal(err)
			}
			checkDifferences(t, ref, run(40, tt.run...), tt.want...)
		})
	}
	// What slow controllers leave over is not allowed, so nothing may be missing in its place.
	ref := learn(t, run(10, a, c), run(20, a, c))
	if err := ref.AllowSlow(run(30, b, c), run(40, b, c), nil, false); err != nil {
		t.Fatal(err)
	}
	checkDifferences(t, ref, run(50, c), a+missing)
	if err := ref.AllowSlow(run(60, c), run(70, c), nil, false); err != nil {
		t.Fatal(err)
	}
	checkDifferences(t, ref, run(80, c))
}

// What a campaign has seen is known to whoever reads the baseline later.
func TestAllowedIsKept(t *testing.T) {
	run := func(seen string) *record.Run {
		return story(t, `created set.example.com/default/a {"status": {"seen": `+seen+`}}`)
	}
	dir := t.TempDir()
	file, more := filepath.Join(dir, "baseline.json"), filepath.Join(dir, "allowed.json")
	ref := learn(t, run("1"), run("1"))
	ref.Source.Trommel = "v1"
	if err := ref.Allow(run("2")); err != nil {
		t.Fatal(err)
	}
	if err := ref.Allow(run("3")); err != nil {
		t.Fatal(err)
	}
	ref.Later(1)
	ref.Tried = []string{"slow"}
	for _, err := range []error{ref.Write(file), ref.WriteAllowed(more)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	again, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := compare(t, again, run("2")); len(got) > 0 {
		t.Errorf("the other pace: %q", got)
	}
	if got := compare(t, again, run("3")); len(got) == 0 {
		t.Error("what was seen later is in the baseline's own file")
	}
	if err := again.ReadAllowed(more); err != nil {
		t.Fatal(err)
	}
	if got := compare(t, again, run("3")); len(got) > 0 || len(again.Tried) != 1 {
		t.Errorf("got %q, tried %q", got, again.Tried)
	}
	// Of another version it says nothing.
	again, err = Read(file)
	if err != nil {
		t.Fatal(err)
	}
	again.Source.Trommel = "v2"
	if err := again.ReadAllowed(more); err != nil || len(compare(t, again, run("3"))) == 0 {
		t.Errorf("what is of another version is allowed (%v)", err)
	}
}

func TestAsked(t *testing.T) {
	const user = "trommel-workload"
	by := func(r *record.Run, managers ...string) *record.Run {
		for i, m := range managers {
			name, subresource, _ := strings.Cut(m, "/")
			r.History[i].Writers = []record.FieldManager{{Manager: name, Subresource: subresource}}
		}
		return r
	}
	for _, tt := range []struct {
		name string
		run  *record.Run
		want []map[string]any
	}{
		{"what it has become", by(story(t,
			`created set/default/a {"metadata": {"uid": "a", "labels": {"x": "1", "y": "1"}}, "spec": {"n": 1}}`,
			`updated set/default/a {"metadata": {"finalizers": ["op"], "labels": {"x": "1", "y": "1", "op": "1"}},
				"spec": {"n": 1}, "status": {}}`,
			`updated set/default/a {"metadata": {"finalizers": ["op"], "labels": {"x": "2", "op": "1"}},
				"spec": {"n": 2}, "status": {"phase": "Ready"}}`,
			`created pod/default/p {}`, `created set/default/b {}`, `deleted set/default/b {}`,
		), user, "op", user, "op", user, ""), []map[string]any{{
			"apiVersion": "v1", "kind": "Set", "spec": map[string]any{"n": 2.0},
			"metadata": map[string]any{"namespace": "default", "name": "a", "labels": map[string]any{"x": "2"}},
		}}},
		{"a Job without what is generated", by(story(t, `created job/default/a {"spec": {
			"selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "1"}},
			"template": {"metadata": {"labels": {
				"batch.kubernetes.io/controller-uid": "1", "job-name": "a", "x": "1"}}}}}`), user), []map[string]any{{
			"apiVersion": "v1", "kind": "Job", "metadata": map[string]any{"namespace": "default", "name": "a"},
			"spec": map[string]any{"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"x": "1"}},
			}},
		}}},
		{"a status", by(story(t, `created set/default/a {}`, `updated set/default/a {"status": {"x": 1}}`),
			user, user+"/status"), nil},
		{"another's object", by(story(t, `created pod/default/a {}`, `updated pod/default/a {"spec": {"x": 1}}`),
			"op", user), nil},
		{"nothing", by(story(t, `created pod/default/a {}`), "op"), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, _, ok, err := facts.Asked(tt.run, user)
			if diff := cmp.Diff(tt.want, got); err != nil || ok != (tt.want != nil) || diff != "" {
				t.Errorf("%t (%v) %s", ok, err, diff)
			}
		})
	}
}
