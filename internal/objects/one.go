package objects

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/trommel-dev/trommel/plan"
)

// FollowOne calls see with each state of the object, nil while it does not exist, until see is done or has an error,
// which it returns, or until ctx ends. T is the object's Go type.
func FollowOne[T any](
	ctx context.Context, c *Client, key plan.ResourceKey, see func(*T) (done bool, err error),
) error {
	t, err := c.Resolve(ctx, key)
	if err != nil {
		return err
	}
	f := &oneFollower[T]{see: see}
	if err := c.Follow(ctx, t, key.Namespace, key.Name, f); err != nil {
		return err
	}
	return f.err
}

type oneFollower[T any] struct {
	see func(*T) (bool, error)
	err error
}

func (f *oneFollower[T]) show(u *unstructured.Unstructured) (stop bool) {
	var o *T
	if u != nil {
		o = new(T)
		if f.err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o); f.err != nil {
			return true
		}
	}
	stop, f.err = f.see(o)
	return stop || f.err != nil
}

func (f *oneFollower[T]) Listed(list []*unstructured.Unstructured, _ string) bool {
	if len(list) == 0 {
		return f.show(nil)
	}
	return f.show(list[0])
}

func (f *oneFollower[T]) Changed(event watch.EventType, u *unstructured.Unstructured) bool {
	if event == watch.Deleted {
		u = nil
	}
	return f.show(u)
}

func (f *oneFollower[T]) Broken(error) bool { return false }
