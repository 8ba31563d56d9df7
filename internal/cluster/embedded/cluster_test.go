package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/trommel-dev/trommel/internal/cluster/embedded"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

func restConfig(c interface {
	Kubeconfig(string) (string, error)
}, apiServer string) (*rest.Config, error) {
	file, err := c.Kubeconfig(apiServer)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err == nil {
		config.QPS = -1
	}
	return config, err
}

func TestEveryAPIServerServes(t *testing.T) {
	if got := strings.Join(shared.APIServers(), " "); got != "apiserver-1 apiserver-2 apiserver-3" {
		t.Fatalf("API servers %s", got)
	}
	hosts := map[string]bool{}
	for _, name := range shared.APIServers() {
		config, err := shared.RESTConfig(name)
		if err != nil {
			t.Fatal(err)
		}
		hosts[config.Host] = true
		client := clientFor(t, shared, name)
		version, err := client.Discovery().ServerVersion()
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(version.GitVersion, "v1.36.") || version.Major != "1" || version.Minor != "36" {
			t.Errorf("%s: version %+v", name, version)
		}
		ns := clustertest.Namespace(t, client)
		// What one server writes, the others read.
		for _, other := range shared.APIServers() {
			if _, err := clientFor(t, shared, other).CoreV1().Namespaces().
				Get(t.Context(), ns, metav1.GetOptions{}); err != nil {
				t.Errorf("namespace written through %s, read through %s: %v", name, other, err)
			}
		}
	}
	if len(hosts) != 3 {
		t.Errorf("addresses %v", hosts)
	}
	if _, err := shared.RESTConfig("apiserver-4"); err == nil ||
		err.Error() != `no API server "apiserver-4" (there are apiserver-1, apiserver-2, apiserver-3)` {
		t.Errorf("got %v", err)
	}
}

func TestRBACDeniesPlainServiceAccount(t *testing.T) {
	ns := clustertest.Namespace(t, clientFor(t, shared, ""))
	config, err := shared.RESTConfig("")
	if err != nil {
		t.Fatal(err)
	}
	config.Impersonate.UserName = "system:serviceaccount:" + ns + ":default"
	client, err := restClient(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Secrets(ns).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("got %v, want forbidden", err)
	}
}

// Neither etcd nor an API server gives access without a certificate.
func TestAnonymousIsNobody(t *testing.T) {
	config, err := shared.RESTConfig("")
	if err != nil {
		t.Fatal(err)
	}
	config = rest.AnonymousClientConfig(config)
	client, err := restClient(config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
		t.Errorf("got %v", err)
	}
	for _, file := range []string{"etcd.sock", "server.key", "sa.key", "apiserver-1.kubeconfig"} {
		if _, err := os.Stat(filepath.Join(shared.Dir(), file)); err != nil {
			t.Error(err)
		}
	}
	if info, err := os.Stat(shared.Dir()); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the cluster's directory has mode %v (%v)", info.Mode(), err)
	}
}

func TestVolumeIsBoundAndDeleted(t *testing.T) {
	client := clientFor(t, shared, "")
	ns := clustertest.Namespace(t, client)
	claims := client.CoreV1().PersistentVolumeClaims(ns)
	_, err := claims.Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	awaitClaim := func(size string) *corev1.PersistentVolumeClaim {
		var claim *corev1.PersistentVolumeClaim
		clustertest.Eventually(t, func(ctx context.Context) error {
			var err error
			if claim, err = claims.Get(ctx, "data", metav1.GetOptions{}); err != nil {
				return err
			}
			if claim.Status.Phase != corev1.ClaimBound || claim.Status.Capacity.Storage().String() != size {
				return fmt.Errorf("claim %+v", claim.Status)
			}
			return nil
		})
		return claim
	}
	claim := awaitClaim("1Gi")
	volume, err := client.CoreV1().PersistentVolumes().Get(t.Context(), claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil || volume.Status.Phase != corev1.VolumeBound || volume.Spec.ClaimRef.UID != claim.UID {
		t.Errorf("volume %+v, %v", volume, err)
	}

	patch := []byte(`{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`)
	if _, err := claims.Patch(t.Context(), "data", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitClaim("2Gi")

	if err := claims.Delete(t.Context(), "data", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, func(ctx context.Context) error {
		if _, err := claims.Get(ctx, "data", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("claim is still there (%v)", err)
		}
		if v, err := client.CoreV1().PersistentVolumes().
			Get(ctx, volume.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("volume is still there: %+v (%v)", v.Status, err)
		}
		return nil
	})
}

func newStatefulSet(name string, replicas int32) *appsv1.StatefulSet {
	labels := map[string]string{"app": name}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, ServiceName: name, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "main", Image: "none", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
				}}},
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{
						Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
					},
				},
			}},
		},
	}
}

