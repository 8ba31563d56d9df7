package addons

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	chaosconfig "github.com/trommel-dev/trommel/chaos/config"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/objects/apply"
	nodesconfig "github.com/trommel-dev/trommel/nodes/config"
)

// Equipment lists the names of the controllers with which Equip can equip a cluster.
func Equipment() []string { return []string{cluster.Disruptions, cluster.Cycling} }

// Equip installs Trommel's own controllers on a cluster for tests, and runs them in this process until stop is called.
// injector is the command of chaos pods; see Options. dir is a directory for what must be undone.
func Equip(
	ctx context.Context, c cluster.Cluster, with, injector []string, dir string, logger *slog.Logger,
) (stop func() error, err error) {
	to, err := c.RESTConfig("")
	if err != nil {
		return nil, err
	}
	to.QPS = -1
	client, err := objects.New(to)
	if err != nil {
		return nil, err
	}
	applier := &apply.Applier{Apply: client.Apply, Timeout: time.Minute}
	var ends []func(context.Context) error
	later := func(f func(context.Context) error) { ends = append(ends, f) }
	stop = func() (err error) {
		for _, end := range slices.Backward(ends) {
			err = errors.Join(err, end(ctx))
		}
		return err
	}
	for _, name := range with {
		mgr, err := equip(ctx, c, name, to, applier, injector, dir, logger)
		if err == nil {
			err = serve(ctx, name, mgr, later)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("controllers of %s: %w", name, err), stop())
		}
	}
	return stop, nil
}

// equip installs one kind of controllers, and makes them.
func equip(
	ctx context.Context, c cluster.Cluster, name string, to *rest.Config, applier *apply.Applier, injector []string,
	dir string, logger *slog.Logger,
) (ctrl.Manager, error) {
	switch name {
	case cluster.Disruptions:
		node := cluster.CapabilitiesOf(c).ProcessNode()
		if node == nil {
			return nil, cluster.ErrNotSupported
		}
		journal := filepath.Join(dir, "journal")
		if err := os.Mkdir(journal, 0o700); err != nil {
			return nil, err
		}
		if err := applier.Files(ctx, chaosconfig.Files, chaosconfig.Installed); err != nil {
			return nil, err
		}
		return newDisruptions(to, processInjectors(node.NodeName(), journal, injector), logger)
	case cluster.Cycling:
		files := append([]string{"rbac/namespace.yaml"}, cycleDefinitions...)
		if err := applier.Files(ctx, nodesconfig.Files, files); err != nil {
			return nil, err
		}
		return newCycling(to, nil, logger)
	}
	return nil, errors.New("unknown")
}

// equippedWith reports whether such controllers run on a cluster already.
func equippedWith(c cluster.Cluster, name string) bool {
	e := cluster.CapabilitiesOf(c).Equipped
	return e != nil && slices.Contains(e.Equipment(), name)
}
