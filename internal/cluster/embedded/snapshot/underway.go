package snapshot

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/trommel-dev/trommel/internal/clock"
)

// Marks of the nodes that KWOK manages, and only of those.
const (
	SimulatedAnnotation = "kwok.x-k8s.io/node" // KWOK's own
	SimulatedValue      = "fake"
)

// PodsUnderWay returns the pods that a simulated node has still to make Ready, or to end, from the etcd at a socket: an
// API server may be paused or killed, and its watch cache stale.
func PodsUnderWay(ctx context.Context, socket string) (under []types.UID, err error) {
	store := newStore(socket)
	defer store.close()
	pods, err := decoded[*corev1.Pod](ctx, store, "pods/")
	if err != nil {
		return nil, err
	}
	for _, p := range pods {
		if takesTime(p) {
			under = append(under, p.UID)
		}
	}
	if len(under) == 0 {
		return nil, nil
	}
	nodes, err := decoded[*corev1.Node](ctx, store, "minions/")
	if err != nil {
		return nil, err
	}
	simulated := map[string]bool{}
	for _, n := range nodes {
		simulated[n.Name] = n.Annotations[SimulatedAnnotation] == SimulatedValue
	}
	under = nil
	for _, p := range pods {
		if takesTime(p) && simulated[p.Spec.NodeName] {
			under = append(under, p.UID)
		}
	}
	return under, nil
}

// takesTime reports whether a simulated node has still to make a pod Ready, or to end it.
func takesTime(p *corev1.Pod) bool {
	switch {
	case p.Spec.NodeName == "":
		return false
	case p.DeletionTimestamp != nil:
		// Otherwise the node has done its part, and a finalizer keeps the pod.
		return p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds > 0
	}
	return p.Status.Phase == corev1.PodPending
}

// decoded returns the objects below a key of the registry.
func decoded[Object any](ctx context.Context, store *store, prefix string) (all []Object, err error) {
	keys, _, err := store.list(ctx, registryPrefix+prefix, false)
	if err != nil {
		return nil, err
	}
	for _, kv := range keys {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(kv.Value, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", kv.Key, err)
		}
		if o, ok := object.(Object); ok {
			all = append(all, o)
		}
	}
	return all, nil
}

// awaitPods waits until no simulated pod is under way, but not longer than they take.
func (r Resetter) awaitPods(ctx context.Context) error {
	const look, most = 100 * time.Millisecond, 5 * time.Second
	ctx, cancel := clock.WithTimeout(ctx, most)
	defer cancel()
	for {
		under, err := PodsUnderWay(ctx, r.Socket)
		if ctx.Err() != nil || err == nil && len(under) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		_ = clock.Sleep(ctx, look)
	}
}
