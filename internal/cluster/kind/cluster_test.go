package kind

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/trommel-dev/trommel/coordinator/monitor"
	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/layer"
	"github.com/trommel-dev/trommel/internal/privatedir"
)

// needEngine skips the test where there is no container engine. TROMMEL_TEST_KIND, which make kind-test sets, says that
// there is one.
func needEngine(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("makes a cluster with kind")
	}
	if err := CheckEngine(t.Context()); err != nil && os.Getenv("TROMMEL_TEST_KIND") != "" {
		t.Fatal(err)
	} else if err != nil {
		t.Skipf("make kind-test brings up an engine: %v", err)
	}
}

// start starts a cluster, and sees at the end that nothing of it is left.
func start(t *testing.T, config cluster.Config) *Cluster {
	t.Helper()
	needEngine(t)
	before := leftovers(t)
	if config.Binary == "" {
		result, err := instrumentation.BuildControlPlane(t.Context(), instrumentation.ControlPlaneConfig{})
		if err != nil {
			t.Fatal(err)
		}
		config.Binary = result.Binary
	}
	config.LogDir = t.TempDir()
	begin := time.Now()
	config.Progress = func(line string) { t.Logf("%6.1f s %s", time.Since(begin).Seconds(), line) }
	c, err := Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%6.1f s up", time.Since(begin).Seconds())
	t.Cleanup(func() {
		begin := time.Now()
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
		t.Logf("%6.1f s down", time.Since(begin).Seconds())
		if after := leftovers(t); after != before {
			t.Errorf("left in the engine:\n%s\nbefore:\n%s", after, before)
		}
	})
	return c
}

// leftovers lists what the engine has.
func leftovers(t *testing.T) string {
	t.Helper()
	var all []string
	for _, args := range [][]string{
		// An engine that is started again gives its own networks new IDs.
		{"ps", "-aq"}, {"network", "ls", "--format", "{{.Name}}"}, {"volume", "ls", "-q"},
	} {
		out, err := engine(context.Background(), nil, args...)
		if err != nil {
			t.Fatal(err)
		}
		list := strings.Fields(out)
		slices.Sort(list)
		all = append(all, strings.Join(append(args[:1:1], list...), " "))
	}
	parent, err := privatedir.Parent()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(append(all, directoriesIn(t, parent)...), "\n")
}

// directoriesIn lists the directories of clusters. The lock beside them stays: the first cluster on a machine makes it.
func directoriesIn(t *testing.T, parent string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			all = append(all, filepath.Join(parent, e.Name()))
		}
	}
	return all
}

// Regression: on a machine that had never run a cluster, the first test found something left.
func TestFirstClusterOfAMachineLeavesNothing(t *testing.T) {
	parent := t.TempDir()
	d, err := privatedir.New(parent)
	if err != nil {
		t.Fatal(err)
	}
	if all := directoriesIn(t, parent); !slices.Equal(all, []string{d.Path()}) {
		t.Errorf("while it is there: %q", all)
	}
	if err := d.Remove(); err != nil {
		t.Fatal(err)
	}
	if all := directoriesIn(t, parent); len(all) > 0 {
		t.Errorf("left: %q", all)
	}
}

// coordinate runs a monitor where the cluster's processes look for a coordinator, and returns the names of those that
// connect.
func coordinate(t *testing.T, c *Cluster) <-chan string {
	t.Helper()
	address, token := c.Rendezvous()
	m, err := monitor.Listen(monitor.Config{Address: address, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	connected := make(chan string, 100)
	go func() {
		for e := range m.Events() {
			if e.Started {
				connected <- e.Session.Identity
			}
		}
	}()
	t.Cleanup(func() { _ = m.Close() })
	return connected
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), d, errors.New("not within "+d.String()))
	t.Cleanup(cancel)
	return ctx
}

