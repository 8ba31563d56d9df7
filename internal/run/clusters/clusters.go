// Package clusters provides the runs of a session with clusters: it starts them, resets them between runs, and restores
// clusters that were there before.
package clusters

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/mistake"
	"github.com/trommel-dev/trommel/internal/objects/deploy"
	"github.com/trommel-dev/trommel/record"
)

// Source provides runs with clusters, one run at a time.
type Source interface {
	// Acquire returns an unmodified cluster for exclusive use. It blocks until the cluster can be used.
	Acquire(ctx context.Context, info Info, need Need) (*Lease, error)
	// Close stops what Acquire has started; no lease may be in use.
	Close(ctx context.Context) error
}

// Need is what a run needs of its cluster.
type Need struct {
	RealTime   bool     // the cluster has no clock of its own
	Build      string   // the suite's build with which the run begins
	APIServers []string // those that run; others may
}

// Info receives what a user should know of a cluster.
type Info = func(text string)

// Manifests are what the runs on a cluster have read. All builds have the certificates of one authority.
type Manifests struct {
	Of     map[string][]*unstructured.Unstructured // by build and cluster
	Issuer deploy.Issuer
}

// Lease is the use of a cluster for one run.
type Lease struct {
	Cluster cluster.Cluster
	State   string // see record.Meta
	// NotReset says why the cluster of the run before could not be reset; empty: it could, or there was none.
	NotReset string
	Release  func(ctx context.Context) error
	// Manifests are those of the suite's builds, once they have been read; the cluster's owner keeps them.
	Manifests *Manifests
	// Prepared: the cluster has the manifests of the run's first build already.
	Prepared bool
	// KeepPrepared says that the cluster has these manifests now, and no other new ones; KeepCertificates, that the
	// controllers have their certificates now. Nil: the owner does not want to know.
	KeepPrepared, KeepCertificates func(ctx context.Context)
}

// Own starts clusters for the session alone. After a run the cluster is kept for the next run, which resets it
// first; with fresh, each run gets a new cluster.
type Own struct {
	Start  func(ctx context.Context, info Info, need Need) (cluster.Cluster, error)
	Fresh  bool
	Logger *slog.Logger

	cluster   cluster.Cluster             // the one kept; nil: none
	realTime  bool                        // it was started like that
	snapshot  cluster.Snapshot            // of cluster; nil: it cannot be reset
	prepared  map[string]cluster.Snapshot // with the manifests of a build, by its name
	manifests *Manifests
}

// Acquire implements Source.
func (o *Own) Acquire(ctx context.Context, info Info, need Need) (*Lease, error) {
	if o.cluster != nil && o.realTime != need.RealTime {
		if err := o.Close(ctx); err != nil {
			o.Logger.Warn("close a cluster with another kind of time", "error", err)
		}
	}
	notReset := ""
	if o.cluster != nil {
		hurry(o.cluster, true)
		err := o.reset(ctx, need)
		if err == nil {
			return o.lease(record.ClusterReset, need.Build), nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
		notReset = err.Error()
		info("starting a new cluster, because the old one could not be reset: " + notReset)
		if err := o.Close(ctx); err != nil {
			o.Logger.Warn("close a cluster that could not be reset", "error", err)
		}
	}
	c, err := o.Start(ctx, info, need)
	if err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}
	o.cluster, o.realTime, o.snapshot = c, need.RealTime, nil
	o.prepared, o.manifests = map[string]cluster.Snapshot{}, new(Manifests)
	if resettable := cluster.CapabilitiesOf(c).Resettable; resettable != nil && !o.Fresh {
		// A cluster without a snapshot is used for one run only.
		if o.snapshot, err = resettable.TakeSnapshot(ctx); err != nil {
			o.Logger.Warn("take a snapshot; the cluster is used for one run only", "error", err)
		}
	}
	l := o.lease(record.ClusterFresh, need.Build)
	l.NotReset = notReset
	return l, nil
}

// Prepare starts the cluster if it does not run, so that the first run finds it. With Fresh it does nothing.
func (o *Own) Prepare(ctx context.Context, info Info, realTime bool) error {
	if o.Fresh || o.cluster != nil {
		return nil
	}
	l, err := o.Acquire(ctx, info, Need{RealTime: realTime})
	if err != nil {
		return err
	}
	return l.Release(context.WithoutCancel(ctx))
}

func (o *Own) lease(state, build string) *Lease {
	l := &Lease{
		Cluster: o.cluster, State: state, Release: o.release, Manifests: o.manifests,
		Prepared: o.prepared[build] != nil,
	}
	if o.snapshot != nil && !l.Prepared {
		l.KeepPrepared = func(ctx context.Context) { o.keepPrepared(ctx, build) }
		l.KeepCertificates = func(ctx context.Context) { o.keepCertificates(ctx, build) }
	}
	return l
}

