package findings

import "testing"

func TestAtStake(t *testing.T) {
	for _, tt := range []struct {
		typ              string
		deletes, content bool
		want             Stake
	}{
		{"persistentvolumeclaim", true, false, StakeLoss},
		{"database.example.org", true, false, StakeLoss},
		{"statefulset.apps", true, false, StakeLoss},
		{"database.example.org", false, true, StakeData},
		{"database.example.org", false, false, StakeMinor},
		{"secret", false, true, StakeData},
		{"pod", true, false, StakeData},
		{"deployment.apps", false, true, StakeUsual},
		{"serviceaccount", true, false, StakeUsual},
		{"serviceaccount", false, true, StakeMinor},
		{"rolebinding.rbac.authorization.k8s.io", false, true, StakeMinor},
		{"configmap", false, true, StakeMinor},
	} {
		if got := AtStake(tt.typ, tt.deletes, tt.content); got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
}
