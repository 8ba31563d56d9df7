package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

// sharedCluster starts a cluster with `trommel cluster up`, which runs until the test that shares it among its subtests
// has ended. The cluster's name ends in the suffix.
func sharedCluster(t, sharing *testing.T, trommel, suffix string) string {
	t.Helper()
	name := fmt.Sprintf("test-%d%s", os.Getpid(), suffix)
	up := exec.Command(trommel, "cluster", "up", "--name", name)
	if out, err := up.CombinedOutput(); err != nil {
		t.Fatalf("trommel cluster up: %v\n%s", err, out)
	}
	sharing.Cleanup(func() {
		if out, err := exec.Command(trommel, "cluster", "down", "--name", name).CombinedOutput(); err != nil {
			sharing.Errorf("trommel cluster down: %v\n%s", err, out)
		}
	})
	return name
}

// builtIn is where trommel is built for the tests; TestMain removes it.
var builtIn string

var builtOnce = sync.OnceValue(func() (err error) {
	if builtIn, err = os.MkdirTemp("", "trommel-test"); err != nil {
		return err
	}
	if out, err := exec.Command("go", "build", "-o", builtIn, ".").CombinedOutput(); err != nil {
		return fmt.Errorf("build trommel: %w\n%s", err, out)
	}
	return nil
})

// buildTrommel builds trommel, once for all tests, and returns its path.
func buildTrommel(t testing.TB) string {
	t.Helper()
	if err := builtOnce(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(builtIn, "trommel")
}

// slowScripts are the scripts that take longest, the slowest first.
var slowScripts = []string{
	"bad_runs", "actions", "manifests", "notes", "old_locks", "leases", "stale", "removed", "webhooks", "binary",
}

// TestCluster runs the real CLI on two real control planes, which its subtests share. On each there is one subtest at a
// time, because a cluster has one coordinator at a time; each takes the next one that is left. The scripts of
// testdata/own mostly wait, which costs nothing on clusters of their runs' own: those have their own time. Those of
// testdata/long too, but they take minutes, and are for TROMMEL_TEST_LONG.
func TestCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("starts control planes")
	}
	t.Parallel()
	trommel := buildTrommel(t)
	copier, err := filepath.Abs("../../testdata/controllers/copier")
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	dirs := []string{"cluster", "own"}
	if os.Getenv("TROMMEL_TEST_LONG") != "" {
		dirs = append(dirs, "long")
	}
	for _, dir := range dirs {
		list, err := filepath.Glob(filepath.Join("testdata", dir, "*.txtar"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, list...)
	}
	slices.SortStableFunc(files, func(a, b string) int { return cmp.Compare(slowness(a), slowness(b)) })
	type subtest struct {
		name string
		run  func(t *testing.T, cluster string)
		own  bool // it needs no cluster
	}
	subtests := []subtest{
		{name: "put back", run: func(t *testing.T, c string) { testPutBack(t, trommel, c, copier) }},
		{name: "interrupted", run: func(t *testing.T, c string) { testInterrupted(t, trommel, c, copier) }},
	}
	for _, file := range files {
		subtests = append(subtests, subtest{name: filepath.Base(file), run: func(t *testing.T, cluster string) {
			p := clusterParams(cluster, copier)
			p.Files = []string{file}
			testscript.Run(t, p)
		}, own: filepath.Base(filepath.Dir(file)) != "cluster"})
	}
	// Last: it leaves definitions and policies in its cluster.
	subtests = append(subtests,
		subtest{name: "killed in mid-pause", run: func(t *testing.T, c string) {
			testKilledInMidPause(t, trommel, c, copier)
		}},
		subtest{name: "cycle", run: func(t *testing.T, c string) { testCycle(t, trommel, c) }})
	left := make(chan subtest, len(subtests))
	for _, s := range subtests {
		left <- s
	}
	close(left)
	for _, suffix := range []string{"-a", "-b"} {
		t.Run("on cluster "+suffix[1:], func(sharing *testing.T) {
			sharing.Parallel()
			var cluster string
			for s := range left {
				sharing.Run(s.name, func(t *testing.T) {
					if cluster == "" && !s.own {
						cluster = sharedCluster(t, sharing, trommel, suffix)
					}
					s.run(t, cluster)
				})
			}
		})
	}
}

