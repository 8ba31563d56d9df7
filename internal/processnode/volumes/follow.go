package volumes

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/trommel-dev/trommel/internal/clock"
)

// Changed causes the volumes that contain fields of the pod to be rewritten.
func (v *Volumes) Changed() {
	select {
	case v.outdated <- struct{}{}:
	default:
	}
}

// followObjects rewrites volumes when an object that they come from changes, until ctx ends.
func (v *Volumes) followObjects(ctx context.Context) {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	following := false
	names := map[string]bool{}
	follow := func(resource, name string, o runtime.Object) {
		if following = true; names[resource+name] {
			return
		}
		names[resource+name] = true
		lister := cache.NewFilteredListWatchFromClient(v.pod.Client.CoreV1().RESTClient(), resource, v.pod.Namespace,
			func(o *metav1.ListOptions) {
				o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
				WatchOn(o)
			})
		_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
			ListerWatcher: lister, ObjectType: o, Handler: cache.ResourceEventHandlerFuncs{
				AddFunc: func(any) { v.Changed() }, UpdateFunc: func(any, any) { v.Changed() },
				DeleteFunc: func(any) { v.Changed() },
			},
		})
		tasks.Go(func() { informer.RunWithContext(ctx) })
	}
	source := func(configMap *corev1.LocalObjectReference, secret string) {
		switch {
		case configMap != nil:
			follow("configmaps", configMap.Name, &corev1.ConfigMap{})
		case secret != "":
			follow("secrets", secret, &corev1.Secret{})
		}
	}
	for i := range v.pod.Spec.Volumes {
		volume := &v.pod.Spec.Volumes[i]
		switch {
		case v.account.is(volume.Name):
		case volume.ConfigMap != nil:
			source(&volume.ConfigMap.LocalObjectReference, "")
		case volume.Secret != nil:
			source(nil, volume.Secret.SecretName)
		case volume.DownwardAPI != nil:
			following = true
		case volume.Projected != nil:
			following = true
			for _, s := range volume.Projected.Sources {
				if s.ConfigMap != nil {
					source(&s.ConfigMap.LocalObjectReference, "")
				}
				if s.Secret != nil {
					source(nil, s.Secret.Name)
				}
			}
		}
	}
	if !following {
		return
	}
	retry := clock.NewTimer(clock.Due(ctx), 0)
	defer retry.Stop()
	v.awaitTokens(ctx, retry)
	for {
		select {
		case <-v.outdated:
		case <-retry.C:
		case <-ctx.Done():
			return
		}
		failed := false
		for i := range v.pod.Spec.Volumes {
			volume := &v.pod.Spec.Volumes[i]
			if !fromObjects(volume) || v.account.is(volume.Name) {
				continue
			}
			// If a required object is deleted, the old content stays, as with a kubelet.
			if _, err := v.write(ctx, volume); err != nil && ctx.Err() == nil {
				failed = true
				if !apierrors.IsNotFound(err) {
					v.pod.Logger.Warn("update volume", "namespace", v.pod.Namespace, "pod", v.pod.Name,
						"volume", volume.Name, "error", err)
				}
			}
		}
		if v.awaitTokens(ctx, retry); failed {
			retry.Reset(volumeRetry)
		}
	}
}

// volumeRetry is the time until volumes are written again after a failure.
const volumeRetry = time.Second

// awaitTokens sets a timer to when the first token in volumes must be renewed; without any it stops the timer.
func (v *Volumes) awaitTokens(ctx context.Context, timer *clock.Timer) {
	timer.Stop()
	var first time.Time
	for _, t := range v.tokens {
		if first.IsZero() || t.renew.Before(first) {
			first = t.renew
		}
	}
	if !first.IsZero() {
		timer.Reset(max(clock.Until(ctx, first), volumeRetry))
	}
}

// WatchOn lets a watch last. A reflector of client-go asks the API server to end it after five to ten minutes. If the
// cluster's clock moves ahead, they may be over at once; the reflector, which waits in real time, would take that for
// a failure, and pause before it lists everything again.
func WatchOn(o *metav1.ListOptions) {
	if o.TimeoutSeconds != nil { // only a watch has one
		o.TimeoutSeconds = new(int64(watchSeconds))
	}
}

const watchSeconds = 10 * 365 * 24 * 60 * 60
