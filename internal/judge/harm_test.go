package judge

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/judge/invariant"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

const (
	cluster = `cluster.db.example/default/db {"metadata": {"uid": "c"}}`
	claim   = `persistentvolumeclaim/default/data-db-0 {"metadata": {"uid": "v"}}`
	again   = `persistentvolumeclaim/default/data-db-0 {"metadata": {"uid": "w"}}`
	service = `service/default/db {"metadata": {"uid": "s", "ownerReferences": [` +
		`{"apiVersion": "db.example/v1", "kind": "Cluster", "name": "db", "uid": "c", "controller": true}]}}`
	waiting = `service/default/db {"metadata": {"uid": "s", "finalizers": ["db.example/service"], ` +
		`"deletionTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": [` +
		`{"apiVersion": "db.example/v1", "kind": "Cluster", "name": "db", "uid": "c", "controller": true}]}}`
	owned = `statefulset.apps/default/db {"metadata": {"uid": "t", "ownerReferences": [` +
		`{"apiVersion": "db.example/v1", "kind": "Cluster", "name": "db", "uid": "c", "controller": true}]}, ` +
		`"spec": {"volumeClaimTemplates": [{"metadata": {"name": "data"}}]}}`
)

var deletesService = &plan.Plan{Actions: []plan.Action{{Type: plan.DeleteObject, Writing: plan.Writing{
	ResourceKey: plan.ResourceKey{Type: "service", Namespace: "default", Name: "db"},
}}}}

// Of a JobSet, one of whose Jobs fails at the same time as another one.
const (
	jobs   = `jobset.x-k8s.io/default/js {"kind": "JobSet", "metadata": {"uid": "j"}}`
	failed = `jobset.x-k8s.io/default/js {"kind": "JobSet", "metadata": {"uid": "j"}, ` +
		`"status": {"conditions": [{"type": "Failed", "status": "True"}]}}`
	job = `job.batch/default/js-1 {"kind": "Job", "metadata": {"uid": "k", "ownerReferences": [` +
		`{"apiVersion": "x-k8s.io/v1", "kind": "JobSet", "name": "js", "uid": "j", "controller": true}]}}`
)

const second = `cluster.db.example/default/db {"metadata": {"uid": "d"}}`

// setOf is a StatefulSet that belongs to the cluster with the UID.
func setOf(owner string) string {
	return fmt.Sprintf(`statefulset.apps/default/db {"metadata": {"ownerReferences": [`+
		`{"apiVersion": "db.example/v1", "kind": "Cluster", "name": "db", "uid": %q, "controller": true}]}}`, owner)
}

