// Package tools has what the actions of a plan are carried out with on a cluster.
package tools

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

// Controllers implements actions.Controllers on the process node.
type Controllers struct {
	Node     cluster.ProcessNode
	Sessions interface {
		Connections(ctx context.Context, identity string) (total, live int, err error)
		Locks(ctx context.Context, controller string) ([]plan.ResourceKey, error)
	}
	Objects    func(controller string) LockWriter // of the cluster in which the controller runs
	Home       map[string]string                  // the cluster in which a controller runs; empty: the only one
	Access     *site.Access                       // to other clusters
	KeepLeases map[string]bool                    // controllers whose locks are not released
	// Await returns when a controller runs and has more than so many sessions.
	Await func(ctx context.Context, name string, after int) error
	// Down and up are called when the plan has killed or frozen a controller, and when it goes on.
	Down, Up func(name string)
}

// LockWriter writes locks of leader elections; an objects.Client does.
type LockWriter interface {
	Delete(ctx context.Context, key plan.ResourceKey, o objects.DeleteOptions) error
	Patch(ctx context.Context, key plan.ResourceKey, patchType string, patch any, subresource string) (
		*unstructured.Unstructured, error)
}

// Kill also releases the killed process's leader election locks, unless the suite keeps them: otherwise a successor
// waits until they expire, which is not a bug and costs 15 s each time.
func (c *Controllers) Kill(ctx context.Context, name string) (running bool, err error) {
	if running, err = c.running(ctx, name); err != nil {
		return false, err
	}
	c.Down(name)
	if err := c.Node.Kill(ctx, name); err != nil {
		return running, fmt.Errorf("kill controller %q: %w", name, err)
	}
	return running, c.releaseLocks(ctx, name)
}

// running reports whether the controller has a running process.
func (c *Controllers) running(ctx context.Context, name string) (bool, error) {
	processes, err := c.Node.Status(ctx, name)
	if err != nil {
		return false, fmt.Errorf("status of controller %q: %w", name, err)
	}
	return slices.ContainsFunc(processes, cluster.Process.Running), nil
}

