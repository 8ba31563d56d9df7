package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/config"
	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/cluster/embedded"
	"github.com/trommel-dev/trommel/internal/controllers"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

var (
	shared   *embedded.Cluster
	account  *clustertest.Account // of the manifests
	injector string               // path of the program that is the injector too, as with --injector-here
	journal  string               // directory
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "trommel-chaos-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	injector, journal = filepath.Join(dir, "trommel-chaos"), filepath.Join(dir, "journal")
	if err := os.Mkdir(journal, 0o700); err != nil {
		panic(err)
	}
	build := exec.Command("go", "build", "-o", injector, "../../../cmd/trommel-chaos")
	if out, err := build.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("%v: %s", err, out))
	}
	return clustertest.Run(m, embedded.Config{APIServers: 1, Nodes: 2}, func(c *embedded.Cluster) {
		shared = c
		install()
	})
}

// install applies the definitions and rights.
func install() {
	admin := must(shared.RESTConfig(""))
	// Injectors work under their policy.
	for _, file := range append(slices.Clone(config.Installed), "admission/injectors.yaml") {
		if err := apply(context.Background(), admin, file); err != nil {
			panic(err)
		}
	}
	account = must(clustertest.NewAccount(context.Background(), admin, "trommel-chaos", "disruption-controllers",
		authorizationv1.ResourceAttributes{Verb: "list", Group: chaos.GroupVersion.Group, Resource: "disruptions"},
		authorizationv1.ResourceAttributes{Verb: "create", Resource: "pods", Namespace: "trommel-chaos"}))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func newScheme() *runtime.Scheme { return must(controllers.Scheme(chaos.AddToScheme)) }

// options are those of the tests' managers.
func options() Options {
	return Options{
		Config: controller.Config{
			Namespace: "trommel-chaos", Image: "trommel-injector", Command: []string{injector, "injector"},
			Journal:        journal,
			ServiceAccount: "disruption-injector", APIServiceAccount: "disruption-api-injector",
			PriorityClass:  "trommel-disruption-injector",
			Simulated:      shared.Processes().NodeName(),
			PodAnnotations: map[string]string{cluster.AnnotationBinaryPrefix + "injector": injector},
			Grace:          2 * time.Second, KeepFor: time.Second,
			Nets: controller.Nets{NetworkWithoutHosts: true, Nodes: true, ProtectedNamespaces: []string{"kube-system"}},
		},
		Logger: logr.Discard(),
	}
}

// start runs a manager until the end of the test, or until stop is called.
func start(t testing.TB, to *rest.Config, o Options) (stop func()) {
	t.Helper()
	mgr, err := New(to, o)
	if err != nil {
		t.Fatal(err)
	}
	return clustertest.RunManager(t, mgr.Start, mgr.GetCache().WaitForCacheSync)
}

// fixture is a namespace of its own with a client.
type fixture struct {
	t testing.TB
	client.Client
	namespace string
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	c, err := client.New(must(shared.RESTConfig("")), client.Options{Scheme: newScheme()})
	if err != nil {
		t.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}
	if err := c.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	f := &fixture{t, c, ns.Name}
	clustertest.Eventually(t, func(ctx context.Context) error {
		return f.Get(ctx, types.NamespacedName{Namespace: ns.Name, Name: "default"}, &corev1.ServiceAccount{})
	})
	return f
}

// pod creates a pod with a process, or on a simulated node without one, and waits until it runs.
func (f *fixture) pod(name, node string) *corev1.Pod { return f.labelled(name, node, "x") }

// labelled is pod with another label app.
func (f *fixture) labelled(name, node, app string) *corev1.Pod {
	f.t.Helper()
	zero := int64(0)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name, Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{
			NodeName: node, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			TerminationGracePeriodSeconds: &zero,
			Containers: []corev1.Container{
				{Name: "c", Image: "sleep", Command: []string{"sleep", "100000"}},
			},
		},
	}
	if err := f.Create(f.t.Context(), p); err != nil {
		f.t.Fatal(err)
	}
	return p
}

func (f *fixture) running(pods ...*corev1.Pod) {
	f.t.Helper()
	for _, p := range pods {
		clustertest.Eventually(f.t, func(ctx context.Context) error {
			if err := f.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
				return err
			}
			if p.Status.Phase != corev1.PodRunning {
				return fmt.Errorf("pod %s is %s", p.Name, p.Status.Phase)
			}
			return nil
		})
	}
}

