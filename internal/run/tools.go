package run

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/coordinator"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/objects/manifests"
	"github.com/trommel-dev/trommel/internal/run/site"
	"github.com/trommel-dev/trommel/plan"
)

// late is the coordinator for those parts of a run that the coordinator itself needs: it is set when there is one,
// before it carries anything out.
type late struct{ *coordinator.Coordinator }

// controllers implements actions.Controllers on the process node.
type controllers struct {
	node     cluster.ProcessNode
	sessions interface {
		Connections(ctx context.Context, identity string) (total, live int, err error)
		Locks(ctx context.Context, controller string) ([]plan.ResourceKey, error)
	}
	objects    func(controller string) lockWriter // of the cluster in which the controller runs
	home       map[string]string                  // the cluster in which a controller runs; empty: the only one
	access     *site.Access                       // to other clusters
	keepLeases map[string]bool                    // controllers whose locks are not released
	// await returns when a controller runs and has more than so many sessions.
	await func(ctx context.Context, name string, after int) error
	// Down and up are called when the plan has killed or frozen a controller, and when it goes on.
	down, up func(name string)
}

// lockWriter writes locks of leader elections; an objects.Client does.
type lockWriter interface {
	Delete(ctx context.Context, key plan.ResourceKey, o objects.DeleteOptions) error
	Patch(ctx context.Context, key plan.ResourceKey, patchType string, patch any, subresource string) (
		*unstructured.Unstructured, error)
}

// Kill also releases the killed process's leader election locks, unless the suite keeps them: otherwise a successor
// waits until they expire, which is not a bug and costs 15 s each time.
func (c *controllers) Kill(ctx context.Context, name string) (running bool, err error) {
	if running, err = c.running(ctx, name); err != nil {
		return false, err
	}
	c.down(name)
	if err := c.node.Kill(ctx, name); err != nil {
		return running, fmt.Errorf("kill controller %q: %w", name, err)
	}
	return running, c.releaseLocks(ctx, name)
}

// running reports whether the controller has a running process.
func (c *controllers) running(ctx context.Context, name string) (bool, error) {
	processes, err := c.node.Status(ctx, name)
	if err != nil {
		return false, fmt.Errorf("status of controller %q: %w", name, err)
	}
	return slices.ContainsFunc(processes, cluster.Process.Running), nil
}

// releaseLocks releases a killed controller's leader election locks: it deletes leases, and removes the election's
// annotation from ConfigMaps and Endpoints, which may hold other data.
func (c *controllers) releaseLocks(ctx context.Context, name string) error {
	if c.keepLeases[name] {
		return nil
	}
	locks, err := c.sessions.Locks(ctx, name)
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range locks {
		if l.Type == "lease" {
			err = c.objects(name).Delete(ctx, l, objects.DeleteOptions{})
		} else {
			_, err = c.objects(name).Patch(ctx, l, "merge", map[string]any{
				"metadata": map[string]any{"annotations": map[string]any{coordinator.LeaderAnnotation: nil}},
			}, "")
		}
		// A cluster may keep a lock that was there before the run. Then the successor waits until it expires.
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			errs = append(errs, fmt.Errorf("release %s, the lock of killed controller %q: %w", l, name, err))
		}
	}
	return errors.Join(errs...)
}

// Start lets a killed controller start, and waits for it.
func (c *controllers) Start(ctx context.Context, name string) (running bool, err error) {
	before, _, err := c.sessions.Connections(ctx, name)
	if err != nil {
		return false, err
	}
	if running, err = c.running(ctx, name); err != nil {
		return false, err
	}
	if err := c.node.Start(ctx, name); err != nil {
		return running, fmt.Errorf("start controller %q: %w", name, err)
	}
	if running {
		before = 0 // its present session counts
	}
	if err := c.await(ctx, name, before); err != nil {
		return running, err
	}
	c.up(name)
	return running, nil
}

// Freeze stops a process of a controller.
func (c *controllers) Freeze(ctx context.Context, name string, pid int) error {
	c.down(name)
	return c.node.Freeze(ctx, name, pid)
}

// Thaw lets a controller's frozen processes go on.
func (c *controllers) Thaw(ctx context.Context, name string, kill bool) (frozen int, err error) {
	if frozen, err = c.node.Thaw(ctx, name, kill); err != nil {
		return frozen, err
	}
	c.up(name)
	return frozen, nil
}

