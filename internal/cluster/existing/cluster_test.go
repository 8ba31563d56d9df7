package existing

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/cluster/embedded"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

// host is the cluster that exists already.
var host *embedded.Cluster

func TestMain(m *testing.M) {
	if os.Getenv(envVictim) != "" {
		victim()
		return
	}
	os.Exit(clustertest.Run(m, embedded.Config{APIServers: 1}, func(c *embedded.Cluster) { host = c }))
}

// envVictim makes the test's executable a run that will be killed: the kubeconfig, and the namespace after a blank.
const envVictim = "TROMMEL_TEST_VICTIM"

func victim() {
	file, ns, _ := strings.Cut(os.Getenv(envVictim), " ")
	ctx := context.Background()
	c, err := begin(ctx, cluster.JoinConfig{Kubeconfig: file, Context: "staging", Namespaces: []string{ns}})
	if err == nil {
		err = c.use(ctx, ns)
	}
	fmt.Println("ready", err)
	select {}
}

type begunRun struct {
	*Cluster
	snapshot cluster.Snapshot
	unlock   func()
}

// begin does what a run does first.
func begin(ctx context.Context, config cluster.JoinConfig) (*begunRun, error) {
	c, err := Join(ctx, config)
	if err != nil {
		return nil, err
	}
	r := &begunRun{Cluster: c}
	if r.unlock, err = c.Lock(); err != nil {
		return nil, errors.Join(err, c.Close(ctx))
	}
	if r.snapshot, err = c.TakeSnapshot(ctx); err != nil {
		return nil, err
	}
	return r, c.KeepSnapshot(r.snapshot)
}

// use does what a run does: a controller, a workload.
func (r *begunRun) use(ctx context.Context, ns string) error {
	client, err := r.client()
	if err != nil {
		return err
	}
	if err := r.Deploy(ctx, "op", []*unstructured.Unstructured{deployment(ns)}); err != nil {
		return err
	}
	_, err = client.CoreV1().ConfigMaps(ns).Create(ctx, configMap("made"), metav1.CreateOptions{})
	return err
}

