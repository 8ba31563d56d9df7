package facts

import (
	"testing"

	"k8s.io/client-go/kubernetes/scheme"
)

func TestIsCustom(t *testing.T) {
	for _, v := range scheme.Scheme.PreferredVersionAllGroups() {
		if v.Group != "" && IsCustom("thing."+v.Group) {
			t.Errorf("%s is a group of Kubernetes", v.Group)
		}
	}
	for typ, want := range map[string]bool{
		"secret": false, "deployment.apps": false, "database.example.com": true, "jobset.jobset.x-k8s.io": true,
		"volumesnapshot.snapshot.storage.k8s.io": true,
	} {
		if IsCustom(typ) != want {
			t.Errorf("%s: %t", typ, !want)
		}
	}
}

func TestHoldsData(t *testing.T) {
	for typ, want := range map[string]bool{
		"persistentvolumeclaim": true, "secret": true, "statefulset.apps": true, "cluster.db.example": true,
		"namespace": true, "configmap": false, "deployment.apps": false, "lease.coordination.k8s.io": false,
		"volumesnapshot.snapshot.storage.k8s.io": true,
	} {
		if HoldsData(typ) != want {
			t.Errorf("%s holds data: %t", typ, !want)
		}
	}
}