// A headline says what is harmed, whose it is and who did it; the difference comes after that.
func TestHeadlines(t *testing.T) {
	for _, tt := range []struct {
		name         string
		without, run []string
		plan         *plan.Plan
		want         string
		harm         record.Harm
		owner        string
	}{
		{
			"a volume of a living cluster", []string{"1 created " + cluster, "2 op: created " + claim},
			[]string{"1 created " + cluster, "2 op: created " + claim, "5 op: deleted " + claim, "6 op: created " +
				again},
			kills,
			"volume claim default/data-db-0 of the living cluster default/db was deleted by op and created again, " +
				"its " +
				"data is lost: created 2 times; without faults: created once", record.HarmLost,
			"cluster.db.example/default/db",
		},
		{
			"a volume claim that a template made, and that waits for a finalizer",
			[]string{"1 created " + cluster, "1 op: created " + owned, "2 created " + claim},
			[]string{
				"1 created " + cluster, "1 op: created " + owned, "2 created " + claim,
				`5 op: updated persistentvolumeclaim/default/data-db-0 ` +
					`{"metadata": {"uid": "v", "deletionTimestamp": "2026-01-01T00:00:00Z"}}`,
				"6 deleted " + claim,
			}, kills,
			"volume claim default/data-db-0 of the living cluster default/db was deleted by op, its data is lost: " +
				"deleted at the end; without faults: exists at the end", record.HarmLost,
			"cluster.db.example/default/db",
		},
		{
			// Regression: of an operator that takes the owner from its cache and the version from the API server.
			"what is given an owner that is gone",
			[]string{
				"1 created " + cluster, "2 op: created " + setOf("c"), "3 deleted " + cluster,
				"3 deleted " + setOf("c"),
				"4 created " + second, "5 op: created " + setOf("d"),
			},
			[]string{
				"1 created " + cluster, "2 op: created " + setOf("c"), "3 deleted " + cluster,
				"3 deleted " + setOf("c"),
				"4 created " + second, "5 op: created " + setOf("d"), "6 op: updated " + setOf("c"),
				"7 deleted " + setOf("c"),
				"8 op: created " + setOf("d"),
			}, kills,
			"StatefulSet default/db of the living cluster default/db was deleted by the garbage collector, because " +
				"op had given it an owner that was gone, and created again, its pods are gone with it: " +
				"created 3 times; without faults: created 2 times", record.HarmLost, "cluster.db.example/default/db",
		},
		{
			"a volume of a cluster that is gone too", []string{"1 created " + cluster, "2 op: created " + claim},
			[]string{"1 created " + cluster, "2 op: created " + claim, "4 deleted " + cluster, "5 op: deleted " +
				claim},
			kills,
			"cluster default/db is missing: deleted at the end; without faults: exists at the end", record.HarmMissing,
			"",
		},
		{
			"a custom resource", []string{"1 created " + cluster}, []string{"1 created " + cluster, "4 op: deleted " +
				cluster},
			kills,
			"cluster default/db was deleted by op, what belongs to it is lost: deleted at the end; without faults: " +
				"exists " +
				"at the end", record.HarmLost, "",
		},
		{
			"what is never created", []string{"1 created " + cluster, "2 op: created " + service},
			[]string{"1 created " + cluster}, kills,
			"service default/db of cluster default/db is missing: never created; without faults: exists at the end",
			record.HarmMissing, "cluster.db.example/default/db",
		},
		{
			"what the plan deletes", []string{"1 created " + cluster, "2 op: created " + service},
			[]string{"1 created " + cluster, "2 op: created " + service, "4 deleted " + service},
			deletesService,
			"service default/db of cluster default/db was deleted by the plan, and is not created again: deleted at " +
				"the " +
				"end; without faults: exists at the end", record.HarmMissing, "cluster.db.example/default/db",
		},
		{
			"what is left", []string{
				"1 created " + cluster, "2 op: created " + service, "4 deleted " + cluster, "5 deleted " + service,
			},
			[]string{"1 created " + cluster, "2 op: created " + service, "4 deleted " + cluster}, kills,
			"service default/db is still there although cluster default/db is gone: exists at the end; without " +
				"faults: " +
				"deleted at the end", record.HarmLeft, "cluster.db.example/default/db",
		},
		{
			// Regression: the title said that it was still there, and not what it waits for.
			"what is left, and waits for a finalizer", []string{
				"1 created " + cluster, "2 op: created " + service, "4 deleted " + cluster, "5 deleted " + service,
			},
			[]string{"1 created " + cluster, "2 op: created " + service, "4 deleted " + cluster,
				"5 updated " + waiting}, kills,
			"service default/db is marked for deletion, and stays because of its finalizer db.example/service " +
				"although cluster default/db is gone: exists at the end; without faults: deleted at the end",
			record.HarmLeft, "cluster.db.example/default/db",
		},
		{
			// Regression: such a deletion counted as soon as it had come in two of ten runs.
			"what its owner needs no more",
			[]string{"1 created " + jobs, "2 op: created " + job, "4 op: updated " + failed},
			[]string{"1 created " + jobs, "2 op: created " + job, "4 op: updated " + failed, "5 op: deleted " + job},
			kills,
			"job default/js-1 of the finished jobset default/js was deleted by op: deleted at the end; without " +
				"faults: exists at the end", record.HarmReplaced, "jobset.x-k8s.io/default/js",
		},
		{
			"what its owner needs", []string{"1 created " + jobs, "2 op: created " + job},
			[]string{"1 created " + jobs, "2 op: created " + job, "5 op: deleted " + job}, kills,
			"job default/js-1 of the living jobset default/js was deleted by op: deleted at the end; without faults: " +
				"exists at the end", record.HarmMissing, "jobset.x-k8s.io/default/js",
		},
		{
			"what is not replaced", []string{
				"1 created " + cluster, "2 op: created " + service, "4 op: deleted " + service, "5 op: created " +
					service,
			},
			[]string{"1 created " + cluster, "2 op: created " + service}, kills,
			"service default/db of cluster default/db was not replaced: created once; without faults: created 2 times",
			record.HarmReplaced, "cluster.db.example/default/db",
		},
		{
			"what is deleted and stays", []string{"1 created " + cluster},
			[]string{"1 created " + cluster, `4 updated cluster.db.example/default/db {"metadata": {"uid": "c", ` +
				`"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["db.example/backup"]}}`}, kills,
			"cluster default/db is marked for deletion, and stays because of its finalizer db.example/backup: " +
				"metadata.beingDeleted is true; without faults: absent", record.HarmLeft, "",
		},
		{
			"what should be deleted", []string{"1 created " + cluster, `4 updated cluster.db.example/default/db ` +
				`{"metadata": {"uid": "c", "deletionTimestamp": "2026-01-01T00:00:00Z", ` +
				`"finalizers": ["db.example/b"]}}`},
			[]string{"1 created " + cluster}, kills,
			"cluster default/db is not marked for deletion: metadata.beingDeleted is absent; without faults: true",
			record.HarmLeft, "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := evidence(tale(t, tt.run...))
			e.Baseline, e.Plan = usual(t, tale(t, tt.without...)), tt.plan
			if tt.plan == deletesService {
				e.Actions = []record.Action{{Type: "delete", Began: time.Unix(3, 0), Fired: time.Unix(3, 0)}}
			}
			found, err := faultFree{}.Judge(t.Context(), e)
			if err != nil || len(found) == 0 {
				t.Fatalf("%v, %v", found, err)
			}
			e.bear(found)
			f := found[0]
			expect(t, []string{f.Title, string(f.Harm), f.Owner, f.Field}, tt.want, string(tt.harm), tt.owner, "")
		})
	}
}

