package helm

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/config"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/cluster/embedded"
	"github.com/trommel-dev/trommel/internal/controllers"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

// The tests share two clusters: one for a parent's controllers, and one in which nothing is installed but the account
// of the installer. Its pods are simulated.
var (
	parentCluster *embedded.Cluster
	childClusters = clustertest.Once(embedded.Config{APIServers: 1, Nodes: 1})
)

func TestMain(m *testing.M) {
	os.Exit(clustertest.Run(m, embedded.Config{APIServers: 1}, func(c *embedded.Cluster) { parentCluster = c }))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func newScheme() *runtime.Scheme { return must(controllers.Scheme(chaos.AddToScheme)) }

// side is a cluster as its administrator sees it.
type side struct {
	client.Client
	admin *rest.Config
	// account is that of the parent's controllers, or of the installer.
	account *rest.Config
	id      string
}

// parentSide returns the parent, with the manifests of a parent.
func parentSide(t testing.TB) *side {
	t.Helper()
	s, err := preparedParent()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var preparedParent = sync.OnceValues(func() (*side, error) {
	files := slices.Concat(config.Installed, config.Parent)
	return prepare(parentCluster, "disruption-controllers", files,
		authorizationv1.ResourceAttributes{Verb: "list", Group: chaos.GroupVersion.Group, Resource: "remoteclusters"},
		authorizationv1.ResourceAttributes{Verb: "list", Resource: "secrets", Namespace: "trommel-chaos"},
		authorizationv1.ResourceAttributes{Verb: "create", Resource: "pods", Namespace: "trommel-chaos"})
})

// childSide returns the child, with the account of the installer.
func childSide(t testing.TB) *side {
	t.Helper()
	s, err := preparedChild(childClusters(t)[0])
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var preparedChild = func() func(*embedded.Cluster) (*side, error) {
	var once sync.Once
	var s *side
	var err error
	return func(c *embedded.Cluster) (*side, error) {
		once.Do(func() {
			s, err = prepare(c, "disruption-installer", []string{"installer/access.yaml"},
				authorizationv1.ResourceAttributes{Verb: "list", Resource: "secrets", Namespace: "trommel-chaos"},
				authorizationv1.ResourceAttributes{
					Verb: "create", Group: "rbac.authorization.k8s.io", Resource: "clusterroles",
				})
		})
		return s, err
	}
}()

// prepare applies manifests, and requests a token for an account of theirs.
func prepare(
	c *embedded.Cluster, account string, files []string, rights ...authorizationv1.ResourceAttributes,
) (*side, error) {
	ctx := context.Background()
	s := &side{}
	var err error
	if s.admin, err = c.RESTConfig(""); err != nil {
		return nil, err
	}
	s.admin.QPS, s.admin.Burst = 500, 500 // the tests ask again and again
	applier, err := objects.New(s.admin)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		data, err := fs.ReadFile(config.Files, file)
		if err != nil {
			return nil, err
		}
		list, err := objects.Decode(data, file)
		if err != nil {
			return nil, err
		}
		for _, u := range list {
			if err := objects.Retry(ctx, func(ctx context.Context) error {
				_, err := applier.Apply(ctx, u)
				return err
			}); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	if s.Client, err = client.New(s.admin, client.Options{Scheme: newScheme()}); err != nil {
		return nil, err
	}
	a, err := clustertest.NewAccount(ctx, s.admin, "trommel-chaos", account, rights...)
	if err != nil {
		return nil, err
	}
	s.account, _ = a.Recorded()
	s.id = "parent-of-tests"
	return s, nil
}

// kubeconfig is one of the account.
func (s *side) kubeconfig() []byte {
	return must(clientcmd.Write(*cluster.Kubeconfig("child", s.account)))
}
