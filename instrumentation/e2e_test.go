package instrumentation_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/cluster/embedded"
)

// shared is a cluster for the tests that need an API server with hooks and do not stop it. Each of them listens at its
// rendezvous while it runs. TestMain closes it.
var shared = sync.OnceValues(func() (*embedded.Cluster, error) {
	ctx := context.Background()
	built, err := instrumentation.BuildControlPlane(ctx, instrumentation.ControlPlaneConfig{})
	if err != nil {
		return nil, err
	}
	c, err := embedded.Start(ctx, embedded.Config{Binary: built.Binary, APIServers: 1, Nodes: -1,
		DisableControllers: []string{"statefulset-controller"}})
	if err == nil {
		closeShared = func() { _ = c.Close(ctx) }
	}
	return c, err
})

var closeShared = func() {}

func TestMain(m *testing.M) {
	code := m.Run()
	closeShared()
	os.Exit(code)
}

// copier is the controller of testdata/controller beside an API server, both built with hooks.
type copier struct {
	r      *recorder
	client typed.ConfigMapInterface
}

// startCopier starts the controller, which runs until the test ends.
func startCopier(t *testing.T) *copier {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	t.Cleanup(cancel)
	controller, err := instrumentation.Build(ctx, instrumentation.BuildConfig{
		Dir:            filepath.Join("testdata", "controller"),
		AnnotatedCalls: annotated,
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	address, token := c.Rendezvous()
	r := record(t, address, token)
	configMaps := wire.Rule{Kind: "configmap", Resource: "configmaps", Namespace: "default"}
	at := func(points ...wire.Point) (rules []wire.Rule) {
		for _, p := range points {
			rule := wire.Rule{AnyGroup: true}
			if p != wire.AnnotatedCall && p != wire.Reconcile {
				rule = configMaps
			}
			rule.Point = p
			rules = append(rules, bothPhases(rule)...)
			if p == wire.ControllerWrite {
				rules = append(rules,
					bothPhases(wire.Rule{Point: p, Kind: "pod", Resource: "pods", Namespace: "default"})...)
			}
		}
		return rules
	}
	r.setRules(ctx, map[string][]wire.Rule{
		"apiserver-1": at(wire.APIServerRecv),
		"copier": at(wire.ControllerRecv, wire.ControllerRead, wire.ControllerWrite, wire.Reconcile,
			wire.AnnotatedCall),
	})
	r.wait("the API server's hook is there", func() bool { return r.sessions["apiserver-1"] != nil })

	kubeconfig, err := c.Kubeconfig("")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, controller.Binary)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, wire.EnvCoordinator+"="+address, wire.EnvToken+"="+token,
		wire.EnvIdentity+"=copier")
	var log syncBuffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("controller:\n%s", log.String())
		}
	})
	r.wait("the controller's hook is there", func() bool { return r.sessions["copier"] != nil })
	if got := len(r.sessions["copier"].Manifest.Points); got != len(controller.Manifest.Points) {
		t.Errorf("the controller shows %d points, was built with %d", got, len(controller.Manifest.Points))
	}

	config, err := c.RESTConfig("")
	if err != nil {
		t.Fatal(err)
	}
	return &copier{r: r, client: kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")}
}

func (c *copier) create(t *testing.T, name string) {
	t.Helper()
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"copy": "true"}},
		Data: map[string]string{"a": "1"}}
	if _, err := c.client.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// cached reports whether the API server's watch cache has the object.
func (c *copier) cached(t *testing.T, name string) bool {
	t.Helper()
	_, err := c.client.Get(t.Context(), name, metav1.GetOptions{ResourceVersion: "0"})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}

// observed is a match for an observation of an object.
func observed(p wire.Point, phase wire.Phase, op wire.Operation, name string) func(*wire.Observation) bool {
	return func(o *wire.Observation) bool {
		return o.Point == p && o.Phase == phase && o.Operation == op && o.Name == name
	}
}

