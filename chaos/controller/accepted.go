package controller

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
)

// A disruption is accepted in parts. Each part is a condition with one writer: spechash, targets, remote. The
// controller that writes the phase also writes the sum of the parts, the condition Accepted.

// Refusal is the condition that refuses a disruption; nil: none does so far. A refusal is final. Versions that knew no
// parts wrote Accepted alone, so it counts too.
func Refusal(s *chaos.DisruptionStatus) *metav1.Condition {
	for _, part := range []string{
		chaos.ConditionSpecAccepted, chaos.ConditionWithinSafetyNets, chaos.ConditionAcceptedRemotely,
		chaos.ConditionAccepted,
	} {
		if c := meta.FindStatusCondition(s.Conditions, part); c != nil && c.Status == metav1.ConditionFalse {
			return c
		}
	}
	return nil
}

// SpecRefused reports whether the spec alone is refused.
func SpecRefused(s *chaos.DisruptionStatus) bool {
	return meta.IsStatusConditionFalse(s.Conditions, chaos.ConditionSpecAccepted)
}

// SetAccepted sets the condition Accepted to the sum of its parts. Before all checks are done it does nothing. A
// disruption that has started has passed them, also if a version without parts started it.
func SetAccepted(s *chaos.DisruptionStatus) {
	if c := Refusal(s); c != nil {
		SetCondition(s, chaos.ConditionAccepted, false, c.Reason, c.Message)
		return
	}
	if s.Schedule.StartedAt != nil ||
		meta.IsStatusConditionTrue(s.Conditions, chaos.ConditionWithinSafetyNets) ||
		meta.IsStatusConditionTrue(s.Conditions, chaos.ConditionAcceptedRemotely) {
		SetCondition(s, chaos.ConditionAccepted, true, "Accepted", "")
	}
}