// slowness is the place of a script among the slow ones, or behind them.
func slowness(file string) int {
	i := slices.Index(slowScripts, strings.TrimSuffix(filepath.Base(file), ".txtar"))
	if i < 0 {
		return len(slowScripts)
	}
	return i
}

// clusterParams returns the parameters of a script that uses a cluster; the caller adds the file.
func clusterParams(name, copier string) testscript.Params {
	p := params("")
	p.Setup = func(e *testscript.Env) error {
		shareCaches(e)
		e.Setenv("CLUSTER", name)
		e.Setenv("COPIER", copier)
		e.Setenv("REREADER", filepath.Join(filepath.Dir(copier), "rereader"))
		e.Setenv("GUARD", filepath.Join(filepath.Dir(copier), "guard"))
		return os.MkdirAll(filepath.Join(e.WorkDir, "copier"), 0o755)
	}
	return p
}

// No process of a run sends a packet anywhere but to loopback: not the API servers that call webhooks, nor the
// controller, nor trommel.
func TestRunStaysOnTheMachine(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	// Download what the build of the controller needs, while there is a network.
	download := exec.Command("go", "mod", "download")
	download.Dir = "../../testdata/controllers/copier"
	if out, err := download.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	clustertest.Isolate(t, "^TestIsolatedRun$", "GOPROXY=off", "TROMMEL_TEST_RUN=1")
}

// TestIsolatedRun is run by TestRunStaysOnTheMachine.
func TestIsolatedRun(t *testing.T) {
	if os.Getenv("TROMMEL_TEST_RUN") == "" {
		t.Skip("for TestRunStaysOnTheMachine")
	}
	copier, err := filepath.Abs("../../testdata/controllers/copier")
	if err != nil {
		t.Fatal(err)
	}
	p := clusterParams(sharedCluster(t, t, buildTrommel(t), ""), copier)
	p.Files = []string{filepath.Join("testdata", "cluster", "webhooks.txtar")}
	testscript.Run(t, p)
}

// pausing is a plan that pauses an API server and the controller, and never resumes them.
const pausing = `testName: pausing
workload: copy
actions:
  - actionType: pauseAPIServer
    actionTarget: apiserver-2
    trigger: {definitions: [{triggerName: now, condition: {triggerType: none}}], expression: now}
  - actionType: pauseController
    pauseAt: beforeControllerRecv
    trigger: {definitions: [{triggerName: now, condition: {triggerType: none}}], expression: now}
`

const passing = `testName: passing
workload: copy
actions:
  - actionType: restartController
    trigger: {definitions: [{triggerName: now, condition: {triggerType: none}}], expression: now}
`

func suite(copier string) string {
	return `controllers:
  - name: copier
    build: {dir: ` + copier + `}
workloads:
  copy:
    - apply:
        apiVersion: v1
        kind: ConfigMap
        metadata: {name: source, namespace: default, labels: {copy: "true"}}
        data: {a: "1"}
    - wait: {resourceKey: configmap/default/source-copy, condition: 'object.data.a == "1"', timeout: 30s}
`
}

// started is a run of trommel that has printed a certain line of progress.
type started struct {
	*exec.Cmd
	rest chan string // everything that it prints afterwards
}

