package instrumentation_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/semver"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trommel-dev/trommel/instrumentation/wire"
)

// holdsTable says what a hold stops; TestVersions compares its rows with what happens.
const holdsTable = "../docs/instrumentation.md"

// What may become of a read during a hold. Each read returns during the hold: a read that waits fails the test.
const (
	oldState = "old" // it shows the state of before the change
	newState = "new"
)

// hold is one point at which a controller's call is held, while the controller reads and writes in all ways.
type hold struct {
	point wire.Point
	phase wire.Phase
	live  bool // of reads
	// Reads of the cache show these states: of the changed object, of an object of its type that is changed after it,
	// and of an object of another type.
	object, sibling, other string
	stops                  string // what waits until the release, as docs/instrumentation.md says it
}

// holds lists what TestVersions holds. If the informer receives nothing, its readers still read: the state of before.
var holds = []hold{
	{wire.APIServerRecv, wire.Before, false, oldState, oldState, newState, "events of its type at this API server"},
	{wire.APIServerRecv, wire.After, false, newState, oldState, newState, "events of its type at this API server"},
	{wire.ControllerRecv, wire.Before, false, oldState, oldState, newState, "deliveries of its type to this informer"},
	{wire.ControllerRecv, wire.After, false, newState, oldState, newState, "deliveries of its type to this informer"},
	{wire.Reconcile, wire.Before, false, newState, newState, newState, "the worker"},
	{wire.ControllerRead, wire.Before, false, newState, newState, newState, "the caller"},
	{wire.ControllerRead, wire.After, false, newState, newState, newState, "the caller"},
	{wire.ControllerRead, wire.Before, true, newState, newState, newState, "the caller"},
	{wire.ControllerRead, wire.After, true, newState, newState, newState, "the caller"},
	{wire.ControllerWrite, wire.Before, false, newState, newState, newState, "the caller"},
	{wire.ControllerWrite, wire.After, false, newState, newState, newState, "the caller"},
	{wire.Reconcile, wire.After, false, newState, newState, newState, "the worker"},
	{wire.AnnotatedCall, wire.Before, false, newState, newState, newState, "the caller"},
	{wire.AnnotatedCall, wire.After, false, newState, newState, newState, "the caller"},
}

func (h hold) name() string {
	name := string(h.phase) + " " + string(h.point)
	if h.point == wire.ControllerRead {
		name += map[bool]string{true: " (live)", false: " (cached)"}[h.live]
	}
	return name
}

// row is the hold's row of the table in the documentation.
func (h hold) row() string {
	return fmt.Sprintf("| %s | %s | %s | %s | %s |", h.name(), h.stops, h.object, h.sibling, h.other)
}

// takes reports whether an observation is the one that is held. The names of the object that is changed and of the one
// that is copied are different: reads of the first are the test's own.
func (h hold) takes(o *wire.Observation, changed, copied string) bool {
	if o.Point != h.point || o.Phase != h.phase {
		return false
	}
	switch h.point {
	case wire.APIServerRecv, wire.ControllerRecv:
		return o.Resource == "configmaps" && o.Name == changed && o.Operation == wire.Update
	case wire.ControllerRead:
		return at(h.point, wire.Get, h.live, map[bool]string{true: "-copy"}[h.live])(o, copied)
	case wire.ControllerWrite:
		return at(h.point, wire.Create, false, "-copy")(o, copied)
	}
	return o.Request == "default/"+copied || o.CallName != "" && o.Request == ""
}

// TestDocumentedHolds compares the table of what a hold stops with the one that TestVersions checks.
func TestDocumentedHolds(t *testing.T) {
	doc, err := os.ReadFile(holdsTable)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range holds {
		if !strings.Contains(string(doc), h.row()+"\n") {
			t.Errorf("%s has no row\n%s", holdsTable, h.row())
		}
	}
}

