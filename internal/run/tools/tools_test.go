package tools

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/plan"
)

// statuses are the processes of each controller.
type statuses map[string][]cluster.Process

func (s statuses) Status(_ context.Context, controller string) ([]cluster.Process, error) {
	return s[controller], nil
}

// calls notes in which order a tool calls what it was given.
type calls struct {
	cluster.ProcessNode // nil: no other method is called
	statuses
	told []string
	live int   // sessions
	err  error // of every call that changes something
}

func (c *calls) did(format string, args ...any) error {
	c.told = append(c.told, fmt.Sprintf(format, args...))
	return c.err
}

// The process node.
func (c *calls) Status(ctx context.Context, name string) ([]cluster.Process, error) {
	return c.statuses.Status(ctx, name)
}
func (c *calls) Kill(_ context.Context, name string) error  { return c.did("kill %s", name) }
func (c *calls) Start(_ context.Context, name string) error { return c.did("start %s", name) }
func (c *calls) Freeze(_ context.Context, name string, pid int) error {
	return c.did("freeze %s %d", name, pid)
}
func (c *calls) Thaw(_ context.Context, name string, kill bool) (int, error) {
	return 1, c.did("thaw %s %t", name, kill)
}

// The coordinator.
func (c *calls) Connections(context.Context, string) (total, live int, err error) {
	return 3, c.live, nil
}
func (c *calls) Locks(context.Context, string) ([]plan.ResourceKey, error) {
	return []plan.ResourceKey{
		{Type: "lease", Namespace: "a", Name: "gone"}, {Type: "configmap", Namespace: "a", Name: "lock"},
	}, nil
}
func (c *calls) WaitConnected(_ context.Context, name string, after, n int) error {
	return c.did("wait for %d sessions of %s after %d", n, name, after)
}

// The API servers.
func (c *calls) KillAPIServer(_ context.Context, name string) error  { return c.did("kill %s", name) }
func (c *calls) StartAPIServer(_ context.Context, name string) error { return c.did("start %s", name) }

// Objects.
func (c *calls) Apply(_ context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return u, c.did("apply %s", u.GetName())
}
func (c *calls) Delete(_ context.Context, key plan.ResourceKey, _ objects.DeleteOptions) error {
	if err := c.did("delete %s", key); err != nil {
		return err
	}
	if key.Name == "gone" {
		return apierrors.NewNotFound(schema.GroupResource{Resource: key.Type}, key.Name)
	}
	return nil
}
func (c *calls) Patch(
	_ context.Context, key plan.ResourceKey, patchType string, patch any, subresource string,
) (*unstructured.Unstructured, error) {
	return nil, c.did("patch %s %s %v %s", key, patchType, patch, subresource)
}

// controllers are the tool with all of this.
func (c *calls) controllers(keepLeases bool) *Controllers {
	return &Controllers{
		Node: c, Sessions: c, KeepLeases: map[string]bool{"db": keepLeases},
		Objects: func(string) LockWriter { return c },
		Await: func(_ context.Context, name string, after int) error {
			return c.did("await %s after %d", name, after)
		},
		Down: func(name string) { _ = c.did("%s is down", name) },
		Up:   func(name string) { _ = c.did("%s is up", name) },
	}
}

