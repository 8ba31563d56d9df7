package controller

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
)

// A disruption's spec cannot be changed, apart from its count. The API server refuses changes. One that gets through
// all the same, for instance because the definition's rules were removed, has no effect: the status has the spec that
// is carried out.

// Reasons of the condition SpecUnchanged.
const (
	// ReasonSpecChanged: the spec is not the one that is carried out.
	ReasonSpecChanged = "ChangedWithoutEffect"
	// ReasonSpecLost: it is unknown what was carried out. The disruption ends.
	ReasonSpecLost = "Lost"
	// ReasonSpecRestored: it has been changed, and changed back.
	ReasonSpecRestored = "Restored"
)

// SpecHash identifies a spec without its count.
func SpecHash(spec *chaos.DisruptionSpec) (string, error) {
	kept, err := KeepSpec(spec)
	if err != nil {
		return "", err
	}
	return shortHash(string(kept.Raw)), nil
}

// KeepSpec is a spec without its count, as the status keeps it.
func KeepSpec(spec *chaos.DisruptionSpec) (*runtime.RawExtension, error) {
	s := spec.DeepCopy()
	s.Count = nil
	data, err := json.Marshal(s)
	return &runtime.RawExtension{Raw: data}, err
}

// KeptSpec is the spec that a status has; nil if it has none, or not the one with its hash.
func KeptSpec(s *chaos.DisruptionStatus) *chaos.DisruptionSpec {
	spec := &chaos.DisruptionSpec{}
	if s.Spec == nil || json.Unmarshal(s.Spec.Raw, spec) != nil {
		return nil
	}
	if hash, err := SpecHash(spec); err != nil || hash != s.SpecHash {
		return nil
	}
	return spec
}

// carriedOut is the spec that is carried out, with the present count; nil if the status has none.
func carriedOut(d *chaos.Disruption) *chaos.DisruptionSpec {
	spec := KeptSpec(&d.Status)
	if spec != nil {
		spec.Count = d.Spec.Count
	}
	return spec
}

// SpecOf is the spec that is carried out of a disruption that was not read by Get. In the moment after a change it is
// the changed one.
func SpecOf(d *chaos.Disruption) *chaos.DisruptionSpec {
	if meta.IsStatusConditionFalse(d.Status.Conditions, chaos.ConditionSpecUnchanged) {
		if spec := carriedOut(d); spec != nil {
			return spec
		}
	}
	return &d.Spec
}

// specLost reports whether it is unknown what was carried out.
func specLost(d *chaos.Disruption) bool {
	c := Condition(&d.Status, chaos.ConditionSpecUnchanged)
	return meta.IsStatusConditionFalse(d.Status.Conditions, c.Type) && c.Reason != ReasonSpecChanged
}
