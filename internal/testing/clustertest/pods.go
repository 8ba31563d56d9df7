package clustertest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/cluster/embedded"
)

// Namespace creates a namespace in which pods can be created.
func Namespace(t testing.TB, client kubernetes.Interface) string {
	t.Helper()
	ns, err := client.CoreV1().Namespaces().Create(context.Background(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	Eventually(t, func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(ns.Name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return ns.Name
}

// Pods runs pods on the process node of a cluster.
type Pods struct {
	Cluster *embedded.Cluster
	Client  kubernetes.Interface
	// Testdata is the path of the repository's folder testdata, for StartTenant.
	Testdata string
}

// ShellPod returns a pod for the process node that runs a shell script.
func ShellPod(name, script string, with ...func(*corev1.Pod)) *corev1.Pod {
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

// Controller sets the controller that a pod belongs to.
func Controller(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations[cluster.AnnotationController] = name
		p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	}
}

// Namespace is the function Namespace with the client of the pods.
func (p Pods) Namespace(t testing.TB) string {
	t.Helper()
	return Namespace(t, p.Client)
}

// Create creates a pod, until the test ends.
func (p Pods) Create(t testing.TB, ns string, pod *corev1.Pod) {
	t.Helper()
	if _, err := p.Client.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		zero := int64(0)
		_ = p.Client.CoreV1().Pods(ns).Delete(context.Background(), pod.Name,
			metav1.DeleteOptions{GracePeriodSeconds: &zero})
	})
}

// Await waits until the pod satisfies the condition.
func (p Pods) Await(t testing.TB, ns, name, want string, ok func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	Eventually(t, func(ctx context.Context) error {
		var err error
		if pod, err = p.Client.CoreV1().Pods(ns).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if !ok(pod) {
			return fmt.Errorf("pod %s: want %s; status is %+v", name, want, pod.Status)
		}
		return nil
	})
	return pod
}

// AwaitPhase waits for a phase of the pod.
func (p Pods) AwaitPhase(t testing.TB, ns, name string, phase corev1.PodPhase) *corev1.Pod {
	t.Helper()
	return p.Await(t, ns, name, string(phase), func(p *corev1.Pod) bool { return p.Status.Phase == phase })
}

// IsReady reports whether a pod is ready.
func IsReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// LogFile returns the path of the log of a pod's container main.
func (p Pods) LogFile(ns, pod string) string {
	return fmt.Sprintf("%s/pods/%s_%s_main.log", p.Cluster.LogDir(), ns, pod)
}

// Output reads the log of a pod's container main.
func (p Pods) Output(t testing.TB, ns, pod string) string {
	t.Helper()
	text, err := os.ReadFile(p.LogFile(ns, pod))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// AwaitOutput waits until the log of a pod's container main contains a text, and returns the log.
func (p Pods) AwaitOutput(t testing.TB, ns, pod, want string) string {
	t.Helper()
	var text []byte
	Eventually(t, func(context.Context) error {
		var err error
		if text, err = os.ReadFile(p.LogFile(ns, pod)); err != nil {
			return err
		}
		if !strings.Contains(string(text), want) {
			return fmt.Errorf("output of %s: want %q, got %q", pod, want, text)
		}
		return nil
	})
	return string(text)
}

// Processes returns the processes of a controller.
func (p Pods) Processes(t testing.TB, controller string) []cluster.Process {
	t.Helper()
	all, err := p.Cluster.Processes().Status(t.Context(), controller)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// AwaitRunning waits until a number of a controller's processes are running, and returns them.
func (p Pods) AwaitRunning(t testing.TB, controller string, n int) []cluster.Process {
	t.Helper()
	var running []cluster.Process
	Eventually(t, func(context.Context) error {
		running = nil
		for _, process := range p.Processes(t, controller) {
			if process.Running() {
				running = append(running, process)
			}
		}
		if len(running) != n {
			return fmt.Errorf("%d processes of %s run, want %d", len(running), controller, n)
		}
		return nil
	})
	return running
}