// What is random cannot be made again as it was. That it is missing because another client has deleted it does little
// harm, or some if it is still referred to. If a controller has deleted or never created it, that counts as ever.
func TestWhatCannotComeBackAsItWas(t *testing.T) {
	const secret = `secret/default/key {"data": {"key": %q, "user": "a"}}`
	const pod = `pod/default/a {"spec": {"volumes": [{"secret": {"secretName": %q}}]}}`
	made := func(key, volume string) []string {
		return []string{
			"1 created " + cluster, "1 created " + fmt.Sprintf(pod, volume),
			"2 op: created " + fmt.Sprintf(secret, key),
		}
	}
	for _, tt := range []struct {
		name    string
		keys    []string // in the runs without faults
		volume  string   // the Secret that the pod has as a volume
		held    string   // by the Secret in the run; empty: it is never created
		deleted string   // how; empty: it is not
		plan    bool     // it is deleted by the plan
		want    record.Harm
	}{
		{"random, deleted by the plan", []string{"x", "y"}, "b", "z", "4 deleted ", true, record.HarmRemark},
		{"random, deleted by the plan, and a pod has it as a volume", []string{"x", "y"}, "key", "z", "4 deleted ",
			true, record.HarmReplaced},
		{"always the same, deleted by the plan", []string{"x", "x"}, "b", "x", "4 deleted ", true, record.HarmMissing},
		{"random, deleted by the controller", []string{"x", "y"}, "b", "z", "4 op: deleted ", false, record.HarmLost},
		{"random, never created", []string{"x", "y"}, "b", "", "", false, record.HarmMissing},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lines := made(tt.held, tt.volume)
			if tt.held == "" {
				lines = lines[:2]
			} else {
				lines = append(lines, tt.deleted+fmt.Sprintf(secret, tt.held))
			}
			e := evidence(tale(t, lines...))
			var runs []*record.Run
			for _, key := range tt.keys {
				runs = append(runs, tale(t, made(key, tt.volume)...))
			}
			e.Baseline, e.Plan = usual(t, runs...), kills
			if tt.plan {
				e.Plan = &plan.Plan{Actions: []plan.Action{{Type: plan.DeleteObject, Writing: plan.Writing{
					ResourceKey: plan.ResourceKey{Type: "secret", Namespace: "default", Name: "key"},
				}}}}
				e.Actions = []record.Action{{Type: "delete", Began: time.Unix(3, 0), Fired: time.Unix(3, 0)}}
			}
			found, err := faultFree{}.Judge(t.Context(), e)
			if err != nil || len(found) == 0 {
				t.Fatalf("%v, %v", found, err)
			}
			f := found[0]
			if f.Subject != "secret/default/key" || f.Harm != tt.want || !f.IsBug() {
				t.Errorf("%+v", f)
			}
			if says := strings.Contains(f.Title, "what it held was random"); says != (f.Harm.Rank() >
				record.HarmMissing.Rank()) {
				t.Errorf("%q", f.Title)
			}
		})
	}
}