// seen waits until an operation was observed before and after, and returns the latter.
func (c *copier) seen(t *testing.T, by string, p wire.Point, op wire.Operation, name string) *wire.Observation {
	t.Helper()
	var before, after *wire.Observation
	c.r.wait(fmt.Sprintf("%s %s %s at %s", p, op, name, by), func() bool {
		before = c.r.find(by, observed(p, wire.Before, op, name))
		after = c.r.find(by, observed(p, wire.After, op, name))
		return before != nil && after != nil
	})
	if before.Call != after.Call {
		t.Errorf("%s %s %s: before is call %d, after is call %d", p, op, name, before.Call, after.Call)
	}
	return after
}

// called waits until an annotated call was observed after it, and returns the observation.
func (c *copier) called(name string) (o *wire.Observation) {
	c.r.t.Helper()
	c.r.wait("call of "+name, func() bool {
		o = c.r.find("copier", func(o *wire.Observation) bool { return o.CallName == name && o.Phase == wire.After })
		return o != nil
	})
	return o
}

// content is an object's type and the value of its key "a".
func content(raw []byte) string {
	var o struct {
		APIVersion, Kind string
		Data             map[string]string
	}
	_ = json.Unmarshal(raw, &o)
	return o.APIVersion + " " + o.Kind + " " + o.Data["a"]
}

