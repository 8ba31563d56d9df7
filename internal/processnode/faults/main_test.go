package faults_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/trommel-dev/trommel/chaos/command/injector"
	"github.com/trommel-dev/trommel/internal/cluster/embedded"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

// envInjector makes the test's executable an injector.
const envInjector = "TROMMEL_TEST_INJECTOR"

// shared is for all tests; each uses its own namespace.
var (
	shared *embedded.Cluster
	client kubernetes.Interface
	pods   clustertest.Pods
)

func TestMain(m *testing.M) {
	if os.Getenv(envInjector) != "" {
		os.Exit(injector.Run(context.Background(), os.Args[1:]))
	}
	os.Exit(clustertest.Run(m, embedded.Config{APIServers: 1, Nodes: 2}, func(c *embedded.Cluster) {
		shared = c
		config, err := c.RESTConfig("")
		if err != nil {
			panic(err)
		}
		client = kubernetes.NewForConfigOrDie(config)
		pods = clustertest.Pods{
			Cluster: c, Client: client, Testdata: filepath.Join("..", "..", "..", "testdata"),
		}
	}))
}
