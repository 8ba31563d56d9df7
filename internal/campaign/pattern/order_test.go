package pattern

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
)

// inOrder returns the plans of workloads in their order: the number of the workload, the pattern and the signature.
func inOrder(t *testing.T, patterns []string, workloads ...[]facts.Change) []string {
	t.Helper()
	var all [][]Candidate
	plans := 0
	for _, changes := range workloads {
		candidates := Generate(suite(t), baselines(changes), patterns...)
		all = append(all, candidates)
		for _, c := range candidates {
			if c.Plan != nil {
				plans++
			}
		}
	}
	var lines []string
	order := Order(all...)
	for _, p := range order {
		c := all[p.Workload][p.Index]
		lines = append(lines, fmt.Sprintf("%d %s %s", p.Workload, c.Pattern, c.Signature))
	}
	if again := Order(all...); !slices.Equal(order, again) || len(order) != plans {
		t.Errorf("%d plans of %d, then %d: %v, %v", len(order), plans, len(again), order, again)
	}
	return lines
}

const (
	database = facts.Key("database.example.org/default/db")
	claim    = facts.Key("persistentvolumeclaim/default/data-db-0")
	account  = facts.Key("serviceaccount/default/db")
)

func ready(replicas, ready int) object {
	return object{"spec": spec(replicas)["spec"], "status": object{"ready": float64(ready)}}
}

func withStatus(phase string) object { return object{"status": object{"phase": phase}} }

func TestOrder(t *testing.T) {
	made := func(key facts.Key) facts.Change {
		return change("op", wire.Create, key, record.Created, nil, object{})
	}
	created := change("", "", database, record.Created, nil, spec(2))
	recreate := []facts.Change{
		created, made(account), made(set),
		change("", "", database, record.Updated, spec(2), marked(spec(2))),
		change("op", wire.Delete, set, record.Deleted, object{}, nil),
		change("op", wire.Update, database, record.Deleted, finalized(spec(2)), nil),
		created, made(account), made(set),
	}
	const mark = "database.example.org marked for deletion metadata.deletionTimestamp"
	for _, tt := range []struct {
		name, reason string
		patterns     []string
		workloads    [][]facts.Change
		want         []string
	}{
		{
			"what holds data comes first", "a status, or a service account, is made again from what is there",
			[]string{"intermediate"}, [][]facts.Change{{
				made(account), made("role.rbac.authorization.k8s.io/default/db"), made("configmap/default/db"),
				made("service/default/db"), made("pod/default/db-0"),
				change("op", wire.Update, database, record.Updated, withStatus("New"), withStatus("Ready")),
				change("op", wire.Update, database, record.Updated, spec(2), finalized(spec(2))),
				made(claim), made(set), change("op", wire.Delete, claim, record.Deleted, object{}, nil),
				change("op", wire.Delete, "pod/default/db-0", record.Deleted, object{}, nil),
			}},
			[]string{
				"0 intermediate persistentvolumeclaim deleted",
				"0 intermediate database.example.org updated metadata.finalizers.[]",
				"0 intermediate persistentvolumeclaim created",
				"0 intermediate statefulset.apps created",
				"0 intermediate pod deleted",
				"0 intermediate pod created",
				"0 intermediate serviceaccount created",
				"0 intermediate role.rbac.authorization.k8s.io created",
				"0 intermediate configmap created",
				"0 intermediate service created",
				"0 intermediate database.example.org updated status.phase",
			},
		},
		{
			"patterns take turns", "those that find most come first, and one of each kind before the second of any",
			[]string{"intermediate", "lost-answer", "own-write-unseen"}, [][]facts.Change{{
				made(account), made(set), made(key), change("op", wire.Update, set, record.Updated, spec(2), spec(3)),
				change("op", wire.Update, set, record.Updated, withStatus("New"), withStatus("Ready")),
			}},
			[]string{
				"0 lost-answer statefulset.apps created", "0 intermediate statefulset.apps created",
				"0 lost-answer secret created", "0 intermediate secret created",
				"0 lost-answer statefulset.apps updated spec.replicas",
				"0 intermediate statefulset.apps updated spec.replicas",
				"0 lost-answer serviceaccount created", "0 intermediate serviceaccount created",
				"0 own-write-unseen statefulset.apps created", "0 own-write-unseen secret created",
				"0 own-write-unseen serviceaccount created",
				"0 lost-answer statefulset.apps updated status.phase",
				"0 intermediate statefulset.apps updated status.phase",
			},
		},
		{
			"workloads with a common beginning",
			"what differs only in the workload comes after all that differ in kind",
			[]string{"lost-answer"}, [][]facts.Change{
				{
					made(account), made(set), made("pod/default/db-0"), made("pod/default/db-1"),
					change("op", wire.Update, set, record.Updated, spec(2), spec(3)),
				},
				{made(account), made(set)},
			},
			[]string{
				"1 lost-answer statefulset.apps created", "0 lost-answer statefulset.apps updated spec.replicas",
				"0 lost-answer pod created", "1 lost-answer serviceaccount created",
				"0 lost-answer pod created",
				"0 lost-answer statefulset.apps created", "0 lost-answer serviceaccount created",
			},
		},
		{
			"the stale mark of a namesake", "it deletes what is in use: shown at each kind of write, before all else",
			[]string{"intermediate", "stale"}, [][]facts.Change{{made(claim)}, recreate},
			[]string{
				"1 stale " + mark + " / statefulset.apps created", "1 stale " + mark + " / serviceaccount created",
				"1 intermediate statefulset.apps deleted",
			},
		},
		{
			"what is done once more", "a status that has led to the deletion of data comes before a spec that has not",
			[]string{"stale"}, [][]facts.Change{{
				created, made(set), change("", "", claim, record.Created, nil, spec(1)),
				change("", "", database, record.Updated, spec(2), spec(1)),
				change("op", wire.Update, set, record.Updated, spec(2), spec(1)),
				change("", "", set, record.Updated, ready(1, 2), ready(1, 1)),
				change("op", wire.Delete, claim, record.Deleted, spec(1), nil),
				change("", "", database, record.Updated, spec(1), spec(2)),
				change("op", wire.Update, set, record.Updated, spec(1), spec(2)),
				change("", "", claim, record.Created, nil, spec(1)),
				change("", "", set, record.Updated, ready(2, 1), ready(2, 2)),
				change("op", wire.Update, database, record.Updated, withStatus("New"), withStatus("Ready")),
			}},
			[]string{
				"0 stale statefulset.apps updated status.ready / persistentvolumeclaim created",
				"0 stale persistentvolumeclaim deleted / database.example.org updated status.phase",
				"0 stale database.example.org created / persistentvolumeclaim deleted",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := inOrder(t, tt.patterns, tt.workloads...)
			if len(got) < len(tt.want) {
				t.Fatalf("%s: only\n%s", tt.reason, strings.Join(got, "\n"))
			}
			if tt.patterns[len(tt.patterns)-1] == "stale" {
				got = got[:len(tt.want)]
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.reason, diff)
			}
		})
	}
}