// releaseLocks releases a killed controller's leader election locks: it deletes leases, and removes the election's
// annotation from ConfigMaps and Endpoints, which may hold other data.
func (c *Controllers) releaseLocks(ctx context.Context, name string) error {
	if c.KeepLeases[name] {
		return nil
	}
	locks, err := c.Sessions.Locks(ctx, name)
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range locks {
		if l.Type == "lease" {
			err = c.Objects(name).Delete(ctx, l, objects.DeleteOptions{})
		} else {
			_, err = c.Objects(name).Patch(ctx, l, "merge", map[string]any{
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
func (c *Controllers) Start(ctx context.Context, name string) (running bool, err error) {
	before, _, err := c.Sessions.Connections(ctx, name)
	if err != nil {
		return false, err
	}
	if running, err = c.running(ctx, name); err != nil {
		return false, err
	}
	if err := c.Node.Start(ctx, name); err != nil {
		return running, fmt.Errorf("start controller %q: %w", name, err)
	}
	if running {
		before = 0 // its present session counts
	}
	if err := c.Await(ctx, name, before); err != nil {
		return running, err
	}
	c.Up(name)
	return running, nil
}

// Freeze stops a process of a controller.
func (c *Controllers) Freeze(ctx context.Context, name string, pid int) error {
	c.Down(name)
	return c.Node.Freeze(ctx, name, pid)
}

// Thaw lets a controller's frozen processes go on.
func (c *Controllers) Thaw(ctx context.Context, name string, kill bool) (frozen int, err error) {
	if frozen, err = c.Node.Thaw(ctx, name, kill); err != nil {
		return frozen, err
	}
	c.Up(name)
	return frozen, nil
}

// Route directs new connections of a controller to the API server.
func (c *Controllers) Route(ctx context.Context, name, apiServer string) error {
	if to, elsewhere := c.elsewhere(name, apiServer); elsewhere {
		return c.Access.Route(to, apiServer)
	}
	return c.Node.Route(ctx, name, apiServer)
}

// CutConnections closes a controller's connections to the API server's cluster.
func (c *Controllers) CutConnections(ctx context.Context, name, apiServer string) error {
	if to, elsewhere := c.elsewhere(name, apiServer); elsewhere {
		return c.Access.Cut(to)
	}
	return c.Node.CutConnections(ctx, name)
}

// elsewhere returns the controller's connection to an API server that is not in its own cluster.
func (c *Controllers) elsewhere(name, apiServer string) (site.Connection, bool) {
	in, _ := plan.SplitServer(apiServer)
	return site.Connection{Controller: name, Cluster: in}, in != c.Home[name]
}

// APIServers implements actions.APIServers.
type APIServers struct {
	Cluster  string                  // its name
	Killer   cluster.APIServerKiller // nil: not supported
	Ready    time.Duration           // in which a server has to connect
	Sessions interface {
		Connections(ctx context.Context, identity string) (total, live int, err error)
		WaitConnected(ctx context.Context, identity string, after, n int) error
	}

	mu   sync.Mutex
	down map[string]bool // killed by the plan; its session may stay live for a moment
}

// running reports whether the API server is running, and how many sessions it has had.
func (a *APIServers) running(ctx context.Context, name string) (running bool, sessions int, err error) {
	sessions, live, err := a.Sessions.Connections(ctx, name)
	if err != nil {
		return false, 0, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return live > 0 && !a.down[name], sessions, nil
}

// supported returns an error if the cluster cannot kill API servers.
func (a *APIServers) supported() error {
	if a.Killer != nil {
		return nil
	}
	return fmt.Errorf("kill or start an API server of cluster %q: %w", a.Cluster, cluster.ErrNotSupported)
}

func (a *APIServers) mark(name string, down bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down == nil {
		a.down = map[string]bool{}
	}
	a.down[name] = down
}

// KillAPIServer kills an API server, which stays down.
func (a *APIServers) KillAPIServer(ctx context.Context, name string) (running bool, err error) {
	if running, _, err = a.running(ctx, name); err != nil {
		return false, err
	}
	if err := a.supported(); err != nil {
		return running, err
	}
	if err := a.Killer.KillAPIServer(ctx, name); err != nil {
		return running, err
	}
	a.mark(name, true)
	return running, nil
}

// StartAPIServer also waits for the hook: a server that has not connected is not observed.
func (a *APIServers) StartAPIServer(ctx context.Context, name string) (running bool, err error) {
	running, sessions, err := a.running(ctx, name)
	if err != nil {
		return false, err
	}
	if err := a.supported(); err != nil {
		return false, err
	}
	if err := a.Killer.StartAPIServer(ctx, name); err != nil || running {
		return running, err
	}
	ctx, cancel := clock.WithTimeout(ctx, a.Ready)
	defer cancel()
	if err := a.Sessions.WaitConnected(ctx, name, sessions, 1); err != nil {
		return false, err
	}
	a.mark(name, false)
	return false, nil
}

// Writes implements actions.Objects.
type Writes struct {
	Objects   writer
	Dir       string            // of the run record
	Manifests map[string]string // path in the plan to path in the record
}

// writer writes objects in a cluster; an objects.Client does.
type writer interface {
	LockWriter
	Apply(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error)
}

// Apply applies an object.
func (w *Writes) Apply(ctx context.Context, object map[string]any) error {
	list, _, err := manifests.Served([]*unstructured.Unstructured{{Object: object}})
	if err != nil {
		return err
	}
	return w.applyAll(ctx, list)
}

// ApplyFile applies the record's copy of a manifest.
func (w *Writes) ApplyFile(ctx context.Context, file string) error {
	list, _, err := manifests.ReadServed(filepath.Join(w.Dir, filepath.FromSlash(w.Manifests[file])))
	if err != nil {
		return err
	}
	return w.applyAll(ctx, list)
}

func (w *Writes) applyAll(ctx context.Context, list []*unstructured.Unstructured) error {
	for _, u := range list {
		if _, err := w.Objects.Apply(ctx, u); err != nil {
			return err
		}
	}
	return nil
}

// Patch patches an object.
func (w *Writes) Patch(ctx context.Context, key plan.ResourceKey, subresource, patchType string, patch any) error {
	_, err := w.Objects.Patch(ctx, key, patchType, patch, subresource)
	return err
}

// Delete deletes an object.
func (w *Writes) Delete(ctx context.Context, key plan.ResourceKey) error {
	return w.Objects.Delete(ctx, key, objects.DeleteOptions{})
}
