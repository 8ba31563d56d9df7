package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/trommel-dev/trommel/cluster"
	"github.com/trommel-dev/trommel/record"
)

// clusters gives runs their clusters, one run at a time.
type clusters interface {
	// acquire gives sole use of a cluster that nobody has changed. It blocks until the cluster can be used.
	acquire(ctx context.Context, console Console) (*lease, error)
	// close ends what acquire has started; nothing may be in use.
	close(ctx context.Context) error
}

// lease is the use of a cluster for one run.
type lease struct {
	cluster cluster.Cluster
	state   string // see record.Meta
	release func(ctx context.Context) error
}

// ownClusters starts clusters for nobody else. After a run the cluster is kept for the next one, which resets it first;
// with fresh each run gets one of its own.
type ownClusters struct {
	start  func(ctx context.Context, console Console) (cluster.Cluster, error)
	fresh  bool
	logger *slog.Logger

	cluster  cluster.Cluster  // kept; nil: none
	baseline cluster.Baseline // of that; nil: it cannot be reset
}

func (o *ownClusters) acquire(ctx context.Context, console Console) (*lease, error) {
	if o.cluster != nil {
		err := o.reset(ctx)
		if err == nil {
			return &lease{o.cluster, record.ClusterReset, o.release}, nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
		console.Info(fmt.Sprintf("a fresh cluster takes the place of the one before: %v", err))
		if err := o.close(ctx); err != nil {
			o.logger.Warn("close the cluster that could not be reset", "error", err)
		}
	}
	c, err := o.start(ctx, console)
	if err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}
	o.cluster, o.baseline = c, nil
	if resettable, ok := c.(cluster.Resettable); ok && !o.fresh {
		// Without a baseline the cluster serves one run.
		if o.baseline, err = resettable.TakeBaseline(ctx); err != nil {
			o.logger.Warn("the cluster is for one run only", "error", err)
		}
	}
	return &lease{o.cluster, record.ClusterFresh, o.release}, nil
}

func (o *ownClusters) reset(ctx context.Context) error {
	return o.cluster.(cluster.Resettable).Reset(ctx, o.baseline)
}

// release ends the run's processes. The rest is put back only if there is another run.
func (o *ownClusters) release(ctx context.Context) error {
	if o.baseline == nil {
		return o.close(ctx)
	}
	if c, ok := o.cluster.(cluster.ProcessRunner); ok {
		return c.Processes().Stop(ctx, nil)
	}
	return nil
}

func (o *ownClusters) close(ctx context.Context) error {
	if o.cluster == nil {
		return nil
	}
	c := o.cluster
	o.cluster, o.baseline = nil, nil
	return c.Close(ctx)
}

// sharedCluster is one that was there before and goes on. Each run puts it back as it was.
type sharedCluster struct {
	attach func(ctx context.Context) (cluster.Cluster, error)
}

func (s *sharedCluster) acquire(ctx context.Context, console Console) (_ *lease, err error) {
	c, err := s.attach(ctx)
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
		return nil, &UserError{fmt.Errorf("cluster %q could not be put back as it was: %w", c.Name(), cluster.ErrNotSupported)}
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
	// A baseline is kept while a run is under way: the run after one that was killed finds it.
	baseline, err := shared.KeptBaseline()
	switch {
	case err == nil:
		console.Info("a run before this one was killed: putting the cluster back as it was before that")
		if err := shared.Reset(ctx, baseline); err != nil {
			return nil, fmt.Errorf("put back what an earlier run left: %w", err)
		}
	case errors.Is(err, fs.ErrNotExist):
		if baseline, err = shared.TakeBaseline(ctx); err != nil {
			return nil, err
		}
	default:
		return nil, err
	}
	if err := shared.KeepBaseline(baseline); err != nil {
		return nil, err
	}
	return &lease{c, record.ClusterShared, func(ctx context.Context) error {
		defer unlock()
		// Without the baseline nobody would put it back later.
		err := shared.Reset(ctx, baseline)
		if err == nil {
			err = shared.DropBaseline()
		}
		return errors.Join(err, c.Close(ctx))
	}}, nil
}

func (s *sharedCluster) close(context.Context) error { return nil }