func (r *begunRun) client() (kubernetes.Interface, error) {
	config, err := r.RESTConfig("")
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

func (r *begunRun) end(t *testing.T) {
	t.Helper()
	r.unlock()
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// fixture is a namespace that is in use.
type fixture struct {
	t      *testing.T
	admin  kubernetes.Interface
	ns     string
	file   string // a kubeconfig
	config cluster.JoinConfig
	before []byte // a user's ConfigMap
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	t.Setenv("TROMMEL_CACHE", t.TempDir())
	config, err := host.RESTConfig("")
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, file: filepath.Join(t.TempDir(), "config")}
	if f.admin, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	f.ns = clustertest.Namespace(t, f.admin)
	f.config = cluster.JoinConfig{Kubeconfig: f.file, Context: "staging", Namespaces: []string{f.ns},
		Progress: func(text string) { t.Log(text) }}
	if err := cluster.WriteKubeconfig(f.file, "staging", config); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if _, err := f.admin.CoreV1().ConfigMaps(f.ns).Create(ctx, configMap("somebodys"),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	d := new(appsv1.Deployment)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(deployment(f.ns).Object, d); err != nil {
		t.Fatal(err)
	}
	if _, err := f.admin.AppsV1().Deployments(f.ns).Create(ctx, d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, func(ctx context.Context) error {
		d, err := f.admin.AppsV1().Deployments(f.ns).Get(ctx, "op", metav1.GetOptions{})
		if err == nil && d.Status.ReadyReplicas != 2 {
			err = fmt.Errorf("%d pods are ready", d.Status.ReadyReplicas)
		}
		return err
	})
	f.before = f.somebodys()
	return f
}

// begin begins a run, which the caller ends, and returns a client of it.
func (f *fixture) begin() (*begunRun, kubernetes.Interface) {
	f.t.Helper()
	r, err := begin(f.t.Context(), f.config)
	if err != nil {
		f.t.Fatal(err)
	}
	client, err := r.client()
	if err != nil {
		r.end(f.t)
		f.t.Fatal(err)
	}
	return r, client
}

// somebodys returns the object that no run may touch, byte for byte.
func (f *fixture) somebodys() []byte {
	f.t.Helper()
	body, err := f.admin.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/" + f.ns + "/configmaps/somebodys").
		DoRaw(context.Background())
	if err != nil {
		f.t.Fatal(err)
	}
	return body
}

// replicas returns the size of the cluster's Deployment, and whether it says that it is replaced.
func (f *fixture) replicas() (int32, bool) {
	f.t.Helper()
	d, err := f.admin.AppsV1().Deployments(f.ns).Get(f.t.Context(), "op", metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	return *d.Spec.Replicas, d.Annotations[annotationReplaced] != ""
}

// restored checks that everything is as before the run.
func (f *fixture) restored() {
	f.t.Helper()
	if n, marked := f.replicas(); n != 2 || marked {
		f.t.Errorf("the Deployment has %d replicas, annotated: %t", n, marked)
	}
	if after := f.somebodys(); string(after) != string(f.before) {
		f.t.Errorf("somebody's object has changed:\n%s\n%s", f.before, after)
	}
	list, err := f.admin.CoreV1().ConfigMaps(f.ns).List(f.t.Context(), metav1.ListOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	for _, cm := range list.Items {
		if cm.Name != "somebodys" && cm.Name != "kube-root-ca.crt" {
			f.t.Errorf("%s stays behind", cm.Name)
		}
	}
	leases, err := f.admin.CoordinationV1().Leases(f.ns).List(f.t.Context(), metav1.ListOptions{})
	if err != nil || len(leases.Items) > 0 {
		f.t.Errorf("leases stay behind: %v, %v", leases, err)
	}
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"a": "b"}}
}

func deployment(ns string) *unstructured.Unstructured {
	labels := map[string]any{"app": "op"}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "op", "namespace": ns},
		"spec": map[string]any{
			"replicas": int64(2), "selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{
				"metadata": map[string]any{"labels": labels, "annotations": map[string]any{
					cluster.AnnotationController: "op", cluster.AnnotationBinaryPrefix + "op": "/bin/sleep",
				}},
				"spec": map[string]any{"containers": []any{map[string]any{
					"name": "op", "image": "op", "args": []any{"1000"},
				}}},
			},
		},
	}}
}