func startUntil(t *testing.T, marker, trommel string, args ...string) *started {
	t.Helper()
	s := &started{Cmd: exec.Command(trommel, args...), rest: make(chan string, 1)}
	// A terminal sends Ctrl-C to the whole process group; here only trommel gets the signal.
	s.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stderr, err := s.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	var seen bytes.Buffer
	for lines.Scan() {
		fmt.Fprintln(&seen, lines.Text())
		if strings.Contains(lines.Text(), marker) {
			go func() {
				rest, _ := io.ReadAll(stderr)
				s.rest <- string(rest)
			}()
			return s
		}
	}
	_ = s.Wait()
	t.Fatalf("trommel exited before %q:\n%s", marker, seen.String())
	return nil
}

func writePlans(t *testing.T, copier string) string {
	t.Helper()
	dir := t.TempDir()
	for file, text := range map[string]string{"trommel.yaml": suite(copier), "pausing.yaml": pausing,
		"passing.yaml": passing} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func testInterrupted(t *testing.T, trommel, cluster, copier string) {
	dir := writePlans(t, copier)
	for _, marker := range []string{"build", "controllers", "paused by action"} {
		t.Run(marker, func(t *testing.T) {
			s := startUntil(t, marker, trommel, "-p", filepath.Join(dir, "pausing.yaml"), "--cluster", cluster,
				"--record", filepath.Join(t.TempDir(), "r"))
			if err := s.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			rest := <-s.rest
			if code := exitCode(s.Wait()); code != "4" || !strings.Contains(rest, "interrupted") {
				t.Errorf("exit code %s, then it printed:\n%s", code, rest)
			}
			nothingLeft(t, cluster)
		})
	}
	mustPass(t, trommel, cluster, dir)
}

// testKilledInMidPause kills a coordinator that holds an API server and a controller: both continue, and the next run
// works.
func testKilledInMidPause(t *testing.T, trommel, cluster, copier string) {
	dir := writePlans(t, copier)
	s := startUntil(t, "paused by action", trommel, "-p", filepath.Join(dir, "pausing.yaml"), "--cluster", cluster,
		"--record", filepath.Join(dir, "killed"))
	// The API server may be paused before the workload begins.
	awaitConfigMap(t, cluster, "source", "the workload did not begin")
	if err := s.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-s.rest
	_ = s.Wait()
	// The paused controller receives its ConfigMap and copies it.
	awaitConfigMap(t, cluster, "source-copy", "the paused controller did not continue after its coordinator was killed")
	mustPass(t, trommel, cluster, dir)
	nothingLeft(t, cluster)
}

func mustPass(t *testing.T, trommel, cluster, dir string) {
	t.Helper()
	out, err := exec.Command(trommel, "-p", filepath.Join(dir, "passing.yaml"), "--cluster", cluster, "--record",
		filepath.Join(t.TempDir(), "r")).CombinedOutput()
	if err != nil {
		t.Fatalf("the next plan on the cluster: %v\n%s", err, out)
	}
}

// nothingLeft checks that a run has deleted everything that it created on an existing cluster.
func nothingLeft(t *testing.T, cluster string) {
	t.Helper()
	if names := configMaps(t, cluster); !slices.Equal(names, []string{"kube-root-ca.crt"}) {
		t.Errorf("ConfigMaps after the run: %v", names)
	}
	client := clientOf(t, cluster)
	deployments, err := client.AppsV1().Deployments("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(deployments.Items) != 0 {
		t.Errorf("%d Deployments after the run", len(deployments.Items))
	}
}

func awaitConfigMap(t *testing.T, cluster, name, otherwise string) {
	t.Helper()
	clustertest.Eventually(t, func(context.Context) error {
		if names := configMaps(t, cluster); !slices.Contains(names, name) {
			return fmt.Errorf("%s: ConfigMaps %v", otherwise, names)
		}
		return nil
	})
}

func configMaps(t *testing.T, cluster string) []string {
	t.Helper()
	list, err := clientOf(t, cluster).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range list.Items {
		names = append(names, m.Name)
	}
	return names
}

func clientOf(t *testing.T, cluster string) kubernetes.Interface {
	t.Helper()
	return kubernetes.NewForConfigOrDie(adminOf(t, cluster))
}
