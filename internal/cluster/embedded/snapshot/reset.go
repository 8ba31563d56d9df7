package snapshot

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/cluster"
)

// pollInterval is the interval of checks where nothing can be watched.
const pollInterval = 15 * time.Millisecond

const (
	// calm is how long nothing may be written until a cluster counts as settled.
	calm = 100 * time.Millisecond
	// restTimeout bounds the wait for a cluster to settle.
	restTimeout = 10 * time.Second
	// resetTimeout bounds a reset. It takes a second, but much longer on a machine that is busy with other things.
	resetTimeout = time.Minute
	// lookEvery is the interval at which a reset compares etcd with the snapshot.
	lookEvery = 15 * time.Millisecond
	// QuietOwn is the minimum time without a difference before a reset is complete: a write that a
	// controller had started before the reset arrives within this time. A shared cluster gets more, because it is not
	// checked again before the next run.
	QuietOwn = 60 * time.Millisecond
	// QuietShared is that of a shared cluster.
	QuietShared = 250 * time.Millisecond
	maxQuiet    = time.Second
	// deletersPatience is how long a reset waits for API servers that were deleting the objects of a definition when
	// it was restored. One that has deleted them waits a minute for their absence, and does no harm.
	deletersPatience = 3 * time.Second
)

// Resetter resets a cluster to a snapshot, whether this process runs the cluster or another one does.
type Resetter struct {
	Cluster Cluster
	Socket  string        // of etcd
	Quiet   time.Duration // QuietOwn or QuietShared
}

// Cluster is the cluster that is reset.
type Cluster interface {
	Name() string
	APIServers() []string
	Running(ctx context.Context) (map[string]bool, error)
	StartAPIServer(ctx context.Context, name string) error
	RESTConfig(apiServer string) (*rest.Config, error)
	Processes() cluster.ProcessNode
}

// Take waits until the cluster has settled and records its state.
func (r Resetter) Take(ctx context.Context) (cluster.Snapshot, error) {
	store := newStore(r.Socket)
	defer store.close()
	if err := r.awaitPods(ctx); err != nil {
		return nil, restless(r.Cluster.Name(), nil, err)
	}
	ctx, cancel := clock.WithTimeout(ctx, restTimeout)
	defer cancel()
	var before map[string]int64
	var changing []string
	for {
		keys, _, err := store.list(ctx, registryPrefix, true)
		if err != nil {
			return nil, restless(r.Cluster.Name(), changing, err)
		}
		now := revisions(keys)
		if before != nil {
			differ := changed(before, now)
			if len(differ) == 0 {
				return r.noteSnapshot(ctx, store, now)
			}
			changing = differ
		}
		before = now
		if clock.Sleep(ctx, calm) != nil {
			return nil, restless(r.Cluster.Name(), changing, ctx.Err())
		}
	}
}

// noteSnapshot records the state of a cluster that has settled.
func (r Resetter) noteSnapshot(ctx context.Context, store *store, calm map[string]int64) (cluster.Snapshot, error) {
	keys, revision, err := store.list(ctx, registryPrefix, false)
	if err != nil {
		return nil, fmt.Errorf("record the state of cluster %q: %w", r.Cluster.Name(), err)
	}
	if differ := changed(calm, revisions(keys)); len(differ) > 0 {
		return r.Take(ctx)
	}
	running, err := r.Cluster.Running(ctx)
	if err != nil {
		return nil, err
	}
	servers := slices.DeleteFunc(r.Cluster.APIServers(), func(name string) bool { return !running[name] })
	return newSnapshot(keys, revision, servers), nil
}

// WithCertificates returns the snapshot with the certificates that the cluster has now.
func (r Resetter) WithCertificates(ctx context.Context, of cluster.Snapshot) (cluster.Snapshot, error) {
	b, err := r.own(of)
	if err != nil {
		return nil, err
	}
	store := newStore(r.Socket)
	defer store.close()
	keys, _, err := store.list(ctx, registryPrefix, false)
	if err != nil {
		return nil, fmt.Errorf("record the certificates of cluster %q: %w", r.Cluster.Name(), err)
	}
	return b.withCertificates(keys), nil
}

