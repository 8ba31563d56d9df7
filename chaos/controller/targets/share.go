package targets

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
)

// reservations are the targets that disruptions are about to have, or have so recently that the cache does not show
// them yet: disruptions that begin together must not pass the safety nets together.
type reservations struct {
	mu       sync.Mutex
	reserved map[types.UID][]chaos.Target // by disruption
}

// release gives up what a disruption has reserved.
func (r *reservations) release(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.reserved, uid)
}

// hit are the targets of a disruption: those in its status, and those that it has reserved since. The caller holds mu.
func (r *reservations) hit(d *chaos.Disruption) []chaos.Target {
	shown := func() bool {
		for _, t := range r.reserved[d.UID] {
			if !controller.HasTarget(d, t.UID) {
				return false
			}
		}
		return true
	}
	if controller.Ending(d) || shown() {
		delete(r.reserved, d.UID)
	}
	return append(r.reserved[d.UID], d.Status.Targets...)
}

// reserve returns why the safety nets refuse the targets of a disruption; if they do not, it is empty, and the targets
// are reserved.
func (r *Reconciler) reserve(ctx context.Context, d *chaos.Disruption, targets []chaos.Target) (string, error) {
	nets := &r.Env.Config.Nets
	if nets.NamespaceShare == 0 && nets.ClusterShare == 0 {
		return "", nil
	}
	namespace, cluster, err := r.present(ctx, d)
	if err != nil {
		return "", err
	}
	var list chaos.DisruptionList
	if err := r.Env.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	hitNamespace, hitCluster := r.others(d, list.Items)
	refused := nets.TooMany(d, len(targets), namespace, cluster, hitNamespace, hitCluster)
	if refused == "" {
		if r.reserved == nil {
			r.reserved = map[types.UID][]chaos.Target{}
		}
		r.reserved[d.UID] = targets
	}
	return refused, nil
}

// others counts the targets of the other disruptions. The caller holds mu.
func (r *reservations) others(d *chaos.Disruption, list []chaos.Disruption) (namespace, cluster int) {
	hit, exist := map[types.UID]bool{}, map[types.UID]bool{d.UID: true}
	for i := range list {
		other := &list[i]
		exist[other.UID] = true
		if other.UID == d.UID || controller.SpecOf(other).Level != d.Spec.Level || other.Status.Schedule.Over ||
			controller.IsRemote(other) {
			continue
		}
		for _, t := range r.hit(other) {
			if hit[t.UID] {
				continue
			}
			hit[t.UID] = true
			cluster++
			if other.Namespace == d.Namespace {
				namespace++
			}
		}
	}
	for uid := range r.reserved {
		if !exist[uid] {
			delete(r.reserved, uid)
		}
	}
	return namespace, cluster
}

// present counts the pods of the disruption's namespace and of the cluster, without those that have completed or are
// being deleted; or the cluster's nodes.
func (r *Reconciler) present(ctx context.Context, d *chaos.Disruption) (namespace, cluster int, err error) {
	if d.Spec.Level == chaos.LevelNode {
		var nodes corev1.NodeList
		err := r.Env.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy)
		return 0, len(nodes.Items), err
	}
	var pods corev1.PodList
	if err := r.Env.Client.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return 0, 0, err
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed || p.DeletionTimestamp != nil {
			continue
		}
		cluster++
		if p.Namespace == d.Namespace {
			namespace++
		}
	}
	return namespace, cluster, nil
}