// ways asks a controller to read and write.
type ways struct {
	client http.Client
	reads  []string // of ConfigMaps in a cache
	// informers is how many informers of ConfigMaps the reads have started.
	informers int
	live      []string
	others    []string // of Secrets in a cache
	acts      []string // that need no object

	process *os.Process
	ended   <-chan error
}

// startWays starts a second process of the version, which answers the test, and waits until all its caches have begun.
func (w *versionsWorld) startWays(t *testing.T, v *versioned, settled string) *ways {
	socket := filepath.Join(t.TempDir(), "ways")
	a := &ways{informers: 1, reads: []string{"get-lister", "list-lister"}, others: []string{"get-secret"},
		acts: []string{"write", "probe", "synced"}}
	a.process, a.ended = w.start(t, v, "WAYS="+socket)
	switch {
	case v.byGoroutine():
		a.informers = 2
		a.reads, a.acts = []string{"get-typed", "get-untyped", "list-typed"}, []string{"write", "lease", "probe"}
	case v.runtime != "":
		a.informers = 2
		a.reads = []string{"get-typed", "get-untyped", "list-typed", "get-lister"}
		a.others = append(a.others, "get-untypedSecret")
		a.acts = append(a.acts, "lease")
	}
	if v.runtime != "" {
		a.live = []string{"get-live", "list-live"}
	}
	// Before, a second list of objects without a Go type fails, and informers of metadata do not know what they have.
	if semver.Compare(v.runtime, "v0.14.0") >= 0 {
		a.informers++
		a.reads = append(a.reads, "list-untyped", "get-metadata", "list-metadata")
	}
	a.client.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	t.Cleanup(a.client.CloseIdleConnections)
	w.r.wait("the controller listens", func() bool { _, err := os.Stat(socket); return err == nil })
	for _, way := range slices.Concat(a.reads, a.others) {
		w.until(t, way+" finds "+settled, func() bool {
			state, err := a.try(t.Context(), way, settled) // an error: the caches have not begun
			return err == nil && state == oldState
		})
	}
	return a
}

// until polls a condition, at most for two minutes.
func (w *versionsWorld) until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within two minutes: %s", what)
		}
	}
}

// does reads or writes in one way. A way that waits for what is held fails the test.
func (a *ways) does(t *testing.T, way, name string) string {
	t.Helper()
	state, err := a.try(t.Context(), way, name)
	if err != nil {
		t.Fatalf("%s of %s: %v", way, name, err)
	}
	return state
}

// try reads or writes in one way. It waits for a minute at most.
func (a *ways) try(ctx context.Context, way, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://controller/"+way+"?name="+name, nil)
	if err != nil {
		return "", err
	}
	response, err := a.client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	return string(body), err
}

// holds holds the controller at each point, and checks what it reads and writes meanwhile.
func (w *versionsWorld) holds(t *testing.T, v *versioned) {
	two := *v
	two.name += "-ways"
	w.rules[two.name] = slices.Clone(w.rules[v.name])
	w.rules[theirs] = bothPhases(wire.Rule{Point: wire.APIServerRecv, Kind: "configmap", Resource: "configmaps",
		Namespace: "default"})
	w.r.setRules(t.Context(), w.rules)
	w.stateful(t, two.name+"-settled")
	a := w.startWays(t, &two, two.name+"-settled")
	for i, h := range holds {
		if h.point == wire.Reconcile && v.runtime == "" {
			continue
		}
		t.Run(h.name(), func(t *testing.T) {
			w.r.during(t)
			w.holdsAt(t, &two, a, h, fmt.Sprintf("%s-%d", two.name, i))
		})
	}
	t.Run("stop", func(t *testing.T) {
		w.r.during(t)
		w.stops(t, &two, a)
	})
}

