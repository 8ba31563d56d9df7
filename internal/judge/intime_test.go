package judge

import (
	"slices"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

func at(s float64) time.Time { return time.UnixMilli(int64(s * 1000)) }

// process is one of the controller op between two seconds; to is 0 if it runs until the end.
func process(from, to float64) record.Process {
	p := record.Process{Controller: "op", Started: at(from)}
	if to > 0 {
		p.Ended = at(to)
	}
	return p
}

// down are the processes of a controller that is down between two seconds.
func down(from, to float64) []record.Process {
	return []record.Process{process(0, from), process(to, 0)}
}

// Regression: what was not created for an owner that was deleted while its operator was down "was left out".
func TestOwnersThatGoWhileTheirControllerIsDown(t *testing.T) {
	const (
		secret    = `secret/default/db {"metadata": {"uid": "p"}}`
		backup    = `job.batch/default/db-backup {"metadata": {"uid": "b"}}`
		volume    = `persistentvolumeclaim/default/data-db-0 {"metadata": {"uid": "v"}}`
		marked    = `updated cluster.db.example/default/db {"metadata": {"uid": "c", "deletionTimestamp": "now"}}`
		gone      = `deleted cluster.db.example/default/db {"metadata": {"uid": "c", "deletionTimestamp": "now"}}`
		successor = `created cluster.db.example/default/db {"metadata": {"uid": "d"}}`
	)
	whole := []string{
		"1 created " + cluster, "1.2 op: created " + secret, "1.4 op: created " + service, "6 " + marked,
		"6.1 op: deleted " + secret, "6.2 op: deleted " + service, "6.3 op: " + gone,
	}
	half := []string{whole[0], whole[1], whole[3], whole[4], whole[6]}
	replaced := []string{"1 created " + cluster, "1.4 op: created " + volume, "6 deleted " + cluster,
		"6.2 op: deleted " + volume, "8 " + successor, "9 op: created " + volume}
	kept := slices.Concat(replaced[:3], replaced[4:5])
	const notReplaced = "bug volume claim default/data-db-0 of cluster default/db was not replaced: created once; " +
		"without faults: created 2 times"
	const ofCluster = "bug service default/db of cluster default/db was left out: never created; without faults: " +
		"created once"
	for _, tt := range []struct {
		name         string
		without, run []string
		processes    []record.Process
		acts         float64 // when the controller reconciles first after its start; 0: when it writes
		fails        float64 // when the plan makes a call of it fail
		upgraded     float64 // when another build is installed
		unpaced      bool
		schedule     *plan.Schedule
		want         []string
	}{
		{name: "down when the owner is marked", without: whole, run: half, processes: down(1.3, 6.05)},
		{name: "back, and could not act", without: whole, run: half, processes: down(1.3, 5.9), unpaced: true},
		{name: "back, and could act", without: whole, run: half, processes: down(1.3, 3), acts: 3.5, unpaced: true,
			want: []string{ofCluster}},
		// Without faults it creates the Service 0.4 s after the owner.
		{name: "back for less than it needs", without: whole, run: half, processes: down(1.3, 4.5), acts: 4.8,
			unpaced: true},
		{name: "back for as long as it needs", without: whole, run: half, processes: down(1.3, 4.5), acts: 4.6,
			unpaced: true, want: []string{ofCluster}},
		{
			name: "slow also without faults", processes: down(1.3, 3), acts: 3.65, unpaced: true, run: half,
			without: slices.Concat(whole[:2], []string{"1.95 op: created " + service}, whole[3:]),
		},
		{name: "back during the step in which the owner is marked", without: whole, run: half,
			processes: down(1.3, 5.9), acts: 5.97},
		{name: "at rest before the deletion", without: whole, run: half, processes: down(1.3, 4), acts: 4.5,
			want: []string{ofCluster}},
		{name: "at rest before it was down", without: whole, run: half, processes: down(5.5, 6.05),
			want: []string{ofCluster}},
		{name: "never down", without: whole, run: half, processes: []record.Process{process(0, 0)},
			want: []string{ofCluster}},
		// Regression: of an operator whose workload sleeps for a shorter time than a step is late.
		{name: "it hears of its owner late", without: whole, run: half, processes: []record.Process{process(0, 0)},
			schedule: &plan.Schedule{Late: []plan.LateStep{{Stream: "op receives cluster", Step: 1}}}},
		{name: "ordered, and nothing is late", without: whole, run: half, processes: []record.Process{process(0, 0)},
			schedule: &plan.Schedule{}, want: []string{ofCluster}},
		{
			name: "late, and kept for the owner's successor", processes: []record.Process{process(0, 0)},
			schedule: &plan.Schedule{Strategy: plan.Swarm, Seed: 1},
			without:  replaced, run: kept, want: []string{notReplaced},
		},
		// Regression: of an operator that tries again only when its informers hand on everything again.
		{name: "it need not have tried again", without: whole, run: half, fails: 1.3,
			processes: []record.Process{process(0, 0)}},
		{name: "a call failed before", without: whole, run: half, fails: 0.95,
			processes: []record.Process{process(0, 0)}, want: []string{ofCluster}},
		// Regression: of an operator whose new version creates what the former one does not know.
		{name: "upgraded when the owner is gone", without: whole, run: half, upgraded: 8,
			processes: []record.Process{process(0, 8.1), process(8.2, 0)}, acts: 8.3},
		{name: "upgraded before", without: whole, run: half, upgraded: 2.5, processes: down(2.6, 3), acts: 3.5,
			want: []string{ofCluster}},
		{
			name: "left behind", without: whole, processes: down(1.3, 6.05),
			run: []string{half[0], half[1], half[2], half[4]},
			want: []string{"bug secret default/db is still there although cluster default/db is gone: exists at the " +
				"end; without faults: deleted at the end"},
		},
		{
			name: "what is created because of the deletion", processes: down(1.3, 6.05),
			without: slices.Insert(slices.Clone(half), 3, "6.05 op: created "+backup, "6.06 op: deleted "+backup),
			run:     half,
			want: []string{"bug job default/db-backup of cluster default/db was left out: never created; without " +
				"faults: created once"},
		},
		{
			name: "the owner's successor has its own", processes: down(1.3, 8.5),
			without: append(slices.Clone(whole), "8 "+successor, "9 op: created "+service),
			run:     append(slices.Clone(half), "8 "+successor, "9 op: created "+service),
		},
		{
			name: "kept for the owner's successor", processes: down(3, 8.5),
			without: replaced, run: kept, want: []string{notReplaced},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			steps := []record.Step{{Text: "create", Started: at(0.9)}, {Text: "wait", Started: at(2)},
				{Text: "delete", Started: at(5.95)}, {Text: "again", Started: at(7.9)}}
			normal, run := tale(t, tt.without...), tale(t, tt.run...)
			normal.Meta.Steps, run.Meta.Steps = steps, steps
			run.Processes = tt.processes
			if tt.acts > 0 {
				o := &record.Observation{By: "op", Point: wire.Reconcile, Phase: wire.Before}
				run.Events = slices.Insert(run.Events, 0, record.Event{Time: at(tt.acts), Observation: o})
			}
			if tt.fails > 0 {
				o := &record.Observation{By: "op", Point: wire.ControllerWrite, Phase: wire.After, Failed: wire.Lost}
				run.Events = slices.Insert(run.Events, 0, record.Event{Time: at(tt.fails), Observation: o})
			}
			if tt.upgraded > 0 {
				run.Actions = []record.Action{{Upgrade: "the build v2", Began: at(tt.upgraded)}}
			}
			e := evidence(run)
			e.Baseline = usual(t, normal)
			e.Plan = &plan.Plan{Pace: plan.PaceRest, Actions: kills.Actions}
			if tt.unpaced {
				e.Plan.Pace = ""
			}
			if tt.schedule != nil {
				e.Plan = &plan.Plan{Schedule: tt.schedule}
			}
			expect(t, judged(t, faultFree{}, e), tt.want...)
		})
	}
}

