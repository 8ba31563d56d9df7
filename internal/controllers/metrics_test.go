package controllers

import (
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestRegisterMetricsConcurrently(t *testing.T) {
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				c := prometheus.NewCounter(prometheus.CounterOpts{Name: "trommel_test_registered", Help: "A test."})
				if err := RegisterMetrics(c); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