// keepPrepared makes the cluster's state with the build's manifests the snapshot of its runs: applying them takes
// seconds, since definitions have to be established again.
func (o *Own) keepPrepared(ctx context.Context, build string) {
	snapshot, err := cluster.CapabilitiesOf(o.cluster).Resettable.TakeSnapshot(ctx)
	if err != nil {
		o.Logger.Warn("take a snapshot with the manifests; each run applies them", "error", err)
		return
	}
	o.prepared[build] = snapshot
}

// keepCertificates adds the certificates that controllers have created for their webhooks to the snapshot: some need
// seconds for that. They find them as after a restart.
func (o *Own) keepCertificates(ctx context.Context, build string) {
	if o.prepared[build] == nil {
		return
	}
	snapshot, err := cluster.CapabilitiesOf(o.cluster).Resettable.WithCertificates(ctx, o.prepared[build])
	if err != nil {
		o.Logger.Warn("keep the controllers' certificates; they create them for each run", "error", err)
		return
	}
	o.prepared[build] = snapshot
}

// reset resets the cluster for a run. API servers that are started for the run see all changes of the reset.
func (o *Own) reset(ctx context.Context, need Need) error {
	if can := cluster.CapabilitiesOf(o.cluster).OnDemand; can != nil {
		if err := can.NeedAPIServers(ctx, need.APIServers); err != nil {
			return err
		}
	}
	to := o.snapshot
	if prepared := o.prepared[need.Build]; prepared != nil {
		to = prepared
	}
	return cluster.CapabilitiesOf(o.cluster).Resettable.Reset(ctx, to)
}

// hurry lets the cluster's own clock move ahead while nothing happens, or not: between runs that would only cost CPU
// time.
func hurry(c cluster.Cluster, on bool) {
	if t := cluster.CapabilitiesOf(c).Timekeeper; t != nil {
		t.Hurry(on)
	}
}

// release stops the run's processes. The next run, if there is one, resets the rest.
func (o *Own) release(ctx context.Context) error {
	if o.snapshot == nil {
		return o.Close(ctx)
	}
	defer hurry(o.cluster, false)
	can := cluster.CapabilitiesOf(o.cluster)
	if node := can.ProcessNode(); node != nil {
		return node.Stop(clock.With(ctx, can.Clock()), nil)
	}
	return nil
}

// Close implements Source.
func (o *Own) Close(ctx context.Context) error {
	if o.cluster == nil {
		return nil
	}
	c := o.cluster
	o.cluster, o.snapshot, o.prepared, o.manifests = nil, nil, nil, nil
	return c.Close(ctx)
}

// Shared is a cluster that was running before the session and keeps running after it. Each run restores it to
// its previous state.
type Shared struct {
	Attach func(ctx context.Context) (cluster.Cluster, error)
}

// Acquire implements Source.
func (s *Shared) Acquire(ctx context.Context, info Info, _ Need) (_ *Lease, err error) {
	c, err := s.Attach(ctx)
	if refusal := (*cluster.Refusal)(nil); errors.As(err, &refusal) {
		return nil, &mistake.Error{Err: err}
	}
	if err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close(context.WithoutCancel(ctx)))
		}
	}()
	shared := cluster.CapabilitiesOf(c).Shared
	if shared == nil {
		return nil, &mistake.Error{Err: fmt.Errorf("cluster %q cannot be restored to its previous state: %w",
			c.Name(), cluster.ErrNotSupported)}
	}
	unlock, err := shared.Lock()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			unlock()
		}
	}()
	// The snapshot is stored while a run is in progress, so that the next run finds it if this one is killed.
	snapshot, err := shared.KeptSnapshot()
	switch {
	case err == nil:
		info("an earlier run was killed: restoring the cluster to its state before that run")
		if err := shared.Reset(ctx, snapshot); err != nil {
			return nil, fmt.Errorf("restore the cluster after an earlier run: %w", err)
		}
	case errors.Is(err, fs.ErrNotExist):
		if snapshot, err = shared.TakeSnapshot(ctx); err != nil {
			return nil, err
		}
	default:
		return nil, err
	}
	if err := shared.KeepSnapshot(snapshot); err != nil {
		return nil, err
	}
	release := func(ctx context.Context) error {
		defer unlock()
		// If the reset fails, the next run needs the snapshot.
		err := shared.Reset(ctx, snapshot)
		if err == nil {
			err = shared.DropSnapshot()
		}
		return errors.Join(err, c.Close(ctx))
	}
	return &Lease{
		Cluster: c, State: record.ClusterShared, Release: release, Manifests: new(Manifests),
	}, nil
}

// Close does nothing.
func (s *Shared) Close(context.Context) error { return nil }
