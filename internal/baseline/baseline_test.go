package baseline

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/record"
)

// story is a recorded run, one change a line: "created secret/default/a {…}", or "db: created …" if the controller db
// has made it.
func story(t *testing.T, lines ...string) *record.Run {
	t.Helper()
	r := &record.Run{Meta: record.Meta{
		Controllers: []record.Controller{{Name: "db", Hooks: true}}, Observed: time.Unix(int64(len(lines)+60), 0),
	}}
	for i, line := range lines {
		rest, ours := strings.CutPrefix(line, "db: ")
		const by = "db"
		event, rest, _ := strings.Cut(rest, " ")
		name, text, _ := strings.Cut(rest, " ")
		parts := strings.Split(name, "/")
		var object map[string]any
		if err := json.Unmarshal([]byte(text), &object); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		meta, _ := object["metadata"].(map[string]any)
		if meta == nil {
			meta = map[string]any{}
		}
		object["kind"], object["apiVersion"] = strings.ToUpper(parts[0][:1])+parts[0][1:], "v1"
		meta["namespace"], meta["name"], meta["resourceVersion"] = parts[1], parts[2], fmt.Sprint(i+1)
		object["metadata"] = meta
		data, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		at := time.Unix(int64(i), 0)
		r.History = append(r.History, record.HistoryEntry{
			Time: at, ResourceVersion: uint64(i + 1), Event: event, Type: parts[0], Namespace: parts[1], Name: parts[2],
			Object: data,
		})
		if !ours {
			continue
		}
		o := record.Observation{
			By: by, Session: 1, Call: uint64(i), Point: wire.ControllerWrite, Phase: wire.Before, Op: wire.Update,
			Resource: parts[0] + "s", Namespace: parts[1], Name: parts[2],
		}
		if event == record.Deleted {
			o.Op = wire.Delete
		}
		before, after := o, o
		after.Phase = wire.After
		if event != record.Deleted {
			after.Object = data
		}
		r.Events = append(r.Events, record.Event{Time: at, Observation: &before},
			record.Event{Time: at, Observation: &after})
	}
	return r
}

