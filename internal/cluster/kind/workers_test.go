package kind

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/layer"
	"github.com/trommel-dev/trommel/internal/testing/registrytest"
)

// workersImage is that of docs/scale.md.
const workersImage = "registry.example/trommel:1"

// giveWorkers builds trommel, and makes the engine have the image of workers with it.
func giveWorkers(t *testing.T) (trommel string) {
	t.Helper()
	trommel = buildStatic(t, "../../../cmd/trommel")
	give(t, image{
		names: []string{workersImage}, files: []layer.File{{Path: "/trommel", Local: trommel, Mode: 0o755}},
		entrypoint: []string{"/trommel"},
	})
	return trommel
}

// TestWorkersInPods makes a campaign's runs in pods of a namespace with the restricted Pod Security Standard. The bug
// is found there, although a pod is deleted without grace while it is at work. The image is one that the node has, or
// one that the campaign pushes to a registry.
func TestWorkersInPods(t *testing.T) {
	c := start(t, cluster.Config{APIServers: 1})
	trommel := giveWorkers(t)
	if err := c.LoadImage(t.Context(), workersImage); err != nil {
		t.Fatal(err)
	}
	config, err := c.RESTConfig("")
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "workers", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*cluster.Kubeconfig(c.Name(), config), kubeconfig); err != nil {
		t.Fatal(err)
	}
	w := &workers{
		trommel: trommel, kubeconfig: kubeconfig, gateway: c.gateway, baselines: t.TempDir(), client: client,
	}
	t.Run("an image that is there", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
		defer cancel()
		killed := make(chan error, 1)
		go func() { killed <- killWorker(ctx, client) }()
		w.campaign(ctx, t, nil, "--image", workersImage)
		cancel()
		if err := <-killed; err != nil {
			t.Errorf("no worker was killed: %v", err)
		}
	})
	t.Run("an image that is pushed", func(t *testing.T) {
		address, roots := serveRegistry(t, c)
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
		defer cancel()
		out := w.campaign(ctx, t, []string{"SSL_CERT_FILE=" + roots}, "--push", address+"/team/trommel")
		if !strings.Contains(out, "pushed "+address+"/team/trommel@sha256:") {
			t.Error("no image was pushed")
		}
	})
}

// workers are what campaigns on the cluster have in common.
type workers struct {
	trommel, kubeconfig, gateway, baselines string
	client                                  kubernetes.Interface
}

// campaign runs one that finds a bug, and sees that nothing of it is left. It returns what it printed.
func (w *workers) campaign(ctx context.Context, t *testing.T, env []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(ctx, w.trommel, append([]string{"test", "-c", "../../../examples/database-operator",
		"--workload", "create", "--pattern", "intermediate", "--on", "kubernetes", "--kubeconfig", w.kubeconfig,
		"--namespace", "workers", "--listen", w.gateway + ":0", "--parallel", "2", "--cpu", "100m", "--memory", "1Gi",
		"--dir", filepath.Join(t.TempDir(), "campaign"), "--baseline", w.baselines}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	began := time.Now()
	out, err := cmd.CombinedOutput()
	t.Logf("%s\n%s", time.Since(began).Round(time.Second), out)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("%v, want exit code 1", err)
	}
	if !strings.Contains(string(out), "service default/db of database default/db is missing: never created") {
		t.Error("the bug was not found")
	}
	for _, list := range []func() (int, error){
		func() (int, error) {
			l, err := w.client.BatchV1().Jobs("workers").List(t.Context(), metav1.ListOptions{})
			return len(l.Items), err
		},
		func() (int, error) {
			l, err := w.client.CoreV1().Secrets("workers").List(t.Context(), metav1.ListOptions{})
			return len(l.Items), err
		},
		func() (int, error) {
			l, err := w.client.NetworkingV1().NetworkPolicies("workers").List(t.Context(), metav1.ListOptions{})
			return len(l.Items), err
		},
	} {
		if n, err := list(); n > 0 || err != nil {
			t.Errorf("%d objects are left (%v)", n, err)
		}
	}
	return string(out)
}

// serveRegistry serves a registry where the node reaches it, and makes the node trust it. It returns its host and port,
// and the file with its authority.
func serveRegistry(t *testing.T, c *Cluster) (address, roots string) {
	t.Helper()
	certificate, err := issueCertificate(c.ca, c.gateway)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(&registrytest.Registry{})
	if err := server.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	if server.Listener, err = listen(c.gateway); err != nil {
		t.Fatal(err)
	}
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	address = server.Listener.Addr().String()
	dir := registriesDir + "/" + address
	hosts := fmt.Sprintf("[host.\"https://%s\"]\ncapabilities = [\"pull\", \"resolve\"]\nca = \"%s/ca.crt\"\n", address,
		dir)
	for name, content := range map[string]string{"hosts.toml": hosts, "ca.crt": string(c.ca.PEM())} {
		if _, err := engine(t.Context(), strings.NewReader(content), "exec", "-i", c.node, "sh", "-c",
			`mkdir -p "$0" && cat > "$0/$1"`, dir, name); err != nil {
			t.Fatal(err)
		}
	}
	roots = filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(roots, c.ca.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	return address, roots
}

// killWorker deletes the first worker that is running, some seconds after it has started, without grace.
func killWorker(ctx context.Context, client kubernetes.Interface) error {
	return cluster.Poll(ctx, time.Second, func(ctx context.Context) error {
		pods, err := client.CoreV1().Pods("workers").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, p := range pods.Items {
			if p.Status.Phase == corev1.PodRunning && time.Since(p.Status.StartTime.Time) > 12*time.Second {
				zero := int64(0)
				return client.CoreV1().Pods("workers").Delete(ctx, p.Name,
					metav1.DeleteOptions{GracePeriodSeconds: &zero})
			}
		}
		return errors.New("no worker is running")
	})
}
