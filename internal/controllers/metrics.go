package controllers

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// registering is held while a collector takes the place of another one: in between, another manager could register its
// own.
var registering sync.Mutex

// RegisterMetrics adds collectors to the metrics that managers serve. Managers of a process share them: a collector
// takes the place of an earlier one of the same metrics, so that the last manager's are served. It may be called
// concurrently.
func RegisterMetrics(collectors ...prometheus.Collector) error {
	registering.Lock()
	defer registering.Unlock()
	for _, c := range collectors {
		err := metrics.Registry.Register(c)
		var again prometheus.AlreadyRegisteredError
		if errors.As(err, &again) {
			metrics.Registry.Unregister(again.ExistingCollector)
			err = metrics.Registry.Register(c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
