package run

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/objects"
	"github.com/trommel-dev/trommel/plan"
)

// controllers implements actions.Controllers on the process node.
type controllers struct{ *runner }

// Kill takes the killed process's leases with it, unless the suite keeps them: a successor would wait them out, which is no
// bug of the controller's but 15 s of everybody's time.
func (c *controllers) Kill(ctx context.Context, name string) error {
	if err := c.cluster.Processes().Kill(ctx, name); err != nil {
		return fmt.Errorf("kill controller %q: %w", name, err)
	}
	for i := range c.Suite.Controllers {
		if c.Suite.Controllers[i].Name == name && c.Suite.Controllers[i].KeepLeases {
			return nil
		}
	}
	leases, err := c.coordinator.Leases(ctx, name)
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range leases {
		namespace, lease, _ := strings.Cut(l, "/")
		key := plan.ResourceKey{Type: "lease", Group: "coordination.k8s.io", Namespace: namespace, Name: lease}
		if err := c.objects.Delete(ctx, key, objects.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete lease %s of killed controller %q: %w", l, name, err))
		}
	}
	return errors.Join(errs...)
}

func (c *controllers) Start(ctx context.Context, name string) error {
	before, live, err := c.coordinator.Connections(ctx, name)
	if err != nil {
		return err
	}
	if err := c.cluster.Processes().Start(ctx, name); err != nil {
		return fmt.Errorf("start controller %q: %w", name, err)
	}
	for i := range c.Suite.Controllers {
		if c.Suite.Controllers[i].Name != name {
			continue
		}
		if live > 0 {
			before = 0 // it was running all along
		}
		return c.awaitController(ctx, name, c.Binaries[i].Manifest != nil, before)
	}
	return nil
}

func (c *controllers) Route(ctx context.Context, name, apiServer string) error {
	return c.cluster.Processes().Route(ctx, name, apiServer)
}

func (c *controllers) CutConnections(ctx context.Context, name string) error {
	return c.cluster.Processes().CutConnections(ctx, name)
}

// apiServers implements actions.APIServers.
type apiServers struct{ *runner }

func (a *apiServers) KillAPIServer(ctx context.Context, name string) error {
	return a.cluster.KillAPIServer(ctx, name)
}

// StartAPIServer waits for the hook too: what happens on a server that has not connected is not observed.
func (a *apiServers) StartAPIServer(ctx context.Context, name string) error {
	before, live, err := a.coordinator.Connections(ctx, name)
	if err != nil {
		return err
	}
	if err := a.cluster.StartAPIServer(ctx, name); err != nil {
		return err
	}
	if live > 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.Suite.Timeouts.Ready)
	defer cancel()
	return a.coordinator.WaitConnected(ctx, name, before)
}

// planWrites implements actions.Objects.
type planWrites struct{ *runner }

func (w *planWrites) Apply(ctx context.Context, object map[string]any) error {
	_, err := w.objects.Apply(ctx, &unstructured.Unstructured{Object: object})
	return err
}

func (w *planWrites) ApplyFile(ctx context.Context, file string) error {
	list, err := objects.Read(plan.Beside(w.Plan.File, file))
	if err != nil {
		return err
	}
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
