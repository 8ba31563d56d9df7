package settle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/run/site"
	"github.com/trommel-dev/trommel/plan"
)

// kubelet is the field manager of a node's status.
const kubelet = "kubelet"

// ReportNodes returns what has every node that is ready report its status again. Kubelets do that every five minutes,
// even if nothing has changed, and controllers that watch nodes then look at them again. The nodes of a cluster with a
// clock of its own have no kubelets. The result is nil for other clusters.
func ReportNodes(at *site.Site, logger *slog.Logger) func(ctx context.Context) {
	if at.Clock == nil {
		return nil
	}
	return func(ctx context.Context) {
		for _, m := range at.All() {
			if err := reportNodes(ctx, m.Objects.WithFieldManager(kubelet)); err != nil {
				logger.Debug("report the status of the nodes", "cluster", m.Name, "error", err)
			}
		}
	}
}

func reportNodes(ctx context.Context, objects interface {
	List(ctx context.Context, key plan.ResourceKey) ([]*unstructured.Unstructured, error)
	Patch(ctx context.Context, key plan.ResourceKey, patchType string, patch any, subresource string,
	) (*unstructured.Unstructured, error)
}) error {
	nodes, err := objects.List(ctx, plan.ResourceKey{Type: "node", Name: "*"})
	if err != nil {
		return fmt.Errorf("list the nodes: %w", err)
	}
	now := clock.Now(ctx).UTC().Format(time.RFC3339)
	patch := map[string]any{"status": map[string]any{"conditions": []any{
		map[string]any{"type": "Ready", "lastHeartbeatTime": now},
	}}}
	var errs []error
	for _, n := range nodes {
		if !isReady(n) {
			continue
		}
		key := plan.ResourceKey{Type: "node", Name: n.GetName()}
		_, err := objects.Patch(ctx, key, "strategic", patch, "status")
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func isReady(node *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(node.Object, "status", "conditions")
	for _, c := range conditions {
		if c, _ := c.(map[string]any); c["type"] == "Ready" {
			return c["status"] == "True"
		}
	}
	return false
}