// What follows from one write is one difference. Messages and dates come last, and do not count as more.
func TestOneLineACause(t *testing.T) {
	const before = `cluster.db.example/default/db {"spec": {"size": 1}, "status": {"ready": 1, "message": "m"}}`
	ref := usual(t, tale(t, "1 created "+before))
	e := evidence(tale(t, "1 created "+before,
		`4 op: updated cluster.db.example/default/db {"metadata": {"annotations": {"restarted": `+
			`"2026-01-01T00:00:00Z"}}, "spec": {"size": 2, "zone": "a"}, "status": {"ready": 1, "message": "m"}}`,
		`5 op: updated cluster.db.example/default/db {"metadata": {"annotations": {"restarted": `+
			`"2026-01-01T00:00:00Z"}}, "spec": {"size": 2, "zone": "a"}, "status": {"ready": 2, "message": "n"}}`))
	e.Baseline, e.Plan = ref, kills
	found, err := faultFree{}.Judge(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range found {
		got = append(got, f.Title, string(f.Harm), f.Field, f.Detail)
	}
	const key = "cluster.db.example/default/db"
	expect(t, got,
		key+" differs from the runs without faults: spec.size is 2; without faults: 1", "wrong content",
		"spec.size spec.zone", `with it: spec.zone is "a"; without faults: absent
with it: metadata.annotations.restarted is "2026-01-01T00:00:00Z"; without faults: absent
`+key+`: updated by op at +4s before the plan's first action (resource version 2)`,
		key+" differs from the runs without faults: status.ready is 2; without faults: 1", "wrong status",
		"status.ready", `with it: status.message is "n"; without faults: "m"
`+key+`: updated by op at +5s before the plan's first action (resource version 3)`)
}

// A violated invariant says what was done, by whom, and whose the object is.
func TestWhatAViolationSays(t *testing.T) {
	invariants, err := invariant.Compile([]plan.Invariant{{
		Name: "i", On: &plan.ResourceKey{Type: "service", Namespace: "*", Name: "*"},
		Never: `event == "deleted" || event == "updated" && object.spec.port == 2`,
	}})
	if err != nil {
		t.Fatal(err)
	}
	const mine = `service/default/%s {"metadata": {"labels": {"of": "db"}}, "spec": {"port": %d, "zone": "a"}}`
	e := evidence(tale(t, "1 created "+cluster, "2 op: created "+fmt.Sprintf(mine, "a", 1),
		"3 op: created "+fmt.Sprintf(mine, "b", 1), "4 op: updated "+fmt.Sprintf(mine, "a", 2),
		"5 op: deleted "+fmt.Sprintf(mine, "b", 1)))
	e.Invariants = invariants
	var got []string
	for _, f := range Hear(t.Context(), e, []Judge{invariantJudge{}}) {
		got = append(got, f.Title, f.Owner)
	}
	expect(t, got, "invariant i: violated when service/default/a was updated by op (spec.port from 1 to 2)",
		"cluster.db.example/default/db", "invariant i: violated when service/default/b was deleted by op",
		"cluster.db.example/default/db")
}

// A step of the workload that lacks an object, which was never created, says whose it is without faults.
func TestOwnerOfWhatAStepLacks(t *testing.T) {
	meta := func(name string, more map[string]any) map[string]any {
		m := map[string]any{"namespace": "default", "name": name}
		maps.Copy(m, more)
		return map[string]any{"metadata": m}
	}
	owner := map[string]any{"apiVersion": "example.com/v1", "kind": "Db", "name": "db", "uid": "u", "controller": true}
	ref := &baseline.Baseline{Objects: map[facts.Key]*facts.Object{
		"db.example.com/default/db": {End: meta("db", map[string]any{"uid": "u"})},
		"secret/default/a":          {End: meta("a", map[string]any{"ownerReferences": []any{owner}})},
	}}
	for _, tt := range []struct {
		awaited string
		ref     *baseline.Baseline
		want    string
	}{
		{"secret/default/a", ref, "db.example.com/default/db"},
		{"secret/default/b", ref, ""},
		{"", ref, ""},
		{"secret/default/a", nil, ""},
	} {
		e := Evidence{Baseline: tt.ref, Found: []record.Finding{{
			Severity: record.SeverityBug, Judge: record.JudgeWorkload, Subject: "step 1", Awaited: tt.awaited,
			Harm: record.HarmMissing, Title: "step 1: wait: not within 2s",
		}}}
		Hear(t.Context(), e, nil)
		if got := e.Found[0].Owner; got != tt.want {
			t.Errorf("%q: owner %q, want %q", tt.awaited, got, tt.want)
		}
	}
}