func (f *fixture) processes(n int) []*corev1.Pod {
	f.t.Helper()
	var pods []*corev1.Pod
	for i := range n {
		pods = append(pods, f.pod(fmt.Sprintf("p%d", i), shared.Processes().NodeName()))
	}
	f.running(pods...)
	return pods
}

// hangs is a disruption's spec.
func hangs(change func(*chaos.DisruptionSpec)) chaos.DisruptionSpec {
	spec := chaos.DisruptionSpec{
		Selector: map[string]string{"app": "x"}, Kinds: chaos.Kinds{APIFault: &chaos.APIFault{Hang: true}},
	}
	if change != nil {
		change(&spec)
	}
	return spec
}

func (f *fixture) disrupt(name string, spec chaos.DisruptionSpec) *chaos.Disruption {
	f.t.Helper()
	d := &chaos.Disruption{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name}, Spec: spec}
	if err := f.Create(f.t.Context(), d); err != nil {
		f.t.Fatal(err)
	}
	return d
}

// await waits for a state of the disruption.
func (f *fixture) await(d *chaos.Disruption, what string, ok func(*chaos.Disruption) bool) {
	f.t.Helper()
	clustertest.Eventually(f.t, func(ctx context.Context) error {
		if err := f.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
			return err
		}
		if !ok(d) {
			return fmt.Errorf("disruption %s is not %s: %+v", d.Name, what, d.Status)
		}
		return nil
	})
}

func (f *fixture) phase(d *chaos.Disruption, phase chaos.Phase) {
	f.t.Helper()
	f.await(d, string(phase), func(d *chaos.Disruption) bool { return d.Status.Phase == phase })
}

// gone waits until the disruption does not exist, and checks that nothing of it is left.
func (f *fixture) gone(d *chaos.Disruption) {
	f.t.Helper()
	clustertest.Eventually(f.t, func(ctx context.Context) error {
		err := f.Get(ctx, client.ObjectKeyFromObject(d), d)
		if err == nil {
			return fmt.Errorf("disruption %s is still there: %+v", d.Name, d.Status)
		}
		return client.IgnoreNotFound(err)
	})
	var pods corev1.PodList
	if err := f.List(f.t.Context(), &pods, client.InNamespace("trommel-chaos"),
		client.MatchingLabels{controller.LabelDisruption: string(d.UID)}); err != nil || len(pods.Items) > 0 {
		f.t.Errorf("%d chaos pods are left (%v)", len(pods.Items), err)
	}
	entries, err := os.ReadDir(journal)
	for _, e := range entries {
		if strings.Contains(e.Name(), string(d.UID)) {
			f.t.Errorf("the journal has %s (%v)", e.Name(), err)
		}
	}
	faults, err := shared.Processes().Faults(f.t.Context())
	if err != nil {
		f.t.Error(err)
	}
	for _, fault := range faults {
		if strings.Contains(fault.ID, string(d.UID)) {
			f.t.Errorf("the process node has fault %+v", fault)
		}
	}
}

func (f *fixture) end(d *chaos.Disruption) {
	f.t.Helper()
	if err := f.Delete(f.t.Context(), d); err != nil {
		f.t.Fatal(err)
	}
	f.gone(d)
}

func duration(d time.Duration) *chaos.Duration {
	text := chaos.DurationOf(d)
	return &text
}

func TestDisruptionOfManyTargets(t *testing.T) {
	start(t, account.Config(t), options())
	f := newFixture(t)
	pods := f.processes(16)
	d := f.disrupt("many", hangs(nil))
	f.phase(d, chaos.Injected)
	if c := d.Status.Counts; c.Injected != 16 || c.Desired != 16 || c.Matching != 16 {
		t.Errorf("counts %+v", c)
	}
	if !slices.Contains(d.Finalizers, controller.Finalizer) || d.Status.EndsAt == nil || d.Status.Kinds != "apiFault" {
		t.Errorf("%v, %+v", d.Finalizers, d.Status)
	}
	// Fewer, and other ones when a target has gone.
	patch := client.MergeFrom(d.DeepCopy())
	three := intstr.FromInt32(3)
	d.Spec.Count = &three
	if err := f.Patch(t.Context(), d, patch); err != nil {
		t.Fatal(err)
	}
	f.await(d, "on three targets", func(d *chaos.Disruption) bool {
		return d.Status.Counts.Injected == 3 && len(d.Status.Injections) == 3 && d.Status.Phase == chaos.Injected
	})
	lost := d.Status.Targets[0]
	i := slices.IndexFunc(pods, func(p *corev1.Pod) bool { return p.UID == lost.UID })
	if err := f.Delete(t.Context(), pods[i]); err != nil {
		t.Fatal(err)
	}
	f.await(d, "on three other targets", func(d *chaos.Disruption) bool {
		return d.Status.Counts.Injected == 3 && len(d.Status.Targets) == 3 && len(d.Status.Injections) == 3 &&
			!slices.ContainsFunc(d.Status.Targets, func(t chaos.Target) bool { return t.UID == lost.UID })
	})
	// A target of another disruption of the same kind is left out.
	other := f.disrupt("other", hangs(nil))
	f.await(other, "on the others", func(d *chaos.Disruption) bool { return d.Status.Counts.Injected == 12 })
	if c := other.Status.Counts; c.Ignored != 3 || c.Matching != 15 || c.Selected != 12 ||
		other.Status.Phase != chaos.PartiallyInjected {
		t.Errorf("counts of the other one %+v", c)
	}
	f.end(d)
	f.await(other, "on all", func(d *chaos.Disruption) bool { return d.Status.Counts.Injected == 15 })
	f.end(other)
}

