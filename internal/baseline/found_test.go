package baseline

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/record"
)

func checkDifferences(t *testing.T, ref *Baseline, r *record.Run, want ...string) {
	t.Helper()
	data, err := json.Marshal(ref)
	if err != nil {
		t.Fatal(err)
	}
	reread := &Baseline{}
	if err := json.Unmarshal(data, reread); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []*Baseline{ref, reread} {
		if got := compare(t, ref, r); !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// A value that is random in one object is not random in all of its type.
func TestFoundByObject(t *testing.T) {
	run := func(password, user, env, level string) *record.Run {
		return story(t,
			`db: created secret/default/random {"data": {`+password+`}}`,
			`db: created secret/default/fixed {"data": {"password": "`+user+`"}}`,
			`db: created set/default/a {"spec": {"env": [{"name": "LEVEL", "value": "`+level+`"},
				{"name": "TOKEN", "value": "`+env+`"}]}}`)
	}
	random := func(s string) string { return `"password": "` + s + `"` }
	ref := learn(t, run(random("a"), "u", "x", "1"), run(random("b"), "u", "y", "1"))
	checkDifferences(t, ref, run(random("c"), "u", "z", "1"))
	checkDifferences(t, ref, run(random("c"), "v", "z", "1"),
		`secret/default/fixed: data.password is "v"; without faults: "u"`)
	checkDifferences(t, ref, run("", "u", "z", "1"),
		`secret/default/random: data.password is absent; without faults: present`)
	checkDifferences(t, ref, run(random("c"), "u", "z", "2"),
		`set/default/a: spec.env[name=LEVEL].value is "2"; without faults: "1"`)
}

// What is random in one of equal objects is random in all, whatever their number.
func TestFoundForEqualObjects(t *testing.T) {
	run := func(roles ...string) *record.Run {
		var lines []string
		for i, role := range roles {
			lines = append(lines, fmt.Sprintf(`db: created pod/default/db-%d {"status": {"role": %q}}`, i, role))
		}
		return story(t, lines...)
	}
	ref := learn(t, run("leader", "follower", "follower"), run("follower", "leader", "follower"))
	checkDifferences(t, ref, run("follower", "follower", "leader"))
}

// That an object waits for its deletion in some runs says nothing of others of its type.
func TestBeingDeletedIsFoundByObject(t *testing.T) {
	run := func(a, b string) *record.Run {
		return story(t, `created pod/default/a {"metadata": {`+a+`}}`, `created pod/default/b {"metadata": {`+b+`}}`)
	}
	const marked = `"deletionTimestamp": "now"`
	ref := learn(t, run("", ""), run(marked, ""))
	checkDifferences(t, ref, run(marked, ""))
	checkDifferences(t, ref, run("", marked), "pod/default/b: metadata.beingDeleted is true; without faults: absent")
}

// UIDs and generated names in values stand for what they belong to.
func TestBaselines(t *testing.T) {
	uid := func(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }
	pod := func(name string, n int) string {
		return fmt.Sprintf(`created pod/default/web-%s {"metadata": {"generateName": "web-", "uid": "%s"}}`, name,
			uid(n))
	}
	run := func(n, owner int, first, second, pods string) *record.Run {
		return story(t,
			`created set/default/a {"metadata": {"uid": "`+uid(n)+`"}}`,
			`created set/default/b {"metadata": {"uid": "`+uid(n+1)+`"}}`,
			pod(first, n+2), pod(second, n+3),
			`created status/default/s {"metadata": {"ownerReferences": [{"name": "x", "uid": "`+uid(owner)+`"}]},
				"status": {"set": "uid=`+uid(owner)+`", "data": "data-web-`+first+`", "pods": `+pods+`}}`)
	}
	pods := func(items ...string) string {
		var all []string
		for i := 0; i < len(items); i += 2 {
			all = append(all, `{"name": "web-`+items[i]+`", "zone": "`+items[i+1]+`"}`)
		}
		return "[" + strings.Join(all, ", ") + "]"
	}
	ref := learn(t, run(10, 10, "bbbb2", "cccc2", pods("bbbb2", "x", "cccc2", "y")),
		run(20, 20, "dddd2", "ffff2", pods("dddd2", "x", "ffff2", "y")))
	if len(ref.Found) > 0 {
		t.Errorf("found %v", ref.Found)
	}
	// In which order the pods are listed depends on their names.
	checkDifferences(t, ref, run(30, 30, "vvvv2", "gggg2", pods("gggg2", "y", "vvvv2", "x")))
	checkDifferences(t, ref, run(30, 31, "vvvv2", "gggg2", pods("gggg2", "y", "vvvv2", "y")),
		`status/default/s: metadata.ownerReferences[name=x].uid is "(UID of set/default/b)"; `+
			`without faults: "(UID of set/default/a)"`,
		`status/default/s: status.pods[name=web-#].zone is "y" and "y"; without faults: "x" and "y"`,
		`status/default/s: status.set is "uid=(UID of set/default/b)"; without faults: "uid=(UID of set/default/a)"`)
	// An object whose creator is unknown does not belong to them.
	checkDifferences(t, ref, run(30, 30, "vvvv2", "gggg2", pods("gggg2", "y", "zzzz2", "x")),
		`status/default/s: status.pods[name=web-#].name is "web-#"; without faults: "web-#" and "web-#"`,
		`status/default/s: status.pods[name=web-#].zone is "y"; without faults: "x" and "y"`,
		`status/default/s: status.pods[name=web-zzzz2].name is "web-zzzz2"; without faults: absent`,
		`status/default/s: status.pods[name=web-zzzz2].zone is "x"; without faults: absent`)
}

// An object that is created again has another UID.
func TestBaselineToAnEarlierObject(t *testing.T) {
	uid := func(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }
	run := func(n, target int) *record.Run {
		set := func(event string, n int) string {
			return event + ` set/default/a {"metadata": {"uid": "` + uid(n) + `"}}`
		}
		return story(t, set("created", n), set("deleted", n), set("created", n+1),
			`created claim/default/c {"spec": {"for": "`+uid(target)+`"}}`)
	}
	ref := learn(t, run(10, 11), run(20, 21))
	checkDifferences(t, ref, run(30, 31))
	checkDifferences(t, ref, run(30, 30), `claim/default/c: spec.for is "(UID of an earlier set/default/a)"; `+
		`without faults: "(UID of set/default/a)"`)
}

// Regression: a comparison that goes on took an object as it had seen it first, though what it names had changed since.
func TestComparerSeesNewNames(t *testing.T) {
	uid := func(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }
	run := func(n int) *record.Run {
		claim := `created claim/default/c {"spec": {"for": "` + uid(n) + `"}}`
		set := ` set/default/a {"metadata": {"uid": "` + uid(n) + `"}}`
		return story(t, claim, "created"+set)
	}
	ref := learn(t, run(10), run(20))
	later := story(t, `created claim/default/c {"spec": {"for": "`+uid(30)+`"}}`,
		`created set/default/a {"metadata": {"uid": "`+uid(30)+`"}}`,
		`deleted set/default/a {"metadata": {"uid": "`+uid(30)+`"}}`,
		`created set/default/a {"metadata": {"uid": "`+uid(31)+`"}}`)
	f, comparer := facts.NewFollower(), ref.Comparer()
	for i, want := range [][]string{
		{"claim/default/c: spec.for is \"" + uid(30) + `"; without faults: "(UID of set/default/a)"`,
			"set/default/a: never created; without faults: exists at the end"},
		nil,
		{"set/default/a: deleted at the end; without faults: exists at the end"},
		{`claim/default/c: spec.for is "(UID of an earlier set/default/a)"; without faults: "(UID of set/default/a)"`,
			"set/default/a: created 2 times; without faults: created once"},
	} {
		if err := f.Add(later.History[i]); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range comparer.Compare(f.Objects()) {
			got = append(got, d.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("after %d changes: %s", i+1, strings.Join(got, "\n"))
		}
	}
}

// A controller copies a resource's annotations to its StatefulSet's template, and so also what a plan writes for a
// conflict: the hash of the template is another one, but it rolls out nothing.
func TestRevisionsOfStatefulSet(t *testing.T) {
	run := func(annotation, current, update string) *record.Run {
		return story(t, fmt.Sprintf(`created statefulset.apps/default/a {"spec": {"template": {"metadata": `+
			`{"annotations": {%s}}}}, "status": {"currentRevision": %q, "updateRevision": %q}}`,
			annotation, current, update))
	}
	ref := learn(t, run("", "a-5d4f", "a-5d4f"), run("", "a-5d4f", "a-5d4f"))
	checkDifferences(t, ref, run(`"trommel.dev/conflict": "changed"`, "a-755f", "a-755f"))
	checkDifferences(t, ref, run("", "a-5d4f", "a-755f"),
		`statefulset.apps/default/a: status.currentRevision is "another one than status.updateRevision"; `+
			"without faults: absent")
	checkDifferences(t, ref, run(`"other": "x"`, "a-755f", "a-755f"),
		`statefulset.apps/default/a: spec.template.metadata.annotations.other is "x"; without faults: absent`)
}

// With the update strategy OnDelete, the StatefulSet controller never says that all pods have the new revision but by
// counting them.
func TestRevisionsOfStatefulSetUpdatedByHand(t *testing.T) {
	run := func(strategy, update string, current, updated int) *record.Run {
		return story(t, fmt.Sprintf(`created statefulset.apps/default/a {"spec": {"updateStrategy": {"type": %q}}, `+
			`"status": {"currentRevision": "a-1", "updateRevision": %q, "replicas": 2, "currentReplicas": %d, `+
			`"updatedReplicas": %d}}`, strategy, update, current, updated))
	}
	ref := learn(t, run("OnDelete", "a-1", 2, 2), run("OnDelete", "a-1", 2, 2))
	checkDifferences(t, ref, run("OnDelete", "a-2", 0, 2))
	checkDifferences(t, ref, run("OnDelete", "a-2", 1, 1),
		`statefulset.apps/default/a: status.currentRevision is "another one than status.updateRevision"; `+
			"without faults: absent",
		"statefulset.apps/default/a: status.updatedReplicas is 1; without faults: 2")
	ref = learn(t, run("RollingUpdate", "a-1", 2, 2), run("RollingUpdate", "a-1", 2, 2))
	checkDifferences(t, ref, run("RollingUpdate", "a-2", 0, 2),
		"statefulset.apps/default/a: status.currentReplicas is 0; without faults: 2",
		`statefulset.apps/default/a: status.currentRevision is "another one than status.updateRevision"; `+
			"without faults: absent")
}

// A status that never catches up is about another spec.
func TestObservedGeneration(t *testing.T) {
	run := func(generation, observed, of int) *record.Run {
		return story(t, fmt.Sprintf(`created set/default/a {"metadata": {"generation": %d}, "status": {
			"observedGeneration": %d, "conditions": [{"type": "Ready", "observedGeneration": %d}]}}`,
			generation, observed, of))
	}
	ref := learn(t, run(2, 2, 2), run(2, 2, 2))
	checkDifferences(t, ref, run(4, 4, 4))
	checkDifferences(t, ref, run(3, 2, 2), "set/default/a: status.observedGeneration is behind metadata.generation; "+
		"without faults: up to metadata.generation")
	checkDifferences(t, ref, run(2, 2, 1), "set/default/a: status.conditions[type=Ready].observedGeneration is behind "+
		"metadata.generation; without faults: up to metadata.generation")
	checkDifferences(t, learn(t, run(2, 1, 1), run(2, 1, 1)), run(2, 2, 2))
	checkDifferences(t, learn(t, run(2, 2, 2), run(2, 1, 1)), run(2, 1, 2))
	masked, err := Learn("w", []*record.Run{run(2, 2, 2), run(2, 2, 2)}, Mask{Type: "*", Path: "**.observedGeneration"})
	if err != nil {
		t.Fatal(err)
	}
	checkDifferences(t, masked, run(3, 2, 2))
}

// The API server cuts the beginning of a long generated name.
func TestLongGeneratedNames(t *testing.T) {
	long := strings.Repeat("long-name-", 6)
	run := func(end string) *record.Run {
		return story(t, `created pod/default/`+long[:58]+end+` {"metadata": {"generateName": "`+long+`", "uid": "1"}}`)
	}
	checkDifferences(t, learn(t, run("bbbb2"), run("cccc2")), run("dddd2"))
}

// Endpoints follow pods, but not those that a controller under test writes.
func TestWrittenEndpoints(t *testing.T) {
	run := func(ip, ours, others string) *record.Run {
		return story(t,
			`created pod/default/db-0 {"status": {"podIP": "10.0.0.`+ip+`"}}`,
			`db: created endpoints/default/db {"subsets": [{"addresses": [{"ip": "10.0.0.`+ours+`", "nodeName": "`+
				ip+`"}]}]}`,
			`created endpoints/default/other {"subsets": [{"addresses": [{"ip": "10.0.0.`+others+`"}]}]}`)
	}
	ref := learn(t, run("1", "1", "7"), run("2", "2", "8"))
	checkDifferences(t, ref, run("3", "3", "9"))
	checkDifferences(t, ref, run("3", "2", "9"),
		`endpoints/default/db: subsets[0].addresses[ip=(address of pod/default/db-0)].ip is absent; `+
			`without faults: "(address of pod/default/db-0)"`,
		`endpoints/default/db: subsets[0].addresses[ip=10.0.0.2].ip is "10.0.0.2"; without faults: absent`)
	checkDifferences(t, ref, story(t, `created pod/default/db-0 {"status": {"podIP": "10.0.0.1"}}`),
		`endpoints/default/db: never created; without faults: exists at the end`)
}

// Regression: a lease that a controller under test writes, but not to be elected leader, did not count.
func TestWrittenLeases(t *testing.T) {
	lease := func(event, name, holder, seconds string) string {
		return event + ` lease.coordination.k8s.io/default/` + name + ` {"spec": {"holderIdentity": "` + holder +
			`", "renewTime": "` + holder + `", "leaseTransitions": ` + fmt.Sprint(len(holder)) +
			`, "leaseDurationSeconds": ` + seconds + `}}`
	}
	ours, election := lease("db: created", "shard", "x", "10"), lease("created", "leader", "x", "10")
	own := lease("db: created", "own", "x", "10") // that it is a lock is known for another reason
	run := func(lines ...string) *record.Run {
		r := story(t, lines...)
		r.Meta.Controllers[0].Locks = []string{"lease.coordination.k8s.io/default/own"}
		return r
	}
	ref := learn(t, run(ours, election, own, lease("db: created", "process-a", "x", "10")),
		run(ours, own, lease("db: created", "process-b", "x", "10")))
	checkDifferences(t, ref, run(ours))
	checkDifferences(t, ref, run(lease("created", "shard", "another", "10"), lease("created", "other", "x", "10"),
		lease("db: created", "process-c", "x", "10")))
	checkDifferences(t, ref, run(lease("db: created", "shard", "x", "20")),
		"lease.coordination.k8s.io/default/shard: spec.leaseDurationSeconds is 20; without faults: 10")
	checkDifferences(t, ref, run(election),
		"lease.coordination.k8s.io/default/shard: never created; without faults: exists at the end")
	checkDifferences(t, ref, run(ours, lease("db: deleted", "shard", "x", "10")),
		"lease.coordination.k8s.io/default/shard: deleted at the end; without faults: exists at the end")
}

func TestTypesThatFollowPods(t *testing.T) {
	for _, tt := range []struct {
		point    wire.Point
		kind     string
		election bool
		want     bool
	}{
		{wire.ControllerWrite, "Endpoints", false, true},
		{wire.ControllerWrite, "Endpoints", true, false},
		{wire.ControllerRead, "Endpoints", false, false},
		{wire.ControllerRecv, "Endpoints", false, false},
		{wire.ControllerWrite, "Event", false, false},
		{wire.ControllerWrite, "Lease", false, true},
		{wire.ControllerWrite, "Lease", true, false},
		{wire.ControllerRead, "Lease", false, false},
		{wire.ControllerRead, "Pod", false, true},
	} {
		o := &record.Observation{Point: tt.point, Kind: tt.kind, Election: tt.election}
		if tt.kind == "Lease" {
			o.Group = "coordination.k8s.io"
		}
		if _, got := TypeOf(o); got != tt.want {
			t.Errorf("%+v: %t", tt, got)
		}
	}
}
