// Package history follows all objects of given types on a running cluster and records each state, in order. Judges
// examine the recording, not the cluster.
package history

import (
	"cmp"
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
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	// Further says whether a type is recorded, too, that begins to be served later and for which no key stands. Nil: it
	// is not.
	Further func(t objects.Type) bool
	// Served is called when a type begins to be served, or is defined anew, with the name of its cluster if there are
	// several. It has a goroutine of its own, for which Close waits after its context has ended. Nil: it is not needed.
	Served func(ctx context.Context, cluster string, t objects.Type)
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
	config  Config
	origins []*origin
	clock   *clock.Clock
	ctx     context.Context // ends with cancel
	cancel  context.CancelFunc
	done    sync.WaitGroup

	mu      sync.Mutex
	tracks  []*track                  // of the types that are served
	types   []objects.Type            // of the tracks so far
	found   map[plan.ResourceKey]bool // keys whose types were served at some time
	ready   bool                      // the keys have been looked up
	entries []record.HistoryEntry     // in the order of arrival; only appended to
	gaps    []string
	changed chan struct{} // closed when the next entry is added
}

// Start starts recording, by the clock of ctx, and returns when every type is listed. The recorder outlives ctx; Close
// or Stop ends it. A type that is not served has no objects: it is recorded from when a CustomResourceDefinition makes
// it served. For a type that seems to be misspelled, and on a cluster whose definitions the user may not list, Start
// returns an [objects.NotServedError].
func Start(ctx context.Context, c Config) (*Recorder, error) {
	r := &Recorder{
		config: c, clock: clock.Of(ctx), changed: make(chan struct{}), found: map[plan.ResourceKey]bool{},
	}
	r.ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if err := r.begin(ctx); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *Recorder) begin(ctx context.Context) error {
	sources := r.config.Clusters
	if sources == nil {
		sources = []Source{{Objects: r.config.Objects}}
	}
	for _, from := range sources {
		o := &origin{
			Source: from, recorder: r,
			stands: map[plan.ResourceKey]schema.GroupResource{}, postponed: map[string]string{},
		}
		r.origins = append(r.origins, o)
		if err := o.findDefinitions(ctx); err != nil {
			return fmt.Errorf("follow the definitions: %w", err)
		}
	}
	// Before the types are looked up: none must be overlooked that begins to be served meanwhile.
	for _, o := range r.origins {
		if o.definitions == nil {
			continue
		}
		r.start(o.definitions)
		if err := r.awaitList(ctx, o.definitions); err != nil {
			return fmt.Errorf("list the definitions: %w", err)
		}
	}
	var errs []error
	for _, key := range r.config.Keys {
		errs = append(errs, r.find(ctx, key))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	tracks := slices.Clone(r.tracks)
	for _, t := range tracks {
		r.start(t)
	}
	r.definePostponed()
	for _, t := range tracks {
		if err := r.awaitList(ctx, t); err != nil {
			return fmt.Errorf("list %s: %w", t.typ.Resource.Resource, err)
		}
	}
	return nil
}

// find adds what a key stands for now to what is recorded.
func (r *Recorder) find(ctx context.Context, key plan.ResourceKey) error {
	var missing []error
	follows := true
	for _, o := range r.origins {
		t, err := resolve(ctx, o.Objects, key)
		if errors.Is(err, objects.ErrNotServed) && o.definitions != nil {
			if defined, otherErr := o.defined(ctx, key); otherErr == nil {
				t, err = defined, nil
			}
		}
		if err != nil {
			missing = append(missing, err)
			follows = follows && o.definitions != nil && objects.MayCome(key, err)
			continue
		}
		r.mu.Lock()
		o.stands[key], r.found[key] = t.Resource.GroupResource(), true
		for _, k := range within(r.config.Namespaces, t, key) {
			r.follow(o.Source, t, k, len(r.config.Namespaces) > 0)
		}
		r.mu.Unlock()
	}
	if !notServed(missing) || len(missing) == len(r.origins) && !follows {
		return errors.Join(missing...)
	}
	return nil
}

// start begins to follow a track.
func (r *Recorder) start(t *track) {
	r.done.Go(func() {
		follower := objects.Follower(t)
		if t.of != nil {
			follower = definitionFollower{t, t.of}
		}
		for {
			_ = t.client.Follow(r.ctx, t.typeNow(), t.namespaceNow(), "", follower)
			r.mu.Lock()
			again := t.next != nil && !t.ended && r.ctx.Err() == nil
			if again {
				t.typ, t.next = *t.next, nil
			}
			r.mu.Unlock()
			if !again {
				return // it ends only with its context or its type
			}
		}
	})
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
// keys are in several. The caller holds the lock.
func (r *Recorder) follow(from Source, t objects.Type, key plan.ResourceKey, apart bool) {
	i := slices.IndexFunc(r.tracks, func(tr *track) bool {
		return tr.cluster == from.Cluster && tr.typ.Resource == t.Resource && (!apart || tr.namespace == key.Namespace)
	})
	if i < 0 {
		added := r.newTrack(from, t)
		added.namespace = key.Namespace
		r.tracks = append(r.tracks, added)
		r.types = append(r.types, t)
		i = len(r.tracks) - 1
	}
	tr := r.tracks[i]
	tr.keys = append(tr.keys, key)
	if tr.namespace != key.Namespace {
		tr.namespace = ""
	}
}

func (r *Recorder) newTrack(from Source, t objects.Type) *track {
	return &track{recorder: r, client: from.Objects, cluster: from.Cluster, typ: t, listed: make(chan struct{}),
		over: make(chan struct{}), state: map[string]*held{}}
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
// in that order, and those of different clusters in the order of their arrival. No entry has a later time than one
// after it in its cluster: a watch that was behind shows a change later than what was made after it.
func (r *Recorder) History() []record.HistoryEntry {
	r.mu.Lock()
	history := slices.Clone(r.entries)
	r.mu.Unlock()
	of := map[string][]record.HistoryEntry{}
	for _, e := range history {
		of[e.Cluster] = append(of[e.Cluster], e)
	}
	for _, entries := range of {
		slices.SortStableFunc(entries, ByVersion)
		for i := len(entries) - 2; i >= 0; i-- {
			if next := entries[i+1].Time; next.Before(entries[i].Time) {
				entries[i].Time = next
			}
		}
	}
	for i := range history {
		cluster := history[i].Cluster
		history[i], of[cluster] = of[cluster][0], of[cluster][1:]
	}
	return history
}

// ByVersion compares entries of one cluster by their resource versions.
func ByVersion(a, b record.HistoryEntry) int {
	return cmp.Compare(a.ResourceVersion, b.ResourceVersion)
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
	var definitions []*track
	for _, o := range r.origins {
		if o.definitions != nil {
			definitions = append(definitions, o.definitions)
		}
	}
	// They say which other types there are.
	if err := syncAll(ctx, definitions, false); err != nil {
		return err
	}
	r.mu.Lock()
	tracks := slices.Clone(r.tracks)
	r.mu.Unlock()
	return syncAll(ctx, tracks, untilQuiet)
}

func syncAll(ctx context.Context, tracks []*track, untilQuiet bool) error {
	errs := make(chan error)
	for _, t := range tracks {
		go func() { errs <- t.sync(ctx, untilQuiet) }()
	}
	var all []error
	for range tracks {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// add appends an entry. The caller holds the lock.
func (r *Recorder) add(e record.HistoryEntry) {
	r.entries = append(r.entries, e)
	r.wake()
}

// wake says that something has changed. The caller holds the lock.
func (r *Recorder) wake() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// track records one type. The recorder's lock guards its fields from typ on.
type track struct {
	recorder *Recorder
	client   *objects.Client
	cluster  string        // of several; empty: there is only one
	of       *origin       // whose definitions the track follows, without recording them; nil: it records a type
	listed   chan struct{} // closed after the first list
	over     chan struct{} // closed when the type is not served any more, see end

	typ       objects.Type
	namespace string // of all keys; empty: all namespaces
	keys      []plan.ResourceKey
	next      *objects.Type // another version that is served instead of typ
	ending    uint64        // the version at which the type's definition was deleted; 0: it was not
	ended     bool

	began     bool             // the objects at the beginning are known; there are none if the type was not served
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

func (t *track) typeNow() objects.Type {
	t.recorder.mu.Lock()
	defer t.recorder.mu.Unlock()
	return t.typ
}

func (t *track) namespaceNow() string {
	t.recorder.mu.Lock()
	defer t.recorder.mu.Unlock()
	return t.namespace
}

// wanted reports whether a key stands for an object of the type. The caller holds the lock.
func (t *track) wanted(u *unstructured.Unstructured) bool {
	return t.of != nil || slices.ContainsFunc(t.keys, func(k plan.ResourceKey) bool {
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
	if t.ended {
		return true
	}
	t.broken = nil
	select {
	case <-t.listed:
	default:
		defer close(t.listed)
	}
	if !began {
		t.began = true
		for _, u := range all {
			t.take(record.Existing, u)
		}
		t.version = listVersion
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
		list, err := t.client.Resource(t.typeNow(), t.namespaceNow()).List(r.ctx, metav1.ListOptions{
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
	if t.ended {
		return true
	}
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
	switch {
	case !objects.NotServedYet(err):
		return false
	case t.next != nil:
		return true
	case t.ending > 0:
		t.end()
		return true
	}
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
	if t.of != nil {
		t.recorder.wake()
		return
	}
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

// list lists the objects now; nil: the type is not served any more.
func (t *track) list(ctx context.Context) (list *unstructured.UnstructuredList, err error) {
	began := t.recorder.clock.Now()
	for {
		err = objects.Retry(ctx, func(ctx context.Context) error {
			list, err = t.client.Resource(t.typeNow(), t.namespaceNow()).List(ctx, metav1.ListOptions{})
			return err
		})
		if !objects.NotServedYet(err) {
			return list, err
		}
		// The type is about to be served, or its watch is about to end.
		t.recorder.mu.Lock()
		if t.ending > 0 && t.recorder.clock.Since(began) > maxQuiet {
			t.end()
		}
		t.recorder.mu.Unlock()
		timer := t.recorder.clock.NewTimer(listAgain)
		select {
		case <-t.over:
			timer.Stop()
			return nil, nil
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, err
		}
	}
}

// listAgain is how long a type that is not served is left alone.
const listAgain = 50 * time.Millisecond

func (t *track) sync(ctx context.Context, untilQuiet bool) error {
	r := t.recorder
	list, err := t.list(ctx)
	if err != nil {
		return fmt.Errorf("list %s: %w", t.typeNow().Resource.Resource, err)
	}
	if list == nil {
		return nil
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
		case <-t.over:
			timer.Stop()
			return nil
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
