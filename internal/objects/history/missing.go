package history

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/internal/metadata"
)

// missing is what a list shows and the recording lacks. The recorder's lock guards it.
type missing struct {
	version uint64            // of the list
	listed  map[string]uint64 // versions of the objects in the list, by namespace/name
	lacking map[string]bool   // objects whose newest state, or whose deletion, has not arrived
}

// await returns what a list shows and the recording lacks, and keeps it up to date. The caller holds the lock.
func (t *track) await(list *unstructured.UnstructuredList) *missing {
	m := &missing{
		version: metadata.ParseVersion(list.GetResourceVersion()),
		listed:  map[string]uint64{}, lacking: map[string]bool{},
	}
	for i := range list.Items {
		if u := &list.Items[i]; t.wanted(u) {
			m.listed[u.GetNamespace()+"/"+u.GetName()] = metadata.ParseVersion(u.GetResourceVersion())
		}
	}
	for id := range m.listed {
		m.look(id, t.state[id])
	}
	for id, h := range t.state {
		m.look(id, h)
	}
	t.awaited = append(t.awaited, m)
	return m
}

// arrived notes that an object has another state. The caller holds the lock.
func (t *track) arrived(id string) {
	for _, m := range t.awaited {
		m.look(id, t.state[id])
	}
}

// look compares an object with the list. Its state is nil if none is recorded.
func (m *missing) look(id string, h *held) {
	version, listed := m.listed[id]
	lacks := h != nil && !h.deleted && h.version <= m.version
	if listed {
		lacks = h == nil || h.version < version
	}
	if lacks {
		m.lacking[id] = true
	} else {
		delete(m.lacking, id)
	}
}

// first describes something that is missing, or returns "".
func (m *missing) first() string {
	if len(m.lacking) == 0 {
		return ""
	}
	id := slices.Min(slices.Collect(maps.Keys(m.lacking)))
	if _, listed := m.listed[id]; listed {
		return "the state of " + id
	}
	return "the deletion of " + id
}