// stops stops the controller while a delivery is held. It ends at once, without an error: controller-runtime waits for
// its informers, and gives up with an error after 30 s.
func (w *versionsWorld) stops(t *testing.T, v *versioned, a *ways) {
	name := v.name + "-last"
	w.r.holdingOf(v.name, func(o *wire.Observation) bool {
		return o.Point == wire.ControllerRecv && o.Phase == wire.Before && o.Name == name
	})
	defer w.r.release()
	w.create(t, v, name)
	w.r.wait("the delivery is held", func() bool { return len(w.r.held) > 0 })
	if err := a.process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-a.ended:
		if err != nil {
			t.Errorf("interrupted while a delivery is held, the controller ends with %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Error("interrupted while a delivery is held, the controller does not end within 2 minutes")
	}
}

// holdsAt holds the controller at one point. The names of what it creates begin with name.
func (w *versionsWorld) holdsAt(t *testing.T, v *versioned, a *ways, h hold, name string) {
	changed, sibling, copied := name+"-changed", name+"-sibling", name+"-copied"
	for _, n := range []string{changed, sibling} {
		w.stateful(t, n)
		for _, way := range a.reads {
			w.until(t, way+" finds "+n, func() bool { return a.does(t, way, n) == oldState })
		}
	}
	for _, way := range a.others {
		w.until(t, way+" finds "+changed, func() bool { return a.does(t, way, changed) == oldState })
	}
	by := v.name
	if h.point == wire.APIServerRecv {
		by = theirs
	}
	receiving := h.point == wire.APIServerRecv || h.point == wire.ControllerRecv
	w.r.holdingOf(by, func(o *wire.Observation) bool { return h.takes(o, changed, copied) })
	defer w.r.release()
	held := 1
	if h.point == wire.ControllerRecv {
		held = a.informers
	}
	if receiving {
		w.change(t, changed)
	} else {
		w.create(t, v, copied)
	}
	w.r.wait(h.name()+" is held", func() bool { return len(w.r.held) == held })
	if !receiving {
		w.change(t, changed)
	}
	w.change(t, sibling)

	// The test waits for what must arrive. What must not arrive had the chance to: a later change of another type has
	// arrived.
	shows := func(way, object, want string) {
		t.Helper()
		if want == newState {
			w.until(t, fmt.Sprintf("%s, %s shows the new state", h.name(), way),
				func() bool { return a.does(t, way, object) == newState })
		} else if got := a.does(t, way, object); got != want {
			t.Errorf("%s: %s shows %q, want %q", h.name(), way, got, want)
		}
	}
	for _, way := range a.others {
		shows(way, changed, h.other)
	}
	w.r.chance(t.Context())
	for _, way := range a.reads {
		shows(way, changed, h.object)
		shows(way, sibling, h.sibling)
	}
	for _, way := range a.live {
		shows(way, changed, newState)
	}
	for _, way := range a.acts {
		if got := a.does(t, way, name+"-"+way); got != "done" && got != "ok" && got != "true" {
			t.Errorf("%s: %s answers %q", h.name(), way, got)
		}
	}
	w.r.release()
	for _, way := range a.reads {
		shows(way, changed, newState)
		shows(way, sibling, newState)
	}
	if !receiving {
		w.atRest(v, copied)
	}
}

// stateful creates a ConfigMap and a Secret whose state is old.
func (w *versionsWorld) stateful(t *testing.T, name string) {
	t.Helper()
	about := metav1.ObjectMeta{Name: name, Labels: map[string]string{"state": oldState}}
	core := w.client.CoreV1()
	if _, err := core.ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: about},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := core.Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: about},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// change makes the state of a ConfigMap, and then that of the Secret, a new one.
func (w *versionsWorld) change(t *testing.T, name string) {
	t.Helper()
	patch := []byte(fmt.Sprintf(`{"metadata":{"labels":{"state":%q}}}`, newState))
	core := w.client.CoreV1()
	if _, err := core.ConfigMaps("default").Patch(t.Context(), name, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := core.Secrets("default").Patch(t.Context(), name, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}