func TestPhases(t *testing.T) {
	start(t, account.Config(t), options())
	const moment = 2 * time.Second
	pulse := &chaos.Pulse{ActiveDuration: *duration(moment), DormantDuration: *duration(moment)}
	two := int32(2)
	short := func(s *chaos.DisruptionSpec) { s.Duration = duration(moment) }
	for _, tt := range []struct {
		name      string
		simulated bool // one of two targets cannot be disrupted: it has no process
		spec      chaos.DisruptionSpec
		want      []chaos.Phase
	}{
		{name: "once", spec: hangs(short), want: []chaos.Phase{chaos.Injected, chaos.PreviouslyInjected}},
		{name: "pulses", spec: hangs(func(s *chaos.DisruptionSpec) { s.Pulse, s.MaxRuns = pulse, &two }),
			want: []chaos.Phase{chaos.Injected, chaos.PausedInjected, chaos.Injected, chaos.PreviouslyInjected}},
		{name: "in part", simulated: true, spec: hangs(short),
			want: []chaos.Phase{chaos.PartiallyInjected, chaos.PreviouslyPartiallyInjected}},
		{name: "a pulse in part", simulated: true,
			spec: hangs(func(s *chaos.DisruptionSpec) { s.Pulse, s.Duration = pulse, duration(2*moment) }),
			want: []chaos.Phase{
				chaos.PartiallyInjected, chaos.PausedPartiallyInjected, chaos.PreviouslyPartiallyInjected,
			}},
		{name: "nowhere", want: []chaos.Phase{chaos.PreviouslyNotInjected},
			spec: hangs(func(s *chaos.DisruptionSpec) {
				s.Selector, s.Duration = map[string]string{"app": "alone"}, duration(time.Second)
			})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.processes(1)
			if tt.simulated {
				f.running(f.pod("simulated", "node-1"))
			}
			f.running(f.labelled("alone", "node-2", "alone"))
			w, err := client.NewWithWatch(must(shared.RESTConfig("")), client.Options{Scheme: newScheme()})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			events, err := w.Watch(ctx, &chaos.DisruptionList{}, client.InNamespace(f.namespace))
			if err != nil {
				t.Fatal(err)
			}
			defer events.Stop()
			d := f.disrupt("phases", tt.spec)
			var seen []chaos.Phase
			for e := range events.ResultChan() {
				o, ok := e.Object.(*chaos.Disruption)
				if !ok {
					t.Fatalf("%s %v", e.Type, e.Object)
				}
				if p := o.Status.Phase; p != "" && (len(seen) == 0 || seen[len(seen)-1] != p) {
					seen = append(seen, p)
				}
				if e.Type == watch.Deleted {
					break
				}
			}
			if len(seen) > 0 && seen[0] == chaos.NotInjected && tt.want[0] != chaos.NotInjected {
				seen = seen[1:] // may be too short to be seen
			}
			if !slices.Equal(seen, tt.want) {
				t.Errorf("phases %v, want %v", seen, tt.want)
			}
			f.gone(d)
		})
	}
}