// Route directs new connections of a controller to the API server.
func (c *controllers) Route(ctx context.Context, name, apiServer string) error {
	if to, elsewhere := c.elsewhere(name, apiServer); elsewhere {
		return c.access.Route(to, apiServer)
	}
	return c.node.Route(ctx, name, apiServer)
}

// CutConnections closes a controller's connections to the API server's cluster.
func (c *controllers) CutConnections(ctx context.Context, name, apiServer string) error {
	if to, elsewhere := c.elsewhere(name, apiServer); elsewhere {
		return c.access.Cut(to)
	}
	return c.node.CutConnections(ctx, name)
}

// elsewhere returns the controller's connection to an API server that is not in its own cluster.
func (c *controllers) elsewhere(name, apiServer string) (site.Connection, bool) {
	in, _ := plan.SplitServer(apiServer)
	return site.Connection{Controller: name, Cluster: in}, in != c.home[name]
}

// apiServers implements actions.APIServers.
type apiServers struct {
	cluster  string                  // its name
	killer   cluster.APIServerKiller // nil: not supported
	ready    time.Duration           // in which a server has to connect
	sessions interface {
		Connections(ctx context.Context, identity string) (total, live int, err error)
		WaitConnected(ctx context.Context, identity string, after, n int) error
	}

	mu   sync.Mutex
	down map[string]bool // killed by the plan; its session may stay live for a moment
}

// running reports whether the API server is running, and how many sessions it has had.
func (a *apiServers) running(ctx context.Context, name string) (running bool, sessions int, err error) {
	sessions, live, err := a.sessions.Connections(ctx, name)
	if err != nil {
		return false, 0, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return live > 0 && !a.down[name], sessions, nil
}

// supported returns an error if the cluster cannot kill API servers.
func (a *apiServers) supported() error {
	if a.killer != nil {
		return nil
	}
	return fmt.Errorf("kill or start an API server of cluster %q: %w", a.cluster, cluster.ErrNotSupported)
}

func (a *apiServers) mark(name string, down bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down == nil {
		a.down = map[string]bool{}
	}
	a.down[name] = down
}

// KillAPIServer kills an API server, which stays down.
func (a *apiServers) KillAPIServer(ctx context.Context, name string) (running bool, err error) {
	if running, _, err = a.running(ctx, name); err != nil {
		return false, err
	}
	if err := a.supported(); err != nil {
		return running, err
	}
	if err := a.killer.KillAPIServer(ctx, name); err != nil {
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
	if err := a.supported(); err != nil {
		return false, err
	}
	if err := a.killer.StartAPIServer(ctx, name); err != nil || running {
		return running, err
	}
	ctx, cancel := clock.WithTimeout(ctx, a.ready)
	defer cancel()
	if err := a.sessions.WaitConnected(ctx, name, sessions, 1); err != nil {
		return false, err
	}
	a.mark(name, false)
	return false, nil
}

// planWrites implements actions.Objects.
type planWrites struct {
	objects   writer
	dir       string            // of the run record
	manifests map[string]string // path in the plan to path in the record
}

// writer writes objects in a cluster; an objects.Client does.
type writer interface {
	lockWriter
	Apply(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error)
}

// Apply applies an object.
func (w *planWrites) Apply(ctx context.Context, object map[string]any) error {
	list, _, err := manifests.Served([]*unstructured.Unstructured{{Object: object}})
	if err != nil {
		return err
	}
	return w.applyAll(ctx, list)
}

// ApplyFile applies the record's copy of a manifest.
func (w *planWrites) ApplyFile(ctx context.Context, file string) error {
	list, _, err := manifests.ReadServed(filepath.Join(w.dir, filepath.FromSlash(w.manifests[file])))
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

// Patch patches an object.
func (w *planWrites) Patch(ctx context.Context, key plan.ResourceKey, subresource, patchType string, patch any) error {
	_, err := w.objects.Patch(ctx, key, patchType, patch, subresource)
	return err
}

// Delete deletes an object.
func (w *planWrites) Delete(ctx context.Context, key plan.ResourceKey) error {
	return w.objects.Delete(ctx, key, objects.DeleteOptions{})
}