// Regression: of objects whose owner reference names a definition, or that Kubernetes makes from what the operator
// makes, the rule for deleted owners did not ask for whom they are made.
func TestForWhomAnObjectIsMade(t *testing.T) {
	const (
		second    = `cluster.db.example/default/db-1 {"metadata": {"uid": "d"}}`
		user      = `user.db.example/default/alice {"metadata": {"uid": "a"}}`
		gone      = `deleted cluster.db.example/default/db {"metadata": {"uid": "c"}}`
		userGone  = `deleted user.db.example/default/alice {"metadata": {"uid": "a"}}`
		successor = `created cluster.db.example/default/db {"metadata": {"uid": "e"}}`
		claim     = `persistentvolumeclaim/default/data-db-0 {"metadata": {"uid": "v"}}`
	)
	role := func(name string) string {
		return `clusterrole.rbac.authorization.k8s.io//` + name + ` {"metadata": {"uid": "r", "ownerReferences": [` +
			`{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "uid": "x", ` +
			`"name": "clusters.db.example"}]}}`
	}
	child := func(name string) string { // of the cluster
		return `service/default/` + name + ` {"metadata": {"uid": "s", "ownerReferences": [{"apiVersion": ` +
			`"db.example/v1", "kind": "Cluster", "name": "db", "uid": "c", "controller": true}]}}`
	}
	const leftOut = " was left out: never created; without faults: created once"
	for _, tt := range []struct {
		name         string
		without, run []string
		back         float64 // when the operator is back, which is down from 1.1
		want         []string
	}{
		{
			name: "a role that refers to a definition", back: 6.05,
			without: []string{"1 created " + cluster, "1.2 op@default/db: created " + role("op:db"), "6 " + gone,
				"6.1 op: deleted " + role("op:db")},
			run: []string{"1 created " + cluster, "6 " + gone},
		},
		{
			name: "only its name says for whom it is", back: 6.05,
			without: []string{"1 created " + cluster, "1.2 op: created " + role("op:db"), "6 " + gone,
				"6.1 op: deleted " + role("op:db")},
			run: []string{"1 created " + cluster, "6 " + gone},
		},
		{
			name: "the operator was back in time", back: 3,
			without: []string{"1 created " + cluster, "1.2 op@default/db: created " + role("op:db"), "6 " + gone,
				"6.1 op: deleted " + role("op:db")},
			run:  []string{"1 created " + cluster, "3.1 op: updated " + cluster, "6 " + gone},
			want: []string{"bug cluster role op:db of cluster default/db" + leftOut},
		},
		{
			name: "it may be for others, too", back: 6.05,
			without: []string{"1 created " + cluster, "1.2 op@default/db: created " + role("all"), "6 " + gone,
				"6.1 op: deleted " + role("all")},
			run:  []string{"1 created " + cluster, "6 " + gone},
			want: []string{"bug cluster role all" + leftOut},
		},
		{
			name: "the one for whom it is lives on", back: 6.05,
			without: []string{"1 created " + cluster, "1 created " + second,
				"1.2 op@default/db-1: created " + role("op:db-1"), "6 " + gone},
			run: []string{"1 created " + cluster, "1 created " + second, "6 " + gone},
			want: []string{"bug cluster role op:db-1 of cluster default/db-1 is missing: never created; without " +
				"faults: exists at the end"},
		},
		{
			name: "a request says more than the owner", back: 6.05,
			without: []string{"1 created " + cluster, "1 created " + user,
				"1.2 op@default/alice: created " + child("db-alice"), "6 " + userGone,
				"6.1 op: deleted " + child("db-alice")},
			run: []string{"1 created " + cluster, "1 created " + user, "6 " + userGone},
		},
		{
			name: "the request and the owner differ", back: 6.05,
			without: []string{"1 created " + cluster, "1 created " + user,
				"1.2 op@default/alice: created " + child("users"), "6 " + userGone,
				"6.1 op: deleted " + child("users")},
			run:  []string{"1 created " + cluster, "1 created " + user, "6 " + userGone},
			want: []string{"bug service default/users of cluster default/db" + leftOut},
		},
		{
			// The request may be the same for all objects.
			name: "it goes with its owner, whatever the request", back: 6.05,
			without: []string{"1 created " + cluster, "1 created " + user,
				"1.2 op@default/alice: created " + child("users"), "6 " + gone,
				"6.1 op: deleted " + child("users")},
			run: []string{"1 created " + cluster, "1 created " + user, "6 " + gone},
		},
		{
			name: "a claim of a StatefulSet that nobody could make", back: 6.05,
			without: []string{"1 created " + cluster, "1.2 op: created " + owned, "1.3 created " + claim,
				"6 " + gone, "6.1 deleted " + owned, "6.2 op: deleted " + claim},
			run: []string{"1 created " + cluster, "6 " + gone},
		},
		{
			name: "a claim that is kept without faults", back: 6.05,
			without: []string{"1 created " + cluster, "1.2 op: created " + owned, "1.3 created " + claim,
				"6 " + gone, "6.1 deleted " + owned},
			run: []string{"1 created " + cluster, "6 " + gone},
		},
		{
			name: "a claim of a StatefulSet that was made", back: 6.05,
			without: []string{"1 created " + cluster, "1.05 op: created " + owned, "1.3 created " + claim,
				"6 " + gone, "6.1 deleted " + owned, "6.2 op: deleted " + claim},
			run: []string{"1 created " + cluster, "1.05 op: created " + owned, "6 " + gone,
				"6.1 deleted " + owned},
			want: []string{"bug volume claim default/data-db-0 of cluster default/db" + leftOut},
		},
		{
			name: "a claim that the owner's successor needs", back: 6.05,
			without: []string{"1 created " + cluster, "1.2 op: created " + owned, "1.3 created " + claim,
				"6 " + gone, "6.1 deleted " + owned, "8 " + successor, "8.1 op: created " + setOf("e")},
			run: []string{"1 created " + cluster, "6 " + gone, "8 " + successor, "8.1 op: created " + setOf("e")},
			want: []string{"bug volume claim default/data-db-0 of cluster default/db is missing: never created; " +
				"without faults: exists at the end"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			steps := []record.Step{{Text: "create", Started: at(0.9)}, {Text: "wait", Started: at(2)},
				{Text: "delete", Started: at(5.95)}, {Text: "again", Started: at(7.9)}}
			normal, run := tale(t, tt.without...), tale(t, tt.run...)
			normal.Meta.Steps, run.Meta.Steps, run.Processes = steps, steps, down(1.1, tt.back)
			e := evidence(run)
			e.Baseline, e.Plan = usual(t, normal), &plan.Plan{Pace: plan.PaceRest, Actions: kills.Actions}
			expect(t, judged(t, faultFree{}, e), tt.want...)
		})
	}
}
