package preflight

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/trommel-dev/trommel/plan"
)

// An init container that cannot run keeps the controller from starting, which the user is not to find out by waiting.
func TestInitContainersNeedPrograms(t *testing.T) {
	d := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: op, namespace: system}
spec:
  template:
    spec:
      initContainers:
      - {name: own, image: op:1, args: [init]}
      - {name: wait, image: wait:1}
      containers:
      - {name: manager, image: op:1}
      - {name: proxy, image: proxy:1}
`), &d.Object); err != nil {
		t.Fatal(err)
	}
	const missing = `controller "op": the init container wait has no command: name the executable of its image with ` +
		"`executables: {\"wait:1\": PATH}`"
	for _, test := range []struct {
		name        string
		kind        plan.ClusterType
		executables map[string]string
		want        string
	}{
		{"none", plan.Embedded, nil, missing},
		{"none, as processes beside an existing cluster", plan.Existing, nil, missing},
		{"the suite names it", plan.Embedded, map[string]string{"wait:1": "wait.sh"}, ""},
		{"images are images", plan.KindCluster, nil, ""},
	} {
		suite := &plan.Suite{Cluster: plan.ClusterSpec{Type: test.kind}}
		c := &plan.Controller{Name: "op", Image: "op:1", Executables: test.executables}
		err := checkDeployment(suite, c, []*unstructured.Unstructured{d})
		if got := message(err); got != test.want {
			t.Errorf("%s: %q", test.name, got)
		}
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
