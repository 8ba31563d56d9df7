package deploy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/trommel-dev/trommel/plan"
)

const manager = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: manager, namespace: system}
spec:
  replicas: 1
  selector: {matchLabels: {app: op}}
  template:
    metadata: {labels: {app: op}}
    spec:
      serviceAccountName: op
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms: [{matchFields: [{key: a, operator: In, values: [b]}]}]
      nodeSelector: {kubernetes.io/arch: arm64}
      containers:
      - {name: proxy, image: proxy:1}
      - {name: manager, image: op:1, args: [--leader-elect], env: [{name: A, value: old}]}
`

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

var target = Target{Coordinator: "unix:///s", Token: "t", Binary: "/bin/op", Instrumented: true}

func TestControllerFromTheManifests(t *testing.T) {
	other := object(t, `{apiVersion: v1, kind: ServiceAccount, metadata: {name: op, namespace: system}}`)
	manifests := []*unstructured.Unstructured{other, object(t, manager)}
	off := false
	own, rest, err := Controller(&plan.Controller{
		Name: "op", Deployment: plan.ResourceKey{Type: "deployment", Namespace: "system", Name: "manager"},
		Image: "op:1", Args: []string{"--fixed"}, Env: map[string]string{"A": "new"}, APIServer: "apiserver-2",
		WatchList: &off, Replicas: 2,
	}, manifests, target)
	if err != nil {
		t.Fatal(err)
	}
	if len(own) != 1 || len(rest) != 1 || rest[0] != other {
		t.Fatalf("%d own objects, %d others", len(own), len(rest))
	}
	want := object(t, `
metadata:
  labels: {app: op}
  annotations: {trommel.dev/controller: op, trommel.dev/api-server: apiserver-2, binary.trommel.dev/manager: /bin/op}
spec:
  serviceAccountName: op
  nodeSelector: {trommel.dev/process-node: "true"}
  tolerations: [{key: trommel.dev/process-node, operator: Exists, effect: NoSchedule}]
  containers:
  - {name: proxy, image: proxy:1, resources: {}}
  - name: manager
    image: op:1
    resources: {}
    args: [--leader-elect, --fixed]
    env:
    - {name: A, value: new}
    - {name: KUBE_FEATURE_WatchListClient, value: "false"}
    - {name: TROMMEL_COORDINATOR, value: "unix:///s"}
    - {name: TROMMEL_IDENTITY, value: op}
    - {name: TROMMEL_TOKEN, value: t}