func TestControllersTool(t *testing.T) {
	running := statuses{"db": {{PID: 1}}}
	const unlock = "patch configmap/a/lock merge map[metadata:map[annotations:" +
		"map[control-plane.alpha.kubernetes.io/leader:<nil>]]] "
	for _, test := range []struct {
		name       string
		processes  statuses
		keepLeases bool
		do         func(ctx context.Context, c *Controllers) (any, error)
		got        any
		told       []string
	}{
		{
			name: "kill", processes: running,
			do:  func(ctx context.Context, c *Controllers) (any, error) { return c.Kill(ctx, "db") },
			got: true, told: []string{"db is down", "kill db", "delete lease/a/gone", unlock},
		},
		{
			name: "kill, and it is not running; its locks are kept", keepLeases: true,
			do:  func(ctx context.Context, c *Controllers) (any, error) { return c.Kill(ctx, "db") },
			got: false, told: []string{"db is down", "kill db"},
		},
		{
			name: "start",
			do:   func(ctx context.Context, c *Controllers) (any, error) { return c.Start(ctx, "db") },
			got:  false, told: []string{"start db", "await db after 3", "db is up"},
		},
		{
			name: "start, and it is running: its present session counts", processes: running,
			do:  func(ctx context.Context, c *Controllers) (any, error) { return c.Start(ctx, "db") },
			got: true, told: []string{"start db", "await db after 0", "db is up"},
		},
		{
			name: "freeze",
			do:   func(ctx context.Context, c *Controllers) (any, error) { return nil, c.Freeze(ctx, "db", 7) },
			told: []string{"db is down", "freeze db 7"},
		},
		{
			name: "thaw",
			do:   func(ctx context.Context, c *Controllers) (any, error) { return c.Thaw(ctx, "db", true) },
			got:  1, told: []string{"thaw db true", "db is up"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			to := &calls{statuses: test.processes}
			got, err := test.do(t.Context(), to.controllers(test.keepLeases))
			if err != nil || got != test.got || !slices.Equal(to.told, test.told) {
				t.Errorf("%v, %v\n%q, want\n%q", got, err, to.told, test.told)
			}
		})
	}
}

// What could not be started does not count as going on, and errors name the controller.
func TestControllersToolFails(t *testing.T) {
	failed := errors.New("failed")
	to := &calls{err: failed}
	c := to.controllers(false)
	_, kill := c.Kill(t.Context(), "db")
	_, start := c.Start(t.Context(), "db")
	_, thaw := c.Thaw(t.Context(), "db", false)
	for _, err := range []error{kill, start, thaw} {
		if !errors.Is(err, failed) {
			t.Error(err)
		}
	}
	if !strings.Contains(kill.Error(), `kill controller "db"`) ||
		!strings.Contains(start.Error(), `start controller "db"`) {
		t.Errorf("%v, %v", kill, start)
	}
	if slices.Contains(to.told, "db is up") {
		t.Errorf("%q", to.told)
	}
}

func TestAPIServersTool(t *testing.T) {
	to := &calls{live: 1}
	a := &APIServers{Cluster: "c", Killer: to, Ready: time.Second, Sessions: to}
	steps := []func(context.Context, string) (bool, error){
		a.StartAPIServer, a.KillAPIServer, a.KillAPIServer, a.StartAPIServer, a.StartAPIServer,
	}
	var running []bool
	for _, step := range steps {
		was, err := step(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		running = append(running, was)
	}
	// Its session is still live after it was killed.
	if want := []bool{true, true, false, false, true}; !slices.Equal(running, want) {
		t.Errorf("running %t, want %t", running, want)
	}
	want := []string{"start x", "kill x", "kill x", "start x", "wait for 1 sessions of x after 3", "start x"}
	if !slices.Equal(to.told, want) {
		t.Errorf("%q, want %q", to.told, want)
	}
	a = &APIServers{Cluster: "c", Sessions: to}
	if _, err := a.KillAPIServer(t.Context(), "x"); !errors.Is(err, cluster.ErrNotSupported) ||
		!strings.Contains(err.Error(), `kill or start an API server of cluster "c"`) {
		t.Error(err)
	}
}

func TestPlanWrites(t *testing.T) {
	to := new(calls)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "1-a.yaml"),
		[]byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := &Writes{Objects: to, Dir: dir, Manifests: map[string]string{"manifests/a.yaml": "1-a.yaml"}}
	key := plan.ResourceKey{Type: "configmap", Namespace: "a", Name: "b"}
	if err := errors.Join(
		w.ApplyFile(t.Context(), "manifests/a.yaml"),
		w.Apply(t.Context(), map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c"},
		}),
		w.Patch(t.Context(), key, "status", "merge", 1),
		w.Delete(t.Context(), key),
	); err != nil {
		t.Fatal(err)
	}
	want := []string{"apply a", "apply c", "patch configmap/a/b merge 1 status", "delete configmap/a/b"}
	if !slices.Equal(to.told, want) {
		t.Errorf("%q, want %q", to.told, want)
	}
}
