package embedded

import (
	"context"

	"github.com/trommel-dev/trommel/internal/clock/keeper"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/cluster/embedded/snapshot"
)

// Keeper is the keeper of the cluster's clock.
func Keeper(c *Cluster) *keeper.Keeper { return c.keeper }

// Objects reads from etcd the objects that a reset restores.
func Objects(ctx context.Context, c *Cluster) (map[string]string, error) {
	return snapshot.Objects(ctx, etcdSocket(c.dir.Path()))
}

// Reread writes a snapshot to a file and reads it back.
func Reread(b cluster.Snapshot, file string) (cluster.Snapshot, error) {
	if err := snapshot.Write(b, file); err != nil {
		return nil, err
	}
	return snapshot.Read(file)
}

// PIDs are the process IDs of the cluster's components that run, by their names.
func PIDs(c *Cluster) map[string]int {
	all := map[string]int{}
	for _, a := range c.apis {
		if p := a.running(); p != nil {
			all[a.name] = p.PID()
		}
	}
	for _, o := range c.others {
		if p := o.running(); p != nil {
			all[o.name] = p.PID()
		}
	}
	return all
}

// ClockState is what the keeper of the cluster's clock sees.
func ClockState(c *Cluster) keeper.State { return c.keeper.State() }