`).Object
	got, _, _ := unstructured.NestedMap(own[0].Object, "spec", "template")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pod template (-want +got):\n%s", diff)
	}
	if n, _, _ := unstructured.NestedInt64(own[0].Object, "spec", "replicas"); n != 2 {
		t.Errorf("%d replicas", n)
	}
	if selector, _, _ := unstructured.NestedMap(manifests[1].Object, "spec", "template", "spec",
		"nodeSelector"); selector["kubernetes.io/arch"] != "arm64" {
		t.Error("the manifests were changed")
	}
}

// Components of the control plane take features as arguments, and so do controllers that are built like them.
// An image without an entrypoint: the first argument is the program.
func TestProgramAmongTheArguments(t *testing.T) {
	for args, want := range map[string]string{
		"[/work, agent]":          "[/work] [agent --more]",
		"[/etc/work.yaml, agent]": "[] [/etc/work.yaml agent --more]",
		"[work, agent]":           "[] [work agent --more]",
	} {
		own, _, err := Controller(&plan.Controller{
			Name: "op", Image: "op:1", Build: &plan.Build{Package: "./cmd/work"}, Args: []string{"--more"},
		}, []*unstructured.Unstructured{object(t, strings.Replace(manager, "[--leader-elect]", args, 1))}, target)
		if err != nil {
			t.Fatal(err)
		}
		containers, _, _ := unstructured.NestedSlice(own[0].Object, "spec", "template", "spec", "containers")
		c := containers[1].(map[string]any)
		command, _ := c["command"].([]any)
		if got := fmt.Sprint(command, " ", c["args"]); got != want {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
}

func TestWatchListOfProgramsThatTakeFeatureGatesAsArguments(t *testing.T) {
	off := false
	for _, test := range []struct {
		name       string
		controller plan.Controller
		want       []any
	}{
		{
			name: "a component", controller: plan.Controller{Build: &plan.Build{ControlPlane: "kube-scheduler"}},
			want: []any{"--feature-gates=WatchListClient=false"},
		},
		{
			name:       "an argument that sets it",
			controller: plan.Controller{Args: []string{"--feature-gates", "A=true,WatchListClient=true"}},
			want: []any{"--feature-gates", "A=true,WatchListClient=true",
				"--feature-gates=WatchListClient=false"},
		},
		{
			name:       "another feature",
			controller: plan.Controller{Args: []string{"--feature-gates=A=true"}},
			want:       []any{"--feature-gates=A=true"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.controller.Name, test.controller.WatchList = "op", &off
			own, _, err := Controller(&test.controller, nil, target)
			if err != nil {
				t.Fatal(err)
			}
			spec, _, _ := unstructured.NestedMap(own[len(own)-1].Object, "spec")
			if template, ok, _ := unstructured.NestedMap(spec, "template", "spec"); ok {
				spec = template
			}
			containers, _, _ := unstructured.NestedSlice(spec, "containers")
			if diff := cmp.Diff(test.want, containers[0].(map[string]any)["args"]); diff != "" {
				t.Errorf("arguments (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGeneratedController(t *testing.T) {
	own, rest, err := Controller(&plan.Controller{Name: "op"}, nil, Target{Binary: "/bin/op"})
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, u := range own {
		kinds = append(kinds, u.GetKind()+" "+u.GetNamespace()+"/"+u.GetName())
	}
	want := []string{"ServiceAccount default/op", "ClusterRoleBinding /trommel-op", "Deployment default/op"}
	if diff := cmp.Diff(want, kinds); diff != "" || len(rest) != 0 {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	containers, _, _ := unstructured.NestedSlice(own[2].Object, "spec", "template", "spec", "containers")
	// A binary without hooks gets no coordinator address.
	from := func(name, path string) any {
		return map[string]any{"name": name, "valueFrom": map[string]any{"fieldRef": map[string]any{"fieldPath": path}}}
	}
	wantEnv := []any{from("POD_NAME", "metadata.name"), from("POD_NAMESPACE", "metadata.namespace"),
		from("POD_IP", "status.podIP")}
	if diff := cmp.Diff(wantEnv, containers[0].(map[string]any)["env"]); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}

// A Deployment of the Deployment controller would wait for itself.
func TestComponentOfTheControlPlaneRunsInAPod(t *testing.T) {
	build := &plan.Build{ControlPlane: "kube-controller-manager"}
	own, _, err := Controller(&plan.Controller{Name: "op", Namespace: "system", Build: build, Args: []string{"--a"}},
		nil,
		target)
	if err != nil {
		t.Fatal(err)
	}
	pod := own[len(own)-1]
	if pod.GetKind() != "Pod" || pod.GetNamespace() != "system" || pod.GetName() != "op" {
		t.Errorf("the last object is %s %s/%s", pod.GetKind(), pod.GetNamespace(), pod.GetName())
	}
	if got := pod.GetAnnotations()["trommel.dev/controller"]; got != "op" {
		t.Errorf("the pod is for controller %q", got)
	}
	containers, _, _ := unstructured.NestedSlice(pod.Object, "spec", "containers")
	if diff := cmp.Diff([]any{"--a"}, containers[0].(map[string]any)["args"]); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
}

func TestControllerThatIsNotInTheManifests(t *testing.T) {
	manifests := []*unstructured.Unstructured{object(t, manager)}
	twice := append(manifests, object(t, manager))
	twice[1].SetName("second")
	for _, test := range []struct {
		name       string
		controller plan.Controller
		manifests  []*unstructured.Unstructured
		want       string
	}{
		{
			"another name", plan.Controller{Name: "op", Deployment: plan.ResourceKey{Namespace: "system", Name: "op"}},
			manifests,
			`controller "op": no Deployment system/op in the suite's manifests (Deployments there: system/manager)`,
		},
		{
			"another image", plan.Controller{Name: "op", Image: "op:2"}, manifests,
			`controller "op": no Deployment in the suite's manifests has a container with image "op:2"`,
		},
		{
			"two of them", plan.Controller{Name: "op", Image: "op:1"}, twice,
			"controller \"op\": 2 Deployments have a container with image \"op:1\" (system/manager, system/second): " +
				"name one with `deployment:`",
		},
		{
			"several containers", plan.Controller{Name: "op",
				Deployment: plan.ResourceKey{Namespace: "system", Name: "manager"}}, manifests,
			"controller \"op\": the Deployment has 2 containers (proxy (proxy:1), manager (op:1)): set `image:` to " +
				"that of the controller's container",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, _, err := Controller(&test.controller, test.manifests, target)
			if err == nil || err.Error() != test.want {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
		})
	}
}

func TestEnvironmentFromElsewhere(t *testing.T) {
	c := &plan.Controller{
		Name: "op", Deployment: plan.ResourceKey{Namespace: "system", Name: "manager"}, Image: "op:1",
		Env:     map[string]string{"B": "b"},
		EnvFrom: map[string]map[string]any{"A": {"secretKeyRef": map[string]any{"name": "s", "key": "k"}}},
	}
	manifests := []*unstructured.Unstructured{object(t, manager)}
	own, _, err := Controller(c, manifests, Target{Binary: "/bin/op"})
	if err != nil {
		t.Fatal(err)
	}
	containers, _, _ := unstructured.NestedSlice(own[0].Object, "spec", "template", "spec", "containers")
	want := []any{
		map[string]any{"name": "A",
			"valueFrom": map[string]any{"secretKeyRef": map[string]any{"name": "s", "key": "k"}}},
		map[string]any{"name": "B", "value": "b"},
	}
	if diff := cmp.Diff(want, containers[1].(map[string]any)["env"]); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	c.EnvFrom["A"] = map[string]any{"fieldRef": map[string]any{"path": "metadata.name"}}
	_, _, err = Controller(c, manifests, Target{Binary: "/bin/op"})
	const wrong = `controller "op": env A: valueFrom: strict decoding error: unknown field "fieldRef.path"`
	if err == nil || err.Error() != wrong {
		t.Errorf("got  %v\nwant %s", err, wrong)
	}
}
