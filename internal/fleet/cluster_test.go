package fleet

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/cluster/embedded"
	"github.com/trommel-dev/trommel/internal/fleet/kube"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
	"github.com/trommel-dev/trommel/record"
)

// workAsPod is a worker with the arguments of a pod's container.
func workAsPod(args []string) error {
	f := flag.NewFlagSet("worker", flag.ContinueOnError)
	w := &Worker{Trommel: "v1", Patience: time.Minute, Say: func(text string) { fmt.Println(text) },
		Open: func(_ context.Context, e Equipment) (Runner, error) {
			return &fakeRunner{suite: e.Suite, binaries: e.Binaries, controlPlane: e.ControlPlane}, nil
		},
	}
	file := f.String("token-file", "", "")
	f.StringVar(&w.Server, "server", "", "")
	f.StringVar(&w.Name, "name", "", "")
	f.StringVar(&w.Dir, "dir", "", "")
	f.StringVar(&w.Cache, "cache", "", "")
	if err := f.Parse(args); err != nil {
		return err
	}
	token, err := os.ReadFile(*file)
	if err != nil {
		return err
	}
	w.Token = string(token)
	return w.Work(context.Background())
}

// restricted creates a namespace that takes pods without privileges only.
func restricted(t *testing.T, c kubernetes.Interface, name string) {
	t.Helper()
	_, err := c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// TestOnKubernetes: a real API server takes the objects, in a namespace with the restricted Pod Security Standard. The
// Job's pods, which are processes, make a hundred runs, although pods are deleted and killed and the campaign is
// resumed once: each run has one result.
func TestOnKubernetes(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	host := clustertest.Start(t, embedded.Config{APIServers: 1, Nodes: 1})
	to, err := host.RESTConfig("")
	if err != nil {
		t.Fatal(err)
	}
	c, err := kubernetes.NewForConfig(to)
	if err != nil {
		t.Fatal(err)
	}
	client, err := objects.New(to)
	if err != nil {
		t.Fatal(err)
	}
	restricted(t, c, "tests")
	_, err = c.CoreV1().Pods("tests").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "privileged"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}},
	}, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Fatalf("the namespace takes any pod: %v", err)
	}

	var config Config
	s := serve(t, func(own *Config) {
		own.Lease = 10 * time.Second
		config = *own
	})
	token, err := s.Token()
	if err != nil {
		t.Fatal(err)
	}
	list, err := kube.Objects(kube.Config{
		Name: "trommel-a", Namespace: "tests", Image: "registry.example/trommel:1", Server: "https://" + s.Address(),
		Token: token, Workers: 4,
	})
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range list {
		if job, ok := o.(*batchv1.Job); ok { // on the process node an executable stands for the image
			pod := &job.Spec.Template
			pod.Annotations = map[string]string{cluster.AnnotationBinaryPrefix + "worker": self}
			pod.Spec.NodeSelector = map[string]string{cluster.LabelProcessNode: "true"}
			pod.Spec.Tolerations = []corev1.Toleration{
				{Key: cluster.TaintProcessNode, Operator: corev1.TolerationOpExists},
			}
		}
	}
	clean, err := kube.Unstructured(list)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // to apply them again changes nothing
		for _, u := range clean {
			if _, err := client.Apply(t.Context(), u); err != nil {
				t.Fatalf("%s: %v", u.GetKind(), err)
			}
		}
	}
	if err := s.queue.AwaitWorkers(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	kill := func() { // a pod that runs, as when its node dies or its place is needed
		pods, err := c.CoreV1().Pods("tests").List(t.Context(),
			metav1.ListOptions{FieldSelector: "status.phase=Running"})
		if err != nil || len(pods.Items) == 0 {
			return
		}
		err = c.CoreV1().Pods("tests").Delete(t.Context(), pods.Items[0].Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64),
		})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}

	const runs = 100
	results := map[string]record.Verdict{}
	var mu sync.Mutex
	first := campaignOf(t, s, runs, results, &mu)
	for i := range 2 {
		await(t, &mu, func() bool { return len(results) >= 15*(i+1) })
		kill()
	}
	await(t, &mu, func() bool { return len(results) >= 50 })
	if err := s.Close(false); err != nil { // it is killed
		t.Error(err)
	}
	first()
	done := s.Counts()
	config.Address = ""
	next, err := Serve(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = next.Close(false) })
	second := campaignOf(t, next, runs, results, &mu)
	await(t, &mu, func() bool { return len(results) >= 75 })
	kill()
	await(t, &mu, func() bool { return len(results) == runs })
	second()
	for name, v := range results {
		if bug := strings.HasPrefix(name, "bug-"); (v == record.Bug) != bug {
			t.Errorf("%s: %s", name, v)
		}
	}
	t.Logf("before it was resumed: %s; then: %s", done, next.Counts())
	// A pod that takes the place of one that was killed, and is late, would never hear that the campaign is over.
	clustertest.Eventually(t, func(ctx context.Context) error {
		pods, err := c.CoreV1().Pods("tests").List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Running"})
		if err != nil {
			return err
		}
		at := slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return !next.queue.has(p.Name + "-") })
		if len(at) < 4 {
			return fmt.Errorf("%d of 4 pods are at work", len(at))
		}
		return nil
	})
	if err := next.Close(true); err != nil {
		t.Error(err)
	}
	clustertest.Eventually(t, func(ctx context.Context) error {
		job, err := c.BatchV1().Jobs("tests").Get(ctx, "trommel-a", metav1.GetOptions{})
		if err == nil && job.Status.Succeeded != 4 {
			err = fmt.Errorf("the Job of a campaign that is over: %+v", job.Status)
		}
		return err
	})
}

// has reports whether a worker is there whose name has this prefix.
func (q *Queue) has(prefix string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for name := range q.workers {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// await waits until something is true of what mu guards.
func await(t *testing.T, mu *sync.Mutex, is func() bool) {
	t.Helper()
	clustertest.Eventually(t, func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if !is() {
			return errors.New("it is not so far")
		}
		return nil
	})
}

// campaignOf has those of a number of runs made that have no result yet, eight at a time. Each result is a test's error
// if there was one before. The returned function interrupts it, and waits for its end.
func campaignOf(t *testing.T, s *Server, runs int, results map[string]record.Verdict, mu *sync.Mutex) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	dir := t.TempDir()
	var all sync.WaitGroup
	var number atomic.Int32
	for range 8 {
		all.Go(func() {
			for {
				i := int(number.Add(1)) - 1
				if i >= runs || ctx.Err() != nil {
					return
				}
				name := fmt.Sprintf("%s-%d", []string{"short", "bug", "short"}[i%3], i)
				mu.Lock()
				_, done := results[name]
				mu.Unlock()
				if done {
					continue
				}
				meta, err := s.Runner(1).RunWith(ctx, named(t, name), filepath.Join(dir, name), run.RunOptions{})
				if ctx.Err() != nil {
					return
				}
				if err != nil {
					t.Errorf("%s: %v", name, err)
					meta = &record.Meta{Verdict: record.Error}
				}
				mu.Lock()
				if old, twice := results[name]; twice {
					t.Errorf("%s has a second result: %s and %s", name, old, meta.Verdict)
				}
				results[name] = meta.Verdict
				mu.Unlock()
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}