// In virtual time, waiting takes no time of the machine, but starting a process does.
func TestExtra(t *testing.T) {
	restart := func() *build.Action { return build.RestartController("op") }
	for _, tt := range []struct {
		name          string
		actions       []*build.Action
		real, virtual time.Duration
	}{
		{"nothing but a wait", []*build.Action{build.AdvanceTime(time.Hour).When(build.Timeout(time.Minute))},
			time.Minute, 0},
		{"two restarts", []*build.Action{restart().When(build.AtOnce()), restart().When(build.Timeout(time.Second))},
			5 * time.Second, 600 * time.Millisecond},
		{"a takeover", []*build.Action{build.FreezeController("op").When(build.AtOnce())}, takeoverTime, 0},
	} {
		p, err := build.Plan("p").Then(tt.actions...).Build()
		if err != nil {
			t.Fatal(err)
		}
		if real, virtual := Extra(p, false), Extra(p, true); real != tt.real || virtual != tt.virtual {
			t.Errorf("%s: %s, in virtual time %s", tt.name, real, virtual)
		}
	}
}

func TestWhatPlansStrikeAt(t *testing.T) {
	const set = "statefulset.apps/default/db"
	written := func(key string) *build.Condition { return build.Created(key).At(plan.AfterControllerWrite, "op") }
	marked := build.Updated("database.example.org/default/db").To(object{
		"metadata": object{"deletionTimestamp": plan.Present},
	}).At(plan.AfterAPIServerRecv, "apiserver-3")
	for _, tt := range []struct {
		name    string
		actions []*build.Action
		want    string
	}{
		{"a write", []*build.Action{build.RestartController("op").When(written(set))}, "statefulset.apps created 2"},
		{"another client's deletion", []*build.Action{build.Delete(set).When(written("configmap/default/a"))},
			"statefulset.apps deleted 3"},
		{"another client's change", []*build.Action{build.PatchJSON(set, object{
			"op": "replace", "path": "/spec/replicas", "value": 0,
		}).When(written("configmap/default/a"))}, "statefulset.apps updated 2"},
		{"another client's change of labels", []*build.Action{build.PatchJSON(set, object{
			"op": "remove", "path": "/metadata/labels",
		}).When(written("configmap/default/a"))}, "statefulset.apps updated 0"},
		{"what is shown", []*build.Action{
			build.PauseAPIServer("apiserver-3").Scope("database.example.org/default/db").When(marked),
			build.ReconnectController("op", "apiserver-3").When(written(set)),
		}, "database.example.org marked 3"},
		{"what is held", []*build.Action{
			build.PauseController("op", plan.BeforeControllerRead).Scope("secret/default/db").When(written(set)),
			build.ResumeController("op", plan.BeforeControllerRead).Scope("secret/default/db").When(
				build.Deleted("secret/default/db").At(plan.AfterControllerRecv, "op")),
		}, "secret deleted 3"},
		{"an annotated call", []*build.Action{build.RestartController("op").When(
			build.Called("backup").At(plan.AfterAnnotatedCall, "op"))}, "backup called 1"},
		{"a time", []*build.Action{build.RestartController("op").When(build.Timeout(time.Second))}, "  0"},
	} {
		p, err := build.Plan("p").Then(tt.actions...).Build()
		if err != nil {
			t.Fatal(err)
		}
		at, _ := struck(p)
		if got := fmt.Sprintf("%s %d", at, at.stake); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
