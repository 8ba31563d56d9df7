package embedded_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/cluster/embedded"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

// Environment variables that make the test executable run a cluster instead of tests.
const (
	// own: a cluster started with Start; timed: one that has its own clock; serve: a cluster started with Serve; web: a
	// server in a pod
	envHelper    = "TROMMEL_TEST_CLUSTER_HELPER"
	envHelperDir = "TROMMEL_TEST_CLUSTER_DIR"
)

func restClient(config *rest.Config) (kubernetes.Interface, error) {
	return kubernetes.NewForConfig(config)
}

// helper runs a cluster until its standard input ends, and reports its progress on standard output.
func helper(what string) {
	if what == "web" {
		serveWeb()
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	config := embedded.Config{
		Name: "helped", Binary: os.Getenv(clustertest.EnvBinary), APIServers: 1, Nodes: 1, Dir: os.Getenv(envHelperDir),
	}
	var err error
	switch what {
	case "own":
		err = runOwn(ctx, config)
	case "timed":
		err = runTimed(ctx, config)
	case "serve":
		err = embedded.Serve(ctx, config, func(embedded.Entry) { fmt.Println("ready") })
	}
	if err != nil {
		fmt.Println(strings.ReplaceAll(err.Error(), "\n", " "))
		os.Exit(1)
	}
	os.Exit(0)
}

// runOwn also runs a pod whose process has a child process.
func runOwn(ctx context.Context, config embedded.Config) error {
	c, err := embedded.Start(ctx, config)
	if err != nil {
		return err
	}
	rc, err := c.RESTConfig("")
	if err != nil {
		return err
	}
	client, err := restClient(rc)
	if err != nil {
		return err
	}
	pod := newPod("local")
	pod.Annotations = map[string]string{cluster.AnnotationController: "local"}
	pod.Spec.NodeSelector = map[string]string{cluster.LabelProcessNode: "true"}
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	pod.Spec.Containers[0].Command = []string{"sh", "-c", "sleep 1234 & wait"}
	if _, err := client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := c.Processes().Start(ctx, "local"); err != nil {
		return err
	}
	fmt.Println("ready")
	<-ctx.Done()
	return c.Close(context.Background())
}

// helperProcess is the test executable run as a helper.
type helperProcess struct {
	*exec.Cmd
	stdin io.Closer
	lines *bufio.Scanner
	dir   string
}

func startHelper(t *testing.T, what string, with ...func(*exec.Cmd)) *helperProcess {
	t.Helper()
	binary, err := clustertest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h := &helperProcess{Cmd: exec.Command(self), dir: shortDir(t)}
	h.Env = append(os.Environ(), envHelper+"="+what, clustertest.EnvBinary+"="+binary, envHelperDir+"="+h.dir)
	h.Stderr = os.Stderr
	for _, f := range with {
		f(h.Cmd)
	}
	if h.stdin, err = h.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := h.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.lines = bufio.NewScanner(stdout)
	if err := h.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Process.Kill(); _ = h.Wait() })
	if !h.lines.Scan() || h.lines.Text() != "ready" {
		t.Fatalf("helper says %q", h.lines.Text())
	}
	return h
}

// end makes the helper close its cluster.
func (h *helperProcess) end(t *testing.T) {
	t.Helper()
	h.stdin.Close()
	if err := h.Wait(); err != nil {
		t.Errorf("helper: %v, says %q", err, h.lines.Text())
	}
}

