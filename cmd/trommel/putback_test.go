package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/trommel-dev/trommel/internal/cluster/embedded"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

// usersDeployment is applied to the cluster by a user before the run; the suite's manifests contain it too.
const usersDeployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: copier, namespace: default, annotations: {mine: "yes"}}
spec:
  replicas: 1
  selector: {matchLabels: {app: copier}}
  template:
    metadata: {labels: {app: copier}}
    spec: {containers: [{name: manager, image: example.com/copier:1}]}
`

const usersAccess = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: copier}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: default, namespace: default}]
`

// down is a plan that leaves an API server killed and then waits forever.
const down = `testName: down
workload: copy
actions:
  - actionType: killAPIServer
    actionTarget: apiserver-2
    trigger: {definitions: [{triggerName: now, condition: {triggerType: none}}]}
  - actionType: startAPIServer
    actionTarget: apiserver-2
    trigger:
      definitions:
      - triggerName: never
        condition: {triggerType: onObjectCreation, resourceKey: configmap/default/never}
        observationPoint: {timing: afterAPIServerRecv, observeBy: apiserver-1}
`

// testPutBack runs plans on a cluster where a user has applied an operator. However a run ends, the cluster is
// restored, including the user's objects, and the next run works. Before the fix, an API server that a plan had killed
// stayed down, and the Deployment stayed rewritten.
func testPutBack(t *testing.T, trommel, cluster, copier string) {
	ctx := t.Context()
	client := clientOf(t, cluster)
	var deployment appsv1.Deployment
	if err := yaml.Unmarshal([]byte(usersDeployment), &deployment); err != nil {
		t.Fatal(err)
	}
	if _, err := client.AppsV1().Deployments("default").Create(ctx, &deployment, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	mine := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "source"}, Data: map[string]string{"mine": "yes"}}
	if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, mine, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		_ = client.AppsV1().Deployments("default").Delete(ctx, "copier", metav1.DeleteOptions{})
		_ = client.CoreV1().ConfigMaps("default").Delete(ctx, "source", metav1.DeleteOptions{})
	})
	clustertest.Eventually(t, func(ctx context.Context) error {
		d, err := client.AppsV1().Deployments("default").Get(ctx, "copier", metav1.GetOptions{})
		if err == nil && d.Status.ReadyReplicas != 1 {
			err = fmt.Errorf("status %+v", d.Status)
		}
		return err
	})
	want := users(t, cluster)

	dir := writePlans(t, copier)
	text := strings.Replace(suite(copier), "  - name: copier\n", "  - name: copier\n    deployment: default/copier\n",
		1)
	text = strings.Replace(text, "\nworkloads:", "\nmanifests: [{path: copier.yaml}, {path: access.yaml}]\nworkloads:",
		1)
	for file, text := range map[string]string{
		"trommel.yaml": text, "copier.yaml": usersDeployment, "access.yaml": usersAccess, "down.yaml": down,
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(t *testing.T) {
		t.Helper()
		out, err := exec.Command(trommel, "-p", filepath.Join(dir, "passing.yaml"), "--cluster", cluster,
			"--record", filepath.Join(t.TempDir(), "r")).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		asBefore(t, cluster, want)
	}
	t.Run("finished", run)
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) {
			s := startUntil(t, "action 1 (killAPIServer apiserver-2) done", trommel,
				"-p", filepath.Join(dir, "down.yaml"), "--cluster", cluster, "--record",
				filepath.Join(t.TempDir(), "r"))
			if err := s.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			rest := <-s.rest
			code := exitCode(s.Wait())
			if signal == syscall.SIGINT {
				if code != "4" || !strings.Contains(rest, "interrupted") || strings.Contains(rest, "teardown:") {
					t.Errorf("exit code %s, then it printed:\n%s", code, rest)
				}
				asBefore(t, cluster, want)
			} else {
				refusesWhatIsNotTheRuns(t, trommel, cluster, dir)
			}
			run(t)
		})
	}
}

// refusesWhatIsNotTheRuns applies an object after a run was killed: the next run would delete it, so it refuses to
// start.
func refusesWhatIsNotTheRuns(t *testing.T, trommel, cluster, dir string) {
	t.Helper()
	c, err := embedded.Attach(t.Context(), cluster)
	if err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, func(ctx context.Context) error {
		state, err := c.State(ctx)
		if err == nil && state.Abandoned == 0 {
			err = errors.New("the cluster has not noticed that the run was killed")
		}
		return err
	})
	maps := clientOf(t, cluster).CoreV1().ConfigMaps("default")
	later := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "later"}, Data: map[string]string{"a": "1"}}
	_, err = maps.Create(t.Context(), later, metav1.CreateOptions{FieldManager: "kubectl-create"})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		out, err := exec.Command(trommel, "-p", filepath.Join(dir, "passing.yaml"), "--cluster", cluster,
			"--record", filepath.Join(t.TempDir(), "r")).CombinedOutput()
		if exitCode(err) != "4" ||
			!strings.Contains(string(out), "would delete them: configmaps/default/later. Delete them") {
			t.Errorf("%v\n%s", err, out)
		}
	}
	if err := maps.Delete(t.Context(), "later", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// users returns the user's objects as the user sees them, with their UIDs.
func users(t *testing.T, cluster string) string {
	t.Helper()
	client := clientOf(t, cluster)
	deployments, err := client.AppsV1().Deployments("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pods, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	maps, err := client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var all []any
	for _, o := range deployments.Items {
		o.ResourceVersion = ""
		all = append(all, o)
	}
	for _, o := range pods.Items {
		o.ResourceVersion = ""
		all = append(all, o)
	}
	for _, o := range maps.Items {
		o.ResourceVersion = ""
		all = append(all, o)
	}
	data, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func asBefore(t *testing.T, cluster, want string) {
	t.Helper()
	if got := users(t, cluster); got != want {
		t.Errorf("the user's objects after the run:\n%s\nbefore:\n%s", got, want)
	}
	c, err := embedded.Attach(t.Context(), cluster)
	if err != nil {
		t.Fatal(err)
	}
	if running, err := c.Running(t.Context()); err != nil || !running["apiserver-2"] {
		t.Errorf("running %v, %v", running, err)
	}
	if _, err := c.KeptSnapshot(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the snapshot is still there: %v", err)
	}
}