func TestCluster(t *testing.T) {
	needEngine(t)
	give(t, image{
		names: []string{operatorImage}, entrypoint: []string{"/operator", "print"},
		files: []layer.File{
			{Path: "/operator", Data: []byte("the old one"), Mode: 0o755},
			{Path: "/etc/operator/templates", Data: []byte("what it needs"), Mode: 0o644},
		},
	})
	c := start(t, cluster.Config{APIServers: 3, Images: []string{operatorImage}})
	client, err := c.client("")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("API servers have hooks, and are killed and started", func(t *testing.T) {
		connected := coordinate(t, c)
		seen := map[string]bool{}
		ctx := within(t, time.Minute)
		for len(seen) < 3 {
			select {
			case name := <-connected:
				seen[name] = true
			case <-ctx.Done():
				t.Fatalf("only %v have connected", seen)
			}
		}
		const name = "apiserver-2"
		if err := c.KillAPIServer(ctx, name); err != nil {
			t.Fatal(err)
		}
		address, err := c.apiServerAddress(name)
		if err != nil {
			t.Fatal(err)
		}
		if conn, err := net.DialTimeout("tcp", address, time.Second); err == nil {
			_ = conn.Close()
			t.Error("it still listens")
		}
		if err := c.StartAPIServer(ctx, name); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-connected:
			if got != name {
				t.Errorf("%s has connected", got)
			}
		case <-ctx.Done():
			t.Error("it has not connected again")
		}
	})
	t.Run("a pod runs a local program in a container", func(t *testing.T) { testPod(t, c, client) })
	t.Run("a program is put onto the image that its container names", func(t *testing.T) {
		testOnto(t, c, client)
	})
	t.Run("a Service is reached from here", func(t *testing.T) { testDialInside(t, c, client) })
}

// testDialInside connects to Services, as an API server does that calls a webhook.
func testDialInside(t *testing.T, c *Cluster, client kubernetes.Interface) {
	ctx := within(t, 2*time.Minute)
	const name, namespace = "webhook", "default"
	meta := metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{"app": name}}
	service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		Selector: meta.Labels,
		Ports: []corev1.ServicePort{
			{Name: "other", Port: 80, TargetPort: intstr.FromInt32(1)},
			{Name: "https", Port: 443, TargetPort: intstr.FromInt32(8443)},
		},
	}}
	if _, err := client.CoreV1().Services(namespace).Create(ctx, service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{
		"webhook.default.svc:443": "service default/webhook selects no pod",
		"webhook.default.svc:444": "service default/webhook has no port 444",
		"nothing.default.svc:443": `services "nothing" not found`,
	} {
		if _, err := c.DialInside(ctx, address); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", address, err, want)
		}
	}
	conn, err := c.DialInside(ctx, "kubernetes.default.svc:443")
	if err != nil {
		t.Errorf("the API servers: %v", err)
	} else {
		_ = conn.Close()
	}

	meta.Annotations = map[string]string{
		cluster.AnnotationController: name, cluster.AnnotationBinaryPrefix + "main": buildProbe(t),
	}
	pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "main", Image: "nowhere.example/webhook:1", Command: []string{"probe", "serve", ":8443"},
	}}}}
	if _, err := client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := poll(ctx, func(ctx context.Context) error {
		conn, err := c.DialInside(ctx, "webhook.default.svc:443")
		if err != nil {
			return err
		}
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		if _, err := conn.Write([]byte("x")); err != nil {
			return err
		}
		_, err = io.ReadFull(conn, make([]byte, 1))
		return err
	}); err != nil {
		t.Error(err)
	}
	conn, err = c.DialInside(ctx, "webhook.default.svc:80")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := conn.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("where nothing listens: %v", err)
	}
}

const operatorImage = "registry.example/operator:1"

