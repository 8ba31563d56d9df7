package instrumentation_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// TestEveryPointFiresHoldsAndReleases runs a controller and an API server that were built with hooks.
func TestEveryPointFiresHoldsAndReleases(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	controlPlane, err := instrumentation.BuildControlPlane(ctx, instrumentation.ControlPlaneConfig{})
	if err != nil {
		t.Fatal(err)
	}
	controller, err := instrumentation.Build(ctx, instrumentation.BuildConfig{
		Dir:            filepath.Join("testdata", "controller"),
		AnnotatedCalls: annotated,
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := embedded.Start(ctx, embedded.Config{Binary: controlPlane.Binary, APIServers: 1, Nodes: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
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
	r.monitor.SetRules(ctx, map[string][]wire.Rule{
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
	defer func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("controller:\n%s", log.String())
		}
	}()
	r.wait("the controller's hook is there", func() bool { return r.sessions["copier"] != nil })
	if got := len(r.sessions["copier"].Manifest.Points); got != len(controller.Manifest.Points) {
		t.Errorf("the controller shows %d points, was built with %d", got, len(controller.Manifest.Points))
	}

	config, err := c.RESTConfig("")
	if err != nil {
		t.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")
	create := func(name string) {
		t.Helper()
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"copy": "true"}},
			Data: map[string]string{"a": "1"}}
		if _, err := client.Create(ctx, o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create("first")
	is := func(p wire.Point, phase wire.Phase, op wire.Operation, name string) func(*wire.Observation) bool {
		return func(o *wire.Observation) bool {
			return o.Point == p && o.Phase == phase && o.Operation == op && o.Name == name
		}
	}
	seen := func(by string, p wire.Point, op wire.Operation, name string) *wire.Observation {
		t.Helper()
		var before, after *wire.Observation
		r.wait(fmt.Sprintf("%s %s %s at %s", p, op, name, by), func() bool {
			before, after = r.find(by, is(p, wire.Before, op, name)), r.find(by, is(p, wire.After, op, name))
			return before != nil && after != nil
		})
		if before.Call != after.Call {
			t.Errorf("%s %s %s: before is call %d, after is call %d", p, op, name, before.Call, after.Call)
		}
		return after
	}
	data := func(raw []byte) string {
		var o struct {
			APIVersion, Kind string
			Data             map[string]string
		}
		_ = json.Unmarshal(raw, &o)
		return o.APIVersion + " " + o.Kind + " " + o.Data["a"]
	}

	o := seen("apiserver-1", wire.APIServerRecv, wire.Create, "first")
	if o.Kind != "configmap" || o.Resource != "configmaps" || !o.GroupKnown || data(o.Object) != "v1 ConfigMap 1" ||
		o.OldObject != nil {
		t.Errorf("API server: %+v, object %s", o, o.Object)
	}
	o = seen("copier", wire.ControllerRecv, wire.Create, "first")
	if o.Kind != "configmap" || !o.GroupKnown || data(o.Object) != "  1" {
		t.Errorf("received: %+v, object %s", o, o.Object)
	}
	seen("copier", wire.Reconcile, "", "first")
	o = seen("copier", wire.ControllerRead, wire.Get, "first")
	if o.Live || o.Reconciler != "copier" || o.ReconcilerType != "example.com/controller/reconciler.(*Copier)" ||
		o.Request != "default/first" || o.ReconcileID == "" {
		t.Errorf("cache read: %+v", o)
	}
	o = seen("copier", wire.ControllerRead, wire.Get, "first-copy")
	if !o.Live || o.Reconciler != "copier" || o.Code != 404 || o.Error == "" {
		t.Errorf("live read: %+v", o)
	}
	o = seen("copier", wire.ControllerWrite, wire.Create, "first-copy")
	if o.Reconciler != "copier" || o.Request != "default/first" || o.Code != 201 ||
		data(o.Object) != "v1 ConfigMap 1" || o.Resource != "configmaps" || o.Kind != "configmap" {
		t.Errorf("write: %+v, object %s", o, o.Object)
	}
	seen("copier", wire.AnnotatedCall, "", "")
	called := func(name string) *wire.Observation {
		return r.find("copier", func(o *wire.Observation) bool { return o.CallName == name && o.Phase == wire.After })
	}
	r.wait("call of the logger", func() bool { return called("logger") != nil })
	r.wait("call of copy", func() bool { o = called("copy"); return o != nil })
	if o.CallName != "copy" || o.Reconciler != "copier" || o.Request != "default/first" {
		t.Errorf("annotated call: %+v", o)
	}
	if _, err := client.Patch(ctx, "first", types.MergePatchType, []byte(`{"data":{"a":"2"}}`),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, by := range []struct {
		identity string
		point    wire.Point
	}{{"apiserver-1", wire.APIServerRecv}, {"copier", wire.ControllerRecv}} {
		o = seen(by.identity, by.point, wire.Update, "first")
		if data(o.Object)[len(data(o.Object))-1] != '2' || data(o.OldObject)[len(data(o.OldObject))-1] != '1' {
			t.Errorf("update at %s: %s from %s", by.identity, o.Object, o.OldObject)
		}
	}
	o = seen("copier", wire.ControllerWrite, wire.Update, "first-copy")
	if data(o.Object) != "v1 ConfigMap 2" || o.Code != 200 {
		t.Errorf("update by the controller: %+v, object %s", o, o.Object)
	}
	if err := client.Delete(ctx, "first", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	o = seen("apiserver-1", wire.APIServerRecv, wire.Delete, "first")
	if data(o.Object) != "v1 ConfigMap 2" {
		t.Errorf("deletion at the API server: %s", o.Object)
	}
	seen("copier", wire.ControllerRecv, wire.Delete, "first")
	r.mu.Lock()
	o = r.find("copier", is(wire.ControllerWrite, wire.Before, wire.Create, "first"))
	r.mu.Unlock()
	if o != nil {
		t.Errorf("another client's write is attributed to the controller: %+v", o)
	}

	verbs(t, ctx, r, client)

	// While the object is held before a point, nothing after that point happens.
	cached := func(name string) bool {
		_, err := client.Get(ctx, name, metav1.GetOptions{ResourceVersion: "0"})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return err == nil
	}
	for i, stage := range []struct {
		by    string
		match func(name string) func(*wire.Observation) bool
		then  func(name string) bool // must be false until the release
	}{
		{"apiserver-1", func(n string) func(*wire.Observation) bool {
			return is(wire.APIServerRecv, wire.Before, wire.Create, n)
		}, cached},
		{"apiserver-1", func(n string) func(*wire.Observation) bool {
			return is(wire.APIServerRecv, wire.After, wire.Create, n)
		}, nil},
		{"copier", func(n string) func(*wire.Observation) bool {
			return is(wire.ControllerRecv, wire.Before, wire.Create, n)
		},
			func(n string) bool { return r.find("copier", is(wire.Reconcile, wire.Before, "", n)) != nil }},
		{"copier", func(n string) func(*wire.Observation) bool { return is(wire.Reconcile, wire.Before, "", n) },
			func(n string) bool { return r.find("copier", is(wire.ControllerRead, wire.Before, wire.Get, n)) != nil }},
		{"copier",
			func(n string) func(*wire.Observation) bool { return is(wire.ControllerRead, wire.After, wire.Get, n) },
			func(n string) bool {
				return r.find("copier", is(wire.ControllerRead, wire.Before, wire.Get, n+"-copy")) != nil
			}},
		{"copier", func(n string) func(*wire.Observation) bool {
			return is(wire.ControllerWrite, wire.Before, wire.Create, n+"-copy")
		}, func(n string) bool {
			_, err := client.Get(ctx, n+"-copy", metav1.GetOptions{})
			return err == nil
		}},
	} {
		name := fmt.Sprintf("held-%d", i)
		r.holding(stage.match(name))
		create(name)
		r.wait(name+" is held", func() bool { return len(r.held) > 0 })
		time.Sleep(100 * time.Millisecond)
		r.mu.Lock()
		early := stage.then != nil && stage.then(name)
		r.mu.Unlock()
		if early {
			t.Errorf("%s: %s continued although it was held", name, stage.by)
		}
		if i == 1 && !cached(name) {
			t.Error("held after it was received, the object is not in the API server's cache")
		}
		r.release()
		seen("copier", wire.ControllerWrite, wire.Create, name+"-copy")
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
	c, err := embedded.Start(ctx, embedded.Config{Binary: controlPlane.Binary, APIServers: 1, Nodes: -1,
		DisableControllers: []string{"statefulset-controller"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	address, token := c.Rendezvous()
	r := record(t, address, token)
	var rules []wire.Rule
	for _, p := range []wire.Point{wire.ControllerRecv, wire.ControllerRead, wire.ControllerWrite} {
		rules = append(rules, bothPhases(wire.Rule{Point: p, Kind: "statefulset", Resource: "statefulsets",
			Group: "apps", Name: "web"})...)
		rules = append(rules, bothPhases(wire.Rule{Point: p, Kind: "pod", Resource: "pods", Name: "web-*"})...)
	}
	r.monitor.SetRules(ctx, map[string][]wire.Rule{"manager": rules})
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
