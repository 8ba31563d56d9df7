package processnode_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestKillAndStart(t *testing.T) {
	ns, ctx, node := pods.Namespace(t), t.Context(), shared.Processes()
	pods.Create(t, ns, clustertest.ShellPod("ks", "echo start; exec sleep 1000", clustertest.Controller("ks")))
	first := pods.AwaitRunning(t, "ks", 1)[0]
	// The second process's output begins after this line.
	pods.AwaitOutput(t, ns, "ks", "start\n")

	if err := node.Kill(ctx, "ks"); err != nil {
		t.Fatal(err)
	}
	if alive(first.PID) {
		t.Error("a killed process is running")
	}
	all := pods.Processes(t, "ks")
	if len(all) != 1 || all[0].Running() || all[0].ExitCode != 137 || !all[0].Planned {
		t.Errorf("after Kill: %+v", all)
	}
	pods.Await(t, ns, "ks", "held", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return !clustertest.IsReady(p) && len(s) == 1 && s[0].State.Waiting != nil &&
			s[0].State.Waiting.Reason == "Held" && s[0].LastTerminationState.Terminated.ExitCode == 137
	})
	if err := node.Kill(ctx, "ks"); err != nil {
		t.Errorf("second Kill: %v", err)
	}

	start := time.Now()
	if err := node.Start(ctx, "ks"); err != nil {
		t.Fatal(err)
	}
	t.Logf("Start took %s", time.Since(start))
	second := pods.AwaitRunning(t, "ks", 1)[0]
	if second.PID == first.PID || second.Log != first.Log || second.LogStart != int64(len("start\n")) {
		t.Errorf("first %+v, second %+v", first, second)
	}
	if err := node.Start(ctx, "ks"); err != nil {
		t.Errorf("Start of a running controller: %v", err)
	}
	pod := pods.Await(t, ns, "ks", "ready", clustertest.IsReady)
	if n := pod.Status.ContainerStatuses[0].RestartCount; n != 1 {
		t.Errorf("%d restarts, want 1", n)
	}
	if len(pods.Processes(t, "ks")) != 2 {
		t.Errorf("processes %+v", pods.Processes(t, "ks"))
	}
}

// A held controller stays down, also in a new pod.
func TestHeldControllerStaysDown(t *testing.T) {
	ns, ctx, node := pods.Namespace(t), t.Context(), shared.Processes()
	if err := node.Kill(ctx, "held"); err != nil {
		t.Fatal(err)
	}
	pods.Create(t, ns, clustertest.ShellPod("held", "exec sleep 1000", clustertest.Controller("held")))
	pods.Await(t, ns, "held", "held", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) == 1 && s[0].State.Waiting != nil && s[0].State.Waiting.Reason == "Held"
	})
	if n := len(pods.Processes(t, "held")); n != 0 {
		t.Errorf("%d processes", n)
	}
	if err := node.Start(ctx, "held"); err != nil {
		t.Fatal(err)
	}
	pods.AwaitRunning(t, "held", 1)
}

