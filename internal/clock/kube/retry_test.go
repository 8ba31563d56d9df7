package kube

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/internal/clock"
)

// What client-go would wait for by the machine's clock, a request of a run waits for by the run's.
func TestRetriesGoByTheRunsClock(t *testing.T) {
	const hour = "3600"
	later := func(code int) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", hour)
			w.WriteHeader(code)
		}
	}
	ended := func(http.ResponseWriter) { panic(http.ErrAbortHandler) }
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"},
	}}
	get := func(ctx context.Context, c dynamic.ResourceInterface) error {
		_, err := c.Get(ctx, "a", metav1.GetOptions{})
		return err
	}
	create := func(ctx context.Context, c dynamic.ResourceInterface) error {
		_, err := c.Create(ctx, object, metav1.CreateOptions{})
		return err
	}
	watch := func(ctx context.Context, c dynamic.ResourceInterface) error {
		w, err := c.Watch(ctx, metav1.ListOptions{})
		if err == nil {
			w.Stop()
		}
		return err
	}
	for _, tt := range []struct {
		name  string
		first func(w http.ResponseWriter) // the answer to so many requests
		times int32
		do    func(ctx context.Context, c dynamic.ResourceInterface) error
		took  time.Duration
		fails func(error) bool
	}{
		{"a busy server", later(http.StatusTooManyRequests), 2, get, 2 * time.Hour, nil},
		{"a server that is not ready", later(http.StatusServiceUnavailable), 1, create, time.Hour, nil},
		{"a watch", later(http.StatusTooManyRequests), 1, watch, time.Hour, nil},
		{"an ended connection", ended, 1, get, time.Second, nil},
		{"connections that always end", ended, 1000, get, mostRetries * time.Second, apierrors.IsServiceUnavailable},
		{"always busy", later(http.StatusTooManyRequests), 1000, get, mostRetries * time.Hour,
			apierrors.IsTooManyRequests},
		{"another answer", func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) }, 1, get, 0,
			apierrors.IsNotFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var requests atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if requests.Add(1) <= tt.times {
					tt.first(w)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}`))
			}))
			defer server.Close()
			config := &rest.Config{Host: server.URL, QPS: -1}
			config.Wrap(Retries)
			client := dynamic.NewForConfigOrDie(config).
				Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("default")
			c := clock.New()
			began, done := c.Now(), make(chan error)
			go func() { done <- tt.do(clock.With(t.Context(), c), client) }()
			for {
				select {
				case err := <-done:
					switch {
					case tt.fails != nil && !tt.fails(err), tt.fails == nil && err != nil:
						t.Errorf("got %v", err)
					}
					if took := c.Since(began); took < tt.took || took > tt.took+time.Minute {
						t.Errorf("it took %s, want %s", took, tt.took)
					}
					return
				case <-time.After(time.Millisecond):
				}
				if next, ok := c.Next(); ok {
					c.Advance(c.Until(next))
				}
			}
		})
	}
}