// TestEveryPointFiresHoldsAndReleases runs a controller and an API server that were built with hooks.
func TestEveryPointFiresHoldsAndReleases(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	c := startCopier(t)
	run := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			c.r.during(t)
			f(t)
		})
	}

	c.create(t, "first")
	run("the API server receives a creation", func(t *testing.T) {
		o := c.seen(t, "apiserver-1", wire.APIServerRecv, wire.Create, "first")
		if o.Kind != "configmap" || o.Resource != "configmaps" || !o.GroupKnown ||
			content(o.Object) != "v1 ConfigMap 1" || o.OldObject != nil {
			t.Errorf("%+v, object %s", o, o.Object)
		}
	})
	run("the controller receives a creation", func(t *testing.T) {
		o := c.seen(t, "copier", wire.ControllerRecv, wire.Create, "first")
		if o.Kind != "configmap" || !o.GroupKnown || content(o.Object) != "  1" {
			t.Errorf("%+v, object %s", o, o.Object)
		}
	})
	run("reconcile", func(t *testing.T) { c.seen(t, "copier", wire.Reconcile, "", "first") })
	run("cache read", func(t *testing.T) {
		o := c.seen(t, "copier", wire.ControllerRead, wire.Get, "first")
		if o.Live || o.Reconciler != "copier" || o.ReconcilerType != "example.com/controller/reconciler.(*Copier)" ||
			o.Request != "default/first" || o.ReconcileID == "" {
			t.Errorf("%+v", o)
		}
	})
	run("live read", func(t *testing.T) {
		o := c.seen(t, "copier", wire.ControllerRead, wire.Get, "first-copy")
		if !o.Live || o.Reconciler != "copier" || o.Code != 404 || o.Error == "" {
			t.Errorf("%+v", o)
		}
	})
	run("creation by the controller", func(t *testing.T) {
		o := c.seen(t, "copier", wire.ControllerWrite, wire.Create, "first-copy")
		if o.Reconciler != "copier" || o.Request != "default/first" || o.Code != 201 ||
			content(o.Object) != "v1 ConfigMap 1" || o.Resource != "configmaps" || o.Kind != "configmap" {
			t.Errorf("%+v, object %s", o, o.Object)
		}
	})
	run("annotated call", func(t *testing.T) {
		c.seen(t, "copier", wire.AnnotatedCall, "", "")
		c.called("logger")
		o := c.called("copy")
		if o.CallName != "copy" || o.Reconciler != "copier" || o.Request != "default/first" {
			t.Errorf("%+v", o)
		}
	})

	// The controller must be done with the creation, or the update might join it.
	c.seen(t, "copier", wire.ControllerWrite, wire.Create, "first-copy")
	if _, err := c.client.Patch(t.Context(), "first", types.MergePatchType, []byte(`{"data":{"a":"2"}}`),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, by := range []struct {
		identity string
		point    wire.Point
	}{{"apiserver-1", wire.APIServerRecv}, {"copier", wire.ControllerRecv}} {
		run(by.identity+" receives an update", func(t *testing.T) {
			o := c.seen(t, by.identity, by.point, wire.Update, "first")
			// What the controller has done to the object in its cache since does not show.
			if !strings.HasSuffix(content(o.Object), "2") || !strings.HasSuffix(content(o.OldObject), "1") ||
				strings.Contains(string(o.OldObject), "spoiled") {
				t.Errorf("%s from %s", o.Object, o.OldObject)
			}
		})
	}
	run("update by the controller", func(t *testing.T) {
		o := c.seen(t, "copier", wire.ControllerWrite, wire.Update, "first-copy")
		if content(o.Object) != "v1 ConfigMap 2" || o.Code != 200 {
			t.Errorf("%+v, object %s", o, o.Object)
		}
	})

	if err := c.client.Delete(t.Context(), "first", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	run("the API server receives a deletion", func(t *testing.T) {
		o := c.seen(t, "apiserver-1", wire.APIServerRecv, wire.Delete, "first")
		if content(o.Object) != "v1 ConfigMap 2" {
			t.Errorf("%s", o.Object)
		}
	})
	run("the controller receives a deletion", func(t *testing.T) {
		c.seen(t, "copier", wire.ControllerRecv, wire.Delete, "first")
	})
	run("another client's write is not the controller's", func(t *testing.T) {
		if o := c.r.observed("copier", observed(wire.ControllerWrite, wire.Before, wire.Create, "first")); o != nil {
			t.Errorf("%+v", o)
		}
	})
	run("kinds of writes", func(t *testing.T) { verbs(t, t.Context(), c.r, c.client) })

	// While the object is held before a point, nothing after that point happens.
	for i, stage := range []struct {
		by    string
		point wire.Point
		phase wire.Phase
		op    wire.Operation
		copy  bool                                 // the copy is held
		then  func(t *testing.T, name string) bool // must be false until the release
		now   func(t *testing.T, name string) bool // must be true before the release
	}{
		{by: "apiserver-1", point: wire.APIServerRecv, phase: wire.Before, op: wire.Create, then: c.cached},
		{by: "apiserver-1", point: wire.APIServerRecv, phase: wire.After, op: wire.Create, now: c.cached},
		{by: "copier", point: wire.ControllerRecv, phase: wire.Before, op: wire.Create,
			then: c.goesOn(wire.Reconcile, "", "")},
		{by: "copier", point: wire.Reconcile, phase: wire.Before, then: c.goesOn(wire.ControllerRead, wire.Get, "")},
		{by: "copier", point: wire.ControllerRead, phase: wire.After, op: wire.Get,
			then: c.goesOn(wire.ControllerRead, wire.Get, "-copy")},
		{by: "copier", point: wire.ControllerWrite, phase: wire.Before, op: wire.Create, copy: true,
			then: func(t *testing.T, name string) bool {
				_, err := c.client.Get(t.Context(), name+"-copy", metav1.GetOptions{})
				return err == nil
			}},
	} {
		run(fmt.Sprintf("%s is held %s %s", stage.by, stage.phase, stage.point), func(t *testing.T) {
			name := fmt.Sprintf("held-%d", i)
			held := name
			if stage.copy {
				held += "-copy"
			}
			c.r.holding(observed(stage.point, stage.phase, stage.op, held))
			t.Cleanup(c.r.release)
			c.create(t, name)
			c.r.wait(name+" is held", func() bool { return len(c.r.held) > 0 })
			c.r.chance(t.Context())
			if stage.then != nil && stage.then(t, name) {
				t.Errorf("%s continued although it was held", stage.by)
			}
			if stage.now != nil && !stage.now(t, name) {
				t.Error("held after it was received, the object is not in the API server's cache")
			}
			c.r.release()
			c.seen(t, "copier", wire.ControllerWrite, wire.Create, name+"-copy")
		})
	}
}

// goesOn reports whether the controller has come to its next step.
func (c *copier) goesOn(p wire.Point, op wire.Operation, suffix string) func(t *testing.T, name string) bool {
	return func(_ *testing.T, name string) bool {
		return c.r.observed("copier", observed(p, wire.Before, op, name+suffix)) != nil
	}
}

// verbs checks the observations of each kind of write.
func verbs(t *testing.T, ctx context.Context, r *recorder, client typed.ConfigMapInterface) {
	t.Helper()
	from := r.length()
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "verbs", Labels: map[string]string{"verbs": "true"}}}
	if _, err := client.Create(ctx, o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var got []string
	r.wait("all verbs", func() bool {
		got = nil
		for _, e := range r.all[from:] {
			o := e.Observation
			if o.Point != wire.ControllerWrite {
				continue
			}
			name := o.Name
			if rest, ok := strings.CutPrefix(name, "generated-"); ok && rest != wire.GeneratedName {
				name = "generated-*"
			}
			var object struct{ Data map[string]string }
			if len(o.Object) > 0 {
				if err := json.Unmarshal(o.Object, &object); err != nil {
					t.Fatalf("%s: %v", o.Object, err)
				}
			}
			resource := o.Resource
			if o.Subresource != "" {
				resource += "/" + o.Subresource
			}
			patch := ""
			if len(o.Patch) > 0 && o.Phase == wire.Before {
				patch = "patch=true "
			}
			got = append(got, fmt.Sprintf("%s %s %s %s/%s/%s code=%d object=%t %s%s", o.Phase, o.Operation, o.Kind,
				resource, o.Namespace, name,
				o.Code, len(o.Object) > 0, patch, object.Data["patched"]))
		}
		return len(got) >= 24
	})
	want := []string{
		"before create configmap configmaps/default/generated-<generated> code=0 object=true ",
		"after create configmap configmaps/default/generated-* code=201 object=true ",
		"before patch configmap configmaps/default/verbs code=0 object=false patch=true ",
		"after patch configmap configmaps/default/verbs code=200 object=true yes",
		"before apply configmap configmaps/default/applied code=0 object=false patch=true ",
		"after apply configmap configmaps/default/applied code=201 object=true ",
		"before create configmap configmaps/default/untyped code=0 object=true ",
		"after create configmap configmaps/default/untyped code=201 object=true ",
		"before create configmap configmaps/default/untyped code=0 object=true ",
		"after create configmap configmaps/default/untyped code=409 object=false ",
		"before delete configmap configmaps/default/applied code=0 object=false ",
		"after delete configmap configmaps/default/applied code=200 object=false ",
		"before deleteCollection configmap configmaps/default/ code=0 object=false ",
		"after deleteCollection configmap configmaps/default/ code=200 object=false ",
		"before create pod pods/default/verbs code=0 object=true ",
		"after create pod pods/default/verbs code=201 object=true ",
		"before update pod pods/status/default/verbs code=0 object=true ",
		"after update pod pods/status/default/verbs code=200 object=true ",
		"before create pod pods/eviction/default/verbs code=0 object=true ",
		"after create pod pods/eviction/default/verbs code=201 object=false ",
	}
	if diff := cmp.Diff(want, got[:len(want)]); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}

	find := func(point wire.Point, op wire.Operation, name string, live bool) (o *wire.Observation) {
		r.wait(fmt.Sprintf("%s %s %s", point, op, name), func() bool {
			o = r.find("copier", func(o *wire.Observation) bool {
				return o.Phase == wire.After && o.Point == point && o.Operation == op && o.Name == name &&
					o.Live == live
			})
			return o != nil
		})
		return o
	}
	for _, live := range []bool{false, true} {
		if o := find(wire.ControllerRead, wire.List, "", live); o.Kind != "configmap" && o.Resource != "configmaps" ||
			o.Namespace != "default" || o.Request != "default/verbs" {
			t.Errorf("list, live=%t: %+v", live, o)
		}
	}
	if o := find(wire.ControllerWrite, wire.Create, "in-goroutine", false); o.Reconciler != "copier" ||
		o.Request != "default/verbs" {
		t.Errorf("a goroutine with the reconciler's context: %+v", o)
	}
	if o := find(wire.ControllerWrite, wire.Create, "without-context", false); o.Reconciler != "" ||
		o.ReconcileID != "" {
		t.Errorf("a goroutine with its own context: %+v", o)
	}
}

