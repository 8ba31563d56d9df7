package facts

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestGroups(t *testing.T) {
	for key, want := range map[Key]Key{
		"pod/ns-1/web-#12":          "pod/ns-1/web-#*",
		"pod/ns/db-0":               "pod/ns/db-*",
		"claim/ns/data-db-10":       "claim/ns/data-db-*",
		"pod/ns/db-0-config":        "pod/ns/db-*-config",
		"pod/ns/a1b-2c":             "pod/ns/a1b-2c",
		"secret/ns/v1.2-3.x":        "secret/ns/v1.2-*.x",
		"pod/ns/web-#1-#2":          "pod/ns/web-#*-#*",
		"clusterrole//a":            "clusterrole//a",
		"deployment.apps/default/a": "deployment.apps/default/a",
	} {
		if got := key.Group(); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
}

func TestKeysOfClusters(t *testing.T) {
	for _, tt := range []struct {
		key                        Key
		cluster, local, typ, group string
	}{
		{"pod/default/a-1", "", "pod/default/a-1", "pod", "pod/default/a-*"},
		{"west: set.apps/default/a-1", "west", "set.apps/default/a-1", "set.apps", "west: set.apps/default/a-*"},
		{"clusterrole.rbac.authorization.k8s.io//system:node", "", "clusterrole.rbac.authorization.k8s.io//system:node",
			"clusterrole.rbac.authorization.k8s.io", "clusterrole.rbac.authorization.k8s.io//system:node"},
		{"role.rbac.authorization.k8s.io/a/b: c", "", "role.rbac.authorization.k8s.io/a/b: c",
			"role.rbac.authorization.k8s.io", "role.rbac.authorization.k8s.io/a/b: c"},
		{"west: node//n", "west", "node//n", "node", "west: node//n"},
	} {
		got := []string{tt.key.Cluster(), tt.key.Local(), tt.key.Type(), string(tt.key.Group())}
		if diff := cmp.Diff([]string{tt.cluster, tt.local, tt.typ, tt.group}, got); diff != "" {
			t.Errorf("%s: %s", tt.key, diff)
		}
		if again := KeyIn(tt.cluster, tt.local); again != tt.key {
			t.Errorf("%s, want %s", again, tt.key)
		}
	}
}
