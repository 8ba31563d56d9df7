package instrumentation_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/instrumentation/points"
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/cluster/embedded"
)

// versionsTable has the results of TestVersions for all versions; make versions writes it.
const versionsTable = "../docs/versions.md"

// versioned is a controller with libraries of one version.
type versioned struct {
	name     string // identity of its session; also in labels and names of objects
	dir, pkg string
	clientGo string
	runtime  string // controller-runtime's version; empty: only client-go
	language string // in its go.mod
	binary   string
	seen     map[string]bool // columns of the table
}

// columns lists the columns of the table: points that were seen to fire, hold and release, before and after the call.
var columns = []string{"receive", "cache read", "live read", "write", "reconcile", "annotated call", "batch", "relist",
	"plain informer"}

func (v *versioned) row() string {
	runtime := v.runtime
	if runtime == "" {
		runtime = "none: informers and a workqueue"
	}
	cells := []string{v.clientGo, runtime, v.language}
	for _, c := range columns {
		switch {
		case v.seen[c]:
			cells = append(cells, "yes")
		case c == "reconcile" && v.runtime == "" || c == "plain informer" && v.runtime != "":
			cells = append(cells, "–")
		default:
			cells = append(cells, "**no**")
		}
	}
	return "| " + strings.Join(cells, " | ") + " |"
}

// versionsUnderTest builds the controllers of the selected versions, see versionDirs.
func versionsUnderTest(t *testing.T) []*versioned {
	var list []*versioned
	for _, dir := range versionDirs(t) {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		mod, err := modfile.Parse(dir, data, nil)
		if err != nil {
			t.Fatal(err)
		}
		version := map[string]string{}
		for _, r := range mod.Require {
			version[r.Mod.Path] = r.Mod.Version
		}
		for _, r := range mod.Replace {
			version[r.Old.Path] = r.New.Version
		}
		name := strings.ReplaceAll(filepath.Base(dir), ".", "-")
		for _, v := range []*versioned{
			{name: name, pkg: ".", runtime: version["sigs.k8s.io/controller-runtime"]},
			{name: name + "-alone", pkg: "./informers"},
		} {
			v.dir, v.clientGo, v.language, v.seen = dir, version["k8s.io/client-go"], mod.Go.Version, map[string]bool{}
			list = append(list, v)
		}
	}
	for _, v := range list {
		before := tree(t, v.dir)
		call := points.AnnotatedCall{Name: "sync", Receiver: "*reconciler", Function: "sync"}
		if v.runtime == "" {
			call.Receiver = "*copier"
		}
		result, err := instrumentation.Build(t.Context(), instrumentation.BuildConfig{
			Dir: v.dir, Package: v.pkg, AnnotatedCalls: []points.AnnotatedCall{call},
		})
		if err != nil {
			t.Fatalf("%s: %v", v.name, err)
		}
		v.binary = result.Binary
		for path, now := range tree(t, v.dir) {
			if now != before[path] {
				t.Errorf("%s was changed", path)
			}
		}
	}
	return list
}