// One process of a controller can be frozen while the others go on. It is not ready until it is thawed or killed.
func TestFreezeAndThaw(t *testing.T) {
	ns, ctx, node := pods.Namespace(t), t.Context(), shared.Processes()
	fr := "fr-" + ns
	for _, name := range []string{"fr-1", "fr-2"} {
		pods.Create(t, ns, clustertest.ShellPod(name, "exec sleep 1000", clustertest.Controller(fr)))
	}
	for _, p := range pods.AwaitRunning(t, fr, 2) {
		pods.Await(t, ns, p.Pod, "ready", clustertest.IsReady)
	}
	frozen := pods.AwaitRunning(t, fr, 2)[1]
	if err := node.Freeze(ctx, fr, 0); err == nil || !strings.Contains(err.Error(), "has 2 processes") {
		t.Errorf("one of two: %v", err)
	}
	if err := node.Freeze(ctx, fr, os.Getpid()); err == nil {
		t.Error("a process that is not the controller's was frozen")
	}
	stopped := func() bool {
		t.Helper()
		out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(frozen.PID)).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.HasPrefix(strings.TrimSpace(string(out)), "T")
	}
	unready := func(p *corev1.Pod) bool { return !clustertest.IsReady(p) }
	for _, kill := range []bool{false, true} {
		if err := node.Freeze(ctx, fr, frozen.PID); err != nil {
			t.Fatal(err)
		}
		if !stopped() {
			t.Error("the process runs")
		}
		pods.Await(t, ns, frozen.Pod, "not ready", unready)
		n, err := node.Thaw(ctx, fr, kill)
		if err != nil || n != 1 {
			t.Fatalf("%d thawed, %v", n, err)
		}
		if !kill && stopped() {
			t.Error("the process is still stopped")
		}
		pods.Await(t, ns, frozen.Pod, "ready", clustertest.IsReady)
	}
	if n, err := node.Thaw(ctx, fr, false); err != nil || n != 0 {
		t.Errorf("%d thawed again, %v", n, err)
	}
	var ended []cluster.Process
	for _, p := range pods.Processes(t, fr) {
		if !p.Running() {
			ended = append(ended, p)
		}
	}
	if len(ended) != 1 || ended[0].PID != frozen.PID || !ended[0].Planned {
		t.Errorf("ended: %+v", ended)
	}
}

// Start does not wait for the back-off of a controller that crashes.
func TestStartSkipsBackoff(t *testing.T) {
	t.Parallel() // it waits for delays
	ns, ctx, node := pods.Namespace(t), t.Context(), shared.Processes()
	pods.Create(t, ns, clustertest.ShellPod("crashes", "exit 1", clustertest.Controller("crashes")))
	pods.Await(t, ns, "crashes", "a longer back-off", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) == 1 && s[0].RestartCount >= 4 && s[0].State.Waiting != nil
	})
	before := len(pods.Processes(t, "crashes"))
	start := time.Now()
	if err := node.Start(ctx, "crashes"); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took >= 8*time.Second {
		t.Errorf("took %s, as long as the back-off", took)
	}
	all := pods.Processes(t, "crashes")
	if len(all) <= before {
		t.Error("nothing was started")
	}
	for _, p := range all {
		// One of an earlier repetition may have been ended with its pod.
		if p.Planned && p.Namespace == ns {
			t.Errorf("a crash is not planned: %+v", p)
		}
	}
}

func TestStartErrors(t *testing.T) {
	ns, node := pods.Namespace(t), shared.Processes()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := node.Start(ctx, "nobody"); err == nil ||
		!strings.Contains(err.Error(), `start controller "nobody": none of its pods is running on process-node`) {
		t.Errorf("got %v", err)
	}
	if err := node.Kill(t.Context(), "lost"); err != nil {
		t.Fatal(err)
	}
	pods.Create(t, ns, clustertest.ShellPod("lost", "", clustertest.Controller("lost"), func(p *corev1.Pod) {
		p.Annotations[cluster.AnnotationBinaryPrefix+"main"] = "/nonexistent/manager"
	}))
	err := node.Start(t.Context(), "lost")
	if err == nil || !strings.Contains(err.Error(), "/nonexistent/manager: no such file") {
		t.Errorf("got %v", err)
	}
}

// No start of a container escapes a concurrent Kill.
func TestKillWhileCrashing(t *testing.T) {
	ns, ctx, node := pods.Namespace(t), t.Context(), shared.Processes()
	pods.Create(t, ns, clustertest.ShellPod("flapping", "sleep 0.01", clustertest.Controller("flapping")))
	pods.Await(t, ns, "flapping", "started", func(p *corev1.Pod) bool { return len(p.Status.ContainerStatuses) == 1 })
	for range 20 {
		if err := node.Start(ctx, "flapping"); err != nil {
			t.Fatal(err)
		}
		if err := node.Kill(ctx, "flapping"); err != nil {
			t.Fatal(err)
		}
		for _, p := range pods.Processes(t, "flapping") {
			if p.Running() {
				t.Fatalf("runs after Kill: %+v", p)
			}
		}
	}
}

