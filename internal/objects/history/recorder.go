// Package history follows all objects of given types on a running cluster and records each state, in order. Judges
// examine the recording, not the cluster.
package history

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

const (
	// syncTimeout limits Sync and Seen, and thereby Stop.
	syncTimeout = 20 * time.Second
	// quiet is how long no event must arrive before a watch counts as drained; see Sync.
	quiet = 150 * time.Millisecond
	// maxQuiet limits how long Sync waits for quiet, for types that are written continuously.
	maxQuiet = time.Second
)

// Config defines what to record.
type Config struct {
	// Objects is a client of the API server to watch: one that the plan does not touch. A Recorder survives a restart
	// of its API server, but states that came and went meanwhile may be missing, see Gaps.
	Objects *objects.Client
	Keys    []plan.ResourceKey
	// Clusters are several clusters to watch, in order, instead of one. A type need not be served in all of them.
	Clusters []Source
	// Namespaces are the only ones whose objects are recorded; each is watched by itself, since the user may not be
	// allowed to watch all at once. Empty: all.
	Namespaces []string
}

// Source is a cluster of several, and a client of it as in Config.
type Source struct {
	Cluster string
	Objects *objects.Client
}

// Recorder records every state of the objects that its keys stand for, but for renewals of leases. It replaces their
// managed fields by who wrote the state. It is safe for concurrent use.
type Recorder struct {
	tracks []*track
	clock  *clock.Clock
	ctx    context.Context // ends with cancel
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	entries []record.HistoryEntry // in the order of arrival; only appended to
	gaps    []string
	changed chan struct{} // closed when the next entry is added
}

// Start starts recording, by the clock of ctx, and returns when every type is listed. The recorder outlives ctx; Close
// or Stop ends it. For a type that the cluster does not serve it returns an [objects.NotServedError].
func Start(ctx context.Context, c Config) (*Recorder, error) {
	r := &Recorder{clock: clock.Of(ctx), changed: make(chan struct{})}
	sources := c.Clusters
	if sources == nil {
		sources = []Source{{Objects: c.Objects}}
	}
	var errs []error
	for _, key := range c.Keys {
		var missing []error
		for _, from := range sources {
			t, err := resolve(ctx, from.Objects, key)
			if err != nil {
				missing = append(missing, err)
				continue
			}
			for _, k := range within(c.Namespaces, t, key) {
				r.follow(from, t, k, len(c.Namespaces) > 0)
			}
		}
		if len(missing) == len(sources) || !notServed(missing) {
			errs = append(errs, missing...)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	follow, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r.ctx, r.cancel = follow, cancel
	for _, t := range r.tracks {
		r.done.Add(1)
		go func() {
			defer r.done.Done()
			_ = t.client.Follow(follow, t.typ, t.namespace, "", t) // ends only with its context
		}()
	}
	for _, t := range r.tracks {
		if err := r.awaitList(ctx, t); err != nil {
			r.Close()
			return nil, fmt.Errorf("list %s: %w", t.typ.Resource.Resource, err)
		}
	}
	return r, nil
}

// awaitList waits until a track has listed its type. It is an error if the user may not.
func (r *Recorder) awaitList(ctx context.Context, t *track) error {
	// The rights of a user that has just been made come after a moment.
	refused := time.NewTicker(refusedAfter)
	defer refused.Stop()
	for {
		select {
		case <-t.listed:
			return nil
		case <-refused.C:
			if err := r.trouble(t); apierrors.IsForbidden(err) {
				return err
			}
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), r.trouble(t))
		}
	}
}

// refusedAfter is for how long what is forbidden is tried again.
const refusedAfter = 3 * time.Second

// within is the key in each of the namespaces, if it is one of all namespaces.
func within(namespaces []string, t objects.Type, key plan.ResourceKey) []plan.ResourceKey {
	if len(namespaces) == 0 || !t.Namespaced || key.Namespace != "" && key.Namespace != "*" {
		return []plan.ResourceKey{key}
	}
	var all []plan.ResourceKey
	for _, ns := range namespaces {
		key.Namespace = ns
		all = append(all, key)
	}
	return all
}