// processesWith lists the processes whose command line or environment contains the text.
func processesWith(t *testing.T, text string) []int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*")
	if err != nil || len(files) == 0 {
		t.Skip("no /proc to look for processes")
	}
	var pids []int
	for _, file := range files {
		pid, err := strconv.Atoi(filepath.Base(file))
		if err != nil || pid == os.Getpid() {
			continue
		}
		command, _ := os.ReadFile(filepath.Join(file, "cmdline"))
		env, _ := os.ReadFile(filepath.Join(file, "environ"))
		if strings.Contains(string(command)+string(env), text) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func TestParentKilledLeavesNothingRunning(t *testing.T) {
	h := startHelper(t, "own")
	// etcd, API server, controller manager, scheduler, KWOK, the pod's process and its child.
	clustertest.Eventually(t, func(context.Context) error {
		if pids := processesWith(t, h.dir+"/"); len(pids) != 7 {
			return fmt.Errorf("%d processes, want 7: %v", len(pids), pids)
		}
		return nil
	})
	if err := h.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = h.Wait()
	clustertest.Eventually(t, func(context.Context) error {
		if pids := processesWith(t, h.dir+"/"); len(pids) > 0 {
			return fmt.Errorf("processes left: %v", pids)
		}
		return nil
	})
	// The next cluster deletes the directory.
	if left := runDirs(t, h.dir); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
	binary, err := clustertest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := embedded.Start(ctx, embedded.Config{Binary: binary, Dir: h.dir}); err == nil {
		t.Error("started although cancelled")
	}
	checkNothingLeft(t, h.dir)
}

// Where the kernel does not kill a component together with its parent, the component exits on its own.
func TestComponentWatchesParent(t *testing.T) {
	binary, err := clustertest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	dir := shortDir(t)
	cmd := exec.Command(binary, "etcd", "--data-dir="+dir+"/data", "--listen-client-urls=unix://"+dir+"/client",
		"--advertise-client-urls=http://127.0.0.1:1", "--listen-peer-urls=unix://"+dir+"/peer")
	cmd.Env = append(os.Environ(), "TROMMEL_PARENT_FD=3")
	cmd.ExtraFiles = []*os.File{read}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read.Close()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	clustertest.Eventually(t, func(context.Context) error {
		_, err := os.Stat(dir + "/client")
		return err
	})
	write.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if cmd.ProcessState.ExitCode() != 1 {
			t.Errorf("exited with %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("still running")
	}
}

// An ordinary user needs no privileges, and nothing is left when the cluster closes.
func TestCloseLeavesNothing(t *testing.T) {
	user := os.Getuid()
	var as []func(*exec.Cmd)
	if user == 0 {
		user = 65534 // an unprivileged user
		as = append(as, asUser(t, user))
	}
	h := startHelper(t, "own", as...)
	for _, pid := range processesWith(t, h.dir+"/") {
		if info, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil &&
			info.Sys().(*syscall.Stat_t).Uid != uint32(user) {
			t.Errorf("process %d runs as user %d", pid, info.Sys().(*syscall.Stat_t).Uid)
		}
	}
	h.end(t)
	checkNothingLeft(t, h.dir)
}

// asUser makes a helper run as another user, from copies of the programs that every user can read.
func asUser(t *testing.T, user int) func(*exec.Cmd) {
	t.Helper()
	binary, err := clustertest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	programs := shortDir(t)
	if err := os.Chmod(programs, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string]string{"controlplane": binary, "test": self} {
		if err := copyFile(filepath.Join(programs, name), file); err != nil {
			t.Fatal(err)
		}
	}
	return func(cmd *exec.Cmd) {
		dir := dirOf(cmd)
		if err := os.Chown(dir, user, user); err != nil {
			t.Fatal(err)
		}
		cmd.Path = filepath.Join(programs, "test")
		cmd.Dir = "/"
		cmd.Env = []string{
			"PATH=" + os.Getenv("PATH"), envHelper + "=own", envHelperDir + "=" + dir,
			clustertest.EnvBinary + "=" + filepath.Join(programs, "controlplane"),
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: uint32(user), Gid: uint32(user)},
		}
	}
}

func dirOf(cmd *exec.Cmd) string {
	for _, e := range cmd.Env {
		if dir, ok := strings.CutPrefix(e, envHelperDir+"="); ok {
			return dir
		}
	}
	return ""
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Close()
}

func TestAttach(t *testing.T) {
	t.Setenv("TROMMEL_CACHE", t.TempDir())
	ctx := t.Context()
	var none *embedded.NotRunningError
	if _, err := embedded.Attach(ctx, "helped"); !errors.As(err, &none) ||
		err.Error() != `cluster "helped" is not running (none is)` {
		t.Errorf("got %v", err)
	}
	h := startHelper(t, "serve")
	c, err := embedded.Attach(ctx, "helped")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.Attach(ctx, "other"); err == nil ||
		err.Error() != `cluster "other" is not running (running: helped)` {
		t.Errorf("got %v", err)
	}
	client := clientFor(t, c, "")
	pod := newPod("local")
	pod.Annotations = map[string]string{cluster.AnnotationController: "local"}
	pod.Spec.NodeSelector = map[string]string{cluster.LabelProcessNode: "true"}
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	pod.Spec.Containers[0].Command = []string{"sleep", "1000"}
	if _, err := client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	node := c.Processes()
	if node.NodeName() != "process-node" {
		t.Errorf("node %q", node.NodeName())
	}
	if err := node.Start(ctx, "local"); err != nil {
		t.Fatal(err)
	}
	before, err := node.Status(ctx, "local")
	if err != nil || len(before) != 1 || !before[0].Running() || before[0].Controller != "local" {
		t.Fatalf("status %+v, %v", before, err)
	}
	if err := node.Freeze(ctx, "local", 0); err != nil {
		t.Fatal(err)
	}
	if n, err := node.Thaw(ctx, "local", false); err != nil || n != 1 {
		t.Errorf("%d thawed, %v", n, err)
	}
	if n, err := node.Thaw(ctx, "local", true); err != nil || n != 0 {
		t.Errorf("%d thawed again, %v", n, err)
	}
	if err := node.Kill(ctx, "local"); err != nil {
		t.Fatal(err)
	}
	if after, err := node.Status(ctx, "local"); err != nil || len(after) != 1 || after[0].ExitCode != 137 ||
		!after[0].Planned {
		t.Errorf("status %+v, %v", after, err)
	}
	if err := node.Route(ctx, "local", "apiserver-9"); err == nil ||
		!strings.Contains(err.Error(), `no API server "apiserver-9"`) {
		t.Errorf("got %v", err)
	}
	if err := node.CutConnections(ctx, "local"); err != nil {
		t.Error(err)
	}
	if err := node.Reset(ctx); err != nil {
		t.Error(err)
	}
	// A blocked call returns when its context ends.
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if err := node.Start(short, "nobody"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}

	if err := c.KillAPIServer(ctx, "apiserver-1"); err != nil {
		t.Fatal(err)
	}
	if running, err := c.Running(ctx); err != nil || running["apiserver-1"] {
		t.Errorf("running %v, %v", running, err)
	}
	if err := c.StartAPIServer(ctx, "apiserver-1"); err != nil {
		t.Fatal(err)
	}
	unlock, err := c.Lock()
	if err != nil {
		t.Fatal(err)
	}
	again, err := embedded.Attach(ctx, "helped")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Lock(); err == nil || !strings.Contains(err.Error(), "in use by process") {
		t.Errorf("got %v", err)
	}
	unlock()
	if address, token := c.Rendezvous(); !strings.HasPrefix(address, "unix://"+h.dir) || token == "" {
		t.Errorf("rendezvous %q, %q", address, token)
	}

	t.Run("a lock file is lost", func(t *testing.T) { testLostLockFile(t, h) })
	if c, err = embedded.Attach(ctx, "helped"); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(ctx); err != nil {
		t.Error(err)
	}
	if _, err := client.Discovery().ServerVersion(); err != nil {
		t.Errorf("the cluster should keep running: %v", err)
	}
	if err := c.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if entries, err := embedded.List(); err != nil || len(entries) != 0 {
		t.Errorf("running %v, %v", entries, err)
	}
	checkNothingLeft(t, h.dir)
}

// A cluster whose process was killed is not listed and does not prevent a new one.
func TestStaleEntry(t *testing.T) {
	t.Setenv("TROMMEL_CACHE", t.TempDir())
	h := startHelper(t, "serve")
	refuseSecond(t, h)
	if err := h.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = h.Wait()
	if entries, err := embedded.List(); err != nil || len(entries) != 0 {
		t.Errorf("running %v, %v", entries, err)
	}
	checkNothingLeft(t, h.dir)
	startHelper(t, "serve").end(t)
}

// testLostLockFile is for a regression: after a cache cleaner had deleted a lock file, List deleted the data of a
// running cluster.
func testLostLockFile(t *testing.T, h *helperProcess) {
	lock, err := embedded.RegistryFile("helped", ".lock")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	if entries, err := embedded.List(); err != nil || len(entries) != 1 {
		t.Fatalf("running %v, %v", entries, err)
	}
	refuseSecond(t, h)
	if _, err := embedded.Attach(t.Context(), "helped"); err != nil {
		t.Error(err)
	}
}

// refuseSecond checks that no other cluster of the helper's name can start.
func refuseSecond(t *testing.T, h *helperProcess) {
	t.Helper()
	binary, err := clustertest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	err = embedded.Serve(t.Context(), embedded.Config{Name: "helped", Binary: binary}, func(embedded.Entry) {})
	if want := fmt.Sprintf(`a cluster named "helped" is running already (process %d)`, h.Process.Pid); err == nil ||
		err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// BenchmarkStart measures the time until three API servers are ready and the cluster can be used.
func BenchmarkStart(b *testing.B) {
	if err := shared.Close(context.Background()); err != nil { // it would affect the measurement
		b.Fatal(err)
	}
	for b.Loop() {
		c := clustertest.Start(b, embedded.Config{})
		b.StopTimer()
		if err := c.Close(context.Background()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