// A run may write only where the suite allows it, and only what it has made; then all is as before.
func TestRunIsUndone(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	r, client := f.begin()
	defer r.end(t)
	role := &rbacv1.ClusterRole{TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1",
		Kind: "ClusterRole"}, ObjectMeta: metav1.ObjectMeta{Name: "listed-" + f.ns}}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(role)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Allow(ctx, []*unstructured.Unstructured{{Object: content}}, nil); err != nil {
		t.Fatal(err)
	}
	_, err = client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	if err != nil {
		t.Error(err)
	}
	if err := r.use(ctx, f.ns); err != nil {
		t.Fatal(err)
	}
	if n, marked := f.replicas(); n != 0 || !marked {
		t.Errorf("the cluster's Deployment has %d replicas, annotated: %t", n, marked)
	}
	clustertest.Eventually(t, func(ctx context.Context) error {
		all, err := r.Processes().Status(ctx, "op")
		if err == nil && len(all) != 2 {
			err = fmt.Errorf("%d processes", len(all))
		}
		return err
	})
	// What was made may be changed, and so may what came of it.
	merge := []byte(`{"data": {"a": "c"}}`)
	patch := func(ns, name string) error {
		_, err := client.CoreV1().ConfigMaps(ns).Patch(ctx, name, types.MergePatchType, merge, metav1.PatchOptions{})
		return err
	}
	if err := patch(f.ns, "made"); err != nil {
		t.Error(err)
	}
	if _, err := client.AppsV1().StatefulSets(f.ns).Create(ctx, statefulSet(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, func(ctx context.Context) error {
		_, err := client.CoreV1().PersistentVolumeClaims(f.ns).Get(ctx, "data-db-0", metav1.GetOptions{})
		return err
	})
	// A set that is deleted without its pods leaves them without an owner.
	clustertest.Eventually(t, func(ctx context.Context) error {
		_, err := client.CoreV1().Pods(f.ns).Get(ctx, "db-0", metav1.GetOptions{})
		return err
	})
	orphan := metav1.DeletePropagationOrphan
	if err := client.AppsV1().StatefulSets(f.ns).Delete(ctx, "db", metav1.DeleteOptions{
		PropagationPolicy: &orphan}); err != nil {
		t.Error(err)
	}
	_, elsewhere := client.CoreV1().ConfigMaps("default").Create(ctx, configMap("x"), metav1.CreateOptions{})
	_, unlisted := client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "unlisted"}}, metav1.CreateOptions{})
	_, namespace := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "another"}}, metav1.CreateOptions{})
	for what, refused := range map[string]struct {
		err  error
		want string
	}{
		"change": {patch(f.ns, "somebodys"), "configmaps/" + f.ns + "/somebodys was there before the run"},
		"delete": {client.CoreV1().ConfigMaps(f.ns).Delete(ctx, "somebodys", metav1.DeleteOptions{}),
			"somebodys was there before the run"},
		"collection": {client.CoreV1().ConfigMaps(f.ns).DeleteCollection(ctx, metav1.DeleteOptions{},
			metav1.ListOptions{}), "one by one"},
		"elsewhere":  {elsewhere, "may not write in namespace default: the suite's namespaces are " + f.ns},
		"unlisted":   {unlisted, "clusterroles.rbac.authorization.k8s.io/unlisted has no namespace"},
		"namespace":  {namespace, "namespace another may not be created"},
		"not listed": {client.CoreV1().Nodes().Delete(ctx, "n", metav1.DeleteOptions{}), "nodes/n has no namespace"},
	} {
		if !apierrors.IsForbidden(refused.err) || !strings.Contains(refused.err.Error(), refused.want) {
			t.Errorf("%s: %v", what, refused.err)
		}
	}
	// The namespace cannot be used by another run meanwhile.
	other := f.config
	_, err = begin(ctx, other)
	if in := (*InUseError)(nil); !errors.As(err, &in) {
		t.Errorf("a second run: %v", err)
	}
	t.Setenv("TROMMEL_CACHE", t.TempDir()) // as on another machine: only the lease shows it
	lease, err := f.admin.CoordinationV1().Leases(f.ns).Get(ctx, leaseName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lease.Annotations[annotationMachine] = "another"
	if _, err := f.admin.CoordinationV1().Leases(f.ns).Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err = begin(ctx, other)
	if in := (*InUseError)(nil); !errors.As(err, &in) || !strings.Contains(err.Error(), "expires in") {
		t.Errorf("a second run on another machine: %v", err)
	}

	if err := r.Reset(ctx, r.snapshot); err != nil {
		t.Fatal(err)
	}
	if err := r.DropSnapshot(); err != nil {
		t.Error(err)
	}
	if _, err := f.admin.CoreV1().Pods(f.ns).Get(ctx, "db-0", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the pod that has no owner any more: %v", err)
	}
	claims, err := f.admin.CoreV1().PersistentVolumeClaims(f.ns).List(ctx, metav1.ListOptions{})
	if err != nil || len(claims.Items) > 0 {
		t.Errorf("claims stay behind: %v, %v", claims, err)
	}
	if _, err := f.admin.RbacV1().ClusterRoles().Get(ctx, role.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the ClusterRole: %v", err)
	}
	r.unlock()
	r.unlock = func() {}
	f.restored()
}