func TestWhatIsRefused(t *testing.T) {
	o := options()
	o.Nets, o.KeepFor = controller.DefaultNets(), time.Hour
	start(t, account.Config(t), o)
	f := newFixture(t)
	f.processes(3)
	refused := func(spec chaos.DisruptionSpec, want string) {
		t.Helper()
		d := f.disrupt("refused", spec)
		f.await(d, "refused", func(d *chaos.Disruption) bool { return strings.Contains(d.Status.Message, want) })
		// It is over, and does not keep others waiting.
		f.phase(d, chaos.PreviouslyNotInjected)
		if len(d.Status.Targets) > 0 || !d.Status.Schedule.Over {
			t.Errorf("%+v", d.Status)
		}
		f.end(d)
	}
	refused(hangs(nil), "3 targets would disrupt more than 80% of the 3 pods in namespace "+f.namespace)
	refused(hangs(func(s *chaos.DisruptionSpec) { s.Duration = duration(25 * time.Hour) }), "is longer than 24h0m0s")
	ten := chaos.Percentage(10)
	refused(chaos.DisruptionSpec{
		Selector: map[string]string{"app": "x"}, Kinds: chaos.Kinds{Network: &chaos.Network{Drop: &ten}},
	}, "network needs hosts or services")
	refused(chaos.DisruptionSpec{
		Selector: map[string]string{"app": "x"},
		Kinds:    chaos.Kinds{DiskFailure: &chaos.DiskFailure{Paths: []string{"//"}}},
	}, "root directory is protected")
	d := f.disrupt("none", hangs(func(s *chaos.DisruptionSpec) { s.Selector = map[string]string{"app": "nobody"} }))
	f.await(d, "without targets", func(d *chaos.Disruption) bool {
		return d.Status.Message == "nothing matches the selector"
	})
	// Only count can be changed.
	patch := client.MergeFrom(d.DeepCopy())
	d.Spec.DryRun = true
	if err := f.Patch(t.Context(), d, patch); !apierrors.IsInvalid(err) ||
		!strings.Contains(err.Error(), "dryRun is immutable") {
		t.Errorf("change of the spec: %v", err)
	}
	f.end(d)
}

// TestStuckOnRemoval has an injector that is killed before it can clean up, and a journal that cannot be read.
func TestStuckOnRemoval(t *testing.T) {
	start(t, account.Config(t), options())
	f := newFixture(t)
	f.processes(1)
	d := f.disrupt("stuck", hangs(nil))
	f.phase(d, chaos.Injected)
	pid := injectorOf(t, d)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	entry := must(filepath.Glob(filepath.Join(journal, string(d.UID)+"*.json")))[0]
	text := must(os.ReadFile(entry))
	if err := os.WriteFile(entry, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	f.await(d, "stuck on removal", func(d *chaos.Disruption) bool {
		return d.Status.IsStuckOnRemoval && d.Status.Phase == chaos.PossiblyInjected &&
			strings.Contains(d.Status.Message, injector+" injector clean")
	})
	// A person does what the message says. It begins with what is to be done on the node.
	var id, pod string
	_, message, _ := strings.Cut(d.Status.Message, injector+" injector clean --journal "+journal+" --id ")
	if n, err := fmt.Sscanf(message, "%s", &id); n != 1 {
		t.Fatalf("message %q: %v", d.Status.Message, err)
	}
	_, message, _ = strings.Cut(message, "kubectl patch pod -n trommel-chaos ")
	if n, err := fmt.Sscanf(message, "%s", &pod); n != 1 {
		t.Fatalf("message %q: %v", d.Status.Message, err)
	}
	_, message, _ = strings.Cut(message, " -p '")
	patch, _, _ := strings.Cut(message, "'")
	if err := os.WriteFile(entry, text, 0o600); err != nil {
		t.Fatal(err)
	}
	clean := exec.Command(injector, "injector", "clean", "--journal", journal, "--id", strings.Trim(id, "`"))
	if out, err := clean.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "removed: ") {
		t.Errorf("clean: %v: %s", err, out)
	}
	stuck := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "trommel-chaos", Name: pod}}
	// Its cleaner may have succeeded meanwhile.
	err := f.Patch(t.Context(), stuck, client.RawPatch(types.JSONPatchType, []byte(patch)))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) {
		t.Error(err)
	}
	f.gone(d)
}

