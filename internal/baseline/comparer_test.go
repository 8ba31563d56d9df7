package baseline

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/record"
)

// Objects of one name in two clusters are compared each with its own.
func TestCompareSeveralClusters(t *testing.T) {
	run := func(east, west string) *record.Run {
		r := &record.Run{}
		for i, color := range []string{east, west} {
			cluster := []string{"east", "west"}[i]
			r.History = append(r.History, record.HistoryEntry{
				Time: time.Unix(int64(i+1), 0), ResourceVersion: uint64(i + 1), Event: record.Created,
				Cluster: cluster, Type: "configmap", Namespace: "default", Name: "a",
				Object: json.RawMessage(fmt.Sprintf(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a",
					"namespace": "default", "uid": %q}, "data": {"color": %q}}`, "of "+cluster, color)),
			})
		}
		return r
	}
	ref, err := Learn("w", []*record.Run{run("blue", "red"), run("blue", "red")})
	if err != nil {
		t.Fatal(err)
	}
	if len(ref.Objects) != 2 || len(ref.Found) != 0 {
		t.Errorf("%d objects, found %v", len(ref.Objects), ref.Found)
	}
	differ := func(ref *Baseline, r *record.Run) (all []string) {
		end, err := facts.Follow(r)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range ref.Compare(end.Objects()) {
			all = append(all, d.String())
		}
		return all
	}
	if got := differ(ref, run("blue", "red")); got != nil {
		t.Error(got)
	}
	want := []string{
		`east: configmap/default/a: data.color is "red"; without faults: "blue"`,
		`west: configmap/default/a: data.color is "blue"; without faults: "red"`,
	}
	if diff := cmp.Diff(want, differ(ref, run("red", "blue"))); diff != "" {
		t.Error(diff)
	}
	// What differs in one cluster without faults counts in the other.
	if ref, err = Learn("w", []*record.Run{run("blue", "red"), run("blue", "green")}); err != nil {
		t.Fatal(err)
	}
	if len(ref.Found) != 1 || ref.Found[0].Object != "west: configmap/default/a" {
		t.Errorf("found %v", ref.Found)
	}
	if diff := cmp.Diff(want[:1], differ(ref, run("red", "blue"))); diff != "" {
		t.Error(diff)
	}
	if !slices.Contains(ref.MaskEntries(), MaskEntry{
		Object: "west: configmap/default/a", Path: "data.color", Reason: Differs, Value: true,
	}) {
		t.Error("no mask for the object in west")
	}
}