// own is the snapshot if this kind of cluster has taken it.
func (r Resetter) own(b cluster.Snapshot) (*snapshot, error) {
	own, ok := b.(*snapshot)
	if !ok {
		return nil, fmt.Errorf("cluster %q: the snapshot is of another kind of cluster", r.Cluster.Name())
	}
	return own, nil
}

func restless(name string, changing []string, err error) error {
	if len(changing) == 0 {
		return fmt.Errorf("record the state of cluster %q: %w", name, err)
	}
	return fmt.Errorf("cluster %q did not settle within %s, so its state cannot be recorded and restored later; "+
		"still changing: %s", name, restTimeout, listed(changing))
}

// listed returns the names of the first few objects.
func listed(keys []string) string {
	const few = 5
	var names []string
	for _, k := range keys[:min(few, len(keys))] {
		names = append(names, strings.TrimPrefix(k, registryPrefix))
	}
	if len(keys) > few {
		names = append(names, fmt.Sprintf("and %d more", len(keys)-few))
	}
	return strings.Join(names, ", ")
}

// revisions returns the revisions of the keys that belong in a snapshot.
func revisions(keys []keyValue) map[string]int64 {
	all := map[string]int64{}
	for _, kv := range keys {
		switch roleOf(string(kv.Key)) {
		case restored:
			all[string(kv.Key)] = kv.ModRevision
		case present:
			all[string(kv.Key)] = kv.CreateRevision
		}
	}
	return all
}

