package kind

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	chaosconfig "github.com/trommel-dev/trommel/chaos/config"
	chaoscontroller "github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/chaos/controller/manager"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/layer"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/plan"
)

const probeImage = "registry.example/probe:1"

// buildProbe builds the probe.
func buildProbe(t *testing.T) (binary string) { return buildStatic(t, "./testdata/probe") }

// buildStatic builds a program for images that have nothing else.
func buildStatic(t *testing.T, pkg string) (binary string) {
	t.Helper()
	binary = filepath.Join(t.TempDir(), filepath.Base(pkg))
	cmd := exec.Command("go", "build", "-o", binary, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

// give makes the engine have an image until the test ends.
func give(t *testing.T, i image) {
	t.Helper()
	archive := filepath.Join(t.TempDir(), "image.tar")
	if err := i.write(archive); err != nil {
		t.Fatal(err)
	}
	if _, err := engine(t.Context(), nil, "load", "-i", archive); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		args := append([]string{"image", "rm", "-f"}, i.names...)
		if _, err := engine(context.WithoutCancel(t.Context()), nil, args...); err != nil {
			t.Errorf("remove the image: %v", err)
		}
	})
}

// giveInjector makes the engine have the image of injectors.
func giveInjector(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("go", "run", ".", "--root", "../..", "-o", dir, "trommel-injector")
	cmd.Dir = "../../../install/images"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	archives, err := filepath.Glob(filepath.Join(dir, "*.tar"))
	if err != nil || len(archives) != 1 {
		t.Fatalf("images %v, %v", archives, err)
	}
	if _, err := engine(t.Context(), nil, "load", "-i", archives[0]); err != nil {
		t.Fatal(err)
	}
}

// disrupted is a cluster with the controllers of disruptions, and a pod that measures what they do to it.
type disrupted struct {
	*Cluster
	client  kubernetes.Interface
	objects *objects.Client
	samples samples
}

// samples are the last measurements of a pod.
type samples struct {
	mu      sync.Mutex
	byName  map[string][]string
	changed chan struct{}
}

func (s *samples) add(name, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byName[name] = append(s.byName[name], value)
	close(s.changed)
	s.changed = make(chan struct{})
}

// next returns the next n measurements of a name.
func (s *samples) next(ctx context.Context, name string, n int) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := len(s.byName[name]) + 1 // the next one may have begun before
	for len(s.byName[name]) < from+n {
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
			s.mu.Lock()
		case <-ctx.Done():
			s.mu.Lock()
			return nil, fmt.Errorf("%s: %d of %d measurements: %w", name, len(s.byName[name])-from, n,
				context.Cause(ctx))
		}
	}
	return s.byName[name][from : from+n], nil
}

// numbers are the next measurements, in order of size.
func (d *disrupted) numbers(t *testing.T, name string) (all []int) {
	t.Helper()
	const enough = 9
	found, err := d.samples.next(within(t, time.Minute), name, enough)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range found {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, n)
	}
	slices.Sort(all)
	return all
}

