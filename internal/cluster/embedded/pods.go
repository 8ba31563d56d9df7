package embedded

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trommel-dev/trommel/internal/cluster/embedded/snapshot"
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
		"$jobKinds", strings.Join(append([]string{"Job"}, pods.JobKinds...), ", "),
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
	return snapshot.PodsUnderWay(ctx, etcdSocket(c.dir.Path()))
}

// PodsUnderWay implements cluster.PodSimulator.
func (a *Attached) PodsUnderWay(ctx context.Context) ([]types.UID, error) {
	return snapshot.PodsUnderWay(ctx, etcdSocket(a.entry.Dir))
}
