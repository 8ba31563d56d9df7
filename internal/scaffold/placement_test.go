package scaffold

import (
	"testing"

	"github.com/trommel-dev/trommel/internal/objects"
)

func TestMisplaced(t *testing.T) {
	for _, tt := range []struct {
		name, spec string // of a Cluster
		want       int
	}{
		{"no pods", `{replicas: 3}`, 0},
		{"what each node has", `{template: {spec: {nodeSelector: {kubernetes.io/os: linux},
            containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Gi},
                limits: {ephemeral-storage: 1Gi}}}]}}}`, 0},
		{"a label of a cloud", `{template: {spec: {nodeSelector: {cloud.example.com/machine: large},
            containers: [{name: a}]}}}`, 1},
		{"a device of a worker, and one to begin with", `{workers: [
			{spec: {containers: [{name: a}, {name: b, resources: {limits: {nvidia.com/gpu: 1}}}]}},
			{spec: {containers: [{name: a}], initContainers: [{name: b, resources: {requests: {nvidia.com/gpu: 1}}}]}},
			{spec: {containers: [{name: a}]}}]}`, 2},
		{"no pod, although it has resources", `{resources: {limits: {nvidia.com/gpu: 1}}, nodeSelector: {a: b}}`, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := "apiVersion: example.com/v1\nkind: Cluster\nmetadata: {name: a}\nspec: " + tt.spec + "\n"
			list, err := objects.Decode([]byte(text), "cluster.yaml")
			if err != nil {
				t.Fatal(err)
			}
			if got := misplaced(&file{objects: list}); got != tt.want {
				t.Errorf("got %d pods without a node, want %d", got, tt.want)
			}
		})
	}
}