func (d *disrupted) apply(t *testing.T, what, text string) {
	t.Helper()
	list, err := objects.Decode([]byte(text), what)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range list {
		// A definition that has just been made is not served yet.
		err := poll(within(t, 30*time.Second), func(ctx context.Context) error {
			_, err := d.objects.Apply(ctx, o)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// startDisrupted starts a cluster with a probe.
func startDisrupted(t *testing.T) *disrupted {
	t.Helper()
	needEngine(t)
	give(t, image{
		names: []string{probeImage}, entrypoint: []string{"/probe"},
		files: []layer.File{{Path: "/probe", Local: buildProbe(t), Mode: 0o755}},
	})
	giveInjector(t)
	d := &disrupted{
		Cluster: start(t, cluster.Config{APIServers: 1, Images: []string{probeImage}}),
		samples: samples{byName: map[string][]string{}, changed: make(chan struct{})},
	}
	if err := d.LoadImage(t.Context(), chaosconfig.InjectorImage); err != nil {
		t.Fatal(err)
	}
	to, err := d.RESTConfig("")
	if err != nil {
		t.Fatal(err)
	}
	if d.client, err = kubernetes.NewForConfig(to); err != nil {
		t.Fatal(err)
	}
	if d.objects, err = objects.New(to); err != nil {
		t.Fatal(err)
	}
	for _, name := range chaosconfig.Installed {
		text, err := chaosconfig.Files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		d.apply(t, name, string(text))
	}
	mgr, err := manager.New(to, manager.Options{
		Config: chaoscontroller.Config{
			Namespace: "trommel-chaos", Image: chaosconfig.InjectorImage, Privileged: true,
			ServiceAccount: "disruption-injector", APIServiceAccount: "disruption-api-injector",
			PriorityClass: "trommel-disruption-injector",
			Nets:          chaoscontroller.Nets{NetworkWithoutHosts: true, DiskRoot: true, Nodes: true},
		},
		Logger: logr.FromSlogHandler(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	d.apply(t, "server", `
apiVersion: v1
kind: Pod
metadata: {name: server, namespace: default, labels: {app: server}}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: `+probeImage+`, args: [serve, ":7000"]}]
`)
	d.apply(t, "client", `
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: default, labels: {app: probe}}
spec:
  terminationGracePeriodSeconds: 0
  volumes: [{name: data, emptyDir: {}}]
  containers:
  - name: main
    image: `+probeImage+`
    args: [measure, "`+d.running(t, "server").Status.PodIP+`:7000", /data]
    volumeMounts: [{name: data, mountPath: /data}]
    resources: {limits: {cpu: 500m, memory: 200Mi}}
  - name: beside
    image: `+probeImage+`
    args: [beside, "`+d.running(t, "server").Status.PodIP+`:7000"]
`)
	d.running(t, "client")
	go d.read(ctx, "main", "")
	go d.read(ctx, "beside", "beside-")
	return d
}

// running waits until a pod runs.
func (d *disrupted) running(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	err := poll(within(t, time.Minute), func(ctx context.Context) (err error) {
		pod, err = d.client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err == nil && (pod.Status.Phase != corev1.PodRunning || !pod.Status.ContainerStatuses[0].Ready) {
			err = errors.New(pod.Status.String())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// read reads the log of one of the probe's containers, also after restarts, until ctx ends.
func (d *disrupted) read(ctx context.Context, container, prefix string) {
	none := int64(0)
	for ctx.Err() == nil {
		log, err := d.client.CoreV1().Pods("default").GetLogs("client", &corev1.PodLogOptions{
			Container: container, Follow: true, TailLines: &none,
		}).Stream(ctx)
		if err != nil {
			time.Sleep(pollInterval)
			continue
		}
		for lines := bufio.NewScanner(log); lines.Scan(); {
			if name, value, found := strings.Cut(lines.Text(), " "); found {
				d.samples.add(prefix+name, value)
			}
		}
		_ = log.Close()
	}
}

// begin creates a disruption of the probe and waits until it is what until says.
func (d *disrupted) begin(
	t *testing.T, name, fault string, until func(*chaos.DisruptionStatus) bool,
) (after time.Duration) {
	t.Helper()
	return d.beginOf(t, "app: probe", name, fault, until)
}

// beginOf is begin for what the selector says.
func (d *disrupted) beginOf(
	t *testing.T, selector, name, fault string, until func(*chaos.DisruptionStatus) bool,
) (after time.Duration) {
	t.Helper()
	begin := time.Now()
	d.apply(t, name, `
apiVersion: chaos.trommel.dev/v1alpha1
kind: Disruption
metadata: {name: `+name+`, namespace: default}
spec:
  selector: {`+selector+`}
  duration: 5m
  `+fault+`
`)
	last := ""
	ctx := within(t, time.Minute)
	err := objects.FollowOne(ctx, d.objects, d.key(t, name), func(o *chaos.Disruption) (bool, error) {
		if o == nil {
			return false, nil
		}
		last = fmt.Sprintf("%s %s %v", o.Status.Phase, o.Status.Message, o.Status.Injections)
		return until(&o.Status), nil
	})
	if err != nil {
		t.Fatalf("%v: %s", err, last)
	}
	return time.Since(begin)
}

func (d *disrupted) key(t *testing.T, name string) plan.ResourceKey {
	t.Helper()
	key, err := plan.ParseResourceKey("disruption.chaos.trommel.dev/default/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// end deletes a disruption and waits until nothing of it is left: no object, no chaos pod, nothing in the journal.
func (d *disrupted) end(t *testing.T, name string) (after time.Duration) {
	t.Helper()
	begin := time.Now()
	ctx := within(t, time.Minute)
	if err := d.objects.Delete(ctx, d.key(t, name), objects.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	err := objects.FollowOne(ctx, d.objects, d.key(t, name), func(o *chaos.Disruption) (bool, error) {
		return o == nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	after = time.Since(begin)
	pods, err := d.client.CoreV1().Pods("trommel-chaos").List(ctx, metav1.ListOptions{})
	if err != nil || len(pods.Items) > 0 {
		t.Errorf("%d chaos pods are left: %v", len(pods.Items), err)
	}
	left, err := engine(ctx, nil, "exec", d.node, "find", "/var/lib/trommel-chaos", "-type", "f", "-size", "+0")
	if err != nil || strings.TrimSpace(left) != "" {
		t.Errorf("the journal has %s, %v", left, err)
	}
	return after
}

// TestDisruptions: each kind of disruption on a real kubelet's pods. What it does is measured in the target, before,
// meanwhile and after.
func TestDisruptions(t *testing.T) {
	d := startDisrupted(t)
	server := d.running(t, "server").Status.PodIP
	injected := func(s *chaos.DisruptionStatus) bool { return s.Phase == chaos.Injected }

	for _, test := range []struct {
		name, fault string
		measured    string
		usual       func(middle int) bool // before and after
		disturbed   func(middle int) bool
	}{
		{
			"network-drop", "network: {hosts: [{host: " + server + "}], drop: 100}", "echo",
			func(ms int) bool { return 0 <= ms && ms < 150 }, func(ms int) bool { return ms == -1 },
		},
		{
			"network-delay", "network: {hosts: [{host: " + server + ", port: 7000}], delay: 150ms}", "echo",
			func(ms int) bool { return 0 <= ms && ms < 150 }, func(ms int) bool { return ms >= 150 },
		},
		{
			"http-drop", "network: {hosts: [{host: " + server + "}], http: {paths: [/probe]}, drop: 100}", "http",
			func(ms int) bool { return 0 <= ms && ms < 300 }, func(ms int) bool { return ms == -1 },
		},
		{
			"http-other", "network: {hosts: [{host: " + server + "}], http: {paths: [/other]}, drop: 100}", "http",
			func(ms int) bool { return 0 <= ms && ms < 300 }, func(ms int) bool { return 0 <= ms && ms < 300 },
		},
		{
			"disk-failure", "diskFailure: {paths: [/data]}", "write",
			func(ms int) bool { return 0 <= ms && ms < 400 }, func(ms int) bool { return ms == -1 },
		},
		{
			"cpu", "cpuPressure: {load: 90}", "work",
			func(ms int) bool { return ms < 60 }, func(ms int) bool { return ms > 80 },
		},
		{
			"memory", "memoryPressure: {target: 60}", "memory",
			func(mib int) bool { return mib < 60 }, func(mib int) bool { return 110 < mib && mib < 130 },
		},
		{
			"disk", "diskPressure: {path: /data, writeBytesPerSecond: 262144}", "write",
			func(ms int) bool { return 0 <= ms && ms < 400 }, func(ms int) bool { return ms > 800 },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			median := func() int {
				all := d.numbers(t, test.measured)
				return all[len(all)/2]
			}
			before := median()
			begun := d.begin(t, test.name, test.fault, injected)
			during := median()
			ended := d.end(t, test.name)
			after := median()
			t.Logf("%s: %d, %d, %d; injected after %s, ended after %s", test.measured, before, during, after,
				begun.Round(time.Millisecond), ended.Round(time.Millisecond))
			if !test.usual(before) || !test.usual(after) {
				t.Errorf("without: %d before, %d after", before, after)
			}
			if !test.disturbed(during) {
				t.Errorf("with: %d", during)
			}
		})
	}

	t.Run("dns", func(t *testing.T) {
		lookup := func() string {
			found, err := d.samples.next(within(t, time.Minute), "lookup", 1)
			if err != nil {
				t.Fatal(err)
			}
			return found[0]
		}
		before := lookup()
		d.begin(t, "dns", "dns: {records: [{name: probe.example, addresses: [192.0.2.7]}]}", injected)
		during := lookup()
		d.end(t, "dns")
		if after := lookup(); before != "none" || during != "192.0.2.7" || after != "none" {
			t.Errorf("%s before, %s during, %s after", before, during, after)
		}
	})

	t.Run("containers are killed", func(t *testing.T) {
		before := d.running(t, "client").Status.ContainerStatuses[0].RestartCount
		d.begin(t, "kill", "containerFailure: {}", injected)
		err := poll(within(t, 2*time.Minute), func(ctx context.Context) error {
			pod, err := d.client.CoreV1().Pods("default").Get(ctx, "client", metav1.GetOptions{})
			if err == nil && pod.Status.ContainerStatuses[0].RestartCount < before+2 {
				err = errors.New(pod.Status.String())
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		d.end(t, "kill")
		ended := d.running(t, "client").Status.ContainerStatuses[0].RestartCount
		d.numbers(t, "echo")
		if now := d.running(t, "client").Status.ContainerStatuses[0].RestartCount; now != ended {
			t.Errorf("%d restarts after the end", now-ended)
		}
	})

	t.Run("grpc", func(t *testing.T) {
		middle := func() int {
			all := d.numbers(t, "grpc")
			return all[len(all)/2]
		}
		before := middle()
		d.beginOf(t, "app: server", "grpc",
			"grpc: {port: 7001, endpoints: [{method: /probe.Probe/Get, error: UNAVAILABLE}]}", injected)
		during := middle()
		d.end(t, "grpc")
		if after := middle(); before != 0 || during != 14 || after != 0 {
			t.Errorf("status %d before, %d during, %d after", before, during, after)
		}
	})

	t.Run("one container", func(t *testing.T) {
		why := ""
		begun := func(s *chaos.DisruptionStatus) bool {
			why = s.Message
			return injected(s) || slices.ContainsFunc(s.Injections, func(i chaos.Injection) bool {
				return i.State == chaos.InjectionUnsupported
			})
		}
		d.begin(t, "one", "containers: [main]\n  network: {hosts: [{host: "+server+"}], drop: 100}", begun)
		if strings.Contains(why, "no cgroup of version 2") {
			d.end(t, "one")
			t.Skip(why)
		}
		if main, beside := d.numbers(t, "echo"), d.numbers(t, "beside-echo"); main[len(main)/2] != -1 ||
			beside[0] < 0 {
			t.Errorf("%v, beside it %v", main, beside)
		}
		d.end(t, "one")
		d.begin(t, "one-dns", "containers: [main]\n  dns: {records: [{name: probe.example, addresses: [192.0.2.7]}]}",
			injected)
		for name, want := range map[string]string{"lookup": "192.0.2.7", "beside-lookup": "none"} {
			got, err := d.samples.next(within(t, time.Minute), name, 3)
			if err != nil || got[2] != want {
				t.Errorf("%s: %v, %v", name, got, err)
			}
		}
		d.end(t, "one-dns")
	})

	t.Run("node", func(t *testing.T) { d.testNode(t) })

	for _, test := range []struct{ fault, why string }{
		{"apiFault: {status: 500}", "encrypted"},
		{"diskFailure: {paths: [/data], error: EROFS}", "not with EROFS"},
		{"nodeFailure: {}", ""},
	} {
		kind, _, _ := strings.Cut(test.fault, ":")
		t.Run(kind+" is refused", func(t *testing.T) {
			name := strings.ToLower(kind)
			var why string
			d.begin(t, name, test.fault, func(s *chaos.DisruptionStatus) bool {
				why = s.Message
				return slices.ContainsFunc(s.Injections, func(i chaos.Injection) bool {
					return i.State == chaos.InjectionUnsupported
				})
			})
			if !strings.Contains(why, test.why) {
				t.Errorf("message %q", why)
			}
			d.end(t, name)
		})
	}
}

// testNode cuts off the whole node, which stays manageable: its kubelet and the API server work as before.
func (d *disrupted) testNode(t *testing.T) {
	d.apply(t, "on the node", `
apiVersion: v1
kind: Pod
metadata: {name: on-node, namespace: default}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: `+probeImage+`, args: [serve, ":7100"]}]
`)
	at := net.JoinHostPort(d.running(t, "on-node").Status.HostIP, "7100")
	answers := func() bool {
		conn, err := net.DialTimeout("tcp", at, time.Second)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	}
	if !answers() {
		t.Fatalf("%s does not answer", at)
	}
	d.beginOf(t, "kubernetes.io/os: linux", "node", "level: node\n  network: {drop: 100}",
		func(s *chaos.DisruptionStatus) bool { return s.Phase == chaos.Injected })
	for range 5 {
		if answers() {
			t.Errorf("%s answers", at)
		}
	}
	// The kubelet starts another pod, and reports it.
	d.apply(t, "meanwhile", `
apiVersion: v1
kind: Pod
metadata: {name: meanwhile, namespace: default}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: `+probeImage+`, args: [serve, ":7000"]}]
`)
	d.running(t, "meanwhile")
	// Longer than a node may be silent.
	time.Sleep(time.Minute)
	nodes, err := d.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes.Items {
		if !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) {
			t.Errorf("node %s is not ready: %v", n.Name, n.Status.Conditions)
		}
	}
	d.end(t, "node")
	if !answers() {
		t.Errorf("afterwards %s does not answer", at)
	}
}
