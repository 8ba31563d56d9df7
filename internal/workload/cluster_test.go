package workload_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trommel-dev/trommel/internal/cluster/embedded"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
	"github.com/trommel-dev/trommel/plan"
)

// The tests of workload, objects and judge that need a real control plane share one. Each has its own namespace.
var shared struct {
	once    sync.Once
	cluster *embedded.Cluster
	err     error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.cluster != nil {
		if err := shared.cluster.Close(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "close cluster:", err)
			code = 1
		}
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// startCluster starts the shared cluster.
func startCluster(t *testing.T) *embedded.Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	shared.once.Do(func() {
		binary, err := clustertest.Binary()
		if err != nil {
			shared.err = err
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), clustertest.StartTimeout)
		defer cancel()
		shared.cluster, shared.err = embedded.Start(ctx, embedded.Config{Binary: binary, APIServers: 2, Nodes: 1})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cluster
}

// client returns a client of an API server, by default of the first one.
func client(t *testing.T, c *embedded.Cluster, apiServer string) *objects.Client {
	t.Helper()
	config, err := c.RESTConfig(apiServer)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	o, err := objects.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// testContext ends before the test's binary does.
func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

var namespaces atomic.Int64 // how many namespace has created

// namespace creates a namespace named after the test. Each one is new, also with -count.
func namespace(t *testing.T, c *objects.Client) string {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-", ",", "").Replace(t.Name()))
	if len(name) > 50 {
		name = name[:50]
	}
	name = fmt.Sprintf("%s-%d", name, namespaces.Add(1))
	apply(t, c, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}})
	return name
}

func apply(t *testing.T, c *objects.Client, object map[string]any) {
	t.Helper()
	u, err := objects.FromMap(object)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Apply(testContext(t), u); err != nil {
		t.Fatal(err)
	}
}

func configMap(namespace, name, value string) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": namespace},
		"data": map[string]any{"value": value},
	}
}

func key(t *testing.T, s string) plan.ResourceKey {
	t.Helper()
	k, err := plan.ParseResourceKey(s)
	if err != nil {
		t.Fatal(err)
	}
	return k
}
