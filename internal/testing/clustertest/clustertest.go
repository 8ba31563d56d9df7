// Package clustertest provides tests with a real cluster.
package clustertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/internal/cluster/embedded"
)

// EnvBinary is the path of a control plane executable to use instead of building one.
const EnvBinary = "TROMMEL_CONTROLPLANE_BINARY"

// Binary returns the path of a control plane executable. The first call on a machine takes minutes.
var Binary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(EnvBinary); path != "" {
		return path, nil
	}
	built, err := instrumentation.BuildControlPlane(context.Background(), instrumentation.ControlPlaneConfig{
		Progress: func(line string) { fmt.Fprintln(os.Stderr, line) },
	})
	if err != nil {
		return "", err
	}
	return built.Binary, nil
})

// StartTimeout is how long a cluster may take to start on a machine that is also running other tests.
const StartTimeout = 2 * time.Minute

// Run runs a package's tests with one cluster for all of them, which it first passes to use. Call it in TestMain.
func Run(m *testing.M, config embedded.Config, use func(*embedded.Cluster)) (code int) {
	var err error
	if config.Binary, err = Binary(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), StartTimeout)
	defer cancel()
	c, err := embedded.Start(ctx, config)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		for _, c := range append(once.clusters, c) {
			if err := c.Close(context.Background()); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = max(code, 1)
			}
		}
	}()
	use(c)
	return m.Run()
}

// once are the clusters that the functions of Once have started.
var once struct {
	sync.Mutex
	clusters []*embedded.Cluster
}

// Once returns a function that returns clusters for several tests of a package. Its first call starts them, all at the
// same time; Run closes them.
func Once(configs ...embedded.Config) func(testing.TB) []*embedded.Cluster {
	start := sync.OnceValues(func() ([]*embedded.Cluster, error) {
		binary, err := Binary()
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(context.Background(), StartTimeout)
		defer cancel()
		clusters := make([]*embedded.Cluster, len(configs))
		var starting errgroup.Group
		for i, config := range configs {
			starting.Go(func() error {
				config.Binary = binary
				c, err := embedded.Start(ctx, config)
				if err != nil {
					return err
				}
				clusters[i] = c
				once.Lock()
				defer once.Unlock()
				once.clusters = append(once.clusters, c)
				return nil
			})
		}
		return clusters, starting.Wait()
	})
	return func(t testing.TB) []*embedded.Cluster {
		t.Helper()
		clusters, err := start()
		if err != nil {
			t.Fatal(err)
		}
		return clusters
	}
}

// Start starts a cluster for one test, of the default version of Kubernetes if the configuration has no binary.
func Start(t testing.TB, config embedded.Config) *embedded.Cluster {
	t.Helper()
	var err error
	if config.Binary == "" {
		if config.Binary, err = Binary(); err != nil {
			t.Fatal(err)
		}
	}
	if config.LogDir == "" {
		// Kept with go test -artifacts. A test may have several clusters.
		if config.LogDir, err = os.MkdirTemp(t.ArtifactDir(), "cluster"); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), StartTimeout)
	defer cancel()
	c, err := embedded.Start(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// RunManager runs a manager of controllers until the end of the test, or until stop is called, and returns when its
// caches have filled. start and synced are the manager's and its cache's; with one of the tolerated errors, the manager
// may end at stop.
func RunManager(
	t testing.TB, start func(context.Context) error, synced func(context.Context) bool, tolerated ...error,
) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		err := <-done
		// Without an API server, as after a crash, it may not end in time.
		if err == nil || errors.Is(err, context.DeadlineExceeded) || slices.ContainsFunc(tolerated,
			func(other error) bool { return strings.Contains(err.Error(), other.Error()) }) {
			return
		}
		t.Error(err)
	})
	t.Cleanup(stop)
	if !synced(ctx) {
		t.Fatal("the caches have not filled")
	}
	return stop
}

// Eventually fails the test unless the condition succeeds within two minutes. The condition's error says what is
// missing.
func Eventually(t testing.TB, condition func(context.Context) error) {
	t.Helper()
	Within(t, 2*time.Minute, condition)
}

// Within is Eventually with another limit.
func Within(t testing.TB, limit time.Duration, condition func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := condition(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(last)
		}
	}
}
