package facts

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/record"
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

// A controller may choose a random name without generateName. It is the same object as that of another run with another
// text at the end.
func TestNamesThatControllersGenerate(t *testing.T) {
	n := namer{keys: map[string]Key{}, numbers: map[string]int{}}
	key := func(name, uid, owners string) string {
		t.Helper()
		object := map[string]any{}
		meta := fmt.Sprintf(`{"metadata": {"name": %q, "uid": %q, "ownerReferences": [%s]}}`, name, uid, owners)
		if err := json.Unmarshal([]byte(meta), &object); err != nil {
			t.Fatal(err)
		}
		k, generated := n.key(&record.HistoryEntry{Type: "job", Group: "batch", Namespace: "ns", Name: name}, object)
		return fmt.Sprint(k, " ", generated)
	}
	const schedule = `{"kind": "Schedule", "name": "s", "uid": "1"}`
	for _, tt := range []struct{ name, uid, owners, want string }{
		{"s-k49fb", "2", schedule, "batch/ns/s-#1 true"},
		{"s-x2x2x", "3", schedule, "batch/ns/s-#2 true"},
		{"s-k49fb", "2", "", "batch/ns/s-#1 true"}, // has lost its owner
		{"s-1764421200", "4", `{"kind": "CronJob", "name": "s", "uid": "9"}`, "batch/ns/s-#3 true"},
		{"s-1764421200", "5", schedule, "batch/ns/s-1764421200 false"},
		{"s-k49fb", "6", "", "batch/ns/s-k49fb false"},
		{"t-k49fb", "7", schedule, "batch/ns/t-k49fb false"},
		{"s-nodes", "8", schedule, "batch/ns/s-nodes false"},
	} {
		if got := key(tt.name, tt.uid, tt.owners); got != "job."+tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}
