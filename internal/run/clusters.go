package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/record"
)

// clusters provides runs with clusters, one run at a time.
type clusters interface {
	// acquire returns an unmodified cluster for exclusive use. It blocks until the cluster can be used. With realTime
	// the cluster has no clock of its own. Build is the suite's build with which the run begins.
	acquire(ctx context.Context, console *console, realTime bool, build string) (*lease, error)
	// close stops what acquire has started; no lease may be in use.
	close(ctx context.Context) error
}

// lease is the use of a cluster for one run.
type lease struct {
	cluster cluster.Cluster
	state   string // see record.Meta
	// notReset says why the cluster of the run before could not be reset; empty: it could, or there was none.
	notReset string
	release  func(ctx context.Context) error
	// manifests are those of the suite's builds, once they have been read; the cluster's owner keeps them.
	manifests *readManifests
	// prepared: the cluster has the manifests of the run's first build already.
	prepared bool
	// keepPrepared tells the cluster's owner that it has these manifests now, and nothing else that is new;
	// keepCertificates, that the controllers have their certificates now. Nil: the owner does not want to know.
	keepPrepared, keepCertificates func(ctx context.Context)
}

// ownClusters starts clusters that nobody else uses. After a run the cluster is kept for the next run, which resets it
// first; with fresh, each run gets a new cluster.
type ownClusters struct {
	start  func(ctx context.Context, console *console, realTime bool) (cluster.Cluster, error)
	fresh  bool
	logger *slog.Logger

	cluster   cluster.Cluster             // the one kept; nil: none
	realTime  bool                        // it was started like that
	snapshot  cluster.Snapshot            // of cluster; nil: it cannot be reset
	prepared  map[string]cluster.Snapshot // with the manifests of a build, by its name
	manifests *readManifests
}

func (o *ownClusters) acquire(
	ctx context.Context, console *console, realTime bool, build string,
) (*lease, error) {
	if o.cluster != nil && o.realTime != realTime {
		if err := o.close(ctx); err != nil {
			o.logger.Warn("close a cluster with another kind of time", "error", err)
		}
	}
	notReset := ""
	if o.cluster != nil {
		hurry(o.cluster, true)
		err := o.reset(ctx, build)
		if err == nil {
			return o.lease(record.ClusterReset, build), nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
		notReset = err.Error()
		console.Info("starting a new cluster, because the old one could not be reset: " + notReset)
		if err := o.close(ctx); err != nil {
			o.logger.Warn("close a cluster that could not be reset", "error", err)
		}
	}
	c, err := o.start(ctx, console, realTime)
	if err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}
	o.cluster, o.realTime, o.snapshot = c, realTime, nil
	o.prepared, o.manifests = map[string]cluster.Snapshot{}, new(readManifests)
	if resettable, ok := c.(cluster.Resettable); ok && !o.fresh {
		// A cluster without a snapshot is used for one run only.
		if o.snapshot, err = resettable.TakeSnapshot(ctx); err != nil {
			o.logger.Warn("take a snapshot; the cluster is used for one run only", "error", err)
		}
	}
	l := o.lease(record.ClusterFresh, build)
	l.notReset = notReset
	return l, nil
}

func (o *ownClusters) lease(state, build string) *lease {
	l := &lease{
		cluster: o.cluster, state: state, release: o.release, manifests: o.manifests,
		prepared: o.prepared[build] != nil,
	}
	if o.snapshot != nil && !l.prepared {
		l.keepPrepared = func(ctx context.Context) { o.keepPrepared(ctx, build) }
		l.keepCertificates = func(ctx context.Context) { o.keepCertificates(ctx, build) }
	}
	return l
}

// keepPrepared makes the cluster's state with the build's manifests the snapshot of its runs: applying them takes
// seconds, since definitions have to be established again.
func (o *ownClusters) keepPrepared(ctx context.Context, build string) {
	snapshot, err := o.cluster.(cluster.Resettable).TakeSnapshot(ctx)
	if err != nil {
		o.logger.Warn("take a snapshot with the manifests; each run applies them", "error", err)
		return
	}
	o.prepared[build] = snapshot
}

// keepCertificates adds the certificates that controllers have created for their webhooks to the snapshot: some need
// seconds for that. They find them as after a restart.
func (o *ownClusters) keepCertificates(ctx context.Context, build string) {
	if o.prepared[build] == nil {
		return
	}
	snapshot, err := o.cluster.(cluster.Resettable).WithCertificates(ctx, o.prepared[build])
	if err != nil {
		o.logger.Warn("keep the controllers' certificates; they create them for each run", "error", err)
		return
	}
	o.prepared[build] = snapshot
}

// reset resets the cluster for a run that begins with the build.
func (o *ownClusters) reset(ctx context.Context, build string) error {
	to := o.snapshot
	if prepared := o.prepared[build]; prepared != nil {
		to = prepared
	}
	return o.cluster.(cluster.Resettable).Reset(ctx, to)
}

// hurry lets the cluster's own clock move ahead while nothing happens, or not: between runs that would only cost CPU
// time.
func hurry(c cluster.Cluster, on bool) {
	if t, ok := c.(cluster.Timekeeper); ok {
		t.Hurry(on)
	}
}

// release stops the run's processes. The next run, if there is one, resets the rest.
func (o *ownClusters) release(ctx context.Context) error {
	if o.snapshot == nil {
		return o.close(ctx)
	}
	defer hurry(o.cluster, false)
	if c, ok := o.cluster.(cluster.ProcessRunner); ok {
		return c.Processes().Stop(clock.With(ctx, cluster.ClockOf(o.cluster)), nil)
	}
	return nil
}

func (o *ownClusters) close(ctx context.Context) error {
	if o.cluster == nil {
		return nil
	}
	c := o.cluster
	o.cluster, o.snapshot, o.prepared, o.manifests = nil, nil, nil, nil
	return c.Close(ctx)
}

// sharedCluster is a cluster that was running before the session and keeps running after it. Each run restores it to
// its previous state.
type sharedCluster struct {
	attach func(ctx context.Context) (cluster.Cluster, error)
}

func (s *sharedCluster) acquire(
	ctx context.Context, console *console, _ bool, _ string,
) (_ *lease, err error) {
	c, err := s.attach(ctx)
	if refusal := (*cluster.Refusal)(nil); errors.As(err, &refusal) {
		return nil, &UserError{Err: err}
	}
	if err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close(context.WithoutCancel(ctx)))
		}
	}()
	shared, ok := c.(cluster.Shared)
	if !ok {
		return nil, &UserError{Err: fmt.Errorf("cluster %q cannot be restored to its previous state: %w",
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
		console.Info("an earlier run was killed: restoring the cluster to its state before that run")
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
	return &lease{
		cluster: c, state: record.ClusterShared, release: release, manifests: new(readManifests),
	}, nil
}

func (s *sharedCluster) close(context.Context) error { return nil }