// The processes of one container get the variables and arguments of a plan. No object shows them.
func TestGive(t *testing.T) {
	ns, ctx, node := pods.Namespace(t), t.Context(), shared.Processes()
	const script = "echo $0 [$SWITCH] [$OWN] $*; exec sleep 1000"
	pod := clustertest.ShellPod("given", script, clustertest.Controller("given"), func(p *corev1.Pod) {
		main := &p.Spec.Containers[0]
		main.Command, main.Args = append(main.Command, "main"), []string{"a"}
		main.Env = []corev1.EnvVar{{Name: "SWITCH", Value: "old"}, {Name: "OWN", Value: "own"}}
		other := main.DeepCopy()
		other.Name, other.Command[3] = "other", "other"
		p.Spec.Containers = append(p.Spec.Containers, *other)
	})
	given := func(value string) cluster.Given {
		return cluster.Given{Container: "main", Env: map[string]string{"SWITCH": value}, Args: []string{"--gate"}}
	}
	if err := node.Give(ctx, "given", given("new")); err != nil {
		t.Fatal(err)
	}
	pods.Create(t, ns, pod)
	pods.AwaitRunning(t, "given", 2)
	again := func() {
		t.Helper()
		if err := node.Kill(ctx, "given"); err != nil {
			t.Fatal(err)
		}
		if err := node.Start(ctx, "given"); err != nil {
			t.Fatal(err)
		}
	}
	// other waits until the other container has written, too: it may be killed before that.
	other := func(starts int) {
		t.Helper()
		clustertest.Eventually(t, func(context.Context) error {
			text, err := os.ReadFile(strings.Replace(pods.LogFile(ns, "given"), "_main", "_other", 1))
			if want := strings.Repeat("other [old] [own] a\n", starts); err != nil || string(text) != want {
				return fmt.Errorf("another container: %q, %v", text, err)
			}
			return nil
		})
	}
	log := "main [new] [own] a --gate\n"
	pods.AwaitOutput(t, ns, "given", log)
	other(1)
	if err := node.Give(ctx, "given", given("newer")); err != nil {
		t.Fatal(err)
	}
	again()
	log += "main [newer] [own] a --gate\n"
	pods.AwaitOutput(t, ns, "given", log)
	other(2)
	if err := node.Reset(ctx); err != nil {
		t.Fatal(err)
	}
	again()
	pods.AwaitOutput(t, ns, "given", log+"main [old] [own] a\n")
	other(3)
	stored, err := client.CoreV1().Pods(ns).Get(ctx, "given", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range stored.Spec.Containers {
		if c.Env[0].Value != "old" || len(c.Args) != 1 {
			t.Errorf("the pod has changed: %+v", c)
		}
	}
}

func TestReset(t *testing.T) {
	ns, ctx, node := pods.Namespace(t), t.Context(), shared.Processes()
	pods.Create(t, ns, clustertest.ShellPod("reset", "exec sleep 1000", clustertest.Controller("reset")))
	pods.AwaitRunning(t, "reset", 1)
	if err := node.Kill(ctx, "reset"); err != nil {
		t.Fatal(err)
	}
	if err := node.Reset(ctx); err != nil {
		t.Fatal(err)
	}
	running := pods.AwaitRunning(t, "reset", 1)
	if all := pods.Processes(t, "reset"); len(all) != 1 || all[0].PID != running[0].PID {
		t.Errorf("exited processes are not forgotten: %+v", all)
	}
}

func TestRouteAndCut(t *testing.T) {
	ns, ctx, node := pods.Namespace(t), t.Context(), shared.Processes()
	pods.Create(t, ns, clustertest.ShellPod("routed",
		"echo $KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT; exec sleep 1000", clustertest.Controller("routed"),
		func(p *corev1.Pod) { p.Annotations[cluster.AnnotationAPIServer] = "apiserver-2" }))
	pods.AwaitRunning(t, "routed", 1)
	addr := strings.TrimSpace(pods.AwaitOutput(t, ns, "routed", "127.0.0.1:"))

	if err := node.Route(ctx, "routed", "apiserver-9"); err == nil ||
		err.Error() != `route controller "routed": no API server "apiserver-9" (there are apiserver-1, apiserver-2)` {
		t.Errorf("got %v", err)
	}
	// With apiserver-2 down, the proxy cannot connect.
	if err := shared.KillAPIServer(ctx, "apiserver-2"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := shared.StartAPIServer(context.WithoutCancel(ctx), "apiserver-2"); err != nil {
			t.Error(err)
		}
	}()
	if answers(addr) {
		t.Error("the annotation was ignored")
	}
	if err := node.Route(ctx, "routed", "apiserver-1"); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if !answers(addr) {
		t.Error("the route does not work")
	}
	_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := conn.Read(make([]byte, 1)); !os.IsTimeout(err) {
		t.Errorf("before the cut: %v", err)
	}
	if err := node.CutConnections(ctx, "routed"); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("after the cut: %v", err)
	}
	if !answers(addr) {
		t.Error("new connections do not work after a cut")
	}
}

