package controller

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
)

// The condition Accepted is the sum of its parts, also for a status that was written when there were none.
func TestAccepted(t *testing.T) {
	const yes, no = metav1.ConditionTrue, metav1.ConditionFalse
	condition := func(kind string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: kind + "Reason", Message: kind + " says so"}
	}
	now := metav1.NowMicro()
	for _, tt := range []struct {
		name       string
		conditions []metav1.Condition
		started    bool
		// refusedBy is the condition of the refusal; empty: none.
		refusedBy string
		want      metav1.ConditionStatus
	}{
		{name: "nothing is known"},
		{name: "the targets are still to be chosen",
			conditions: []metav1.Condition{condition(chaos.ConditionSpecAccepted, yes)}},
		{name: "the spec is refused", conditions: []metav1.Condition{condition(chaos.ConditionSpecAccepted, no)},
			refusedBy: chaos.ConditionSpecAccepted, want: no},
		{name: "too many targets", refusedBy: chaos.ConditionWithinSafetyNets, want: no,
			conditions: []metav1.Condition{
				condition(chaos.ConditionSpecAccepted, yes), condition(chaos.ConditionWithinSafetyNets, no),
			}},
		{name: "few enough", want: yes, conditions: []metav1.Condition{
			condition(chaos.ConditionSpecAccepted, yes), condition(chaos.ConditionWithinSafetyNets, yes),
		}},
		{name: "the other cluster refuses", refusedBy: chaos.ConditionAcceptedRemotely, want: no,
			conditions: []metav1.Condition{
				condition(chaos.ConditionSpecAccepted, yes), condition(chaos.ConditionAcceptedRemotely, no),
			}},
		{name: "the other cluster accepts", want: yes, conditions: []metav1.Condition{
			condition(chaos.ConditionSpecAccepted, yes), condition(chaos.ConditionAcceptedRemotely, yes),
		}},
		{name: "an older version has refused", refusedBy: chaos.ConditionAccepted, want: no,
			conditions: []metav1.Condition{condition(chaos.ConditionAccepted, no)}},
		{name: "an older version has started it", started: true, want: yes},
		{name: "an older version has not started it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &chaos.DisruptionStatus{SpecHash: "x", Conditions: tt.conditions}
			if tt.started {
				s.Schedule.StartedAt = &now
			}
			before := s.DeepCopy()
			refusal := Refusal(s)
			if (refusal != nil) != (tt.refusedBy != "") || refusal != nil && refusal.Type != tt.refusedBy {
				t.Errorf("refused by %+v, want %q", refusal, tt.refusedBy)
			}
			if checked := Checked(&chaos.Disruption{Status: *s}); checked != (tt.refusedBy == "") {
				t.Errorf("checked: %t", checked)
			}
			for range 2 { // and it stays
				SetAccepted(s)
				got := Condition(s, chaos.ConditionAccepted)
				if got.Status != tt.want {
					t.Errorf("%+v, want status %q", got, tt.want)
				}
				if by := Condition(before, tt.refusedBy); tt.refusedBy != "" &&
					(got.Reason != by.Reason || got.Message != by.Message) {
					t.Errorf("%+v, want reason and message of %+v", got, by)
				}
			}
			for _, c := range before.Conditions {
				if now := meta.FindStatusCondition(s.Conditions, c.Type); *now != c {
					t.Errorf("%+v was %+v", now, c)
				}
			}
		})
	}
}

// A mode without remote clusters refuses a remote disruption, and reports that.
func TestReportedRemotely(t *testing.T) {
	remote := chaos.Disruption{Spec: chaos.DisruptionSpec{RemoteCluster: &chaos.RemoteTarget{}}}
	refused := *remote.DeepCopy()
	SetCondition(&refused.Status, chaos.ConditionSpecAccepted, false, "Mode", "no")
	for _, tt := range []struct {
		name string
		mode Mode
		d    chaos.Disruption
		want bool
	}{
		{"local", ModeParent, chaos.Disruption{}, false},
		{"remote", ModeParent, remote, true},
		{"refused by a parent", ModeParent, refused, true},
		{"refused by the mode", ModeSingle, refused, false},
		{"refused by a child", ModeChild, refused, false},
		{"begun when this was a parent", ModeSingle, remote, true},
	} {
		if got := (&Config{Mode: tt.mode}).ReportedRemotely(&tt.d); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}