// Regression: what the user may read and change, but not list, counted as the run's own.
func TestWhatTheUserMayNotList(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	rule := func(group, resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	}
	meta := metav1.ObjectMeta{Name: "narrow"}
	_, err := f.admin.CoreV1().ServiceAccounts(f.ns).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.admin.RbacV1().Roles(f.ns).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		rule("coordination.k8s.io", "leases", "get", "create", "update", "delete"),
		rule("", "serviceaccounts/token", "create"), rule("", "pods", "list"),
		rule("apps", "deployments", "get", "list", "patch"),
		rule("", "configmaps", "get", "create", "patch", "delete"),
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.admin.RbacV1().RoleBindings(f.ns).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: f.ns, Name: meta.Name}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	admin, err := host.RESTConfig("")
	if err != nil {
		t.Fatal(err)
	}
	account, err := clustertest.NewAccount(ctx, admin, f.ns, meta.Name, authorizationv1.ResourceAttributes{
		Namespace: f.ns, Verb: "patch", Resource: "configmaps"})
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.WriteKubeconfig(f.file, "staging", account.Config(t)); err != nil {
		t.Fatal(err)
	}
	r, client := f.begin()
	defer r.end(t)
	maps := client.CoreV1().ConfigMaps(f.ns)
	if _, err := maps.Create(ctx, configMap("made"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	merge := []byte(`{"data": {"a": "c"}}`)
	if _, err := maps.Patch(ctx, "made", types.MergePatchType, merge, metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
	_, patch := maps.Patch(ctx, "somebodys", types.MergePatchType, merge, metav1.PatchOptions{})
	for _, err := range []error{patch, maps.Delete(ctx, "somebodys", metav1.DeleteOptions{})} {
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "somebodys was there before the run") {
			t.Errorf("got %v", err)
		}
	}
	if err := r.Reset(ctx, r.snapshot); err != nil {
		t.Error(err)
	}
	if _, err := f.admin.CoreV1().ConfigMaps(f.ns).Get(ctx, "made", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("what the run has made: %v", err)
	}
	if err := r.DropSnapshot(); err != nil {
		t.Error(err)
	}
	r.unlock()
	r.unlock = func() {}
	f.restored()
}

func statefulSet() *appsv1.StatefulSet {
	labels := map[string]string{"app": "db"}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "db", Image: "db"}}},
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
						corev1.ResourceStorage: resource.MustParse("1Gi")}},
				},
			}},
		},
	}
}

// What a run has left that was killed is put back by the next one, and without its journal at least what it has
// replaced.
func TestKilledRun(t *testing.T) {
	for _, tt := range []struct {
		name    string
		journal bool
	}{{"with its journal", true}, {"without its journal", false}} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t)
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), envVictim+"="+f.file+" "+f.ns)
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil || line != "ready <nil>\n" {
				t.Errorf("the run: %q, %v", line, err)
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if n, marked := f.replicas(); n != 0 || !marked {
				t.Fatalf("the cluster's Deployment has %d replicas, annotated: %t", n, marked)
			}
			left, err := LeftBehind()
			if err != nil || len(left) != 1 || left[0].Context() != "staging" || left[0].PID() != cmd.Process.Pid {
				t.Fatalf("left behind: %+v, %v", left, err)
			}
			if !tt.journal {
				if err := os.Remove(left[0].File); err != nil {
					t.Fatal(err)
				}
				if err := f.admin.CoreV1().ConfigMaps(f.ns).Delete(t.Context(), "made",
					metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			c, err := Join(t.Context(), f.config)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close(context.Background())
			unlock, err := c.Lock()
			if err != nil {
				t.Fatal(err)
			}
			base, err := c.KeptSnapshot()
			switch {
			case !tt.journal && errors.Is(err, fs.ErrNotExist):
			case err != nil:
				t.Fatal(err)
			default:
				if err := c.Reset(t.Context(), base); err != nil {
					t.Error(err)
				}
				if err := c.DropSnapshot(); err != nil {
					t.Error(err)
				}
			}
			unlock()
			f.restored()
		})
	}
}

