package scaffold

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/internal/objects"
)

func TestSelectedNode(t *testing.T) {
	for _, tt := range []struct {
		name, spec string // of a Rollout
		want       map[string]string
	}{
		{"no selector", `{replicas: 3}`, nil},
		{"what each node has", `{nodeSelector: {kubernetes.io/os: linux}}`, nil},
		{"labels, as in pods", `{template: {spec: {nodeSelector: {disk: ssd, kubernetes.io/os: linux}}}}`,
			map[string]string{"disk": "ssd"}},
		{"a label selector", `{nodeSelector: {matchLabels: {pool: a}, matchExpressions: [
			{key: upgrade, operator: Exists}, {key: upgrade, operator: NotIn, values: ["disabled"]},
			{key: mode, operator: DoesNotExist}, {key: zone, operator: In, values: [z1, z2]}]}}`,
			map[string]string{"pool": "a", "upgrade": "true", "zone": "z1"}},
		{"a name of its own", `{agentNodeSelector: {matchExpressions: [{key: role, operator: Exists}]}}`,
			map[string]string{"role": "true"}},
		{"what cannot be", `{nodeSelector: {matchExpressions: [{key: a, operator: Exists},
			{key: a, operator: DoesNotExist}]}}`, nil},
		{"a true that is refused", `{nodeSelector: {matchExpressions: [{key: a, operator: Exists},
			{key: a, operator: NotIn, values: ["true"]}]}}`, nil},
		{"no mapping", `{nodeSelector: all}`, nil},
		{"not for nodes", `{selector: {matchLabels: {app: a}}}`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := "apiVersion: example.com/v1\nkind: Rollout\nmetadata: {name: a}\nspec: " + tt.spec + "\n"
			list, err := objects.Decode([]byte(text), "rollout.yaml")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, selectedNode(list[0].Object)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
