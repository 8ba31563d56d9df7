package run_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Regression: `watchList: false` of an action was a variable in the controller's pod template, so that the template's
// hash was another one than without faults. An operator that copied its own pod's labels then "differed".
func TestTemplateHashIsTheSameInAllPlans(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	e := loadExample(t, "database-operator", "stale-deletion")
	stale := e.plans[0]
	plain := &plan.Plan{TestName: "plain", Workload: stale.Workload}
	caches := &plan.Plan{TestName: "caches", Workload: stale.Workload, CheckCaches: true}
	s := open(t, e, run.Options{})
	var want []string
	for _, p := range []*plan.Plan{plain, stale, caches} {
		own := *p
		own.History = append(slices.Clone(p.History), plan.ResourceKey{
			Type: "replicaset", Group: "apps", Namespace: "*", Name: "*",
		})
		own.Complete(e.suite)
		meta, o, r := runRecorded(t, s, &own)
		streaming := p != stale
		if meta.Controllers[0].WatchList != streaming {
			t.Errorf("%s: streaming lists: %t", p.TestName, !streaming)
		}
		if p == stale && (o.Verdict != record.Bug || len(r.Meta.StaleReads) == 0) {
			t.Errorf("%s: %s, stale reads %v", p.TestName, o.Verdict, r.Meta.StaleReads)
		}
		hashes := hashesOfControllers(t, r)
		if want == nil {
			want = hashes
		}
		if diff := cmp.Diff(want, hashes); diff != "" || len(hashes) != 1 {
			t.Errorf("%s: hashes (-without faults +got):\n%s", p.TestName, diff)
		}
	}
}

// hashesOfControllers lists the template hashes of the controllers' ReplicaSets.
func hashesOfControllers(t *testing.T, r *record.Run) (all []string) {
	t.Helper()
	for _, h := range r.History {
		var set struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				Template struct {
					Metadata struct{ Annotations map[string]string }
				}
			}
		}
		if err := json.Unmarshal(h.Object, &set); err != nil {
			t.Fatal(err)
		}
		hash := set.Metadata.Labels["pod-template-hash"]
		if set.Spec.Template.Metadata.Annotations["trommel.dev/controller"] != "" && !slices.Contains(all, hash) {
			all = append(all, hash)
		}
	}
	slices.Sort(all)
	return all
}