// testOnto runs a program in an image of the engine: with its files and its entrypoint's arguments.
func testOnto(t *testing.T, c *Cluster, client kubernetes.Interface) {
	ctx := within(t, 2*time.Minute)
	const name = "operator"
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Annotations: map[string]string{
			cluster.AnnotationController: name, cluster.AnnotationBinaryPrefix + "main": buildProbe(t),
		}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Image: operatorImage, Args: []string{"/etc/operator/templates"},
		}}},
	}
	if _, err := client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const want = "[/operator print /etc/operator/templates] what it needs <nil>\n"
	err := poll(ctx, func(ctx context.Context) error {
		all, err := c.Processes().Status(ctx, name)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			got, err := client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
			return errors.Join(errors.New(got.Status.String()), err)
		}
		if text, err := os.ReadFile(all[0].Log); string(text) != want {
			return fmt.Errorf("log: %q, %v", text, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	// Nothing of what was made for the node stays in the engine.
	left, err := engine(ctx, nil, "images", "-q", "trommel.dev/program")
	if err != nil || left != "" {
		t.Errorf("images %q, %v", left, err)
	}
}

// testPod runs this machine's sh, with its libraries, in a container on the node.
func testPod(t *testing.T, c *Cluster, client kubernetes.Interface) {
	ctx := within(t, 2*time.Minute)
	yes := true
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "shell", Namespace: "default", Annotations: map[string]string{
			cluster.AnnotationController: "shell", cluster.AnnotationBinaryPrefix + "main": "/bin/sh",
		}},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{cluster.LabelProcessNode: "true"},
			Containers: []corev1.Container{{
				Name: "main", Image: "nowhere.example/shell:1",
				Command: []string{"sh", "-c", `read id rest < /proc/self/stat; echo "$KUBERNETES_SERVICE_HOST pid $id $(
					cd /var/run/secrets/kubernetes.io/serviceaccount && echo *)"
					while :; do read x < /dev/zero; done`},
				SecurityContext: &corev1.SecurityContext{RunAsNonRoot: &yes},
			}},
		},
	}
	if _, err := client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	node := c.Processes()
	status := func() []cluster.Process {
		all, err := node.Status(ctx, "shell")
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if err := poll(ctx, func(ctx context.Context) error {
		if len(status()) != 1 {
			got, _ := client.CoreV1().Pods("default").Get(ctx, "shell", metav1.GetOptions{})
			return errors.New(got.Status.String())
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := poll(ctx, func(context.Context) error {
		text, _ := os.ReadFile(status()[0].Log)
		if !strings.Contains(string(text), c.gateway+" pid ") || !strings.Contains(string(text), "ca.crt") {
			return errors.New("log: " + string(text))
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if err := node.Kill(ctx, "shell"); err != nil {
		t.Fatal(err)
	}
	got, err := client.CoreV1().Pods("default").Get(ctx, "shell", metav1.GetOptions{})
	if err != nil || got.Status.ContainerStatuses[0].RestartCount != 0 || got.Status.Phase != corev1.PodRunning {
		t.Errorf("the pod of a killed program: %+v, %v", got.Status, err)
	}
	if err := node.Start(ctx, "shell"); err != nil {
		t.Fatal(err)
	}
	if all := status(); len(all) != 2 || all[0].Running() || !all[0].Planned || !all[1].Running() {
		t.Errorf("processes %+v", all)
	}
	if err := client.CoreV1().Pods("default").Delete(ctx, "shell", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := poll(ctx, func(context.Context) error {
		if all := status(); all[1].Running() {
			return errors.New("it still runs")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestFailsWell: a cluster that cannot be made leaves nothing, and says why.
func TestFailsWell(t *testing.T) {
	result, err := instrumentation.BuildControlPlane(t.Context(), instrumentation.ControlPlaneConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("the name is taken", func(t *testing.T) {
		needEngine(t)
		if _, err := engine(t.Context(), nil, "network", "create", "taken"); err != nil {
			t.Fatal(err)
		}
		defer func() { _, _ = engine(context.Background(), nil, "network", "rm", "taken") }()
		before := leftovers(t)
		_, err := Start(t.Context(), cluster.Config{Name: "taken", Binary: result.Binary})
		if want := `the network "taken" exists already`; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		if after := leftovers(t); after != before {
			t.Errorf("left:\n%s\nbefore:\n%s", after, before)
		}
	})
	t.Run("an image is missing", func(t *testing.T) {
		needEngine(t)
		before := leftovers(t)
		_, err := Start(t.Context(), cluster.Config{
			Binary: result.Binary, APIServers: 1, Images: []string{"nowhere.example/a:1"},
		})
		want := "the container engine has no image nowhere.example/a:1, and Trommel pulls none"
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		if after := leftovers(t); after != before {
			t.Errorf("left:\n%s\nbefore:\n%s", after, before)
		}
	})
	for _, moment := range []string{
		"Creating cluster", "Preparing nodes", "Starting control-plane", "starting 3 API servers",
		"waiting for the node",
	} {
		t.Run("it is interrupted at "+moment, func(t *testing.T) {
			needEngine(t)
			before := leftovers(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			stop := errors.New("stopped by the test")
			_, err := Start(ctx, cluster.Config{Binary: result.Binary, Progress: func(line string) {
				if strings.Contains(line, moment) {
					cancel(stop)
				}
			}})
			if !errors.Is(err, stop) {
				t.Errorf("got %v", err)
			}
			if after := leftovers(t); after != before {
				t.Errorf("left:\n%s\nbefore:\n%s", after, before)
			}
		})
	}
}

// killEngine kills the engine of testing/engine, as the kernel does when there is no memory, and returns what starts it
// again. Any other engine is left alone.
func killEngine(t *testing.T) (again func()) {
	t.Helper()
	state, found := strings.CutSuffix(strings.TrimPrefix(os.Getenv("DOCKER_HOST"), "unix://"), "/docker.sock")
	if !found || !strings.HasSuffix(state, "/trommel-engine") {
		t.Skip("the engine is not that of make kind-test")
	}
	text, err := os.ReadFile(filepath.Join(state, "docker.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if out, err := exec.Command("testing/engine", "up").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
}

var removeRE = regexp.MustCompile(`what is left is removed with: (.*)`)

// TestEngineDies: the end of a cluster whose engine has died says what is left, and how to remove it.
func TestEngineDies(t *testing.T) {
	needEngine(t)
	if client() == podman {
		t.Skip("Podman has no process that could die")
	}
	before := leftovers(t)
	result, err := instrumentation.BuildControlPlane(t.Context(), instrumentation.ControlPlaneConfig{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := Start(t.Context(), cluster.Config{Binary: result.Binary, APIServers: 1})
	if err != nil {
		t.Fatal(err)
	}
	again := killEngine(t)
	begin := time.Now()
	err = c.Close(within(t, closeTimeout))
	t.Logf("closed after %s: %v", time.Since(begin).Round(time.Second), err)
	again()
	m := removeRE.FindStringSubmatch(fmt.Sprint(err))
	if m == nil {
		t.Fatalf("the error does not say how to remove what is left: %v", err)
	}
	// The engine of testing/engine begins without the networks of before.
	out, _ := exec.Command("sh", "-c", m[1]).CombinedOutput()
	t.Logf("%s:\n%s", m[1], out)
	if after := leftovers(t); after != before {
		t.Errorf("left:\n%s\nbefore:\n%s", after, before)
	}
}

func TestWithoutEngine(t *testing.T) {
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(t.TempDir(), "none.sock"))
	err := CheckEngine(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), "a cluster of type kind needs Docker, or Podman as root, and ") {
		t.Errorf("got %v", err)
	}
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	command := func(name, script string) {
		text := []byte("#!/bin/sh\n" + script)
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o755); err != nil { //nolint:gosec // it is run
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name string
		make func()
		want string
	}{
		{"nothing", func() {}, ", and there is no command docker in PATH"},
		{"podman without root", func() { command("podman", "echo true") }, ", and this is Podman without root"},
		{"podman", func() { command("podman", "echo false") }, ""},
		{"podman-docker", func() { command("docker", `[ "$1" = -v ] && echo podman version 4.3.1`) },
			"; the command docker is Podman here: set KIND_EXPERIMENTAL_PROVIDER=podman"},
		{"podman is named", func() { t.Setenv(EnvEngine, "podman") }, ""},
		{"another is named", func() { t.Setenv(EnvEngine, "nerdctl") },
			`, and KIND_EXPERIMENTAL_PROVIDER says "nerdctl"`},
	} {
		tt.make()
		err := CheckEngine(t.Context())
		want := "a cluster of type kind needs Docker, or Podman as root" + tt.want
		if (err == nil) != (tt.want == "") || err != nil && err.Error() != want {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestRefused(t *testing.T) {
	_, err := Start(t.Context(), cluster.Config{
		Name: "a/b", APIServers: 9, Nodes: 2, Member: cluster.Membership{Name: "east"},
	})
	for _, want := range []string{
		`cluster name "a/b"`, "has 1 to 5 API servers, not 9", "no simulated ones", "one of several",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
