package processnode_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/trommel-dev/trommel/chaos/command/injector"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/cluster/embedded"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

// envInjector makes the test's executable an injector.
const envInjector = "TROMMEL_TEST_INJECTOR"

// shared is for all tests; each uses its own namespace.
var (
	shared *embedded.Cluster
	client kubernetes.Interface
)

func TestMain(m *testing.M) {
	if os.Getenv(envInjector) != "" {
		os.Exit(injector.Run(context.Background(), os.Args[1:]))
	}
	os.Exit(clustertest.Run(m, embedded.Config{APIServers: 2, Nodes: 2}, func(c *embedded.Cluster) {
		shared = c
		config, err := c.RESTConfig("")
		if err != nil {
			panic(err)
		}
		client = kubernetes.NewForConfigOrDie(config)
	}))
}

// namespace creates a namespace in which pods can be created.
func namespace(t *testing.T) string {
	t.Helper()
	ns, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(ns.Name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return ns.Name
}

// shellPod returns a pod for the process node that runs a shell script.
func shellPod(name, script string, with ...func(*corev1.Pod)) *corev1.Pod {
	grace := int64(5)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{cluster.LabelProcessNode: "true"},
			Tolerations: []corev1.Toleration{
				{Key: cluster.TaintProcessNode, Operator: corev1.TolerationOpExists},
			},
			TerminationGracePeriodSeconds: &grace,
			RestartPolicy:                 corev1.RestartPolicyNever,
			Containers: []corev1.Container{{
				Name: "main", Image: "none", Command: []string{"sh", "-c", script},
			}},
		},
	}
	for _, f := range with {
		f(p)
	}
	return p
}

// controller sets the controller that the pod belongs to.
func controller(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations[cluster.AnnotationController] = name
		p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	}
}

func create(t *testing.T, ns string, p *corev1.Pod) {
	t.Helper()
	if _, err := client.CoreV1().Pods(ns).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		zero := int64(0)
		_ = client.CoreV1().Pods(ns).Delete(context.Background(), p.Name,
			metav1.DeleteOptions{GracePeriodSeconds: &zero})
	})
}

// awaitPod waits until the pod satisfies the condition.
func awaitPod(t *testing.T, ns, name, want string, ok func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	clustertest.Eventually(t, func(ctx context.Context) error {
		var err error
		if pod, err = client.CoreV1().Pods(ns).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if !ok(pod) {
			return fmt.Errorf("pod %s: want %s; status is %+v", name, want, pod.Status)
		}
		return nil
	})
	return pod
}

func awaitPhase(t *testing.T, ns, name string, phase corev1.PodPhase) *corev1.Pod {
	t.Helper()
	return awaitPod(t, ns, name, string(phase), func(p *corev1.Pod) bool { return p.Status.Phase == phase })
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func logFile(ns, pod string) string {
	return fmt.Sprintf("%s/pods/%s_%s_main.log", shared.LogDir(), ns, pod)
}

// output reads a container's log.
func output(t *testing.T, ns, pod string) string {
	t.Helper()
	text, err := os.ReadFile(logFile(ns, pod))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func awaitOutput(t *testing.T, ns, pod, want string) string {
	t.Helper()
	var text []byte
	clustertest.Eventually(t, func(context.Context) error {
		var err error
		if text, err = os.ReadFile(logFile(ns, pod)); err != nil {
			return err
		}
		if !strings.Contains(string(text), want) {
			return fmt.Errorf("output of %s: want %q, got %q", pod, want, text)
		}
		return nil
	})
	return string(text)
}
