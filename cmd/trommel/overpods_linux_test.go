package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/cluster/embedded"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/report"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

// numberOf reads a number from the environment.
func numberOf(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := cmp.Or(os.Getenv(name), strconv.Itoa(otherwise))
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%s is not a number of at least 1", name, text)
	}
	return n
}

// TestCampaignOverPods makes a real campaign over the pods of an Indexed Job, which are processes of the process node,
// each with clusters of its own. Pods are deleted without grace, and the campaign is killed twice and resumed. It
// judges each plan once, and finds what the same campaign finds on one machine. If there are more plans to run than can
// be generated, some are run several times, under other names. With many pods, their clusters are small.
func TestCampaignOverPods(t *testing.T) {
	if os.Getenv("TROMMEL_TEST_LONG") == "" {
		t.Skip("runs with TROMMEL_TEST_LONG=1 (make long)")
	}
	// The executables of workers are built without cgo; so are those that they are compared with.
	t.Setenv("CGO_ENABLED", "0")
	c := &overPods{
		trommel: buildTrommel(t), dir: t.TempDir(),
		pods: numberOf(t, "TROMMEL_TEST_PODS", 4), killed: map[string]int{},
	}
	c.copySuite(t)
	c.generate(t, numberOf(t, "TROMMEL_TEST_PLANS", 60))
	here, took := c.onThisMachine(t)
	over := c.overPods(t)
	t.Logf("on this machine it took %s", took.Round(time.Second))

	names := func(r *result.Result) (all []string) {
		for _, o := range r.Outcomes {
			all = append(all, o.Plan)
		}
		slices.Sort(all)
		return all
	}
	if got := names(over); !slices.Equal(got, c.plans) || len(over.NotRun) > 0 {
		t.Errorf("judged: %q; not run: %q; want each plan once: %q", got, over.NotRun, c.plans)
	}
	titles := func(r *result.Result) (all []string) {
		for _, g := range result.Groups(r.With(result.Bug)) {
			all = append(all, report.Title(g.Finding))
		}
		slices.Sort(all)
		return all
	}
	if got, want := titles(over), titles(here); !slices.Equal(got, want) || len(want) == 0 {
		t.Errorf("over pods it finds\n%s\nand on this machine\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	statuses := map[string]result.Status{}
	for _, o := range here.Outcomes {
		statuses[o.Plan] = o.Status
	}
	for _, o := range over.Outcomes {
		if o.Status == result.Failed {
			t.Errorf("%s could not be run: %s", o.Plan, o.Reason)
		}
		original, _, _ := strings.Cut(o.Plan, copyMark)
		if o.Status != statuses[original] {
			t.Logf("%s: %s over pods, %s on this machine", o.Plan, o.Status, statuses[original])
		}
	}
	t.Logf("bugs: %q", titles(over))
}

type overPods struct {
	trommel string
	dir     string
	suite   string
	pods    int
	plans   []string       // names, sorted
	killed  map[string]int // pods, by index
	judged  atomic.Int32   // plans
	out     bytes.Buffer   // of the campaign's processes
}

func (c *overPods) path(name string) string { return filepath.Join(c.dir, name) }

// run runs trommel to its end.
func (c *overPods) run(t *testing.T, codes string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), c.trommel, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if !strings.Contains(codes, exitCode(err)) {
		t.Fatalf("trommel %s: exit code %s\n%s%s", strings.Join(args, " "), exitCode(err), out, errs.String())
	}
	return string(out)
}

// manyPods is from how many pods on their clusters have one API server: two processors have no time for more.
const manyPods = 8

// copySuite copies the example that is tested.
func (c *overPods) copySuite(t *testing.T) {
	t.Helper()
	dir := c.path("examples")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"database-operator", "go.mod", "go.sum"} {
		from := filepath.Join("../../examples", name)
		if out, err := exec.Command("cp", "-r", from, dir).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	c.suite = filepath.Join(dir, "database-operator", "trommel.yaml")
	text, err := os.ReadFile(c.suite)
	if err != nil {
		t.Fatal(err)
	}
	if c.pods >= manyPods {
		text = bytes.Replace(text, []byte("apiServers: 3"), []byte("apiServers: 1"), 1)
	}
	if err := os.WriteFile(c.suite, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// copyMark stands in the names of plans that are copies, after the original's.
const copyMark = "-copy-"

// generate writes plans of all kinds into directories: the originals, and all.
func (c *overPods) generate(t *testing.T, n int) {
	t.Helper()
	c.run(t, "0", "generate", "-c", c.suite, "--workload", "create,recreate",
		"--dir", c.path("generated"), "--baseline", c.path("baselines"))
	files, err := filepath.Glob(c.path("generated/plans/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no plans were generated (%v)", err)
	}
	slices.Sort(files)
	originals := min(n, len(files))
	for i := range n {
		file := files[i%originals*len(files)/originals]
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		if turn := i / originals; turn > 0 {
			was := name
			name += copyMark + strconv.Itoa(turn)
			data = bytes.Replace(data, []byte("testName: "+was+"\n"), []byte("testName: "+name+"\n"), 1)
		} else {
			c.write(t, "originals", name, data)
		}
		c.write(t, "plans", name, data)
		c.plans = append(c.plans, name)
	}
	slices.Sort(c.plans)
	t.Logf("%d of %d plans, %d runs of them", originals, len(files), n)
}

// write writes a plan into a directory.
func (c *overPods) write(t *testing.T, dir, name string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(c.path(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.path(dir), name+".yaml"), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// campaign are the arguments of both campaigns.
func (c *overPods) campaign(plans string, more ...string) []string {
	return append([]string{
		"test", "-c", c.suite, "--plans", c.path(plans), "--baseline", c.path("baselines"),
	}, more...)
}

// foundIn reads what a campaign has found.
func foundIn(t *testing.T, file string) *result.Result {
	t.Helper()
	data, err := os.ReadFile(file)
	r := &result.Result{}
	if err == nil {
		err = json.Unmarshal(data, r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (c *overPods) onThisMachine(t *testing.T) (*result.Result, time.Duration) {
	t.Helper()
	began := time.Now()
	file := c.path("here.json")
	c.run(t, "13", c.campaign("originals", "--parallel", "2", "--dir", c.path("here"), "--json", file)...)
	return foundIn(t, file), time.Since(began)
}

// overPods makes the campaign over pods.
func (c *overPods) overPods(t *testing.T) *result.Result {
	t.Helper()
	host := clustertest.Start(t, embedded.Config{APIServers: 1, Nodes: 1})
	to, err := host.RESTConfig("")
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(to)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	dir, pods, file := c.path("over"), strconv.Itoa(c.pods), c.path("over.json")
	manifests := c.run(t, "0", "test", "--on", "kubernetes", "--listen", address, "--image", "trommel",
		"--parallel", pods, "--dir", dir, "--cpu", "10m", "--namespace", "default", "--dry-run=client", "-o", "yaml")
	c.apply(t, host, manifests)

	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.killPods(ctx, t, client)
	}()
	defer func() {
		stop()
		<-done
	}()
	began := time.Now()
	first := c.campaign("plans", "--parallel", pods, "--dir", dir, "--listen", address, "--json", file)
	again := []string{"test", "--resume", dir, "--parallel", pods, "--listen", address, "--json", file}
	c.untilKilled(t, len(c.plans)/3, first)
	c.untilKilled(t, 2*len(c.plans)/3, again)
	if code := c.untilKilled(t, len(c.plans)+1, again); code != "1" {
		t.Errorf("exit code %s", code)
	}
	n := 0
	for _, killed := range c.killed {
		n += killed
	}
	t.Logf("%d plans over %d pods took %s; %d pods were killed, the campaign twice", len(c.plans), c.pods,
		time.Since(began).Round(time.Second), n)
	for line := range strings.Lines(c.out.String()) {
		if strings.Contains(line, "made by workers") {
			t.Log(strings.TrimSpace(line))
		}
	}
	return foundIn(t, file)
}

// apply creates what is printed. On the process node an executable stands for the image.
func (c *overPods) apply(t *testing.T, host *embedded.Cluster, manifests string) {
	t.Helper()
	to, err := host.RESTConfig("")
	if err != nil {
		t.Fatal(err)
	}
	client, err := objects.New(to)
	if err != nil {
		t.Fatal(err)
	}
	// Trommel has the text by which executables with hooks are known, so that it would be taken for one.
	program := c.path("program")
	//nolint:gosec // it is executed
	if err := os.WriteFile(program, []byte("#!/bin/sh\nexec "+c.trommel+" \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for text := range strings.SplitSeq(manifests, "---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		if u.GetKind() == "Job" {
			template := u.Object["spec"].(map[string]any)["template"].(map[string]any)
			template["metadata"].(map[string]any)["annotations"] = map[string]any{
				cluster.AnnotationBinaryPrefix + "worker": program,
			}
			pod := template["spec"].(map[string]any)
			pod["nodeSelector"] = map[string]any{cluster.LabelProcessNode: "true"}
			pod["tolerations"] = []any{
				map[string]any{"key": cluster.TaintProcessNode, "operator": string(corev1.TolerationOpExists)},
			}
		}
		if _, err := client.Apply(t.Context(), u); err != nil {
			t.Fatalf("%s: %v", u.GetKind(), err)
		}
	}
}

// killPods deletes pods at random, without grace, while the campaign goes on: about two for each that there are. They
// are spread over the plans, because a run is given up that loses two workers. The Job makes each of its pods again
// five times at most.
func (c *overPods) killPods(ctx context.Context, t *testing.T, client kubernetes.Interface) {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // it is not a secret
	step := max(1, len(c.plans)/(2*c.pods))
	next := step / 2
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
		if int(c.judged.Load()) < next {
			continue
		}
		pods, err := client.CoreV1().Pods("default").List(ctx,
			metav1.ListOptions{FieldSelector: "status.phase=Running"})
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			t.Error(err)
			return
		}
		const index = "batch.kubernetes.io/job-completion-index"
		few := slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return c.killed[p.Labels[index]] >= 5 })
		if len(few) == 0 {
			continue
		}
		next += step
		p := few[random.IntN(len(few))]
		c.killed[p.Labels[index]]++
		err = client.CoreV1().Pods("default").Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			t.Error(err)
		}
	}
}

var judged = regexp.MustCompile(`\[(\d+)/\d+\] `)

// untilKilled runs a campaign, and kills it when it has judged that many plans. It returns the exit code otherwise.
func (c *overPods) untilKilled(t *testing.T, plans int, args []string) (code string) {
	t.Helper()
	began := time.Now()
	cmd := exec.CommandContext(t.Context(), c.trommel, args...)
	out, err := os.Create(c.path(fmt.Sprintf("log-%d", plans)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err = <-ended:
			code = exitCode(err)
		case <-time.After(200 * time.Millisecond):
		}
		text, err := os.ReadFile(out.Name())
		if err != nil {
			t.Fatal(err)
		}
		n := int(c.judged.Load())
		for _, m := range judged.FindAllSubmatch(text, -1) {
			number, _ := strconv.Atoi(string(m[1]))
			n = max(n, number)
		}
		c.judged.Store(int32(n)) //nolint:gosec // it is small
		if code == "" && n >= plans {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			code = exitCode(<-ended)
			t.Logf("killed after %d plans and %s", n, time.Since(began).Round(time.Second))
		}
		if code != "" {
			c.out.Write(text)
			if t.Failed() || n < plans {
				t.Logf("%s", text)
			}
			return code
		}
	}
}
