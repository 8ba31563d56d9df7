package deploy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
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

var programs = Programs{
	Controller: "/bin/op", Others: map[string]string{"proxy:2": "/bin/proxy"},
	Files: map[string]string{"/crds": "/repository/crds"},
}

func TestControllerFromTheManifests(t *testing.T) {
	other := object(t, `{apiVersion: v1, kind: ServiceAccount, metadata: {name: op, namespace: system}}`)
	manifests := []*unstructured.Unstructured{other, object(t, manager)}
	off := false
	own, rest, err := Controller(&plan.Controller{
		Name: "op", Deployment: plan.ResourceKey{Type: "deployment", Namespace: "system", Name: "manager"},
		Image: "op:1", Args: []string{"--fixed"}, Env: map[string]string{"A": "new"}, APIServer: "apiserver-2",
		WatchList: &off, Replicas: 2,
	}, manifests, programs)
	if err != nil {
		t.Fatal(err)
	}
	if len(own) != 1 || len(rest) != 1 || rest[0] != other {
		t.Fatalf("%d own objects, %d others", len(own), len(rest))
	}
	want := object(t, `
metadata:
  labels: {app: op}
  annotations:
    {trommel.dev/controller: op, trommel.dev/api-server: apiserver-2, binary.trommel.dev/manager: /bin/op,
     files.trommel.dev/manager: '{"/crds":"/repository/crds"}'}
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

// An image without an entrypoint: the first argument is the program.
func TestProgramAmongTheArguments(t *testing.T) {
	for args, want := range map[string]string{
		"[/work, agent]":          "[/work] [agent --more]",
		"[/etc/work.yaml, agent]": "[] [/etc/work.yaml agent --more]",
		"[work, agent]":           "[] [work agent --more]",
	} {
		own, _, err := Controller(&plan.Controller{
			Name: "op", Image: "op:1", Build: &plan.Build{Package: "./cmd/work"}, Args: []string{"--more"},
		}, []*unstructured.Unstructured{object(t, strings.Replace(manager, "[--leader-elect]", args, 1))}, programs)
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

func TestGeneratedController(t *testing.T) {
	own, rest, err := Controller(&plan.Controller{Name: "op"}, nil, programs)
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
		nil, programs)
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
			_, _, err := Controller(&test.controller, test.manifests, programs)
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
	own, _, err := Controller(c, manifests, programs)
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
	_, _, err = Controller(c, manifests, programs)
	const wrong = `controller "op": env A: valueFrom: strict decoding error: unknown field "fieldRef.path"`
	if err == nil || err.Error() != wrong {
		t.Errorf("got  %v\nwant %s", err, wrong)
	}
}

// What else is in the controller's image runs the controller's program, unless it has a command of its own. What is in
// other images runs what the suite says.
func TestProgramsOfOtherContainers(t *testing.T) {
	for _, test := range []struct {
		name      string
		container string
		init      bool
		main      string // the command of the controller's container
		program   string
		runs      string // command and arguments
	}{
		{name: "an init container of the image", container: "{image: op:1, args: [core, init]}", init: true,
			program: "/bin/op", runs: "[] [core init]"},
		{name: "a sidecar of the image", container: "{image: op:1, args: [rbac]}", program: "/bin/op",
			runs: "[] [rbac]"},
		{name: "it calls the program by its name", container: "{image: op:1, command: [/usr/bin/work, init]}",
			init: true, program: "/bin/op", runs: "[/usr/bin/work init] []"},
		{name: "it calls what the controller's container does", container: "{image: op:1, command: [/manager, init]}",
			init: true, main: "[/manager]", program: "/bin/op", runs: "[/manager init] []"},
		{name: "the program is among the arguments", container: "{image: op:1, args: [/work, init]}", init: true,
			program: "/bin/op", runs: "[/work] [init]"},
		{name: "another program of the image", container: "{image: op:1, command: [sh, -c, 'exit 0']}", init: true,
			runs: "[sh -c exit 0] []"},
		{name: "another image, which the suite knows", container: "{image: 'proxy:2', args: [--x]}",
			program: "/bin/proxy", runs: "[] [--x]"},
		{name: "it has a command", container: "{image: 'proxy:2', command: [sleep, '1']}", runs: "[sleep 1] []"},
		{name: "another image", container: "{image: 'proxy:1', args: [--x]}", init: true, runs: "[] [--x]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := object(t, manager)
			template, _, _ := unstructured.NestedMap(d.Object, "spec", "template")
			spec := template["spec"].(map[string]any)
			var other map[string]any
			if err := yaml.Unmarshal([]byte(test.container), &other); err != nil {
				t.Fatal(err)
			}
			other["name"] = "other"
			controllers := spec["containers"].([]any)[1].(map[string]any)
			if test.main != "" {
				var command []any
				if err := yaml.Unmarshal([]byte(test.main), &command); err != nil {
					t.Fatal(err)
				}
				controllers["command"] = command
			}
			list := "containers"
			spec[list] = []any{controllers, other}
			if test.init {
				list = "initContainers"
				spec["containers"], spec[list] = []any{controllers}, []any{other}
			}
			if err := unstructured.SetNestedMap(d.Object, template, "spec", "template"); err != nil {
				t.Fatal(err)
			}
			own, _, err := Controller(&plan.Controller{
				Name: "op", Image: "op:1", Build: &plan.Build{Package: "./cmd/work"},
				Deployment: plan.ResourceKey{Type: "deployment", Namespace: "system", Name: "manager"},
			}, []*unstructured.Unstructured{d}, programs)
			if err != nil {
				t.Fatal(err)
			}
			annotations, _, _ := unstructured.NestedStringMap(own[0].Object, "spec", "template", "metadata",
				"annotations")
			if got := annotations["binary.trommel.dev/other"]; got != test.program {
				t.Errorf("runs %q, want %q", got, test.program)
			}
			files := map[bool]string{true: `{"/crds":"/repository/crds"}`}
			if got := annotations["files.trommel.dev/other"]; got != files[test.program == "/bin/op"] {
				t.Errorf("has the files %q", got)
			}
			if got := annotations["files.trommel.dev/manager"]; got != files[true] {
				t.Errorf("the controller's container has the files %q", got)
			}
			if got := annotations["binary.trommel.dev/manager"]; got != "/bin/op" {
				t.Errorf("the controller's container runs %q", got)
			}
			all, _, _ := unstructured.NestedSlice(own[0].Object, "spec", "template", "spec", list)
			c := all[len(all)-1].(map[string]any)
			command, _ := c["command"].([]any)
			args, _ := c["args"].([]any)
			if got := fmt.Sprint(command, args); got != test.runs {
				t.Errorf("command and arguments %s, want %s", got, test.runs)
			}
		})
	}
}

func TestMissingPrograms(t *testing.T) {
	d := object(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: manager, namespace: system}
spec:
  template:
    spec:
      initContainers:
      - {name: own, image: op:1, args: [init]}
      - {name: known, image: proxy:2}
      - {name: shell, image: busybox, command: [sh]}
      - {name: wait, image: wait:1, args: [x]}
      - {name: agent, image: agent:1, restartPolicy: Always}
      containers:
      - {name: proxy, image: proxy:1}
      - {name: manager, image: op:1}
`)
	own, _, err := Controller(&plan.Controller{Name: "op", Image: "op:1"}, []*unstructured.Unstructured{d}, programs)
	if err != nil {
		t.Fatal(err)
	}
	suite := &plan.Suite{Cluster: plan.ClusterSpec{Type: plan.Embedded}}
	before, beside := Missing(suite, own)
	names := func(all []corev1.Container) (list []string) {
		for _, c := range all {
			list = append(list, c.Name)
		}
		return list
	}
	if got := fmt.Sprint(names(before), names(beside)); got != "[wait] [agent proxy]" {
		t.Errorf("without a program: %s", got)
	}
	suite.Cluster.Type = plan.KindCluster // runs the images
	if before, beside = Missing(suite, own); len(before)+len(beside) > 0 {
		t.Errorf("on kind: %v, %v", before, beside)
	}
	suite.Cluster.Type = plan.Embedded
	own, _, err = Controller(&plan.Controller{Name: "op"}, nil, programs)
	if err != nil {
		t.Fatal(err)
	}
	if before, beside = Missing(suite, own); len(before)+len(beside) > 0 {
		t.Errorf("generated: %v, %v", before, beside)
	}
}
