package embedded

import (
	"context"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/cluster/embedded/snapshot"
)

// TakeSnapshot waits until the cluster has settled and records its state.
func (c *Cluster) TakeSnapshot(ctx context.Context) (cluster.Snapshot, error) {
	return c.resetter().Take(clock.With(ctx, c.clock))
}

// WithCertificates returns the snapshot with the certificates that the cluster has now.
func (c *Cluster) WithCertificates(ctx context.Context, b cluster.Snapshot) (cluster.Snapshot, error) {
	return c.resetter().WithCertificates(clock.With(ctx, c.clock), b)
}

// Reset resets the cluster to the snapshot.
func (c *Cluster) Reset(ctx context.Context, to cluster.Snapshot) error {
	return c.resetter().Reset(clock.With(ctx, c.clock), to)
}

func (c *Cluster) resetter() snapshot.Resetter {
	return snapshot.Resetter{Cluster: c, Socket: etcdSocket(c.dir.Path()), Quiet: snapshot.QuietOwn}
}

// TakeSnapshot waits until the cluster has settled and records its state.
func (a *Attached) TakeSnapshot(ctx context.Context) (cluster.Snapshot, error) {
	return a.resetter().Take(ctx)
}

// WithCertificates returns the snapshot with the certificates that the cluster has now.
func (a *Attached) WithCertificates(ctx context.Context, b cluster.Snapshot) (cluster.Snapshot, error) {
	return a.resetter().WithCertificates(ctx, b)
}

// Reset resets the cluster to the snapshot. After a run that was killed it first checks whether a person has applied
// objects since, and refuses if so.
func (a *Attached) Reset(ctx context.Context, to cluster.Snapshot) error {
	state, err := a.State(ctx)
	if err != nil {
		return err
	}
	if state.Abandoned > 0 {
		if err := a.resetter().CheckAppliedSince(ctx, to, state.Abandoned); err != nil {
			return err
		}
	}
	if err := a.resetter().Reset(ctx, to); err != nil {
		return err
	}
	_, err = controlCall[None](ctx, a.entry, "Restored", None{})
	return err
}

func (a *Attached) resetter() snapshot.Resetter {
	return snapshot.Resetter{Cluster: a, Socket: etcdSocket(a.entry.Dir), Quiet: snapshot.QuietShared}
}