// notServed reports whether all errors say that a type is not served.
func notServed(errs []error) bool {
	return !slices.ContainsFunc(errs, func(err error) bool { return !errors.Is(err, objects.ErrNotServed) })
}

// follow adds a key of a type to what is recorded of a cluster: each namespace by itself, or all in one watch if the
// keys are in several.
func (r *Recorder) follow(from Source, t objects.Type, key plan.ResourceKey, apart bool) {
	i := slices.IndexFunc(r.tracks, func(tr *track) bool {
		return tr.cluster == from.Cluster && tr.typ.Resource == t.Resource && (!apart || tr.namespace == key.Namespace)
	})
	if i < 0 {
		r.tracks = append(r.tracks, &track{recorder: r, client: from.Objects, cluster: from.Cluster, typ: t,
			namespace: key.Namespace, listed: make(chan struct{}), state: map[string]*held{}})
		i = len(r.tracks) - 1
	}
	tr := r.tracks[i]
	tr.keys = append(tr.keys, key)
	if tr.namespace != key.Namespace {
		tr.namespace = ""
	}
}

func resolve(ctx context.Context, client *objects.Client, key plan.ResourceKey) (t objects.Type, err error) {
	err = objects.Retry(ctx, func(ctx context.Context) error {
		t, err = client.Resolve(ctx, key)
		return err
	})
	return t, err
}

func (r *Recorder) trouble(t *track) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return t.broken
}

// Close ends the recording and keeps what was recorded. Further calls are no-ops.
func (r *Recorder) Close() {
	r.cancel()
	r.done.Wait()
}

// Stop ends the recording and returns the history, see History. It includes everything that was written
// before the call, see Sync. With an error it returns what was recorded.
func (r *Recorder) Stop(ctx context.Context) ([]record.HistoryEntry, error) {
	err := r.Sync(ctx)
	r.Close()
	history := r.History()
	if err != nil {
		return history, fmt.Errorf("the end of the history may be missing: %w", err)
	}
	return history, nil
}

// History returns what was recorded so far, ordered by resource version. With several clusters, the entries of each are
// in that order, and those of different clusters in the order of their arrival.
func (r *Recorder) History() []record.HistoryEntry {
	r.mu.Lock()
	history := slices.Clone(r.entries)
	r.mu.Unlock()
	of := map[string][]record.HistoryEntry{}
	for _, e := range history {
		of[e.Cluster] = append(of[e.Cluster], e)
	}
	for _, entries := range of {
		sortByVersion(entries)
	}
	for i := range history {
		cluster := history[i].Cluster
		history[i], of[cluster] = of[cluster][0], of[cluster][1:]
	}
	return history
}

func sortByVersion(history []record.HistoryEntry) {
	slices.SortStableFunc(history, func(a, b record.HistoryEntry) int {
		switch {
		case a.ResourceVersion < b.ResourceVersion:
			return -1
		case a.ResourceVersion > b.ResourceVersion:
			return 1
		}
		return 0
	})
}

// Gaps returns, one line each, where states may be missing because the API server no longer knew what had happened
// while the recorder was disconnected.
func (r *Recorder) Gaps() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.gaps)
}

// Since returns the entries from index n on and a channel that is closed when there are more.
func (r *Recorder) Since(n int) ([]record.HistoryEntry, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.entries[n:len(r.entries):len(r.entries)], r.changed
}

// Sync blocks until everything is recorded that was written before the call, see Seen. Then it waits until the watch
// has been quiet for a moment, for objects that were created and deleted meanwhile and are in no list.
func (r *Recorder) Sync(ctx context.Context) error { return r.sync(ctx, true) }

// Seen blocks until the recorder knows the state in which the objects were at the call, or a newer one: it lists all of
// every type and waits until the watch has delivered it.
func (r *Recorder) Seen(ctx context.Context) error { return r.sync(ctx, false) }