func learn(t *testing.T, runs ...*record.Run) *Baseline {
	t.Helper()
	ref, err := Learn("w", runs)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func compare(t *testing.T, ref *Baseline, r *record.Run) []string {
	t.Helper()
	f, err := facts.Follow(r)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, d := range ref.Compare(f.Objects()) {
		if !d.Note {
			lines = append(lines, d.String())
		}
	}
	return lines
}

// Differences that depend on how much time the workload gives the controllers do not count.
func TestAllow(t *testing.T) {
	run := func(status string, more ...string) *record.Run {
		return story(t, append([]string{
			`created set/default/a {"metadata": {"uid": "a"}, "status": ` + status + `}`,
			`db: created secret/default/s {}`,
		}, more...)...)
	}
	const (
		quick  = `{"conditions": [{"type": "Ready", "status": "True"}]}`
		slow   = `{"conditions": [{"type": "Ready", "status": "True"}, {"type": "Suspended", "status": "Unknown"}]}`
		unlike = `{"conditions": [{"type": "Ready", "status": "True"}, {"type": "Suspended", "status": "True"}]}`
		again  = `db: created secret/default/s {}`
		other  = `created secret/default/other {}`
	)
	gone := `db: deleted secret/default/s {}`
	ref := learn(t, run(quick), run(quick))
	if err := ref.Allow(run(slow, gone, again, other)); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(ref)
	if err != nil {
		t.Fatal(err)
	}
	reread := &Baseline{}
	if err := json.Unmarshal(data, reread); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		run  *record.Run
		want []string
	}{
		{"as usual", run(quick), nil},
		{"like the alternative", run(slow, gone, again, other), nil},
		{"like it in part", run(slow), nil},
		{"another value", run(unlike), []string{
			`set/default/a: status.conditions[type=Suspended].status is "True"; without faults: absent`,
			`set/default/a: status.conditions[type=Suspended].type is "Suspended"; without faults: absent`,
		}},
		{"gone", run(quick, gone), []string{"secret/default/s: deleted at the end; without faults: exists at the end"}},
		{"created more often", run(quick, gone, again, gone, again), []string{
			"secret/default/s: created 3 times; without faults: created once",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, ref := range []*Baseline{ref, reread} {
				if diff := cmp.Diff(tt.want, compare(t, ref, tt.run)); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

// A condition that is false means what its absence means.
func TestFalseConditions(t *testing.T) {
	run := func(conditions string) *record.Run {
		return story(t, `created set/default/a {"status": {"conditions": [`+conditions+`]}}`)
	}
	const (
		ready      = `{"type": "Ready", "status": "True"}`
		resumed    = `{"type": "Suspended", "status": "False", "reason": "Resumed"}`
		otherwise  = `{"type": "Suspended", "status": "False", "reason": "Otherwise"}`
		suspended  = `{"type": "Suspended", "status": "True", "reason": "Asked"}`
		unexpected = "set/default/a: status.conditions[type=Suspended]."
	)
	for _, tt := range []struct {
		name      string
		want, got string
		differ    []string
	}{
		{"absent", ready + "," + resumed, ready, nil},
		{"false", ready, ready + "," + resumed, nil},
		{"another reason", ready + "," + resumed, ready + "," + otherwise,
			[]string{unexpected + `reason is "Otherwise"; without faults: "Resumed"`}},
		{"true", ready, ready + "," + suspended, []string{
			unexpected + `reason is "Asked"; without faults: absent`,
			unexpected + `status is "True"; without faults: absent`,
			unexpected + `type is "Suspended"; without faults: absent`}},
		{"no longer true", ready, resumed, []string{
			`set/default/a: status.conditions[type=Ready].status is absent; without faults: "True"`,
			`set/default/a: status.conditions[type=Ready].type is absent; without faults: "Ready"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.differ, compare(t, learn(t, run(tt.want), run(tt.want)), run(tt.got))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// That the controllers were slow explains what a status says, and nothing that is missing.
func TestAllowSlow(t *testing.T) {
	run := func(status string, more ...string) *record.Run {
		return story(t, append([]string{`created set/default/a {"status": ` + status + `}`}, more...)...)
	}
	secret := `db: created secret/default/s {}`
	ref := learn(t, run(`{"seen": 3}`, secret), run(`{"seen": 3}`, secret))
	if err := ref.AllowSlow(run(`{"seen": 2}`), nil, nil, true); err != nil {
		t.Fatal(err)
	}
	want := []string{"secret/default/s: never created; without faults: exists at the end"}
	if diff := cmp.Diff(want, compare(t, ref, run(`{"seen": 2}`))); diff != "" {
		t.Error(diff)
	}
	want = []string{"set/default/a: status.seen is 1; without faults: 3"}
	if diff := cmp.Diff(want, compare(t, ref, run(`{"seen": 1}`, secret))); diff != "" {
		t.Error(diff)
	}
}

func TestCompare(t *testing.T) {
	run := func(random string) *record.Run {
		return story(t,
			`created database/default/db {"spec": {"size": 1}}`,
			`db: created secret/default/db {"data": {"password": "`+random+`", "user": "u"}}`,
			`db: created pod/default/db-0 {"spec": {"nodeName": "n1"}, `+
				`"status": {"conditions": [{"type": "Ready", "status": "True"}]}}`,
			`db: deleted pod/default/db-0 {}`,
			`db: created pod/default/db-0 {"spec": {"nodeName": "n2"}, `+
				`"status": {"conditions": [{"type": "Ready", "status": "True"}]}}`)
	}
	ref := learn(t, run("a"), run("b"))
	if got := compare(t, ref, run("c")); len(got) > 0 {
		t.Errorf("what differs without faults counts: %q", got)
	}
	for _, tt := range []struct {
		name  string
		lines []string
		want  []string
	}{
		{"a field", []string{
			`created database/default/db {"spec": {"size": 1}}`,
			`created secret/default/db {"data": {"password": "x"}}`,
			`created pod/default/db-0 {}`, `deleted pod/default/db-0 {}`,
			`created pod/default/db-0 {"spec": {"nodeName": "n1"}, ` +
				`"status": {"conditions": [{"type": "Ready", "status": "False"}]}}`,
		}, []string{
			`pod/default/db-0: status.conditions[type=Ready].status is "False"; without faults: "True"`,
			`secret/default/db: data.user is absent; without faults: "u"`,
		}},
		{"objects", []string{
			`created database/default/db {"spec": {"size": 1}}`,
			`created pod/default/db-0 {"spec": {}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}`,
			`created pod/default/db-1 {}`,
		}, []string{
			`pod/default/db-0: created once; without faults: created 2 times`,
			`pod/default/db-1: exists at the end; without faults: never created`,
			`secret/default/db: never created; without faults: exists at the end`,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := compare(t, ref, story(t, tt.lines...)); !slices.Equal(got, tt.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

func TestUnstable(t *testing.T) {
	_, err := Learn("w", []*record.Run{
		story(t, `created pod/default/a {}`),
		story(t, `created pod/default/a {}`, `deleted pod/default/a {}`),
	})
	var unstable *UnstableError
	if !errors.As(err, &unstable) || !slices.Equal(unstable.Lines,
		[]string{"pod/default/a: deleted at the end; without faults: exists at the end"}) {
		t.Errorf("got %v", err)
	}
}

// Names that the API server has generated differ in each run.
func TestGeneratedNames(t *testing.T) {
	run := func(first, second string) *record.Run {
		pod := func(name string) string {
			return `created pod/default/web-` + name + ` {"metadata": {"generateName": "web-", "uid": "` + name + `",
				"ownerReferences": [{"uid": "o"}]}, "spec": {}}`
		}
		return story(t, pod(first), pod(second),
			`deleted pod/default/web-`+first+` {"metadata": {"generateName": "web-", "uid": "`+first+`"}}`)
	}
	ref := learn(t, run("xxxx2", "bbbb2"), run("cccc4", "dddd4"))
	if got := slices.Sorted(func(yield func(facts.Key) bool) {
		for k := range ref.Objects {
			if !yield(k) {
				return
			}
		}
	}); !slices.Equal(got, []facts.Key{"pod/default/web-#1", "pod/default/web-#2"}) {
		t.Errorf("keys %q", got)
	}
	if got := compare(t, ref, run("gggg5", "ffff6")); len(got) > 0 {
		t.Errorf("names count: %q", got)
	}
}

func TestWhoWroteIt(t *testing.T) {
	r := story(t,
		`created secret/default/a {"data": {"a": "1"}}`,
		`db: updated secret/default/a {"data": {"a": "2"}}`,
		`db: deleted secret/default/a {"data": {"a": "2"}}`,
		`created secret/default/a {"data": {"a": "1"}}`,
		`deleted secret/default/a {"data": {"a": "1"}}`)
	changes, err := facts.Changes(r)
	if err != nil {
		t.Fatal(err)
	}
	var by []string
	for _, c := range changes {
		by = append(by, c.By)
	}
	if want := []string{"", "db", "db", "", ""}; !slices.Equal(by, want) {
		t.Errorf("written by %q, want %q", by, want)
	}
	ref := &Baseline{Masks: Masks{Given: standard}}
	if got := Fields(&changes[1]); !slices.Equal(got, []string{"data.a"}) {
		t.Errorf("fields %q", got)
	}
	if !facts.Reverses(ref.Changed(&changes[1]), ref.Changed(&facts.Change{
		Key: changes[1].Key, Event: record.Updated, Prev: changes[1].Cur, Cur: changes[1].Prev,
	})) {
		t.Error("a change there and back is not seen")
	}
}

// A write whose answer was lost belongs to the controller like any other; a write that was refused belongs to none.
func TestWriteWithALostAnswer(t *testing.T) {
	for _, test := range []struct {
		failed wire.Answer
		code   int
		want   string
	}{
		{wire.Lost, 201, "db"},
		{wire.Lost, 409, ""},
		{wire.Refused, 500, ""},
		{"", 500, ""},
	} {
		r := story(t, `db: created secret/default/a {}`)
		o := r.Events[1].Observation
		o.Error, o.Failed, o.Code = "context deadline exceeded", test.failed, test.code
		changes, err := facts.Changes(r)
		if err != nil || len(changes) != 1 || changes[0].By != test.want {
			t.Errorf("%q %d: %+v (%v), want by %q", test.failed, test.code, changes, err, test.want)
		}
	}
}

func TestMaskPaths(t *testing.T) {
	for _, tt := range []struct {
		mask, path string
		want       bool
	}{
		{"spec", "spec.a.b", true},
		{"spec.a", "spec.ab", false},
		{"spec.*.b", "spec.a.b", true},
		{"spec.*.b", "spec.a.c", false},
		{"spec.list.[].uid", "spec.list.[].uid", true},
		{"**.observedGeneration", "status.x.observedGeneration", true},
		{"**.observedGeneration", "status.observedGenerations", false},
		{"**", "kind", true},
		{"metadata.annotations.a.b/c", "metadata.annotations.a.b/c", true},
		{"**.a.b", "status.a.b", true},
		{"**.a.b", "a.b.c", true},
		{"**.a.b", "status.a.c.b", false},
		{"status.**.startTime", "status.startTime", true},
		{"status.**.startTime", "status.jobs.[].startTime", true},
		{"status.**.startTime", "spec.startTime", false},
		{"**.*.b", "spec.a.b", true},
		{"spec.list[].uid", "spec.list.[].uid", true},
		{"spec.list.[].uid", "spec.list.[name=a].uid", true},
		{"spec.list.[name=a].uid", "spec.list.[name=a].uid", true},
		{"spec.list[name=a].uid", "spec.list.[name=a].uid", true},
		{"spec.list.[name=a].uid", "spec.list.[name=b].uid", false},
		{"spec.list.[name=a].uid", "spec.list.[].uid", true},
		{"spec.list.[name=a].uid", "spec.list.[].name", false},
	} {
		path := strings.Split(tt.path, ".")
		if tt.path == "metadata.annotations.a.b/c" {
			path = []string{"metadata", "annotations", "a.b/c"}
		}
		if got := Covers(tt.mask, path); got != tt.want {
			t.Errorf("Covers(%q, %q) = %t", tt.mask, path, got)
		}
	}
}

// A controller that sees the past creates objects for an owner that is gone. The garbage collector deletes them.
func TestObjectsOfAnOwnerThatIsGone(t *testing.T) {
	db := func(uid string) string { return `database/default/db {"metadata": {"uid": "` + uid + `"}}` }
	set := func(owner string) string {
		return `statefulset/default/db {"metadata": {"ownerReferences": [{"controller": true, "uid": "` + owner +
			`"}]}}`
	}
	run := func(extra ...string) *record.Run {
		lines := append([]string{"created " + db("1"), "db: created " + set("1"), "deleted " + set("1"),
			"deleted " + db("1")},
			extra...)
		return story(t, append(lines, "created "+db("2"), "db: created "+set("2"))...)
	}
	ref := learn(t, run(), run())
	if got := compare(t, ref, run("db: created "+set("1"), "deleted "+set("1"))); len(got) > 0 {
		t.Errorf("got %q", got)
	}
	// The living one's is another matter.
	r := run()
	again := story(t, "created "+db("1"), "db: created "+set("1"), "deleted "+set("1"), "deleted "+db("1"),
		"created "+db("2"), "db: created "+set("2"), "db: deleted "+set("2"), "db: created "+set("2"))
	if got := compare(t, learn(t, r, r), again); len(got) != 1 || !strings.Contains(got[0], "created 3 times") {
		t.Errorf("got %q", got)
	}
}

// Regression: an object that was there before the workload, and that only the run with faults has touched, counted as
// one that is never created without faults; and one that only the runs without faults have touched as gone.
func TestObjectsFromBefore(t *testing.T) {
	node := func(event, status string) string { return event + ` node/default/n {"status": {"x": ` + status + `}}` }
	touched := story(t, node("existing", "1"), node("updated", "2"), node("updated", "1"))
	alone := story(t, node("existing", "1"))
	changed := story(t, node("existing", "1"), node("updated", "2"))
	for _, tt := range []struct {
		name         string
		without, run *record.Run
		want         []string
	}{
		{"touched by the run", alone, touched, nil},
		{"touched without faults", touched, alone, nil},
		{"changed by the run", alone, changed, []string{"node/default/n: status.x is 2; without faults: 1"}},
		{"changed without faults", changed, alone, []string{"node/default/n: status.x is 1; without faults: 2"}},
		{"deleted by the run", alone, story(t, node("existing", "1"), node("deleted", "1")),
			[]string{"node/default/n: deleted at the end; without faults: exists at the end"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := compare(t, learn(t, tt.without, tt.without), tt.run); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	// Runs without faults may touch it or not.
	ref := learn(t, alone, touched)
	if got := compare(t, ref, changed); len(got) != 1 {
		t.Errorf("got %q", got)
	}
}

// Regression: what a controller makes as it starts counted as never created without faults, if the recording of the
// runs without faults began after that, and the other run's before.
func TestObjectsMadeAtStart(t *testing.T) {
	role := func(event, x string) string { return event + ` clusterrole/system/a {"rules": ` + x + `}` }
	existing := story(t, role("existing", "1"))
	made := story(t, role("db: created", "1"))
	for _, tt := range []struct {
		name string
		run  *record.Run
		want []string
	}{
		{"made", made, nil},
		{"made and changed", story(t, role("db: created", "1"), role("db: updated", "2")), nil},
		{"made and deleted", story(t, role("db: created", "1"), role("db: deleted", "1")),
			[]string{"clusterrole/system/a: deleted at the end; without faults: exists at the end"}},
		{"made twice", story(t, role("db: created", "1"), role("db: deleted", "1"), role("db: created", "1")),
			[]string{"clusterrole/system/a: created 2 times; without faults: created once"}},
		{"another one", story(t, strings.Replace(role("db: created", "1"), "/a ", "/b ", 1)),
			[]string{"clusterrole/system/b: exists at the end; without faults: never created"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := compare(t, learn(t, existing, existing), tt.run); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	// The runs without faults may differ in this.
	for _, runs := range [][]*record.Run{{existing, made}, {made, existing}} {
		ref := learn(t, runs...)
		for _, run := range runs {
			if got := compare(t, ref, run); len(got) != 0 {
				t.Errorf("got %q", got)
			}
		}
	}
}

// Regression: what an upgrade had changed or added in the manifests counted as different from the runs without faults,
// where nothing happens to it.
func TestObjectsOfManifests(t *testing.T) {
	service := func(event, port string) string {
		return event + ` service/system/metrics {"spec": {"port": ` + port + `}}`
	}
	const added = `created configmap/system/settings {"data": {"mode": "new"}}`
	for _, tt := range []struct {
		name  string
		lines []string // what begins with "manifests: " was applied by the upgrade
		want  []string
	}{
		{"changed", []string{service("existing", "1"), "manifests: " + service("updated", "2")}, nil},
		{"added", []string{service("existing", "1"), "manifests: " + added}, nil},
		{"taken away", []string{"manifests: " + service("existing", "1"), service("deleted", "1")}, nil},
		{"and then changed by the controller", []string{
			service("existing", "1"), "manifests: " + service("updated", "2"), "db: " + service("updated", "3"),
		}, nil},
		{"not of the manifests", []string{service("existing", "1"), "db: " + service("updated", "2")},
			[]string{"service/system/metrics: spec.port is 2; without faults: 1"}},
		{"and then deleted by the controller", []string{
			service("existing", "1"), "manifests: " + added, "db: " + strings.Replace(added, "created", "deleted", 1),
		}, []string{"configmap/system/settings: deleted at the end; without faults: exists at the end"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			plain := make([]string, len(tt.lines))
			for i, line := range tt.lines {
				plain[i] = strings.TrimPrefix(line, "manifests: ")
			}
			run := story(t, plain...)
			run.Actions = []record.Action{{Upgrade: "the build v2", Began: time.Unix(1, 0)}}
			for i := range tt.lines {
				if plain[i] != tt.lines[i] {
					run.History[i].Writers = []record.FieldManager{{Manager: record.PlanManager, Operation: "Apply"}}
				}
			}
			alone := story(t, service("existing", "2"))
			if got := compare(t, learn(t, alone, alone), run); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
