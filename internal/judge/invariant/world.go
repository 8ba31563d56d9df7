package invariant

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/json"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// world holds the objects at one moment of the history, ordered by their keys.
type world struct {
	keys    []string
	objects []any
}

// worlds are the worlds of several clusters, by name; if there is only one, it has no name.
type worlds map[string]*world

func (w worlds) of(cluster string) *world {
	if w[cluster] == nil {
		w[cluster] = &world{}
	}
	return w[cluster]
}

// variables adds to the variables of an expression what there is: the objects of its cluster, and of each.
func (w worlds) variables(cluster string, all map[string]any) map[string]any {
	clusters := map[string]any{}
	for name, world := range w {
		if name != "" {
			clusters[name] = world.objects
		}
	}
	all["objects"], all["clusters"] = w.of(cluster).objects, clusters
	return all
}

// objectKey returns the resource key of an entry's object, with its cluster if there are several.
func objectKey(e *record.HistoryEntry) string {
	return record.In(e.Cluster, plan.ResourceKey{Type: e.Type, Namespace: e.Namespace, Name: e.Name}.String())
}

// step applies an entry and returns the object's states after and before it; old is nil if there was none.
func (w *world) step(e *record.HistoryEntry) (object, old any, err error) {
	m := map[string]any{}
	if err := json.Unmarshal(e.Object, &m); err != nil {
		return nil, nil, fmt.Errorf("history: %s at resource version %d: %w", objectKey(e), e.ResourceVersion, err)
	}
	key := strings.Join([]string{e.Group, e.Type, e.Namespace, e.Name}, "/")
	at, found := slices.BinarySearch(w.keys, key)
	if found {
		old = w.objects[at]
	}
	switch {
	case e.Event == record.Deleted && found:
		w.keys = slices.Delete(w.keys, at, at+1)
		w.objects = slices.Delete(w.objects, at, at+1)
	case e.Event == record.Deleted:
	case found:
		w.objects[at] = m
	default:
		w.keys = slices.Insert(w.keys, at, key)
		w.objects = slices.Insert(w.objects, at, any(m))
	}
	if e.Event == record.Created {
		old = nil
	}
	return m, old, nil
}

// counts returns the number of objects of each type, as text.
func (w *world) counts() string {
	var kinds []string
	number := map[string]int{}
	for _, key := range w.keys {
		kind := strings.Split(key, "/")[1]
		if number[kind] == 0 {
			kinds = append(kinds, kind)
		}
		number[kind]++
	}
	if len(kinds) == 0 {
		return "none"
	}
	slices.Sort(kinds)
	for i, k := range kinds {
		kinds[i] = fmt.Sprintf("%d %s", number[k], k)
	}
	return strings.Join(kinds, ", ")
}
