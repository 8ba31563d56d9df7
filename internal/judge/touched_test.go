package judge

import (
	"slices"
	"testing"

	"github.com/trommel-dev/trommel/plan"
)

// Regression: if the plan wrote or deleted any object, it did not count that data was lost with another one.
func TestLossesThatThePlanDoesNotExplain(t *testing.T) {
	const (
		owner = `"ownerReferences": [{"apiVersion": "db.example/v1", "kind": "Cluster", "name": "db", "uid": "c", ` +
			`"controller": true}]`
		user   = `secret/default/user {"metadata": {"uid": "1", ` + owner + `}}`
		key    = `secret/default/key {"metadata": {"uid": "2", ` + owner + `}, "data": {"key": "b25l"}}`
		newKey = `secret/default/key {"metadata": {"uid": "9", ` + owner + `}, "data": {"key": "dHdv"}}`
		job    = `job.batch/default/init {"metadata": {"uid": "3", ` + owner + `}}`
		member = `member.db.example/default/db-0 {"metadata": {"uid": "4", ` + owner + `}}`
		lost   = `persistentvolumeclaim/default/lone {"metadata": {"uid": "5"}}`
		volume = `persistentvolume//pv-1 {"metadata": {"uid": "6"}, "spec": {"claimRef": {"namespace": "default", ` +
			`"name": "data-db-0"}}}`
	)
	usually := []string{
		"1 created " + cluster, "1 op: created " + owned, "1 op: created " + service, "1 created " + claim,
		"1 op: created " + user, "1 op: created " + key, "1 op: created " + job, "1 op: created " + member,
		"1 created " + lost, "1 created " + volume, `1 created pod/default/db-0 {}`,
	}
	renew := func(object string) []string { return []string{"5 op: deleted " + object, "6 op: created " + object} }
	writes := func(typ string, k plan.ResourceKey) *plan.Plan {
		return &plan.Plan{Actions: []plan.Action{{
			Type: plan.ActionType(typ), Writing: plan.Writing{ResourceKey: k, Patch: map[string]any{"spec": 1}},
		}}}
	}
	deletes := func(typ, name string) *plan.Plan {
		return writes("delete", plan.ResourceKey{Type: typ, Namespace: "default", Name: name})
	}
	manifest := func(kind, name string) *plan.Plan {
		return &plan.Plan{Actions: []plan.Action{{Type: plan.ApplyObject, Writing: plan.Writing{
			Manifest: map[string]any{"kind": kind, "metadata": map[string]any{"name": name}},
		}}}}
	}
	const created = "created 2 times; without faults: created once"
	const data = "bug volume claim default/data-db-0 of the living cluster default/db was deleted by op and created " +
		"again, its data is lost: " + created
	for _, tt := range []struct {
		name string
		run  []string
		plan *plan.Plan
		want []string
	}{
		{name: "a claim of which the plan deletes a sister", run: renew(claim), plan: deletes("service", "db"),
			want: []string{data}},
		{name: "of which it deletes the pod", run: renew(claim), plan: deletes("pod", "db-0"), want: []string{data}},
		{name: "of which it applies a sister", run: renew(claim), plan: manifest("Service", "db"),
			want: []string{data}},
		{name: "the claim itself", run: renew(claim), plan: deletes("persistentvolumeclaim", "data-db-0")},
		{name: "what it belongs to", run: renew(claim), plan: writes("patch", plan.ResourceKey{
			Type: "statefulset", Group: "apps", Namespace: "default", Name: "db"})},
		{name: "the owner of that", run: renew(claim), plan: writes("patch", plan.ResourceKey{
			Type: "cluster", Group: "db.example", Name: "db"})},
		{name: "its namespace", run: renew(claim), plan: writes("delete", plan.ResourceKey{
			Type: "namespace", Name: "default"})},
		{name: "a node", run: renew(claim), plan: writes("delete", plan.ResourceKey{Type: "node", Name: "n1"})},
		{name: "what a file has", run: renew(claim), plan: &plan.Plan{Actions: []plan.Action{{
			Type: plan.ApplyObject, Writing: plan.Writing{ManifestFile: "x.yaml"}}}}},
		{name: "a claim of nobody", run: renew(lost), plan: deletes("service", "db")},
		{name: "a volume", run: []string{"5 deleted " + volume, "6 created " + volume}, plan: deletes("service", "db"),
			want: []string{"bug volume pv-1 of the living cluster default/db was deleted and created again, its data " +
				"is lost: " + created}},
		{name: "a volume of the claim that it deletes", run: renew(volume),
			plan: deletes("persistentvolumeclaim", "data-db-0")},
		{name: "what holds no data", run: renew(job), plan: deletes("service", "db")},
		{name: "a Secret", run: []string{"5 op: deleted " + key, "6 op: created " + newKey},
			plan: deletes("service", "db"), want: []string{"bug secret default/key of the living cluster " +
				"default/db was deleted by op and created again, its data is lost: " + created,
				"bug secret/default/key differs from the runs without faults: data.key is \"dHdv\"; without " +
					"faults: \"b25l\""}},
		{name: "a Secret that gets the same data again", run: renew(key), plan: deletes("service", "db"),
			want: []string{"bug secret default/key of the living cluster default/db was deleted by op and created " +
				"again: " + created}},
		{name: "a Secret that may be made from another one", run: renew(key), plan: deletes("secret", "user")},
		{name: "a custom resource", run: renew(cluster), plan: deletes("service", "other"), want: []string{
			"bug cluster default/db was deleted by op and created again, what belongs to it is lost: " + created}},
		{name: "a custom resource of another one", run: renew(member), plan: deletes("pod", "db-0")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := evidence(tale(t, slices.Concat(usually, tt.run)...))
			e.Baseline, e.Plan = usual(t, tale(t, usually...)), tt.plan
			expect(t, judged(t, faultFree{}, e), tt.want...)
		})
	}
}

// A controller's reaction to another client's write is not a mistake; the annotation of a conflict alone makes another
// version of an object.
func TestWhatFollowsFromWrites(t *testing.T) {
	secret := func(event, password string) string {
		return `op: ` + event + ` secret/default/db {"data": {"password": "` + password + `"}}`
	}
	set := func(event, version string) string {
		return `op: ` + event + ` set/default/a {"metadata": {"annotations": {"secret-version": "` + version + `"}}}`
	}
	const other = `1 created pod/default/other {}`
	ref := usual(t, tale(t, "1 "+secret("created", "s3cr3tOne"), "2 "+set("created", "1"), other),
		tale(t, other, "1 "+secret("created", "pAssw0rd2"), "2 "+set("created", "2")))
	again := []string{other, "1 " + secret("created", "7hirdOneX"), "2 " + set("created", "2"),
		"5 " + secret("updated", "f0urthOne")}
	const replaced = "bug secret/default/db differs from the runs without faults: data.password was replaced once; " +
		"without faults: never"
	const version = "bug set/default/a differs from the runs without faults: metadata.annotations.secret-version is " +
		"not the resource version of data of secret/default/db; without faults: it is"
	for _, tt := range []struct {
		name string
		plan *plan.Plan
		want []string
	}{
		{"no write", kills, []string{replaced, version}}, {"a write", patches, nil}, {"a deletion", deletes, nil},
		{"a conflict", conflict, []string{replaced}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := evidence(tale(t, again...))
			e.Baseline, e.Plan = ref, tt.plan
			expect(t, judged(t, faultFree{}, e), tt.want...)
		})
	}
}
