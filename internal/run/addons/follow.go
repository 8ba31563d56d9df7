package addons

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/plan"
)

// ownObjects writes the objects of a tool, which follows them until they are what it wants; an objects.Client does.
type ownObjects interface {
	Apply(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error)
	Get(ctx context.Context, key plan.ResourceKey) (*unstructured.Unstructured, error)
	Delete(ctx context.Context, key plan.ResourceKey, o objects.DeleteOptions) error
}

// follows is objects.FollowOne on a cluster.
type follows[T any] func(ctx context.Context, key plan.ResourceKey, see func(*T) (done bool, err error)) error

func followOn[T any](c *objects.Client) follows[T] {
	return func(ctx context.Context, key plan.ResourceKey, see func(*T) (done bool, err error)) error {
		return objects.FollowOne(ctx, c, key, see)
	}
}

// followedCluster is a cluster in which objects of a type are written and followed.
type followedCluster[T any] struct {
	ownObjects
	follow follows[T]
}

// followedIn returns what knows the clusters of a run by their names.
func followedIn[T any](c *Config) func(cluster string) followedCluster[T] {
	return func(cluster string) followedCluster[T] {
		in := c.site(cluster).Objects
		return followedCluster[T]{in, followOn[T](in)}
	}
}

// why adds the last state to a timeout.
func why(err error, last string) error {
	if last = strings.TrimSpace(last); last != "" && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w; it is %s", err, last)
	}
	return err
}