func TestStatefulSetScales(t *testing.T) {
	client := clientFor(t, shared, "")
	ns := clustertest.Namespace(t, client)
	sets := client.AppsV1().StatefulSets(ns)
	if _, err := sets.Create(t.Context(), newStatefulSet("web", 3), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, replicas := range []int32{3, 1, 2} {
		scale, err := sets.GetScale(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		scale.Spec.Replicas = replicas
		if _, err := sets.UpdateScale(t.Context(), "web", scale, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		clustertest.Eventually(t, func(ctx context.Context) error {
			set, err := sets.Get(ctx, "web", metav1.GetOptions{})
			if err != nil {
				return err
			}
			pods, err := client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			if set.Status.ReadyReplicas != replicas || len(pods.Items) != int(replicas) {
				return fmt.Errorf("want %d replicas: %d pods, status %+v", replicas, len(pods.Items), set.Status)
			}
			return nil
		})
	}
	pod := awaitRunningPod(t, client, ns, "web-0")
	if !strings.HasPrefix(pod.Spec.NodeName, "node-") {
		t.Errorf("runs on %q, want a simulated node", pod.Spec.NodeName)
	}
}

// The rest of the cluster keeps working while any API server is up.
func TestKillAndStartAPIServer(t *testing.T) {
	ctx := t.Context()
	ns := clustertest.Namespace(t, clientFor(t, shared, ""))
	if err := shared.KillAPIServer(ctx, "apiserver-1"); err != nil {
		t.Fatal(err)
	}
	if err := shared.KillAPIServer(ctx, "apiserver-1"); err != nil {
		t.Errorf("killed twice: %v", err)
	}
	config, err := shared.RESTConfig("apiserver-1")
	if err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("tcp", strings.TrimPrefix(config.Host, "https://")); err == nil {
		conn.Close()
		t.Error("a killed API server accepts connections")
	}
	second := clientFor(t, shared, "apiserver-2")
	if _, err := second.CoreV1().Pods(ns).Create(ctx, newPod("meanwhile"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitRunningPod(t, second, ns, "meanwhile")

	start := time.Now()
	if err := shared.StartAPIServer(ctx, "apiserver-1"); err != nil {
		t.Fatal(err)
	}
	t.Logf("StartAPIServer took %s", time.Since(start))
	awaitRunningPod(t, clientFor(t, shared, "apiserver-1"), ns, "meanwhile")
	if err := shared.StartAPIServer(ctx, "apiserver-1"); err != nil {
		t.Errorf("start of a running one: %v", err)
	}
	for _, f := range []func(context.Context, string) error{shared.KillAPIServer, shared.StartAPIServer} {
		if err := f(ctx, "apiserver-9"); err == nil || !strings.Contains(err.Error(), `no API server "apiserver-9"`) {
			t.Errorf("got %v", err)
		}
	}
}

func TestTwoClustersAtOnce(t *testing.T) {
	clusters := others(t)
	if clusters[0].Name() == clusters[1].Name() || clusters[0].Dir() == clusters[1].Dir() {
		t.Errorf("clusters share %s, %s", clusters[0].Name(), clusters[0].Dir())
	}
	for i, c := range clusters {
		client := clientFor(t, c, "")
		pod := newPod(fmt.Sprintf("only-in-%d", i))
		pod.Labels = map[string]string{"test": "two-at-once"}
		if _, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		awaitRunningPod(t, client, "default", pod.Name)
		pods, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{LabelSelector: "test=two-at-once"})
		if err != nil || len(pods.Items) != 1 {
			t.Errorf("cluster %d has %d pods, %v", i, len(pods.Items), err)
		}
	}
}

func TestStartReportsWhyAComponentDied(t *testing.T) {
	binary, err := clustertest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		config embedded.Config
		want   []string
	}{
		{"API server", embedded.Config{APIServerArgs: []string{"--nonsense"}},
			[]string{"wait for apiserver-1: apiserver-1 exited with code 1; the end of its log:",
				"Error: unknown flag: --nonsense"}},
		{"feature gate", embedded.Config{FeatureGates: map[string]bool{"Nonsense": true}},
			[]string{"wait for apiserver-1", "unrecognized feature gate: Nonsense"}},
		{"controller manager", embedded.Config{ControllerManagerArgs: []string{"--nonsense"}},
			[]string{"kube-controller-manager exited with code 1", "Error: unknown flag: --nonsense"}},
		{"controllers", embedded.Config{DisableControllers: []string{"nonsense"}},
			[]string{"kube-controller-manager exited", `\"nonsense\" is not in the list of known controllers`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.config.Binary, tt.config.APIServers, tt.config.Dir = binary, 1, shortDir(t)
			c, err := embedded.Start(t.Context(), tt.config)
			if err == nil {
				_ = c.Close(t.Context())
				t.Fatal("it started")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error lacks %q:\n%v", want, err)
				}
			}
			checkNothingLeft(t, tt.config.Dir)
		})
	}
}

func TestCancelledStartLeavesNothing(t *testing.T) {
	binary, err := clustertest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, after := range []time.Duration{0, 20 * time.Millisecond, 300 * time.Millisecond, 1500 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			dir := shortDir(t)
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			c, err := embedded.Start(ctx, embedded.Config{Binary: binary, APIServers: 1, Dir: dir})
			if err == nil {
				_ = c.Close(t.Context())
				t.Skip("the cluster started too fast")
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			checkNothingLeft(t, dir)
		})
	}
}

// shortDir creates a directory whose path leaves room for sockets.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "tc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// checkNothingLeft checks that dir contains no run directories, and that no processes that were started with one are
// running.
func checkNothingLeft(t *testing.T, dir string) {
	t.Helper()
	if left := runDirs(t, dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	// The processes of a killed cluster are killed by its guard process, a moment later.
	clustertest.Eventually(t, func(context.Context) error {
		if pids := processesWith(t, dir+"/"); len(pids) > 0 {
			return fmt.Errorf("processes left: %v", pids)
		}
		return nil
	})
}

func runDirs(t *testing.T, dir string) []string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(dir, "[0-9a-f]*"))
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

// Regression: a cluster without its controller manager would silently do nothing.
func TestInfrastructureIsStartedAgain(t *testing.T) {
	c := others(t)[1]
	for _, pid := range processesWith(t, c.Dir()+"/") {
		command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if name, _, _ := strings.Cut(string(command), "\x00"); name != "kube-apiserver" {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	client := clientFor(t, c, "")
	clustertest.Eventually(t, func(ctx context.Context) error {
		_, err := client.AppsV1().StatefulSets("default").Create(ctx, newStatefulSet("web", 1), metav1.CreateOptions{})
		return err
	})
	awaitRunningPod(t, client, "default", "web-0")
}

func TestCloseEndsEveryGoroutine(t *testing.T) {
	before := goleak.IgnoreCurrent()
	binary, err := clustertest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	c, err := embedded.Start(t.Context(), embedded.Config{Binary: binary, APIServers: 2, Nodes: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	if err := c.StartAPIServer(t.Context(), "apiserver-1"); err == nil ||
		err.Error() != "start apiserver-1: the cluster is closed" {
		t.Errorf("start in a closed cluster: %v", err)
	}
	goleak.VerifyNone(t, before)
}

// An API server that is started later knows what was there before, and serves it.
func TestAPIServersOnDemand(t *testing.T) {
	ctx := t.Context()
	binary, err := clustertest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	c, err := embedded.Start(ctx, embedded.Config{
		Binary: binary, APIServers: 3, OnDemand: true, Needed: []string{"apiserver-3"}, Nodes: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	running := func(want map[string]bool) {
		t.Helper()
		if got, err := c.Running(ctx); err != nil || !maps.Equal(got, want) {
			t.Errorf("running: %v, %v; want %v", got, err, want)
		}
	}
	running(map[string]bool{"apiserver-1": true, "apiserver-2": false, "apiserver-3": true})
	for range 2 { // the second time it does nothing
		if err := c.NeedAPIServers(ctx, []string{"apiserver-1", "apiserver-2"}); err != nil {
			t.Fatal(err)
		}
		running(map[string]bool{"apiserver-1": true, "apiserver-2": true, "apiserver-3": true})
	}
	config, err := c.RESTConfig("apiserver-2")
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{ResourceVersion: "0"}); err != nil {
		t.Error(err)
	}
}

// StartAPIServer returns early if the API server is killed.
func TestKillWhileStarting(t *testing.T) {
	c := shared
	if err := c.KillAPIServer(t.Context(), "apiserver-2"); err != nil {
		t.Fatal(err)
	}
	started := make(chan error, 1)
	go func() { started <- c.StartAPIServer(context.Background(), "apiserver-2") }()
	time.Sleep(100 * time.Millisecond)
	if err := c.KillAPIServer(t.Context(), "apiserver-2"); err != nil {
		t.Fatal(err)
	}
	if err := <-started; err == nil || !strings.Contains(err.Error(), "apiserver-2 was killed by signal 9") {
		t.Errorf("start: %v", err)
	}
	if err := c.StartAPIServer(t.Context(), "apiserver-2"); err != nil {
		t.Error(err)
	}
}
