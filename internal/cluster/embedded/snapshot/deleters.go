package snapshot

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
)

const namespacesPrefix = registryPrefix + "namespaces/"

// restoresContainer reports whether a change restores a definition or a namespace. If it was being deleted, API servers
// or the controller manager delete its objects, too. They look at the deletion mark only when they begin, so they go on
// deleting what has been restored.
func restoresContainer(c keyChange) bool {
	return c.value != nil &&
		(strings.HasPrefix(c.key, definitionsPrefix) || strings.HasPrefix(c.key, namespacesPrefix))
}

// definitionsDeleted reports whether an API server is deleting the objects of a definition.
func (r Resetter) definitionsDeleted(ctx context.Context) (bool, error) {
	running, err := r.Cluster.Running(ctx)
	if err != nil {
		return false, err
	}
	group, ctx := errgroup.WithContext(ctx)
	var busy atomic.Bool
	for _, server := range r.Cluster.APIServers() {
		if !running[server] {
			continue
		}
		group.Go(func() error {
			config, err := r.Cluster.RESTConfig(server)
			if err != nil {
				return err
			}
			at, err := finalizing(ctx, config)
			if err != nil {
				return fmt.Errorf("metrics of %s: %w", server, err)
			}
			if at {
				busy.Store(true)
			}
			return nil
		})
	}
	return busy.Load(), group.Wait()
}

// finalizerQueue is the queue of apiextensions-apiserver's CRDFinalizer, as its metrics name it.
const finalizerQueue = "crd_finalizer"

// finalizing reports whether the API server has taken a definition into its finalizer's queue and is not done with it.
func finalizing(ctx context.Context, config *rest.Config) (bool, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return false, err
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/metrics", nil)
	if err != nil {
		return false, err
	}
	response, err := client.Do(request)
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return false, fmt.Errorf("%s", response.Status)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return false, err
	}
	// What is added while it is in work is counted again when it is added, and when it is done.
	added := ofQueue(families["workqueue_adds_total"]).GetCounter().GetValue()
	done := ofQueue(families["workqueue_work_duration_seconds"]).GetHistogram().GetSampleCount()
	return uint64(added) > done, nil
}

// ofQueue returns the family's metric of the finalizer's queue, or nil.
func ofQueue(family *dto.MetricFamily) *dto.Metric {
	for _, m := range family.GetMetric() {
		for _, label := range m.GetLabel() {
			if label.GetName() == "name" && label.GetValue() == finalizerQueue {
				return m
			}
		}
	}
	return nil
}