// answers reports whether a server behind the address keeps a connection open.
func answers(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	_, err = conn.Read(make([]byte, 1))
	return os.IsTimeout(err)
}

// The pod that replaces a deleted one belongs to the same controller; Status returns both.
func TestReplacedPod(t *testing.T) {
	ns, ctx := pods.Namespace(t), t.Context()
	pods.Create(t, ns, clustertest.ShellPod("first", "exec sleep 1000", clustertest.Controller("replaced")))
	pods.AwaitRunning(t, "replaced", 1)
	// Forced: the object is deleted before the process has exited.
	zero := int64(0)
	if err := client.CoreV1().Pods(ns).Delete(ctx, "first",
		metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
	pods.Create(t, ns, clustertest.ShellPod("second", "exec sleep 1000", clustertest.Controller("replaced")))
	pods.AwaitRunning(t, "replaced", 1)
	clustertest.Eventually(t, func(context.Context) error {
		all := pods.Processes(t, "replaced")
		if len(all) != 2 || all[0].Pod != "first" || all[0].Running() || !all[0].Planned || !all[1].Running() {
			return fmt.Errorf("processes %+v", all)
		}
		return nil
	})
}

// Two pods with the same name share only a log file.
func TestSameNameAgain(t *testing.T) {
	ns, ctx := pods.Namespace(t), t.Context()
	var uids []types.UID
	for range 2 {
		pods.Create(t, ns, clustertest.ShellPod("again", "echo once; exec sleep 1000"))
		pod := pods.Await(t, ns, "again", "ready", clustertest.IsReady)
		uids = append(uids, pod.UID)
		if err := client.CoreV1().Pods(ns).Delete(ctx, "again", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		clustertest.Eventually(t, func(ctx context.Context) error {
			if p, err := client.CoreV1().Pods(ns).Get(ctx, "again", metav1.GetOptions{}); err == nil {
				return fmt.Errorf("still there: %+v", p.Status)
			}
			return nil
		})
	}
	if uids[0] == uids[1] {
		t.Error("the same pod twice")
	}
	if got := pods.Output(t, ns, "again"); got != "once\nonce\n" {
		t.Errorf("output %q", got)
	}
}

// BenchmarkRestart measures the time from a controller's SIGKILL to the exec of its new process.
func BenchmarkRestart(b *testing.B) {
	ctx, node := context.Background(), shared.Processes()
	pod := clustertest.ShellPod("bench", "exec sleep 1000", clustertest.Controller("bench"))
	if _, err := client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	if err := node.Start(ctx, "bench"); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := node.Kill(ctx, "bench"); err != nil {
			b.Fatal(err)
		}
		if err := node.Start(ctx, "bench"); err != nil {
			b.Fatal(err)
		}
	}
}
