package history

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/plan"
)

func secret(name string, version int) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret"}}
	u.SetNamespace("default")
	u.SetName(name)
	u.SetUID(types.UID(name))
	u.SetResourceVersion(strconv.Itoa(version))
	return u
}

func secrets(t testing.TB) *track {
	t.Helper()
	r := &Recorder{clock: clock.New(), changed: make(chan struct{})}
	typ := objects.Type{Resource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, Singular: "secret"}
	return &track{
		recorder: r, typ: typ, listed: make(chan struct{}), state: map[string]*held{},
		keys: []plan.ResourceKey{{Type: "secret", Namespace: "*", Name: "*"}},
	}
}

func listOf(version int, all ...*unstructured.Unstructured) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetResourceVersion(strconv.Itoa(version))
	for _, u := range all {
		list.Items = append(list.Items, *u)
	}
	return list
}

// What a list shows and the watch has not delivered is known without looking at the list again.
func TestMissing(t *testing.T) {
	tr := secrets(t)
	tr.Listed([]*unstructured.Unstructured{secret("kept", 1), secret("gone", 2)}, "2")
	m := tr.await(listOf(7, secret("kept", 5), secret("new", 6)))
	for _, step := range []struct {
		event watch.EventType
		u     *unstructured.Unstructured
		want  string // what is missing after it
	}{
		{watch.Modified, secret("kept", 3), "the deletion of default/gone"},
		{watch.Deleted, secret("gone", 4), "the state of default/kept"},
		{watch.Modified, secret("kept", 5), "the state of default/new"},
		{watch.Added, secret("short-lived", 6), "the state of default/new"},
		{watch.Added, secret("new", 6), "the deletion of default/short-lived"},
		{watch.Deleted, secret("short-lived", 7), ""},
		{watch.Added, secret("later", 8), ""},
	} {
		tr.Changed(step.event, step.u)
		if got := m.first(); got != step.want {
			t.Errorf("after %s %s: %q, want %q", step.event, step.u.GetName(), got, step.want)
		}
	}
}

// Regression: each event compared a whole list with the recording.
func TestMissingOfManyObjects(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds if it is wrong")
	}
	const objects = 20000
	tr := secrets(t)
	all := make([]*unstructured.Unstructured, objects)
	for i := range all {
		all[i] = secret(fmt.Sprintf("s-%d", i), objects+i+1)
	}
	m := tr.await(listOf(2*objects, all...))
	began := time.Now()
	for _, u := range all {
		tr.Changed(watch.Added, u)
	}
	if took := time.Since(began); len(m.lacking) > 0 || took > 10*time.Second {
		t.Errorf("%d are missing after %s", len(m.lacking), took)
	}
}
