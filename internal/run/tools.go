package run

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/coordinator"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/objects/manifests"
	"github.com/trommel-dev/trommel/plan"
)

// controllers implements actions.Controllers on the process node.
type controllers struct{ *runner }

// Kill also releases the killed process's leader election locks, unless the suite keeps them: otherwise a successor
// waits until they expire, which is not a bug and costs 15 s each time.
func (c *controllers) Kill(ctx context.Context, name string) (running bool, err error) {
	if running, err = c.running(ctx, name); err != nil {
		return false, err
	}
	c.webhooks.killed(name)
	if err := c.node().Kill(ctx, name); err != nil {
		return running, fmt.Errorf("kill controller %q: %w", name, err)
	}
	return running, c.releaseLocks(ctx, name)
}

// running reports whether the controller has a running process.
func (c *controllers) running(ctx context.Context, name string) (bool, error) {
	processes, err := c.node().Status(ctx, name)
	if err != nil {
		return false, fmt.Errorf("status of controller %q: %w", name, err)
	}
	return slices.ContainsFunc(processes, cluster.Process.Running), nil
}

// releaseLocks releases a killed controller's leader election locks: it deletes leases, and removes the election's
// annotation from ConfigMaps and Endpoints, which may hold other data.
func (c *controllers) releaseLocks(ctx context.Context, name string) error {
	for i := range c.Suite.Controllers {
		if c.Suite.Controllers[i].Name == name && c.Suite.Controllers[i].KeepLeases {
			return nil
		}
	}
	locks, err := c.coordinator.Locks(ctx, name)
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range locks {
		if l.Type == "lease" {
			err = c.objects.Delete(ctx, l, objects.DeleteOptions{})
		} else {
			_, err = c.objects.Patch(ctx, l, "merge", map[string]any{
				"metadata": map[string]any{"annotations": map[string]any{coordinator.LeaderAnnotation: nil}},
			}, "")
		}
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("release %s, the lock of killed controller %q: %w", l, name, err))
		}
	}
	return errors.Join(errs...)
}

func (c *controllers) Start(ctx context.Context, name string) (running bool, err error) {
	before, _, err := c.coordinator.Connections(ctx, name)
	if err != nil {
		return false, err
	}
	if running, err = c.running(ctx, name); err != nil {
		return false, err
	}
	if err := c.node().Start(ctx, name); err != nil {
		return running, fmt.Errorf("start controller %q: %w", name, err)
	}
	for i := range c.Suite.Controllers {
		if c.Suite.Controllers[i].Name != name {
			continue
		}
		if running {
			before = 0 // its present session counts
		}
		if err := c.awaitController(ctx, name, c.Binaries[i].Manifest != nil, before); err != nil {
			return running, err
		}
	}
	c.webhooks.started(name)
	return running, nil
}

func (c *controllers) Freeze(ctx context.Context, name string, pid int) error {
	c.webhooks.killed(name)
	return c.node().Freeze(ctx, name, pid)
}

func (c *controllers) Thaw(ctx context.Context, name string, kill bool) (frozen int, err error) {
	if frozen, err = c.node().Thaw(ctx, name, kill); err != nil {
		return frozen, err
	}
	c.webhooks.started(name)
	return frozen, nil
}

func (c *controllers) Route(ctx context.Context, name, apiServer string) error {
	return c.node().Route(ctx, name, apiServer)
}

func (c *controllers) CutConnections(ctx context.Context, name string) error {
	return c.node().CutConnections(ctx, name)
}

// apiServers implements actions.APIServers.
type apiServers struct {
	*runner

	mu   sync.Mutex
	down map[string]bool // killed by the plan; its session may stay live for a moment
}

// running reports whether the API server is running, and how many sessions it has had.
func (a *apiServers) running(ctx context.Context, name string) (running bool, sessions int, err error) {
	sessions, live, err := a.coordinator.Connections(ctx, name)
	if err != nil {
		return false, 0, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return live > 0 && !a.down[name], sessions, nil
}

func (a *apiServers) killer() (cluster.APIServerKiller, error) {
	if k, ok := a.cluster.(cluster.APIServerKiller); ok {
		return k, nil
	}
	return nil, fmt.Errorf("kill or start an API server of cluster %q: %w", a.cluster.Name(), cluster.ErrNotSupported)
}

func (a *apiServers) mark(name string, down bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down == nil {
		a.down = map[string]bool{}
	}
	a.down[name] = down
}

func (a *apiServers) KillAPIServer(ctx context.Context, name string) (running bool, err error) {
	if running, _, err = a.running(ctx, name); err != nil {
		return false, err
	}
	killer, err := a.killer()
	if err != nil {
		return running, err
	}
	if err := killer.KillAPIServer(ctx, name); err != nil {
		return running, err
	}
	a.mark(name, true)
	return running, nil
}

// StartAPIServer also waits for the hook: a server that has not connected is not observed.
func (a *apiServers) StartAPIServer(ctx context.Context, name string) (running bool, err error) {
	running, sessions, err := a.running(ctx, name)
	if err != nil {
		return false, err
	}
	killer, err := a.killer()
	if err != nil {
		return false, err
	}
	if err := killer.StartAPIServer(ctx, name); err != nil || running {
		return running, err
	}
	ctx, cancel := context.WithTimeout(ctx, a.Suite.Timeouts.Ready)
	defer cancel()
	if err := a.coordinator.WaitConnected(ctx, name, sessions, 1); err != nil {
		return false, err
	}
	a.mark(name, false)
	return false, nil
}

// planWrites implements actions.Objects.
type planWrites struct{ *runner }

func (w *planWrites) Apply(ctx context.Context, object map[string]any) error {
	list, _, err := manifests.Served([]*unstructured.Unstructured{{Object: object}})
	if err != nil {
		return err
	}
	return w.applyAll(ctx, list)
}

func (w *planWrites) ApplyFile(ctx context.Context, file string) error {
	list, _, err := manifests.ReadServed(filepath.Join(w.RecordDir, filepath.FromSlash(w.manifests[file])))
	if err != nil {
		return err
	}
	return w.applyAll(ctx, list)
}

func (w *planWrites) applyAll(ctx context.Context, list []*unstructured.Unstructured) error {
	for _, u := range list {
		if _, err := w.objects.Apply(ctx, u); err != nil {
			return err
		}
	}
	return nil
}

func (w *planWrites) Patch(ctx context.Context, key plan.ResourceKey, subresource, patchType string, patch any) error {
	_, err := w.objects.Patch(ctx, key, patchType, patch, subresource)
	return err
}

func (w *planWrites) Delete(ctx context.Context, key plan.ResourceKey) error {
	return w.objects.Delete(ctx, key, objects.DeleteOptions{})
}
