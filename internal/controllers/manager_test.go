package controllers

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

// TestProbes asks a manager as the kubelet does for the Deployments of all managers.
func TestProbes(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	m, err := New(&rest.Config{Host: "127.0.0.1:1"}, Options{Probes: address}, ctrl.Options{},
		func(*runtime.Scheme) error { return nil }, func(ctrl.Manager) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- m.Start(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	for _, path := range []string{"/healthz", "/readyz"} {
		clustertest.Eventually(t, func(ctx context.Context) error {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
			if err != nil {
				return err
			}
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				return fmt.Errorf("%s: %s", path, answer.Status)
			}
			return nil
		})
	}
}
