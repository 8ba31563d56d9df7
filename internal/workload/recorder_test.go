package workload_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/trommel-dev/trommel/internal/judge/invariant"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/objects/history"
	"github.com/trommel-dev/trommel/internal/run/await"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// states returns a history's entries as "name event value".
func states(t *testing.T, history []record.HistoryEntry) []string {
	t.Helper()
	var all []string
	last := uint64(0)
	for _, h := range history {
		if h.ResourceVersion < last {
			t.Errorf("%s %s has the resource version %d, after %d", h.Name, h.Event, h.ResourceVersion, last)
		}
		last = h.ResourceVersion
		if h.Name == "kube-root-ca.crt" {
			continue
		}
		var o struct {
			Data     struct{ Value string }
			Metadata struct {
				ManagedFields   []any
				ResourceVersion string
			}
		}
		if err := json.Unmarshal(h.Object, &o); err != nil {
			t.Fatal(err)
		}
		if o.Metadata.ManagedFields != nil {
			t.Errorf("%s has managed fields", h.Name)
		}
		all = append(all, fmt.Sprintf("%s %s %s", h.Name, h.Event, o.Data.Value))
	}
	return all
}

func start(t *testing.T, c *objects.Client, keys ...plan.ResourceKey) *history.Recorder {
	t.Helper()
	r, err := history.Start(testContext(t), history.Config{Objects: c, Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// wait waits for the invariants as a run does, then judges the recorded history.
func wait(ctx context.Context, i *invariant.Set, r *history.Recorder, from time.Time) []record.Finding {
	givenBack, err := await.Invariants(ctx, i, r, from)
	if err != nil {
		return nil
	}
	return i.Eventually(r.History(), from, givenBack)
}

func stop(t *testing.T, r *history.Recorder) []record.HistoryEntry {
	t.Helper()
	history, err := r.Stop(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	return history
}

func patch(t *testing.T, c *objects.Client, k plan.ResourceKey, value string) {
	t.Helper()
	if _, err := c.Patch(testContext(t), k, "merge", map[string]any{"data": map[string]any{"value": value}},
		""); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, c *objects.Client, k plan.ResourceKey) {
	t.Helper()
	if err := c.Delete(testContext(t), k, objects.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestRecorderRecordsEveryStateUpToStop(t *testing.T) {
	c := startCluster(t)
	writer := client(t, c, "apiserver-2")
	ns := namespace(t, writer)
	apply(t, writer, configMap(ns, "old", "0"))

	// What is written through one API server is recorded through another.
	r := start(t, client(t, c, "apiserver-1"), key(t, "configmap/"+ns+"/*"))
	want := []string{"old existing 0"}
	write := func(name string, n int) {
		k := key(t, "configmap/"+ns+"/"+name)
		apply(t, writer, configMap(ns, name, "first"))
		want = append(want, name+" created first")
		for i := range n {
			value := fmt.Sprint(i)
			patch(t, writer, k, value)
			want = append(want, fmt.Sprintf("%s updated %s", name, value))
		}
		remove(t, writer, k)
		last := "first"
		if n > 0 {
			last = fmt.Sprint(n - 1)
		}
		want = append(want, fmt.Sprintf("%s deleted %s", name, last))
	}
	for i := range 20 {
		write(fmt.Sprintf("a%d", i%3), 5)
	}
	// The last object is created and deleted just before Stop, so no list shows it.
	write("transient", 0)
	if got := states(t, stop(t, r)); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if gaps := r.Gaps(); gaps != nil {
		t.Errorf("gaps: %v", gaps)
	}
}

// What was written before Seen is known after it, without the wait for quiet.
func TestRecorderHasSeenWhatWasWritten(t *testing.T) {
	c := startCluster(t)
	writer := client(t, c, "")
	ns := namespace(t, writer)
	// Kubernetes itself writes a ConfigMap into every new namespace, at any time.
	r := start(t, writer, key(t, "configmap/"+ns+"/a"))
	for i := range 20 {
		apply(t, writer, configMap(ns, "a", strconv.Itoa(i)))
		if err := r.Seen(testContext(t)); err != nil {
			t.Fatal(err)
		}
		history := r.History()
		if last := history[len(history)-1]; !strings.Contains(string(last.Object), fmt.Sprintf(`"value":"%d"`, i)) {
			t.Errorf("write %d is not known: the last is %s", i, last.Object)
		}
	}
}

func TestRecorderKeepsToItsKeys(t *testing.T) {
	c := startCluster(t)
	writer := client(t, c, "")
	ns := namespace(t, writer)
	r := start(t, writer, key(t, "configmap/"+ns+"/a*"), key(t, "secret/"+ns+"/*"),
		key(t, "configmap/kube-public/none"))
	for _, name := range []string{"a1", "b1", "a2"} {
		apply(t, writer, configMap(ns, name, "x"))
	}
	apply(t, writer, map[string]any{"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"name": "s", "namespace": ns}})
	want := []string{"a1 created x", "a2 created x", "s created "}
	if got := states(t, stop(t, r)); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRecorderSurvivesItsAPIServer(t *testing.T) {
	c := startCluster(t)
	writer := client(t, c, "apiserver-2")
	ns := namespace(t, writer)
	r := start(t, client(t, c, "apiserver-1"), key(t, "configmap/"+ns+"/*"))
	k := func(name string) plan.ResourceKey { return key(t, "configmap/"+ns+"/"+name) }

	apply(t, writer, configMap(ns, "stays", "1"))
	apply(t, writer, configMap(ns, "goes", "1"))
	apply(t, writer, configMap(ns, "again", "1"))
	if err := r.Sync(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if err := c.KillAPIServer(testContext(t), "apiserver-1"); err != nil {
		t.Fatal(err)
	}
	patch(t, writer, k("stays"), "2")
	patch(t, writer, k("stays"), "3")
	remove(t, writer, k("goes"))
	remove(t, writer, k("again"))
	apply(t, writer, configMap(ns, "again", "2"))
	apply(t, writer, configMap(ns, "new", "1"))
	if err := c.StartAPIServer(testContext(t), "apiserver-1"); err != nil {
		t.Fatal(err)
	}
	patch(t, writer, k("stays"), "4")

	// Each state that still existed is recorded once. One that came and went in between is recorded or reported as
	// missing.
	got := states(t, stop(t, r))
	for _, want := range []string{
		"stays created 1", "goes created 1", "again created 1", "stays updated 3", "goes deleted 1", "again deleted 1",
		"again created 2",
		"new created 1", "stays updated 4",
	} {
		n := 0
		for _, s := range got {
			if s == want {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%q is recorded %d times", want, n)
		}
	}
	if !slices.Contains(got, "stays updated 2") && len(r.Gaps()) != 1 {
		t.Errorf("gaps: %q", r.Gaps())
	}
	t.Logf("%q, gaps %q", got, r.Gaps())
}

func TestRecorderOfATypeThatIsNotServed(t *testing.T) {
	c := startCluster(t)
	_, err := history.Start(testContext(t), history.Config{
		Objects: client(t, c, ""), Keys: []plan.ResourceKey{key(t, "configmap/default/*"),
			key(t, "statefullset/default/*")},
	})
	want := `the cluster serves no type "statefullset"; did you mean "statefulset"?`
	if !errors.Is(err, objects.ErrNotServed) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

const laterDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: laters.come.example.com}
spec:
  group: come.example.com
  scope: Namespaced
  names: {kind: Later, plural: laters}
  versions:
  - name: VERSION
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// The history of a type begins when it is served and ends with its definition, as often as that happens, and also if it
// comes back in another version. No state in between is lost.
func TestRecorderOfATypeThatComesAndGoes(t *testing.T) {
	c := startCluster(t)
	writer := client(t, c, "")
	ns := namespace(t, writer)
	later := key(t, "later.come.example.com/"+ns+"/*")
	var mu sync.Mutex
	var served []string
	r, err := history.Start(testContext(t), history.Config{
		Objects: client(t, c, ""), Keys: []plan.ResourceKey{later, key(t, "configmap/"+ns+"/*")},
		Served: func(_ context.Context, _ string, typ objects.Type) {
			mu.Lock()
			defer mu.Unlock()
			served = append(served, typ.Kind.Version)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	if got := r.NeverServed(); !slices.Equal(got, []plan.ResourceKey{later}) {
		t.Errorf("not served: %v", got)
	}
	define := func(version string) {
		list, err := objects.Decode([]byte(strings.Replace(laterDefinition, "VERSION", version, 1)), "laters.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := writer.Apply(testContext(t), list[0]); err != nil {
			t.Fatal(err)
		}
	}
	object := func(version, name, value string) map[string]any {
		o := configMap(ns, name, value)
		o["apiVersion"], o["kind"] = "come.example.com/"+version, "Later"
		return o
	}
	undefine := func() {
		if err := writer.Delete(testContext(t), key(t, "customresourcedefinition//laters.come.example.com"),
			objects.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		clustertest.Eventually(t, func(ctx context.Context) error {
			_, err := writer.Get(ctx, key(t, "customresourcedefinition//laters.come.example.com"))
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("the definition is still there: %w", err)
			}
			return nil
		})
	}
	define("v1")
	apply(t, writer, object("v1", "a", "1"))
	apply(t, writer, object("v1", "a", "2"))
	apply(t, writer, object("v1", "gone", "1"))
	if err := writer.Delete(testContext(t), key(t, "later.come.example.com/"+ns+"/gone"),
		objects.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := r.Seen(testContext(t)); err != nil {
		t.Error(err)
	}
	undefine()
	if err := r.Seen(testContext(t)); err != nil {
		t.Error(err)
	}
	define("v2")
	apply(t, writer, object("v2", "a", "3"))
	apply(t, writer, object("v2", "b", "1"))

	got := states(t, stop(t, r))
	want := []string{"a created 1", "a updated 2", "gone created 1", "gone deleted 1", "a deleted 2", "a created 3",
		"b created 1"}
	if !slices.Equal(got, want) || len(r.Gaps()) > 0 {
		t.Errorf("got  %q, gaps %q\nwant %q", got, r.Gaps(), want)
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(served, []string{"v1", "v2"}) || len(r.NeverServed()) > 0 {
		t.Errorf("served %q, never %v", served, r.NeverServed())
	}
	if types := r.Types(); !slices.ContainsFunc(types, func(t objects.Type) bool { return t.Singular == "later" }) {
		t.Errorf("recorded: %v", types)
	}
}

func TestEventually(t *testing.T) {
	c := startCluster(t)
	writer := client(t, c, "")
	ns := namespace(t, writer)
	apply(t, writer, configMap(ns, "a", "no"))
	for _, test := range []struct {
		name  string
		expr  string
		write func()
		want  []string
	}{
		{"holds", `objects.exists(o, o.data.value == "no")`, nil, nil},
		{"comes to hold", `objects.exists(o, o.data.value == "yes")`,
			func() { patch(t, writer, key(t, "configmap/"+ns+"/a"), "yes") }, nil},
		{"held for a moment before it was asked for", `objects.exists(o, o.data.value == "moment")`, nil, nil},
		{"does not hold", `objects.exists(o, o.data.value == "never")`, nil, []string{"invariant i: 1 objects"}},
		{"a field is missing", `objects.all(o, o.status.ready)`, nil, []string{"invariant i: 1 objects"}},
		{"cannot be evaluated", `objects.all(o, o.kind > 1)`, nil,
			[]string{"invariant i could never be evaluated: no such overload"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := start(t, writer, key(t, "configmap/"+ns+"/a"))
			time.Sleep(10 * time.Millisecond)
			from := time.Now()
			patch(t, writer, key(t, "configmap/"+ns+"/a"), "moment")
			patch(t, writer, key(t, "configmap/"+ns+"/a"), "no")
			if err := r.Sync(testContext(t)); err != nil {
				t.Fatal(err)
			}
			if test.write != nil {
				timer := time.AfterFunc(300*time.Millisecond, test.write)
				defer timer.Stop()
			}
			// What comes to hold has time enough on any machine, and what does not is waited for to the end.
			within := time.Minute
			if test.want != nil {
				within = 500 * time.Millisecond
			}
			i, err := invariant.Compile([]plan.Invariant{{Name: "i", Eventually: test.expr, Within: within,
				Message: `string(size(objects)) + " objects"`}})
			if err != nil {
				t.Fatal(err)
			}
			called := time.Now()
			var got []string
			for _, f := range wait(testContext(t), i, r, from) {
				got = append(got, f.Title)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if took := time.Since(called); (took >= within) != (test.want != nil) {
				t.Errorf("took %s of %s", took, within)
			}
		})
	}
	t.Run("its context ends", func(t *testing.T) {
		r := start(t, writer, key(t, "configmap/"+ns+"/a"))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		i, err := invariant.Compile([]plan.Invariant{{Name: "i", Eventually: "false", Within: time.Minute}})
		if err != nil {
			t.Fatal(err)
		}
		if f := wait(ctx, i, r, time.Now()); f != nil {
			t.Errorf("got %v", f)
		}
	})
}