// TestControllerManagerIsObserved runs a third-party controller: no controller-runtime, protobuf on the wire.
func TestControllerManagerIsObserved(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	controlPlane, err := instrumentation.BuildControlPlane(ctx, instrumentation.ControlPlaneConfig{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	address, token := c.Rendezvous()
	r := record(t, address, token)
	var rules []wire.Rule
	for _, p := range []wire.Point{wire.ControllerRecv, wire.ControllerRead, wire.ControllerWrite} {
		rules = append(rules, bothPhases(wire.Rule{Point: p, Kind: "statefulset", Resource: "statefulsets",
			Group: "apps", Name: "web"})...)
		rules = append(rules, bothPhases(wire.Rule{Point: p, Kind: "pod", Resource: "pods", Name: "web-*"})...)
	}
	r.setRules(ctx, map[string][]wire.Rule{"manager": rules})
	kubeconfig, err := c.Kubeconfig("")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	manager := filepath.Join(dir, "kube-controller-manager")
	if err := os.Symlink(controlPlane.Binary, manager); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, manager, "--kubeconfig", kubeconfig, "--controllers", "statefulset-controller",
		"--leader-elect=false", "--secure-port=0")
	cmd.Env = append(os.Environ(), wire.EnvCoordinator+"="+address, wire.EnvToken+"="+token,
		wire.EnvIdentity+"=manager")
	var log syncBuffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("kube-controller-manager:\n%s", log.String())
		}
	}()
	r.wait("the controller manager's hook is there", func() bool { return r.sessions["manager"] != nil })

	config, err := c.RESTConfig("")
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"app": "web"}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.StatefulSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
			},
		},
	}
	if _, err := kubernetes.NewForConfigOrDie(config).AppsV1().StatefulSets("default").Create(ctx, set,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"before controllerRecv create statefulset web object=true live=false code=0",
		"after controllerRecv create statefulset web object=true live=false code=0",
		"before controllerRead get statefulset web object=false live=false code=0",
		"after controllerRead get statefulset web object=true live=false code=0",
		"before controllerWrite create pod web-0 object=true live=false code=0",
		"after controllerWrite create pod web-0 object=true live=false code=201",
		"after controllerRecv create pod web-0 object=true live=false code=0",
		"before controllerWrite update statefulset web/status object=true live=false code=0",
		"after controllerWrite update statefulset web/status object=true live=false code=200",
	} {
		r.wait(want, func() bool {
			return r.find("manager", func(o *wire.Observation) bool {
				name := o.Name
				if o.Subresource != "" {
					name += "/" + o.Subresource
				}
				return want == fmt.Sprintf("%s %s %s %s %s object=%t live=%t code=%d", o.Phase, o.Point, o.Operation,
					o.Kind, name, len(o.Object) > 0, o.Live, o.Code)
			}) != nil
		})
	}
}
