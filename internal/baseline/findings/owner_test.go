package findings

import (
	"encoding/json"
	"testing"

	"github.com/trommel-dev/trommel/internal/facts"
)

func TestOwnersOf(t *testing.T) {
	const definition = `"ownerReferences": [{"apiVersion": "apiextensions.k8s.io/v1", ` +
		`"kind": "CustomResourceDefinition", "name": "clusters.db.example", "uid": "x"}]`
	objects := map[facts.Key]*facts.Object{}
	for key, metadata := range map[facts.Key]string{
		"cluster.db.example/a/db":                         `"namespace": "a", "name": "db", "uid": "1"`,
		"cluster.db.example/a/db-1":                       `"namespace": "a", "name": "db-1", "uid": "2"`,
		"cluster.db.example/a/twice":                      `"namespace": "a", "name": "twice", "uid": "3"`,
		"cluster.db.example/b/twice":                      `"namespace": "b", "name": "twice", "uid": "4"`,
		"clusterrole.rbac.authorization.k8s.io//op:a:db":  `"name": "op:a:db", ` + definition,
		"clusterrole.rbac.authorization.k8s.io//op-db-1":  `"name": "op-db-1"`,
		"clusterrole.rbac.authorization.k8s.io//op-twice": `"name": "op-twice", ` + definition,
		"clusterrole.rbac.authorization.k8s.io//op":       `"name": "op", "labels": {"of": "db"}`,
		"clusterrole.rbac.authorization.k8s.io//unknown":  `"name": "unknown", ` + definition,
		"secret/a/db": `"namespace": "a", "name": "db", ` + definition,
		"secret/b/db": `"namespace": "b", "name": "db"`,
		"customresourcedefinition.apiextensions.k8s.io//c.x": `"name": "clusters.db.example", "uid": "x"`,
	} {
		var object map[string]any
		if err := json.Unmarshal([]byte(`{"metadata": {`+metadata+`}}`), &object); err != nil {
			t.Fatal(err)
		}
		objects[key] = &facts.Object{End: object}
	}
	owners := NewOwners(nil, objects)
	for key, want := range map[facts.Key]facts.Key{
		"clusterrole.rbac.authorization.k8s.io//op:a:db":  "cluster.db.example/a/db",
		"clusterrole.rbac.authorization.k8s.io//op-db-1":  "cluster.db.example/a/db-1",
		"clusterrole.rbac.authorization.k8s.io//op-twice": "", // of one of two
		"clusterrole.rbac.authorization.k8s.io//op":       "cluster.db.example/a/db",
		"clusterrole.rbac.authorization.k8s.io//unknown":  "",
		"secret/a/db": "cluster.db.example/a/db",
		"secret/b/db": "",
	} {
		if got := owners.Of(key); got != want {
			t.Errorf("%s belongs to %q, want %q", key, got, want)
		}
	}
}
