package controller

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
)

// The spec that is carried out is the one in the status, with the disruption's present count.
func TestSpecThatIsCarriedOut(t *testing.T) {
	one, two := intstr.FromInt32(1), intstr.FromInt32(2)
	written := func(load int32, count *intstr.IntOrString) *chaos.DisruptionSpec {
		spec := &chaos.DisruptionSpec{Level: chaos.LevelPod, Selector: map[string]string{"app": "x"}, Count: count}
		spec.CPUPressure = &chaos.CPUPressure{Load: &load}
		return spec
	}
	keep := func(spec *chaos.DisruptionSpec) *runtime.RawExtension {
		kept, err := KeepSpec(spec)
		if err != nil {
			t.Fatal(err)
		}
		return kept
	}
	hash := func(spec *chaos.DisruptionSpec) string {
		hash, err := SpecHash(spec)
		if err != nil {
			t.Fatal(err)
		}
		return hash
	}
	first, changed := written(10, &one), written(90, &two)
	if hash(first) != hash(written(10, &two)) || hash(first) == hash(changed) {
		t.Error("the hash must depend on everything but count")
	}
	for _, tt := range []struct {
		name     string
		status   chaos.DisruptionStatus
		spec     *chaos.DisruptionSpec
		wantLoad int32
	}{
		{"new", chaos.DisruptionStatus{}, first, 10},
		{"unchanged", chaos.DisruptionStatus{SpecHash: hash(first), Spec: keep(first)}, first, 10},
		{"changed", chaos.DisruptionStatus{SpecHash: hash(first), Spec: keep(first)}, changed, 10},
		{"of an earlier version", chaos.DisruptionStatus{SpecHash: hash(first)}, first, 10},
		{"the status has another spec", chaos.DisruptionStatus{SpecHash: hash(first), Spec: keep(changed)}, first, 10},
		{
			"the status is damaged",
			chaos.DisruptionStatus{SpecHash: hash(first), Spec: &runtime.RawExtension{Raw: []byte("{")}}, first, 10,
		},
	} {
		d := &chaos.Disruption{Spec: *tt.spec, Status: tt.status}
		SetCondition(&d.Status, chaos.ConditionSpecUnchanged, false, ReasonSpecChanged, "")
		if got := SpecOf(d); *got.CPUPressure.Load != tt.wantLoad || *got.Count != *tt.spec.Count {
			t.Errorf("%s: load %d, count %v", tt.name, *got.CPUPressure.Load, got.Count)
		}
	}
}

// A disruption ends if its spec has changed and it is unknown what it was, also if an earlier version found that out.
func TestEndsIfTheSpecIsLost(t *testing.T) {
	for reason, want := range map[string]bool{ReasonSpecChanged: false, ReasonSpecLost: true, "Changed": true} {
		d := &chaos.Disruption{}
		SetCondition(&d.Status, chaos.ConditionSpecUnchanged, false, reason, "")
		if Ending(d) != want {
			t.Errorf("%s: %t", reason, !want)
		}
	}
	d := &chaos.Disruption{}
	SetCondition(&d.Status, chaos.ConditionSpecUnchanged, true, ReasonSpecRestored, "")
	if Ending(d) || Ending(&chaos.Disruption{}) {
		t.Error("it ends although nothing has changed")
	}
}