// A client that changes the Deployment meanwhile keeps its change.
func TestDeploymentThatSomebodyScales(t *testing.T) {
	f := newFixture(t)
	r, err := begin(t.Context(), f.config)
	if err != nil {
		t.Fatal(err)
	}
	defer r.end(t)
	if err := r.use(t.Context(), f.ns); err != nil {
		t.Fatal(err)
	}
	if _, err := f.admin.AppsV1().Deployments(f.ns).Patch(t.Context(), "op", types.MergePatchType,
		[]byte(`{"spec": {"replicas": 1}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := r.Reset(t.Context(), r.snapshot); err != nil {
		t.Error(err)
	}
	if n, marked := f.replicas(); n != 1 || marked {
		t.Errorf("the Deployment has %d replicas, annotated: %t", n, marked)
	}
}

// An object that does not go is reported; custom finalizers of the run's own objects are taken away.
func TestWhatStaysBehind(t *testing.T) {
	f := newFixture(t)
	r, err := begin(t.Context(), f.config)
	if err != nil {
		t.Fatal(err)
	}
	defer r.end(t)
	client, err := r.client()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Deploy(t.Context(), "none", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := f.admin.CoreV1().ConfigMaps(f.ns).Create(t.Context(), configMap("foreign"),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	made := configMap("made")
	made.Finalizers = []string{"example.com/never"}
	if _, err := client.CoreV1().ConfigMaps(f.ns).Create(t.Context(), made, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	err = r.Reset(t.Context(), r.snapshot)
	if err == nil || !strings.Contains(err.Error(), "configmaps/"+f.ns+"/foreign; it leaves them alone") ||
		strings.Contains(err.Error(), "/made") {
		t.Errorf("got %v", err)
	}
}

// A definition whose deletion takes long is changed, so that Kubernetes looks at it again.
func TestDefinitionIsWoken(t *testing.T) {
	f := newFixture(t)
	r, _ := f.begin()
	defer r.end(t)
	ctx := t.Context()
	group := f.ns + ".example.com"
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "sleepers." + group},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced", "names": map[string]any{"plural": "sleepers", "kind": "Sleeper"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}}}},
		},
	}}
	if err := r.Allow(ctx, []*unstructured.Unstructured{definition}, nil); err != nil {
		t.Fatal(err)
	}
	config, err := r.RESTConfig("")
	if err != nil {
		t.Fatal(err)
	}
	client := dynamic.NewForConfigOrDie(config)
	definitions := client.Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if _, err := definitions.Create(ctx, definition, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	sleepers := client.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "sleepers"})
	sleeper := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1", "kind": "Sleeper",
		"metadata": map[string]any{"name": "a", "finalizers": []any{"kubernetes.io/not-taken-away"}},
	}}
	clustertest.Eventually(t, func(ctx context.Context) error {
		_, err := sleepers.Namespace(f.ns).Create(ctx, sleeper, metav1.CreateOptions{})
		return err
	})
	reset := make(chan error, 1)
	go func() { reset <- r.Reset(ctx, r.snapshot) }()
	clustertest.Eventually(t, func(ctx context.Context) error {
		d, err := definitions.Get(ctx, definition.GetName(), metav1.GetOptions{})
		if err == nil && d.GetAnnotations()[annotationWoken] == "" {
			err = fmt.Errorf("%s, deleted at %s, is not woken", d.GetName(), d.GetDeletionTimestamp())
		}
		return err
	})
	if _, err := sleepers.Namespace(f.ns).Patch(ctx, "a", types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
	if err := <-reset; err != nil {
		t.Error(err)
	}
	if _, err := definitions.Get(ctx, definition.GetName(), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get the definition: %v", err)
	}
}

// Each mistake has one clear line, and nothing has happened before.
func TestJoinFails(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	refused := func(config cluster.JoinConfig, want ...string) {
		t.Helper()
		_, err := Join(ctx, config)
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want %q", err, w)
			}
		}
	}
	access := func(name string, change func(*rest.Config)) cluster.JoinConfig {
		t.Helper()
		config, err := host.RESTConfig("")
		if err != nil {
			t.Fatal(err)
		}
		change(config)
		c := f.config
		c.Kubeconfig, c.Context = filepath.Join(t.TempDir(), "config"), name
		if err := cluster.WriteKubeconfig(c.Kubeconfig, name, config); err != nil {
			t.Fatal(err)
		}
		return c
	}
	refused(access("away", func(c *rest.Config) { c.Host = "https://127.0.0.1:1" }),
		`the API server of context "away" (https://127.0.0.1:1) does not answer`)
	_, err := f.admin.CoreV1().ServiceAccounts(f.ns).Create(ctx, &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: "nobody"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	admin, err := host.RESTConfig("")
	if err != nil {
		t.Fatal(err)
	}
	account, err := clustertest.NewAccount(ctx, admin, f.ns, "nobody")
	if err != nil {
		t.Fatal(err)
	}
	refused(access("nobody", func(c *rest.Config) { *c = *account.Config(t) }),
		"may not do what a run needs", "create leases.coordination.k8s.io in namespace "+f.ns,
		"create serviceaccounts/token in namespace "+f.ns)
	refused(access("stranger", func(c *rest.Config) {
		*c = *rest.AnonymousClientConfig(c)
		c.BearerToken = "wrong"
	}), "does not accept the credentials")

	held := configMap("held")
	held.Finalizers = []string{"example.com/never"}
	if _, err := f.admin.CoreV1().ConfigMaps(f.ns).Create(ctx, held, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, err := f.admin.CoreV1().ConfigMaps(f.ns).Patch(context.Background(), "held", types.MergePatchType,
			[]byte(`{"metadata": {"finalizers": []}}`), metav1.PatchOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	if err := f.admin.CoreV1().Namespaces().Delete(ctx, f.ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	refused(f.config, "namespace "+f.ns+" of context", "is being deleted (Terminating)")
}

// A journal whose last line is not complete is read as far as it is.
func TestJournal(t *testing.T) {
	t.Setenv("TROMMEL_CACHE", t.TempDir())
	j, err := openJournal("a")
	if err != nil {
		t.Fatal(err)
	}
	if err := j.add(entry{Running: true}); err == nil {
		t.Error("it is written before it has begun")
	}
	o := func(name, uid string) *object {
		return &object{Version: "v1", Resource: "pods", Namespace: "db", Name: name, UID: types.UID(uid)}
	}
	if err := j.begin(begun{Context: "c", Snapshot: &snapshot{Taken: time.Now(), UIDs: []types.UID{"1"}}}); err != nil {
		t.Fatal(err)
	}
	for _, e := range []entry{
		{Intent: o("a", "")}, {Made: o("a", "2")}, {Running: true}, {Intent: o("b", "")}, {Made: o("b", "3")},
		{Intent: o("c", "")}, {Replaced: &replaced{Name: "d", Replicas: 3}},
	} {
		if err := j.add(e); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(j.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(j.file, append(text, `{"made": {"na`...), 0o600); err != nil {
		t.Fatal(err)
	}
	again := &journal{file: j.file}
	b, err := again.read()
	if err != nil || !b.Snapshot.has("1") || b.Snapshot.has("2") {
		t.Errorf("%+v, %v", b, err)
	}
	all, early, intents := again.made()
	names := func(list []*object) (names []string) {
		for _, o := range list {
			names = append(names, o.Name)
		}
		return names
	}
	got, err := json.Marshal([][]string{names(all), names(early), names(intents)})
	if err != nil || string(got) != `[["a","b"],["a"],["c"]]` {
		t.Errorf("%s, %v", got, err)
	}
	if r := again.replaced(); len(r) != 1 || r[0].Replicas != 3 || !again.madeUID("3") || again.madeUID("1") {
		t.Errorf("replaced %v", r)
	}
	if !slices.Contains([]bool{true}, again.madeUID("2")) {
		t.Error("2 is not made")
	}
	if err := j.drop(); err != nil {
		t.Error(err)
	}
	if _, err := again.read(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("dropped: %v", err)
	}
}
