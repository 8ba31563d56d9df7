package kind

import (
	"context"
	"errors"
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
)

// workersImage is that of docs/scale.md.
const workersImage = "registry.example/trommel:1"

// giveWorkers builds trommel, and makes the engine have the image of workers with it.
func giveWorkers(t *testing.T) (trommel string) {
	t.Helper()
	trommel = buildStatic(t, "../../../cmd/trommel")
	give(t, image{
		names: []string{workersImage}, files: []imageFile{{path: "/trommel", local: trommel, mode: 0o755}},
		entrypoint: []string{"/trommel"},
	})
	return trommel
}

// TestWorkersInPods makes a campaign's runs in pods of a namespace with the restricted Pod Security Standard. The bug
// is found there, although a pod is deleted without grace while it is at work.
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
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*cluster.Kubeconfig(c.Name(), config), kubeconfig); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, trommel, "test", "-c", "../../../examples/database-operator",
		"--workload", "create", "--pattern", "intermediate", "--on", "kubernetes", "--kubeconfig", kubeconfig,
		"--namespace", "workers", "--image", workersImage, "--listen", c.gateway+":0", "--parallel", "2",
		"--cpu", "100m", "--memory", "1Gi", "--dir", filepath.Join(dir, "campaign"),
		"--reference", filepath.Join(dir, "references"))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	began := time.Now()
	killed := make(chan error, 1)
	go func() { killed <- killWorker(ctx, client) }()
	out, err := cmd.CombinedOutput()
	cancel()
	t.Logf("%s\n%s", time.Since(began).Round(time.Second), out)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("%v, want exit code 1", err)
	}
	if !strings.Contains(string(out), "service default/db of database default/db is missing: never created") {
		t.Error("the bug was not found")
	}
	if err := <-killed; err != nil {
		t.Errorf("no worker was killed: %v", err)
	}
	for _, list := range []func() (int, error){
		func() (int, error) {
			l, err := client.BatchV1().Jobs("workers").List(t.Context(), metav1.ListOptions{})
			return len(l.Items), err
		},
		func() (int, error) {
			l, err := client.CoreV1().Secrets("workers").List(t.Context(), metav1.ListOptions{})
			return len(l.Items), err
		},
		func() (int, error) {
			l, err := client.NetworkingV1().NetworkPolicies("workers").List(t.Context(), metav1.ListOptions{})
			return len(l.Items), err
		},
	} {
		if n, err := list(); n > 0 || err != nil {
			t.Errorf("%d objects are left (%v)", n, err)
		}
	}
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
