package embedded_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/cluster/embedded"
	"github.com/trommel-dev/trommel/internal/cluster/kubelet"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

// shared is for all tests that do not need their own cluster; each uses its own namespace.
var shared *embedded.Cluster

// others are two more clusters: one that serves removed APIs and whose simulated pods take time, and a small one whose
// components may be killed. Tests of them use their own namespaces and types, too.
var others = clustertest.Once(
	embedded.Config{APIServers: 2, Nodes: 1, RemovedAPIs: true, Pods: cluster.SimulatedPods{PodTimes: podTimes}},
	embedded.Config{APIServers: 1, Nodes: 1})

func TestMain(m *testing.M) {
	if what := os.Getenv(envHelper); what != "" {
		helper(what)
	}
	os.Exit(clustertest.Isolated(func() int {
		log := "one\ntwo\n"
		answers := []kubelet.Answer{
			{Pod: "told", Command: regexp.MustCompile("^pg_isready"), Stdout: "no response", ExitCode: 2},
			{Pod: "to*", Log: &log},
		}
		config := embedded.Config{Pods: cluster.SimulatedPods{
			Answers: answers, JobKinds: []string{"TaskRun", "ConfigMap"},
		}}
		return clustertest.Run(m, config, func(c *embedded.Cluster) { shared = c })
	}))
}

func clientFor(t testing.TB, c interface {
	Kubeconfig(string) (string, error)
}, apiServer string) kubernetes.Interface {
	t.Helper()
	config, err := restConfig(c, apiServer)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// newPod returns a pod for the simulated nodes.
func newPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}
}

func awaitRunningPod(t testing.TB, client kubernetes.Interface, ns, name string) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	clustertest.Eventually(t, func(ctx context.Context) error {
		var err error
		pod, err = client.CoreV1().Pods(ns).Get(ctx, name, metav1.GetOptions{})
		if err == nil && pod.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("pod %s: status %+v", name, pod.Status)
		}
		return err
	})
	return pod
}