// changed lists, sorted, the keys that are only in one of the maps or have different revisions.
func changed(x, y map[string]int64) []string {
	var keys []string
	for k, revision := range x {
		if y[k] != revision {
			keys = append(keys, k)
		}
	}
	for k := range y {
		if _, ok := x[k]; !ok {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

// CheckAppliedSince returns an error if a person has created objects after the revision: they do not belong to a run,
// and a reset would delete them.
func (r Resetter) CheckAppliedSince(ctx context.Context, to cluster.Snapshot, revision int64) error {
	b, err := r.own(to)
	if err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	store := newStore(r.Socket)
	defer store.close()
	keys, _, err := store.list(ctx, registryPrefix, false)
	if err != nil {
		return err
	}
	if made := b.appliedSince(keys, revision); len(made) > 0 {
		return fmt.Errorf("objects have been applied to cluster %q since a run was killed, and a reset would delete "+
			"them: %s. Delete them, or restart the cluster", r.Cluster.Name(), listed(made))
	}
	return nil
}

// Reset resets the cluster to the snapshot.
func (r Resetter) Reset(ctx context.Context, to cluster.Snapshot) error {
	b, ok := to.(*snapshot)
	if !ok {
		return fmt.Errorf("reset cluster %q: its snapshot is of another kind of cluster", r.Cluster.Name())
	}
	ctx, cancel := clock.WithTimeoutCause(ctx, resetTimeout, fmt.Errorf("not complete after %s", resetTimeout))
	defer cancel()
	if err := r.carryOut(ctx, b); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		return fmt.Errorf("reset cluster %q: %w", r.Cluster.Name(), err)
	}
	return nil
}

func (r Resetter) carryOut(ctx context.Context, b *snapshot) error {
	if err := r.stopPods(ctx, b); err != nil {
		return err
	}
	if err := r.startAPIServers(ctx, b); err != nil {
		return err
	}
	store := newStore(r.Socket)
	defer store.close()
	definitions := map[string][]byte{}
	var differs []string
	var slowest time.Duration // list
	var first, last time.Time // write; zero: none
	var revision int64        // when the reset began
	var deleters bool         // of objects of a restored definition or namespace may be at work
	for start := clock.Now(ctx); ; {
		began := clock.Now(ctx)
		now, at, err := store.list(ctx, registryPrefix, true)
		if err != nil {
			return differing(err, differs)
		}
		revision = cmp.Or(revision, at)
		slowest = max(slowest, clock.Since(ctx, began))
		changes, events := b.diff(now, revision)
		if changes, err = withoutAvailability(ctx, store, b, changes); err != nil {
			return differing(err, differs)
		}
		for _, c := range changes {
			if name, ok := strings.CutPrefix(c.key, definitionsPrefix); ok {
				definitions[name] = c.value
			}
		}
		if err := write(ctx, store, b, changes, events); err != nil {
			return differing(err, differs)
		}
		if len(changes) > 0 {
			last = clock.Now(ctx)
			if first.IsZero() {
				first = last
			}
			differs = differs[:0]
			for _, c := range changes {
				differs = append(differs, c.key)
			}
			deleters = deleters || slices.ContainsFunc(changes, restoresContainer)
		} else if quiet := clock.Since(ctx, later(start, last)); !deleters {
			if quiet >= quietFor(r.Quiet, slowest, last.Sub(first)) {
				break
			}
		} else if quiet >= maxQuiet {
			// One more look at etcd follows: a deleter may have been at work since the last one.
			busy, err := r.definitionsDeleted(ctx)
			if err != nil {
				return err
			}
			deleters = busy && quiet < deletersPatience
		}
		if clock.Sleep(ctx, lookEvery) != nil {
			return differing(ctx.Err(), differs)
		}
	}
	// A controller may have created a pod after the first stop, before its Deployment was restored.
	if err := r.stopPods(ctx, b); err != nil {
		return err
	}
	return r.awaitDefinitions(ctx, definitions)
}

// quietFor returns how long nothing may differ until a reset is complete: at least `least`, longer on a busy machine,
// which shows in slow requests to etcd, and as long as the controllers had been reverting changes.
func quietFor(least, slowestLook, fight time.Duration) time.Duration {
	return min(max(least, 8*slowestLook, fight), maxQuiet)
}

func later(x, y time.Time) time.Time {
	if x.After(y) {
		return x
	}
	return y
}

func differing(err error, keys []string) error {
	if len(keys) == 0 {
		return err
	}
	return fmt.Errorf("%w; last restored: %s", err, listed(keys))
}

// writeAtOnce bounds the number of concurrent transactions.
const writeAtOnce = 8

// write applies changes: first the transaction that stops what creates other objects, then the rest concurrently.
func write(ctx context.Context, store *store, b *snapshot, changes []keyChange, events []change) error {
	all := transactions(changes)
	first := min(1, len(all))
	all = append(all, chunks(events)...)
	revisions := make([]int64, len(all))
	for _, part := range [][2]int{{0, first}, {first, len(all)}} {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(writeAtOnce)
		for i := part[0]; i < part[1]; i++ {
			group.Go(func() (err error) {
				revisions[i], err = store.apply(ctx, all[i])
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	for i, txn := range all {
		b.done(txn, revisions[i])
	}
	return nil
}

// chunks splits changes of events, whose order does not matter, into transactions.
func chunks(changes []change) (all [][]change) {
	for chunk := range slices.Chunk(changes, maxTransaction) {
		all = append(all, chunk)
	}
	return all
}

// stopPods stops the processes of pods that are not in the snapshot, as they may write.
func (r Resetter) stopPods(ctx context.Context, b *snapshot) error {
	keep, err := b.pods()
	if err != nil {
		return err
	}
	if err := r.Cluster.Processes().Stop(ctx, keep); err != nil {
		return err
	}
	return r.Cluster.Processes().Reset(ctx)
}

// startAPIServers starts the API servers that were running.
func (r Resetter) startAPIServers(ctx context.Context, b *snapshot) error {
	running, err := r.Cluster.Running(ctx)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, name := range b.APIServers {
		if !running[name] {
			group.Go(func() error { return r.Cluster.StartAPIServer(ctx, name) })
		}
	}
	return group.Wait()
}

const definitionsPrefix = registryPrefix + "apiextensions.k8s.io/customresourcedefinitions/"

// definition is the part of a custom resource definition that is needed to request its objects.
type definition struct {
	Spec struct {
		Group    string
		Names    struct{ Plural string }
		Versions []struct {
			Name   string
			Served bool
		}
	}
}

// awaitDefinitions waits until all API servers serve the restored definitions, and no longer serve the deleted ones,
// whose objects are no longer stored in etcd. In changed, a deleted definition has a nil value.
func (r Resetter) awaitDefinitions(ctx context.Context, changed map[string][]byte) error {
	if len(changed) == 0 {
		return nil
	}
	running, err := r.Cluster.Running(ctx)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, server := range r.Cluster.APIServers() {
		if !running[server] {
			continue
		}
		config, err := r.Cluster.RESTConfig(server)
		if err != nil {
			return err
		}
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			return err
		}
		for name, value := range changed {
			group.Go(func() error {
				defer client.CloseIdleConnections()
				return cluster.Poll(ctx, pollInterval, func(ctx context.Context) error {
					return serves(ctx, client, config.Host, name, value)
				})
			})
		}
	}
	return group.Wait()
}

// serves returns nil if the API server at host serves the named definition or, for a nil value, no longer serves it.
func serves(ctx context.Context, client *http.Client, host, name string, value []byte) error {
	plural, apiGroup, _ := strings.Cut(name, ".")
	var d definition
	if value != nil {
		if err := json.Unmarshal(value, &d); err != nil {
			return fmt.Errorf("read the snapshot's definition %s: %w", name, err)
		}
	}
	// Clients ask for all types at once. That list follows the lists of the groups after a moment.
	for _, versions := range []versionsOf{servedVersions, discoveredVersions} {
		served, known, err := versions(ctx, client, host, apiGroup, plural)
		if err != nil {
			return err
		}
		if !known {
			continue
		}
		for _, v := range d.Spec.Versions {
			if v.Served && !slices.Contains(served, v.Name) {
				return fmt.Errorf("%s of version %s is not served yet", name, v.Name)
			}
		}
		if value == nil && len(served) > 0 {
			return fmt.Errorf("%s is still served", name)
		}
	}
	return nil
}

// versionsOf returns the versions in which an API server serves a resource; not known: the server cannot say.
type versionsOf func(
	ctx context.Context, client *http.Client, host, group, plural string,
) (versions []string, known bool, err error)

// discoveredVersions asks for the list of all types.
func discoveredVersions(ctx context.Context, client *http.Client, host, group, plural string) ([]string, bool, error) {
	var found struct {
		Kind  string
		Items []struct {
			Metadata struct{ Name string }
			Versions []struct {
				Version   string
				Resources []struct{ Resource string }
			}
		}
	}
	const accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
		"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
	if _, err := getAs(ctx, client, host+"/apis", accept, &found); err != nil {
		return nil, false, err
	}
	var served []string
	for _, g := range found.Items {
		if g.Metadata.Name != group {
			continue
		}
		for _, v := range g.Versions {
			for _, r := range v.Resources {
				if r.Resource == plural {
					served = append(served, v.Version)
				}
			}
		}
	}
	return served, found.Kind == "APIGroupDiscoveryList", nil
}

// servedVersions asks for the list of the group.
func servedVersions(ctx context.Context, client *http.Client, host, group, plural string) ([]string, bool, error) {
	var found struct{ Versions []struct{ Version string } }
	if ok, err := get(ctx, client, host+"/apis/"+group, &found); err != nil || !ok {
		return nil, true, err
	}
	var served []string
	for _, v := range found.Versions {
		var list struct{ Resources []struct{ Name string } }
		if _, err := get(ctx, client, host+"/apis/"+group+"/"+v.Version, &list); err != nil {
			return nil, true, err
		}
		for _, resource := range list.Resources {
			if resource.Name == plural {
				served = append(served, v.Version)
			}
		}
	}
	return served, true, nil
}

// get reads JSON; it returns false if the server responds "not found".
func get(ctx context.Context, client *http.Client, url string, into any) (bool, error) {
	return getAs(ctx, client, url, "application/json", into)
}

func getAs(ctx context.Context, client *http.Client, url, accept string, into any) (bool, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false, err
	}
	request.Header.Set("Accept", accept)
	response, err := client.Do(request)
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
		return true, json.NewDecoder(response.Body).Decode(into)
	case http.StatusNotFound:
		return false, nil
	}
	return false, fmt.Errorf("%s: %s", url, response.Status)
}
