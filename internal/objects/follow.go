package objects

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/trommel-dev/trommel/internal/clock"
)

// Follower receives what [Client.Follow] sees, from one goroutine.
type Follower interface {
	// Listed receives all objects as of a resource version: at the beginning, and again when the API server no longer
	// knows what happened since the last event. It returns true to stop.
	Listed(objects []*unstructured.Unstructured, resourceVersion string) (stop bool)
	// Changed receives one event, in order and without duplicates: watch.Added, Modified or Deleted. It returns true to
	// stop.
	Changed(event watch.EventType, object *unstructured.Unstructured) (stop bool)
	// Broken reports that the connection broke or could not be made; Follow retries. It returns true to stop.
	Broken(err error) (stop bool)
}

const (
	followBackoff    = 20 * time.Millisecond
	followBackoffMax = 500 * time.Millisecond
)

// Follow lists the objects of a type and then watches them, through restarts of the API server, until the follower
// stops it (nil) or ctx ends (its error). Name, if not empty, restricts it to the object with that name.
func (c *Client) Follow(ctx context.Context, t Type, namespace, name string, f Follower) error {
	resource := c.Resource(t, namespace)
	selector := ""
	if name != "" {
		selector = "metadata.name=" + name
	}
	version := "" // where to continue watching; empty: list first
	backoff := followBackoff
	for {
		var err error
		if version == "" {
			var list *unstructured.UnstructuredList
			list, err = resource.List(ctx, metav1.ListOptions{FieldSelector: selector})
			if err == nil {
				all := make([]*unstructured.Unstructured, len(list.Items))
				for i := range list.Items {
					all[i] = &list.Items[i]
				}
				version = list.GetResourceVersion()
				if f.Listed(all, version) {
					return nil
				}
			}
		}
		if err == nil {
			before := version
			var stop bool
			version, stop, err = c.watch(ctx, t, namespace, selector, version, f)
			if stop {
				return nil
			}
			if version != before {
				backoff = followBackoff
			}
		}
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			version = ""
		}
		if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) &&
			f.Broken(err) {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := clock.Sleep(ctx, backoff); err != nil {
			return err
		}
		backoff = min(2*backoff, followBackoffMax)
	}
}

// watch returns the resource version of the last event that the follower has received. It is not an error if the API
// server ends the watch.
func (c *Client) watch(ctx context.Context, t Type, namespace, selector, version string,
	f Follower) (last string, stop bool, err error) {
	w, err := c.Resource(t, namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: selector, ResourceVersion: version, AllowWatchBookmarks: true,
	})
	if err != nil {
		return version, false, err
	}
	// Events that are left in the channel after Stop are dropped: they are read only so that the watcher's goroutine
	// ends.
	defer func() {
		w.Stop()
		for range w.ResultChan() {
		}
	}()
	for event := range w.ResultChan() {
		if event.Type == watch.Error {
			err := apierrors.FromObject(event.Object)
			if errors.Is(err, context.Canceled) || ctx.Err() != nil {
				return version, false, ctx.Err()
			}
			return version, false, fmt.Errorf("watch %s: %w", t.Resource.Resource, err)
		}
		u, ok := event.Object.(*unstructured.Unstructured)
		if !ok {
			return version, false, fmt.Errorf("watch %s: unexpected %T", t.Resource.Resource, event.Object)
		}
		version = u.GetResourceVersion()
		if event.Type != watch.Bookmark && f.Changed(event.Type, u) {
			return version, true, nil
		}
	}
	return version, false, nil
}