func (r *Recorder) sync(ctx context.Context, untilQuiet bool) error {
	release := r.clock.Hold() // events need time of the machine until they are here
	defer release()
	ctx, cancel := clock.WithTimeoutCause(ctx, syncTimeout, fmt.Errorf("not within %s", syncTimeout))
	defer cancel()
	errs := make(chan error)
	for _, t := range r.tracks {
		go func() { errs <- t.sync(ctx, untilQuiet) }()
	}
	var all []error
	for range r.tracks {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// add appends an entry. The caller holds the lock.
func (r *Recorder) add(e record.HistoryEntry) {
	r.entries = append(r.entries, e)
	close(r.changed)
	r.changed = make(chan struct{})
}

// track records one type. The recorder's lock guards its fields from began on.
type track struct {
	recorder  *Recorder
	client    *objects.Client
	cluster   string // of several; empty: there is only one
	typ       objects.Type
	namespace string // of all keys; empty: all namespaces
	keys      []plan.ResourceKey
	listed    chan struct{} // closed after the first list

	began     bool
	state     map[string]*held // by namespace/name
	version   string           // of the newest list or event
	lastEvent time.Time
	broken    error
	awaited   []*missing // by calls of sync
}

// held is the newest state of an object.
type held struct {
	namespace, name string
	uid             string
	version         uint64
	deleted         bool // kept to recognize a list that is older than the deletion
	object          []byte
	managed         []metav1.ManagedFieldsEntry
	writers         []record.FieldManager
}

func (t *track) wanted(u *unstructured.Unstructured) bool {
	return slices.ContainsFunc(t.keys, func(k plan.ResourceKey) bool {
		return t.typ.Matches(k, u.GetNamespace(), u.GetName())
	})
}

// Listed implements objects.Follower.
func (t *track) Listed(all []*unstructured.Unstructured, listVersion string) bool {
	r := t.recorder
	r.mu.Lock()
	began := t.began
	r.mu.Unlock()
	if began {
		t.fill(metadata.ParseVersion(listVersion))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t.broken = nil
	if !began {
		t.began = true
		for _, u := range all {
			t.take(record.Existing, u)
		}
		t.version = listVersion
		close(t.listed)
		return false
	}
	if next := metadata.ParseVersion(t.version) + 1; next < metadata.ParseVersion(listVersion) {
		r.gaps = append(r.gaps, fmt.Sprintf("%s: states between the resource versions %s and %s",
			t.typ.Resource.Resource, t.version, listVersion))
	}
	t.relisted(all, listVersion)
	return false
}

// fillMost is how many versions are listed one by one, at most: each takes a millisecond or two.
const fillMost = 2000

// fill lists the objects as they were at each version between the newest event and a list: an API server whose watch
// cache begins anew, as when a definition changes, does not deliver what happened before, but its storage still has it.
// It stops at the first version that the storage does not have any more.
func (t *track) fill(to uint64) {
	r := t.recorder
	defer r.clock.Hold()()
	next := metadata.ParseVersion(t.version) + 1 // only the caller's goroutine changes it
	if to-next > fillMost {
		return
	}
	for ; next < to; next++ {
		version := strconv.FormatUint(next, 10)
		list, err := t.client.Resource(t.typ, t.namespace).List(r.ctx, metav1.ListOptions{
			ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchExact,
		})
		if err != nil {
			return
		}
		all := make([]*unstructured.Unstructured, len(list.Items))
		for i := range list.Items {
			all[i] = &list.Items[i]
		}
		r.mu.Lock()
		t.relisted(all, version)
		r.mu.Unlock()
	}
}

// relisted records what is different in a list. The caller holds the lock.
func (t *track) relisted(all []*unstructured.Unstructured, listVersion string) {
	t.version = listVersion
	seen := map[string]bool{}
	for _, u := range all {
		seen[u.GetNamespace()+"/"+u.GetName()] = true
	}
	var ids []string
	for id, h := range t.state {
		if !h.deleted && !seen[id] {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		t.gone(t.state[id], metadata.ParseVersion(listVersion))
	}
	for _, u := range all {
		h := t.state[u.GetNamespace()+"/"+u.GetName()]
		switch {
		case h == nil || h.deleted:
			t.take(record.Created, u)
		case h.uid != string(u.GetUID()):
			t.gone(h, metadata.ParseVersion(u.GetResourceVersion()))
			t.take(record.Created, u)
		case h.version < metadata.ParseVersion(u.GetResourceVersion()):
			t.take(record.Updated, u)
		}
	}
}

// Changed implements objects.Follower.
func (t *track) Changed(event watch.EventType, u *unstructured.Unstructured) bool {
	t.recorder.mu.Lock()
	defer t.recorder.mu.Unlock()
	t.broken = nil
	t.version = u.GetResourceVersion()
	h := t.state[u.GetNamespace()+"/"+u.GetName()]
	known := h != nil && !h.deleted
	if h != nil && h.version >= metadata.ParseVersion(u.GetResourceVersion()) {
		return false
	}
	switch {
	case event == watch.Deleted:
		t.take(record.Deleted, u)
	case known && h.uid == string(u.GetUID()):
		t.take(record.Updated, u)
	default:
		t.take(record.Created, u)
	}
	return false
}

// Broken implements objects.Follower.
func (t *track) Broken(err error) bool {
	t.recorder.mu.Lock()
	defer t.recorder.mu.Unlock()
	t.broken = err
	return false
}

// take records a state if a key stands for the object. The caller holds the lock.
func (t *track) take(event string, u *unstructured.Unstructured) {
	if !t.wanted(u) {
		return
	}
	managed := u.GetManagedFields()
	u.SetManagedFields(nil)
	object, err := u.MarshalJSON()
	if err != nil {
		t.broken = err
		return
	}
	id := u.GetNamespace() + "/" + u.GetName()
	var before held
	if h := t.state[id]; h != nil && !h.deleted && h.uid == string(u.GetUID()) {
		before = *h
	}
	h := &held{
		namespace: u.GetNamespace(), name: u.GetName(), uid: string(u.GetUID()),
		version: metadata.ParseVersion(u.GetResourceVersion()), managed: managed,
		writers: writers(before.managed, managed, before.object, object), deleted: event == record.Deleted,
		object: slices.Clip(trimNewline(object)),
	}
	t.state[id] = h
	if !t.renews(before.object, u) {
		t.add(event, h)
	}
	t.arrived(id)
}

// gone records a deletion that the watch did not deliver. The caller holds the lock.
func (t *track) gone(h *held, at uint64) {
	h.version, h.deleted, h.writers = at, true, nil
	t.add(record.Deleted, h)
	t.arrived(h.namespace + "/" + h.name)
}

func (t *track) add(event string, h *held) {
	t.lastEvent = t.recorder.clock.Now()
	t.recorder.add(record.HistoryEntry{
		Time: t.lastEvent, Cluster: t.cluster, ResourceVersion: h.version, Event: event, Type: t.typ.Singular,
		Group:     t.typ.Resource.Group,
		Namespace: h.namespace, Name: h.name, Writers: h.writers, Object: h.object,
	})
}

func trimNewline(b []byte) []byte {
	for len(b) > 0 && b[len(b)-1] == '\n' {
		b = b[:len(b)-1]
	}
	return b
}

func (t *track) sync(ctx context.Context, untilQuiet bool) error {
	r := t.recorder
	var list *unstructured.UnstructuredList
	err := objects.Retry(ctx, func(ctx context.Context) error {
		var err error
		list, err = t.client.Resource(t.typ, t.namespace).List(ctx, metav1.ListOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("list %s: %w", t.typ.Resource.Resource, err)
	}
	listedAt := r.clock.Now()
	r.mu.Lock()
	missed := t.await(list)
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		t.awaited = slices.DeleteFunc(t.awaited, func(m *missing) bool { return m == missed })
	}()
	for {
		r.mu.Lock()
		changed, complete, broken := r.changed, len(missed.lacking) == 0, t.broken
		last := t.lastEvent
		r.mu.Unlock()
		wait := syncTimeout
		if complete && !untilQuiet {
			return nil
		}
		if complete {
			if last.Before(listedAt) {
				last = listedAt
			}
			wait = min(r.clock.Until(last.Add(quiet)), r.clock.Until(listedAt.Add(maxQuiet)))
			if wait <= 0 {
				return nil
			}
		}
		timer := r.clock.NewTimer(wait)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			if complete {
				return nil
			}
			r.mu.Lock()
			first := missed.first()
			r.mu.Unlock()
			return errors.Join(fmt.Errorf("the watch of %s has not delivered %s: %w", t.typ.Resource.Resource, first,
				context.Cause(ctx)), broken)
		}
		timer.Stop()
	}
}