// TestVersionsBetweenAreBuilt builds controllers of ages between those that CI runs: their modules are patched as
// golden files say, and must compile.
func TestVersionsBetweenAreBuilt(t *testing.T) {
	if os.Getenv("TROMMEL_TEST_VERSIONS") == "" {
		t.Skip("builds controllers of several ages: set TROMMEL_TEST_VERSIONS")
	}
	run := versionDirs(t)
	for _, name := range []string{"client-go-0.20.15", "client-go-0.26.15"} {
		dir := filepath.Join("testdata", "versions", name)
		if slices.Contains(run, dir) {
			continue // TestVersions builds and runs it
		}
		if _, err := instrumentation.Build(t.Context(), instrumentation.BuildConfig{Dir: dir}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// versionsWorld is the cluster that all versions run on.
type versionsWorld struct {
	cluster *embedded.Cluster
	client  *kubernetes.Clientset // to the API server that keeps running
	r       *recorder
	rules   map[string][]wire.Rule
}

// The API server that the controllers are connected to, and the one that keeps running when it is stopped.
const theirs, ours = "apiserver-1", "apiserver-2"

// TestVersions builds controllers of all ages with hooks and checks that every point fires, holds and releases.
func TestVersions(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	versions := versionsUnderTest(t)
	controlPlane, err := instrumentation.BuildControlPlane(t.Context(), instrumentation.ControlPlaneConfig{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := embedded.Start(t.Context(), embedded.Config{Binary: controlPlane.Binary, APIServers: 2, Nodes: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	config, err := c.RESTConfig(ours)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	address, token := c.Rendezvous()
	rules := map[string][]wire.Rule{}
	w := &versionsWorld{cluster: c, client: kubernetes.NewForConfigOrDie(config),
		r: record(t, address, token), rules: rules}
	for _, v := range versions {
		for _, p := range []wire.Point{wire.ControllerRecv, wire.ControllerRead, wire.ControllerWrite} {
			rules[v.name] = append(rules[v.name],
				bothPhases(wire.Rule{Point: p, Kind: "configmap", Resource: "configmaps", Namespace: "default"})...)
			rules[v.name] = append(rules[v.name],
				bothPhases(wire.Rule{Point: p, Kind: "secret",
					Resource: "secrets"})...) // in all namespaces, as informers ask
		}
		for _, kind := range readOnTheSide {
			rules[v.name] = append(rules[v.name],
				bothPhases(wire.Rule{Point: wire.ControllerRead, Kind: kind, Resource: kind + "s", Items: true})...)
		}
		rules[v.name] = append(rules[v.name], bothPhases(wire.Rule{Point: wire.Reconcile})...)
		rules[v.name] = append(rules[v.name], bothPhases(wire.Rule{Point: wire.AnnotatedCall})...)
	}
	w.r.setRules(t.Context(), rules)
	for _, v := range versions {
		w.start(t, v)
		t.Run(v.name, func(t *testing.T) {
			w.r.during(t)
			w.points(t, v)
			w.changes(t, v)
			w.batch(t, v)
			if v.runtime == "" {
				w.plainInformer(t, v)
			}
			if v.byGoroutine() {
				w.atOnce(t, v)
			}
			w.holds(t, v)
		})
	}
	t.Run("relist", func(t *testing.T) {
		w.r.during(t)
		w.relist(t, versions)
	})
	for _, v := range versions {
		w.check(t, v)
	}
	if !t.Failed() {
		compareTable(t, versions)
	}
}

// readOnTheSide lists the kinds that the controllers on controller-runtime ≥ 0.14 read in every possible way, outside
// of reconciles.
var readOnTheSide = []string{"service", "serviceaccount"}

// start runs the controller until the test ends, or it ends by itself. ended gets its error, nil for exit code 0.
func (w *versionsWorld) start(t *testing.T, v *versioned, env ...string) (process *os.Process, ended <-chan error) {
	kubeconfig, err := w.cluster.Kubeconfig(theirs)
	if err != nil {
		t.Fatal(err)
	}
	address, token := w.cluster.Rendezvous()
	cmd := exec.Command(v.binary)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "COPIER="+v.name, wire.EnvCoordinator+"="+address,
		wire.EnvToken+"="+token, wire.EnvIdentity+"="+v.name)
	cmd.Env = append(cmd.Env, env...)
	var log syncBuffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exit, over := make(chan error, 1), make(chan struct{})
	go func() {
		exit <- cmd.Wait()
		close(over)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-over
		if t.Failed() {
			t.Logf("%s:\n%s", v.name, log.String())
		}
	})
	w.r.wait(v.name+" is connected", func() bool { return w.r.sessions[v.name] != nil })
	return cmd.Process, exit
}

func (w *versionsWorld) create(t *testing.T, v *versioned, name string) {
	t.Helper()
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"copy": v.name}}}
	if _, err := w.client.CoreV1().ConfigMaps("default").Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// step is one thing that the controller does with an object.
type step struct {
	column string
	phase  wire.Phase
	match  func(o *wire.Observation, name string) bool
}

// count is called under the recorder's lock.
func (w *versionsWorld) count(v *versioned, match func(*wire.Observation) bool) (n int) {
	for _, e := range w.r.all {
		if e.Session.Identity == v.name && match(e.Observation) {
			n++
		}
	}
	return n
}

func at(point wire.Point, op wire.Operation, live bool, suffix string) func(*wire.Observation, string) bool {
	return func(o *wire.Observation, name string) bool {
		return o.Point == point && o.Operation == op && o.Live == live && o.Kind == "configmap" && o.Name == name+suffix
	}
}

// steps returns what a controller does with a new object, in order, each step twice. Deliveries run concurrently with
// the worker, everything else in sequence.
func (v *versioned) steps() []step {
	call := func(o *wire.Observation, name string) bool {
		// With only client-go, nothing says which object a call is for: there is one worker, and it has nothing else to
		// do.
		return o.Point == wire.AnnotatedCall && o.CallName == "sync" &&
			(v.runtime == "" || o.Request == "default/"+name)
	}
	reconcile := func(o *wire.Observation, name string) bool {
		return o.Point == wire.Reconcile && o.Name == name && o.ReconcileID != ""
	}
	list := []step{{"receive", wire.Before, at(wire.ControllerRecv, wire.Create, false, "")},
		{"receive", wire.After, at(wire.ControllerRecv, wire.Create, false, "")}}
	if v.runtime != "" {
		list = append(list, step{"reconcile", wire.Before, reconcile})
	}
	list = append(list, step{"annotated call", wire.Before, call})
	for _, s := range []step{
		{column: "cache read", match: at(wire.ControllerRead, wire.Get, false, "")},
		{column: "live read", match: at(wire.ControllerRead, wire.Get, true, "-copy")},
		{column: "write", match: at(wire.ControllerWrite, wire.Create, false, "-copy")},
	} {
		list = append(list, step{s.column, wire.Before, s.match}, step{s.column, wire.After, s.match})
	}
	list = append(list, step{"annotated call", wire.After, call})
	if v.runtime != "" {
		list = append(list, step{"reconcile", wire.After, reconcile})
	}
	return list
}

// atRest waits until the controller has read the copy of the object, which is its last step.
func (w *versionsWorld) atRest(v *versioned, name string) {
	w.r.t.Helper()
	w.r.wait(name+" is done with", func() bool {
		next := at(wire.ControllerRead, wire.Get, false, "-copy")
		calls := func(phase wire.Phase) int {
			return w.count(v, func(o *wire.Observation) bool {
				return o.Point == wire.AnnotatedCall &&
					o.Phase == phase
			})
		}
		return w.count(v, func(o *wire.Observation) bool { return next(o, name) && o.Phase == wire.After }) > 0 &&
			calls(wire.Before) == calls(wire.After)
	})
}

// points holds an object at each step: no later step happens before the release, and all happen after it.
func (w *versionsWorld) points(t *testing.T, v *versioned) {
	first := v.name + "-first"
	w.create(t, v, first)
	w.atRest(v, first)
	steps := v.steps()
	held := map[string]int{}
	for i, s := range steps {
		name := fmt.Sprintf("%s-%d", v.name, i)
		from := w.r.length()
		w.r.holdingOf(v.name, func(o *wire.Observation) bool { return o.Phase == s.phase && s.match(o, name) })
		w.create(t, v, name)
		w.r.wait(fmt.Sprintf("%s %s of %s is held", s.phase, s.column, name), func() bool { return len(w.r.held) == 1 })
		w.r.chance(t.Context())
		w.r.mu.Lock()
		for _, e := range w.r.all[from:] {
			if e.Session.Identity != v.name {
				continue
			}
			o := e.Observation
			// The copy is read last. A delivery that is held after its handlers were called holds only the next
			// delivery.
			if at(wire.ControllerRead, wire.Get, false, "-copy")(o, name) {
				t.Errorf("held %s %s, the controller continued to the copy: %s", s.phase, s.column, describe(e))
			}
			for _, later := range steps[i+1:] {
				if i != 1 && o.Phase == later.phase && later.match(o, name) {
					t.Errorf("held %s %s, the controller continued: %s", s.phase, s.column, describe(e))
				}
			}
		}
		w.r.mu.Unlock()
		w.r.release()
		w.atRest(v, name)
		held[s.column]++
	}
	for column, n := range held {
		v.seen[column] = n == 2
	}
}

// changes holds an update and a deletion before the informer receives them.
func (w *versionsWorld) changes(t *testing.T, v *versioned) {
	name := v.name + "-changes"
	w.create(t, v, name)
	w.atRest(v, name)
	client := w.client.CoreV1().ConfigMaps("default")
	for _, c := range []struct {
		op wire.Operation
		do func() error
	}{
		{wire.Update, func() error {
			_, err := client.Patch(t.Context(), name, types.MergePatchType, []byte(`{"data":{"a":"2"}}`),
				metav1.PatchOptions{})
			return err
		}},
		{wire.Delete, func() error { return client.Delete(t.Context(), name, metav1.DeleteOptions{}) }},
	} {
		read := func() int {
			return w.count(v, func(o *wire.Observation) bool {
				return at(wire.ControllerRead, wire.Get, false, "")(o, name) && o.Phase == wire.After
			})
		}
		w.r.mu.Lock()
		before := read()
		w.r.mu.Unlock()
		w.r.holdingOf(v.name, func(o *wire.Observation) bool {
			return o.Phase == wire.Before && at(wire.ControllerRecv, c.op, false, "")(o, name)
		})
		if err := c.do(); err != nil {
			t.Fatal(err)
		}
		w.r.wait(fmt.Sprintf("%s of %s is held", c.op, name), func() bool { return len(w.r.held) == 1 })
		w.r.chance(t.Context())
		w.r.mu.Lock()
		if read() != before {
			t.Errorf("the %s was held before the informer, but the controller reacted to it", c.op)
		}
		w.r.mu.Unlock()
		w.r.release()
		w.r.wait(fmt.Sprintf("reaction to the %s", c.op), func() bool { return read() > before })
	}
}

// batch lets deliveries accumulate behind a held one: since 0.35 client-go processes them as one batch.
func (w *versionsWorld) batch(t *testing.T, v *versioned) {
	name := func(i int) string { return fmt.Sprintf("%s-batch-%d", v.name, i) }
	w.r.holdingOf(v.name, func(o *wire.Observation) bool {
		return o.Phase == wire.Before && at(wire.ControllerRecv, wire.Create, false, "")(o, name(0))
	})
	const n = 6
	for i := range n {
		w.create(t, v, name(i))
	}
	w.r.wait(name(0)+" is held", func() bool { return len(w.r.held) == 1 })
	w.r.release()
	for i := range n {
		w.atRest(v, name(i))
	}
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	v.seen["batch"] = true
	for i := range n {
		for _, phase := range []wire.Phase{wire.Before, wire.After} {
			if got := w.count(v, func(o *wire.Observation) bool {
				return o.Phase == phase && at(wire.ControllerRecv, wire.Create, false, "")(o, name(i))
			}); got != 1 {
				t.Errorf("the delivery of %s was reported %d times %s it, want once", name(i), got, phase)
				v.seen["batch"] = false
			}
		}
	}
}

// plainInformer tests an informer that is not shared, and reads of its store.
func (w *versionsWorld) plainInformer(t *testing.T, v *versioned) {
	secret := func(point wire.Point, op wire.Operation, phase wire.Phase, name string) func(o *wire.Observation) bool {
		return func(o *wire.Observation) bool {
			return o.Point == point && o.Operation == op && o.Phase == phase && o.Kind == "secret" && o.Name == name
		}
	}
	name := v.name + "-plain"
	w.r.holdingOf(v.name, secret(wire.ControllerRecv, wire.Create, wire.Before, name))
	if _, err := w.client.CoreV1().Secrets("default").Create(t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.r.wait("the secret is held", func() bool { return len(w.r.held) == 1 })
	w.create(t, v, name)
	var o *wire.Observation
	read := func() bool {
		o = w.r.find(v.name, secret(wire.ControllerRead, wire.Get, wire.After, name))
		return o != nil
	}
	w.r.wait("the secret is read", read)
	if len(o.Object) > 0 {
		t.Errorf("held before the informer, the secret is in its store: %s", o.Object)
	}
	w.r.release()
	w.r.wait("the secret is received", func() bool {
		return w.r.find(v.name, secret(wire.ControllerRecv, wire.Create, wire.After, name)) != nil
	})
	w.atRest(v, name)
	w.r.holdingOf(v.name, secret(wire.ControllerRead, wire.Get, wire.Before, name+"-2"))
	w.create(t, v, name+"-2")
	w.r.wait("the read is held", func() bool { return len(w.r.held) == 1 })
	w.r.release()
	w.atRest(v, name+"-2")
	v.seen["plain informer"] = true
}

// byGoroutine reports whether the controller's reconcilers get no context.
func (v *versioned) byGoroutine() bool {
	return v.runtime != "" && semver.Compare(v.runtime, "v0.7.0") < 0
}

// atOnce holds one reconcile in each of its steps while another one runs completely: their calls, including those in
// goroutines that they start, are not mixed up.
func (w *versionsWorld) atOnce(t *testing.T, v *versioned) {
	two := *v
	two.name += "-two"
	rules := slices.Clone(w.rules[v.name])
	w.rules[two.name] = rules
	w.r.setRules(t.Context(), w.rules)
	w.start(t, &two, "WORKERS=2")
	for i, s := range two.steps()[2:] {
		slow, fast := fmt.Sprintf("%s-slow-%d", two.name, i), fmt.Sprintf("%s-fast-%d", two.name, i)
		w.r.holdingOf(two.name, func(o *wire.Observation) bool { return o.Phase == s.phase && s.match(o, slow) })
		w.create(t, &two, slow)
		w.r.wait(fmt.Sprintf("%s %s of %s is held", s.phase, s.column, slow), func() bool { return len(w.r.held) == 1 })
		w.create(t, &two, fast)
		ended := func(name string) func() bool {
			return func() bool {
				return w.count(&two, func(o *wire.Observation) bool {
					return o.Point == wire.Reconcile && o.Phase == wire.After && o.Request == "default/"+name
				}) > 0
			}
		}
		w.r.wait(fast+" is reconciled beside "+slow, ended(fast))
		w.r.release()
		w.r.wait(slow+" is reconciled", ended(slow))
		w.atRest(&two, slow)
	}
	w.check(t, &two)
}

// relist stops the controllers' API server, changes objects at another, and starts it again: it has none of the missed
// events, so the controllers must list again. Changes are reported, known states are not.
func (w *versionsWorld) relist(t *testing.T, versions []*versioned) {
	client := w.client.CoreV1().ConfigMaps("default")
	for _, name := range []string{"relist-kept", "relist-changed", "relist-gone"} {
		if _, err := client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	received := func(v *versioned, op wire.Operation, name string) int {
		return w.count(v, func(o *wire.Observation) bool {
			return o.Phase == wire.After && at(wire.ControllerRecv, op, false, "")(o, name)
		})
	}
	for _, v := range versions {
		w.r.wait(v.name+" has received what there is", func() bool {
			return received(v, wire.Create, "relist-kept") == 1 && received(v, wire.Create, "relist-changed") == 1 &&
				received(v, wire.Create, "relist-gone") == 1
		})
	}
	if err := w.cluster.KillAPIServer(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Patch(t.Context(), "relist-changed", types.MergePatchType, []byte(`{"data":{"a":"2"}}`),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.Delete(t.Context(), "relist-gone", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "relist-new"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := w.cluster.StartAPIServer(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	for _, v := range versions {
		w.r.wait(v.name+" has caught up", func() bool {
			return received(v, wire.Update, "relist-changed") == 1 && received(v, wire.Delete, "relist-gone") == 1 &&
				received(v, wire.Create, "relist-new") == 1
		})
		w.r.mu.Lock()
		if n := received(v, wire.Create, "relist-kept") + received(v, wire.Update, "relist-kept"); n != 1 {
			t.Errorf("%s: the object that did not change was reported %d times, want once", v.name, n)
		}
		if n := received(v, wire.Create, "relist-changed") + received(v, wire.Create, "relist-gone"); n != 2 {
			t.Errorf("%s: %d creations of existing objects, want 2", v.name, n)
		}
		w.r.mu.Unlock()
		v.seen["relist"] = true
	}
	lists := 0
	for _, v := range versions {
		if semver.Compare(v.clientGo, "v0.35.0") < 0 { // later ones list by WATCH
			lists++
		}
	}
	if got := w.listed(t); got < lists {
		t.Errorf("configmaps were listed %d times since the API server is back, by %d controllers that must list", got,
			lists)
	}
}

var listCount = regexp.MustCompile(`(?m)^apiserver_request_total\{.*resource="configmaps".*verb="LIST".*\} (\d+)$`)

// listed returns the number of LIST requests for ConfigMaps that the controllers' API server has answered.
func (w *versionsWorld) listed(t *testing.T) (n int) {
	config, err := w.cluster.RESTConfig(theirs)
	if err != nil {
		t.Fatal(err)
	}
	text, err := kubernetes.NewForConfigOrDie(config).RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range listCount.FindAllSubmatch(text, -1) {
		var count int
		if _, err := fmt.Sscan(string(m[1]), &count); err != nil {
			t.Fatal(err)
		}
		n += count
	}
	return n
}

// check checks everything that a controller has reported: bookmarks and resyncs are not deliveries, and the calls of a
// reconciler for an object belong to the reconcile of that object, but an informer's own requests do not.
func (w *versionsWorld) check(t *testing.T, v *versioned) {
	t.Helper()
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	if v.runtime != "" && semver.Compare(v.runtime, "v0.14.0") >= 0 {
		for _, kind := range readOnTheSide {
			for _, live := range []bool{false, true} {
				if w.count(v, func(o *wire.Observation) bool {
					return o.Kind == kind && o.Operation == wire.List && o.Live == live && o.Phase == wire.After
				}) == 0 {
					t.Errorf("%s: no list of %ss, live: %t", v.name, kind, live)
				}
			}
		}
	}
	for _, e := range w.r.all {
		o := e.Observation
		if slices.Contains(readOnTheSide, o.Kind) {
			continue
		}
		if e.Session.Identity == v.name && v.runtime != "" &&
			(o.Point == wire.ControllerRead || o.Point == wire.ControllerWrite) {
			want := ""
			if o.Name != "" {
				want = "default/" + o.Name
				if o.Live || o.Point == wire.ControllerWrite {
					want = strings.TrimSuffix(want, "-copy")
				}
			}
			if o.Request != want || (o.ReconcileID == "") != (want == "") || want != "" &&
				o.ReconcilerType != "main.(*reconciler)" {
				t.Errorf("%s: belongs to %q, want %q: %s", v.name, o.Request, want, describe(e))
			}
		}
		if e.Session.Identity == v.name && o.Point == wire.ControllerRecv &&
			(o.Name == "" || o.Kind != "configmap" && o.Kind != "secret" || len(o.Object) == 0) {
			t.Errorf("%s: a delivery without an object: %s", v.name, describe(e))
		}
	}
}

const (
	tableBegin = "<!-- begin of what make versions writes -->\n"
	tableEnd   = "<!-- end of what make versions writes -->\n"
)

// compareTable compares the results with the documentation, and rewrites it with -update if all versions were tested.
func compareTable(t *testing.T, versions []*versioned) {
	doc, err := os.ReadFile(versionsTable)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := bytes.Cut(doc, []byte(tableBegin))
	_, tail, ok2 := bytes.Cut(rest, []byte(tableEnd))
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", versionsTable)
	}
	if flag.Lookup("update").Value.String() == "true" {
		if os.Getenv("TROMMEL_TEST_VERSIONS") != "*" {
			t.Fatal("-update writes the table of all versions: TROMMEL_TEST_VERSIONS='*'")
		}
		var b bytes.Buffer
		b.Write(head)
		b.WriteString(tableBegin)
		fmt.Fprintf(&b, "| client-go | controller-runtime | go.mod says | %s |\n|%s\n", strings.Join(columns, " | "),
			strings.Repeat(" --- |", 3+len(columns)))
		for _, v := range versions {
			fmt.Fprintln(&b, v.row())
		}
		b.WriteString(tableEnd)
		b.Write(tail)
		if err := os.WriteFile(versionsTable, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, v := range versions {
		if !bytes.Contains(rest, []byte(v.row()+"\n")) {
			t.Errorf("%s does not match the results (make versions writes it):\n%s", versionsTable, v.row())
		}
	}
}
