package embedded

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/trommel-dev/trommel/internal/clock"
)

//go:embed stages.yaml
var stages string

// Moments from which the delays of simulated pods count, in jq. They have no fractions of a second.
const (
	scheduledAt = `([.status.conditions[]? | select(.type == "PodScheduled") | .lastTransitionTime][0] // ` +
		`.metadata.creationTimestamp | fromdate)`
	runningAt = `(.status.startTime // .metadata.creationTimestamp | fromdate)`
	grace     = `(.metadata.deletionGracePeriodSeconds // 0)`
	deletedAt = `((.metadata.deletionTimestamp | fromdate) - ` + grace + `)`
)

// stagesFor returns KWOK's stages.
func stagesFor(config Config) string {
	pods := config.Pods
	return strings.NewReplacer(
		"$jobKinds", strings.Join(append([]string{"Job"}, config.JobKinds...), ", "),
		"$ready", delay(pods.Ready, pods.Seed, scheduledAt, ""),
		"$complete", delay(pods.End, pods.Seed, runningAt, ""),
		"$delete", delay(pods.End, pods.Seed, deletedAt, "1000 * "+grace),
	).Replace(stages)
}

// delay is a jq expression for how long KWOK waits from now on before it carries out a stage for a pod: the time, and
// up to a quarter more, which follows from the pod's namespace and name and the seed. Most limits that, in
// milliseconds; empty: nothing does.
//
// KWOK begins to wait again whenever the pod changes. So that changes do not put the stage off for ever, it comes at
// the latest one second late: since is a moment without fractions of a second.
func delay(d time.Duration, seed int64, since, most string) string {
	ms := d.Milliseconds()
	text := fmt.Sprintf(`((reduce (.metadata.namespace + "/" + .metadata.name | explode[]) as $c `+
		`(%d; (. + $c) * 48271 %% 2147483647)) %% %d + %d) as $delay | `+
		`[$delay, (%s + 1 - now) * 1000 + $delay`, seed&0x7fffffff, ms/4+1, ms, since)
	if most != "" {
		text += ", " + most
	}
	return text + `] | min | floor | if . > 0 then "\(.)ms" else "0s" end`
}

// PodsUnderWay implements cluster.PodSimulator.
func (c *Cluster) PodsUnderWay(ctx context.Context) ([]types.UID, error) {
	return podsUnderWay(ctx, c.etcdSocket())
}

// PodsUnderWay implements cluster.PodSimulator.
func (a *Attached) PodsUnderWay(ctx context.Context) ([]types.UID, error) {
	return podsUnderWay(ctx, etcdSocket(a.entry.Dir))
}

// podsUnderWay asks etcd: an API server may be paused or killed, and its watch cache stale.
func podsUnderWay(ctx context.Context, socket string) (under []types.UID, err error) {
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
		simulated[n.Name] = n.Annotations[simulatedAnnotation] == simulatedValue
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
func (r resetter) awaitPods(ctx context.Context) error {
	const look, most = 100 * time.Millisecond, 5 * time.Second
	ctx, cancel := clock.WithTimeout(ctx, most)
	defer cancel()
	for {
		under, err := podsUnderWay(ctx, r.socket)
		if ctx.Err() != nil || err == nil && len(under) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		_ = clock.Sleep(ctx, look)
	}
}
