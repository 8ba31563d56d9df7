package baseline

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/record"
)

// generated is the end of a generated name, by one letter.
func generated(letter string) string {
	return "bcdf" + string("bcdfghjklmnpqrstvwxz2456789"[letter[0]-'a'])
}

// Which of several equal objects is deleted says nothing.
func TestWhichOfEqualObjects(t *testing.T) {
	pod := func(event, name, zone string) string {
		return event + ` pod/default/web-` + generated(name) + ` {"metadata": {"generateName": "web-", "uid": "` +
			name + `"},
			"spec": {"zone": "` + zone + `"}}`
	}
	run := func(lines ...string) *record.Run { return story(t, lines...) }
	ref := learn(t,
		run(pod("created", "a", "x"), pod("created", "b", "x"), pod("created", "c", "y"), pod("deleted", "a", "x")),
		run(pod("created", "d", "x"), pod("created", "e", "y"), pod("created", "f", "x"), pod("deleted", "f", "x")))
	if got := ref.Objects["pod/default/web-#1"]; got == nil || got.End != nil || got.Made != 1 || got.MostMade != 1 {
		t.Errorf("got %+v", got)
	}
	if slices.ContainsFunc(ref.Given, func(m Mask) bool { return m.Path == "spec.zone" }) {
		t.Error("the zone is masked")
	}
	for _, tt := range []struct {
		name  string
		lines []string
		want  []string
	}{
		{"in another order", []string{
			pod("created", "g", "y"), pod("created", "h", "x"), pod("created", "i", "x"), pod("deleted", "i", "x"),
		}, nil},
		{"one more", []string{
			pod("created", "g", "y"), pod("created", "h", "x"), pod("created", "i", "x"), pod("created", "j", "x"),
			pod("deleted", "i", "x"),
		}, []string{"pod/default/web-#4: exists at the end; without faults: never created"}},
		{"another zone", []string{
			pod("created", "g", "y"), pod("created", "h", "y"), pod("created", "i", "x"), pod("deleted", "i", "x"),
		}, []string{`pod/default/web-#2: spec.zone is "y"; without faults: "x"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := compare(t, ref, story(t, tt.lines...)); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// An object that is made once in some runs without faults and twice in others may be made once or twice.
func TestHowOftenVaries(t *testing.T) {
	once := []string{`created database/default/db {}`, `db: created pod/default/a {}`}
	twice := slices.Concat(once, []string{`db: deleted pod/default/a {}`, `db: created pod/default/a {}`})
	thrice := slices.Concat(twice, []string{`db: deleted pod/default/a {}`, `db: created pod/default/a {}`})
	ref := learn(t, story(t, once...), story(t, twice...))
	for _, lines := range [][]string{once, twice} {
		if got := compare(t, ref, story(t, lines...)); len(got) > 0 {
			t.Errorf("got %q", got)
		}
	}
	want := []string{"pod/default/a: created 3 times; without faults: created 1 to 2 times"}
	if got := compare(t, ref, story(t, thrice...)); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// The time of the mark does not count, but whether there is one.
func TestMarkedForDeletion(t *testing.T) {
	pod := func(event, meta string) string { return event + ` pod/default/a {"metadata": {"x": "y"` + meta + `}}` }
	run := story(t, pod("created", ""))
	ref := learn(t, run, run)
	got := compare(t, ref, story(t, pod("created", ""), pod("updated", `, "deletionTimestamp": "now"`)))
	want := []string{"pod/default/a: metadata.beingDeleted is true; without faults: absent"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	marked := func(at string) *record.Run {
		return story(t, pod("created", ""), pod("updated", `, "deletionTimestamp": "`+at+`"`))
	}
	if got := compare(t, learn(t, marked("1"), marked("2")), marked("3")); len(got) > 0 {
		t.Errorf("got %q", got)
	}
}

func TestListsWithoutOrder(t *testing.T) {
	run := func(list string) *record.Run {
		return story(t, `created pod/default/a {"spec": {"ips": [`+list+`], "args": ["a", "b"]}}`)
	}
	ref := learn(t, run(`"1", "2"`), run(`"2", "1"`))
	for list, want := range map[string][]string{
		`"1", "2"`: nil,
		`"2", "1"`: nil,
		`"1", "3"`: {`pod/default/a: spec.ips[1] is "3"; without faults: "2"`},
	} {
		if got := compare(t, ref, run(list)); !slices.Equal(got, want) {
			t.Errorf("[%s]: got %q, want %q", list, got, want)
		}
	}
	got := compare(t, ref, story(t, `created pod/default/a {"spec": {"ips": ["1", "2"], "args": ["b", "a"]}}`))
	if len(got) != 2 {
		t.Errorf("the order of another list does not count: %q", got)
	}
}

func TestUpdateSummary(t *testing.T) {
	r := story(t,
		`created pod/default/a {"spec": {"x": 1, "y": 1}}`,
		`updated pod/default/a {"spec": {"x": 2, "y": 1}}`,
		`updated pod/default/a {"spec": {"x": 1, "y": 2}}`,
		`updated pod/default/a {"spec": {"x": 2, "y": 2}}`,
		`deleted pod/default/a {}`)
	o := learn(t, r, r).Objects["pod/default/a"]
	if o.Deleted != 1 || o.Made != 1 || !maps.Equal(o.Returned, map[string]int{"spec.x": 2}) {
		t.Errorf("got %+v", o)
	}
}

func TestSiblings(t *testing.T) {
	set := func(event, more string) string {
		return event + ` replicaset/default/web {"metadata": {"uid": "u"` + more + `}, "spec": {"replicas": 2}}`
	}
	pod := func(event, name, more string) string {
		return event + ` pod/default/web-` + generated(name) + ` {"metadata": {"generateName": "web-", "uid": "` +
			name + `",
			"ownerReferences": [{"controller": true, "uid": "u"}]}` + more + `}`
	}
	for _, tt := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"two", []string{set("created", ""), "db: " + pod("created", "a", ""), "db: " + pod("created", "b", "")},
			"2 of 2, by [db], generated true, at 2"},
		{"three", []string{
			set("created", ""), "db: " + pod("created", "a", ""), pod("created", "b", ""), pod("created", "c", ""),
			"db: " + pod("deleted", "c", ""),
		}, "3 of 2, by [db], generated true, at 3"},
		{"one after the other", []string{
			set("created", ""), pod("created", "a", ""), pod("deleted", "a", ""), pod("created", "b", ""),
		}, ""},
		{"one has failed", []string{
			set("created", ""), pod("created", "a", ""), pod("updated", "a", `, "status": {"phase": "Failed"}`),
			pod("created", "b", ""),
		}, ""},
		{"the owner is being deleted", []string{
			set("created", ""), pod("created", "a", ""), set("updated", `, "deletionTimestamp": "now"`),
			pod("created", "b", ""),
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			changes, err := facts.Changes(story(t, tt.lines...))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, s := range facts.Most(changes) {
				got += fmt.Sprintf("%d of %d, by %v, generated %t, at %d", s.Most, s.Wanted, s.By, s.Generated, s.At)
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestLogSummary(t *testing.T) {
	run := func(log string) *record.Run {
		r := story(t, `created pod/default/a {}`)
		r.Dir = t.TempDir()
		r.Processes = []record.Process{{Controller: "db", LogFile: "logs/db.log"}, {Controller: "db", LogFile: "gone"}}
		if err := os.Mkdir(filepath.Join(r.Dir, "logs"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(r.Dir, "logs", "db.log"), []byte(log), 0o600); err != nil {
			t.Fatal(err)
		}
		return r
	}
	line := "E1122 12:00:00.000000       1 db.go:1] no pod %d\n"
	ref := learn(t, run("I1122 fine\n"+fmt.Sprintf(line, 1)), run(fmt.Sprintf(line, 2)+fmt.Sprintf(line, 3)))
	want := []facts.LoggedError{{
		Controller: "db", Shape: "db.go: no pod #", Most: 2, Line: strings.TrimSpace(fmt.Sprintf(line, 1)),
	}}
	if !slices.Equal(ref.Errors, want) {
		t.Errorf("got %+v", ref.Errors)
	}
}

// A thousand objects are compared within a second.
func BenchmarkCompare(b *testing.B) {
	objects := func() map[facts.Key]*facts.Object {
		all := map[facts.Key]*facts.Object{}
		for i := range 1000 {
			all[facts.Key(fmt.Sprintf("pod/default/web-#%d", i+1))] = &facts.Object{Made: 1, MostMade: 1, Ours: true,
				End: samplePod(i)}
		}
		return all
	}
	ref := &Baseline{Masks: Masks{Given: standard}, Objects: objects()}
	for _, bench := range []struct {
		name   string
		change func(i int, pod map[string]any)
		want   int
	}{
		{"equal", func(int, map[string]any) {}, 0},
		{"different", func(i int, pod map[string]any) { pod["status"].(map[string]any)["phase"] = "Pending" }, 1000},
	} {
		b.Run(bench.name, func(b *testing.B) {
			got := objects()
			for key, o := range got {
				bench.change(len(key), o.End)
			}
			for b.Loop() {
				if differ := ref.Compare(got); len(differ) != bench.want {
					b.Fatalf("%d differences", len(differ))
				}
			}
		})
	}
}

// BenchmarkLearn measures what learning adds to three runs, each with 500 changes.
func BenchmarkLearn(b *testing.B) {
	run := &record.Run{}
	for i := range 500 {
		pod := samplePod(i % 50)
		meta := pod["metadata"].(map[string]any)
		meta["resourceVersion"], meta["step"] = fmt.Sprint(i), float64(i)
		event := record.Updated
		if i < 50 {
			event = record.Created
		}
		run.History = append(run.History, record.HistoryEntry{
			ResourceVersion: uint64(i), Event: event, Type: "pod", Namespace: "default", Name: meta["name"].(string),
			Object: []byte(facts.Canonical(pod)),
		})
	}
	for b.Loop() {
		if _, err := Learn("w", []*record.Run{run, run, run}); err != nil {
			b.Fatal(err)
		}
	}
}

// samplePod is a pod with as many fields as real ones have.
func samplePod(i int) map[string]any {
	pod := map[string]any{
		"kind": "Pod", "apiVersion": "v1",
		"metadata": map[string]any{
			"name": fmt.Sprintf("web-%05d", i), "namespace": "default", "uid": fmt.Sprint(i), "generateName": "web-",
			"labels": map[string]any{"app": "web", "pod-template-hash": "5d4f", "tier": "front"},
		},
	}
	var containers, conditions, volumes []any
	for c := range 3 {
		env := []any{}
		for e := range 8 {
			env = append(env, map[string]any{"name": fmt.Sprintf("V%d", e), "value": "x"})
		}
		containers = append(containers, map[string]any{
			"name": fmt.Sprintf("c%d", c), "image": "registry.example/web:1.0", "env": env, "imagePullPolicy": "Always",
			"resources": map[string]any{"requests": map[string]any{"cpu": "1", "memory": "1Gi"}},
		})
		volumes = append(volumes, map[string]any{"name": fmt.Sprintf("v%d", c), "emptyDir": map[string]any{}})
	}
	for _, typ := range []string{"Ready", "Initialized", "PodScheduled", "ContainersReady"} {
		conditions = append(conditions, map[string]any{"type": typ, "status": "True", "lastTransitionTime": "now"})
	}
	pod["spec"] = map[string]any{"containers": containers, "volumes": volumes, "nodeName": "n",
		"restartPolicy": "Always"}
	pod["status"] = map[string]any{"conditions": conditions, "phase": "Running", "podIP": "10.0.0.1"}
	return pod
}