// TestOverdueOnRemoval lets a chaos pod run on a node without a kubelet, so it is not ended.
func TestOverdueOnRemoval(t *testing.T) {
	o := options()
	o.Config.Simulated, o.Config.Overdue = "", time.Second
	start(t, account.Config(t), o)
	f := newFixture(t)
	f.running(f.pod("x", "node-1"))
	d := f.disrupt("overdue", hangs(func(s *chaos.DisruptionSpec) { s.DryRun = true }))
	f.phase(d, chaos.Injected)
	if err := f.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	f.await(d, "stuck on removal", func(d *chaos.Disruption) bool {
		return d.Status.IsStuckOnRemoval && strings.Contains(d.Status.Message, "does the kubelet of node node-1 work?")
	})
	pods, err := podsOf(t.Context(), f, d)
	if err != nil || len(pods) != 1 {
		t.Fatalf("%d chaos pods (%v)", len(pods), err)
	}
	patch := client.MergeFrom(pods[0].DeepCopy())
	pods[0].Finalizers = nil
	if err := f.Patch(t.Context(), &pods[0], patch); err != nil {
		t.Fatal(err)
	}
	f.gone(d)
}

func podsOf(ctx context.Context, f *fixture, d *chaos.Disruption) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := f.List(ctx, &pods, client.InNamespace("trommel-chaos"),
		client.MatchingLabels{controller.LabelDisruption: string(d.UID)})
	return pods.Items, err
}

// injectorOf is the process ID of a disruption's only injector.
func injectorOf(t testing.TB, d *chaos.Disruption) int {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		data, err := os.ReadFile(file)
		if err != nil || !strings.HasPrefix(string(data), injector+"\x00injector\x00inject\x00") ||
			!strings.Contains(string(data), string(d.UID)) {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(file, "/proc/%d/cmdline", &pid); err != nil {
			t.Fatal(err)
		}
		return pid
	}
	t.Fatal("no injector runs")
	return 0
}

// crash makes a manager's connection to the API server end at its n-th write, before it is sent or after it was
// answered: for the API server that is the death of its process.
type crash struct {
	base   http.RoundTripper
	left   *atomic.Int64
	after  bool
	ended  chan struct{}
	onEnd  *sync.Once
	writes *atomic.Int64
}

var errCrashed = errors.New("the process has died")

func (c *crash) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.left.Load() <= 0 {
		return nil, errCrashed
	}
	if r.Method == http.MethodGet || strings.Contains(r.URL.Path, "/events") {
		return c.base.RoundTrip(r)
	}
	c.writes.Add(1)
	if c.left.Add(-1) > 0 {
		return c.base.RoundTrip(r)
	}
	defer c.onEnd.Do(func() { close(c.ended) })
	if c.after {
		if resp, err := c.base.RoundTrip(r); err == nil {
			resp.Body.Close()
		}
	}
	return nil, errCrashed
}

// TestKilledAtEveryWrite lets the controllers die at each of their writes, and others go on; unless the long tests run,
// at each third one.
func TestKilledAtEveryWrite(t *testing.T) {
	step := 3
	if os.Getenv("TROMMEL_TEST_LONG") != "" {
		step = 1
	}
	f := newFixture(t)
	f.processes(2)
	total := 0
	for n := 1; ; n += step {
		for _, after := range []bool{false, true} {
			to := account.Config(t)
			c := &crash{
				left: &atomic.Int64{}, after: after, ended: make(chan struct{}), onEnd: &sync.Once{},
				writes: &atomic.Int64{},
			}
			c.left.Store(int64(n))
			to.Wrap(func(rt http.RoundTripper) http.RoundTripper { c.base = rt; return c })
			stop := start(t, to, options())
			d := f.disrupt(fmt.Sprintf("killed-%d-%t", n, after), hangs(func(s *chaos.DisruptionSpec) {
				s.Duration = duration(time.Minute)
			}))
			// The whole life, as far as it comes.
			injected := make(chan struct{})
			go func() {
				defer close(injected)
				for t.Context().Err() == nil {
					latest := &chaos.Disruption{}
					if f.Get(t.Context(), client.ObjectKeyFromObject(d), latest) != nil ||
						latest.Status.Phase == chaos.Injected {
						return
					}
					select {
					case <-c.ended:
						return
					case <-time.After(20 * time.Millisecond):
					}
				}
			}()
			<-injected
			if err := f.Delete(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			dead := false
			for !dead {
				select {
				case <-c.ended:
					dead = true
				case <-time.After(20 * time.Millisecond):
					err := f.Get(t.Context(), client.ObjectKeyFromObject(d), &chaos.Disruption{})
					if apierrors.IsNotFound(err) {
						goto survived
					}
				}
			}
			stop()
			stop = start(t, account.Config(t), options())
			f.gone(d)
			stop()
			total++
			continue
		survived:
			stop()
			f.gone(d)
			t.Logf("killed %d times; a life has %d writes", total, c.writes.Load())
			if total < 30/step {
				t.Errorf("only %d writes were interrupted", total)
			}
			return
		}
	}
}
