package trommeltest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/internal/workload"
	"github.com/trommel-dev/trommel/plan"
)

// Client is what a workload talks to the API server with. It is valid until the workload returns.
type Client struct {
	// Dynamic works with objects of any type.
	Dynamic dynamic.Interface
	// REST is for any other client: kubernetes.NewForConfig, client.New of controller-runtime, a generated clientset.
	// Writes get the field manager trommel-workload, unless they name another one.
	REST *rest.Config
}

// Workload adds a workload that is a Go function; plans name it with Workload(name), or need not if it is the only one.
// It talks to a real API server, one that the plan does not disturb if there is such a one.
//
// The function does what a user of the controllers would do, and waits for what they must bring about. It waits until
// its context ends: that is after the suite's timeouts.workload (two minutes), counted from the plan's last action,
// and longer if the plan holds something up. A time limit of its own may be over while the plan is the cause.
//
// An error that it returns is a finding, and the verdict is Bug; so is its end of time. Errors that say nothing about
// the controllers make the run inconclusive: an API server that could not be reached, a conflict. It must not call
// t.Fatal or t.FailNow, and it is called once a run. Assertions about the result belong after Run.
func (h *Harness) Workload(name string, f func(ctx context.Context, c Client) error) {
	h.add(name, f, func(ctx context.Context, config *rest.Config) error {
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			return err
		}
		return f(ctx, Client{Dynamic: client, REST: config})
	})
}

// WorkloadREST is [Harness.Workload] for a function that makes its own client.
func (h *Harness) WorkloadREST(name string, f func(ctx context.Context, config *rest.Config) error) {
	h.add(name, f, f)
}

// WorkloadWith is [Harness.Workload] with any client, which connect makes for each run, such as controller-runtime's:
//
//	trommeltest.WorkloadWith(suite, "create",
//		func(config *rest.Config) (client.Client, error) {
//			return client.New(config, client.Options{Scheme: scheme})
//		},
//		func(ctx context.Context, c client.Client) error { return c.Create(ctx, database()) })
func WorkloadWith[C any](
	h *Harness, name string, connect func(config *rest.Config) (C, error),
	f func(ctx context.Context, c C) error,
) {
	if isNil(connect) {
		f = nil // reported by add
	}
	h.add(name, f, func(ctx context.Context, config *rest.Config) error {
		client, err := connect(config)
		if err != nil {
			return fmt.Errorf("connect: %w", err)
		}
		return f(ctx, client)
	})
}

// add adds a workload; given is the caller's function, and call calls it. The next run reports a mistake.
func (h *Harness) add(name string, given any, call workload.Function) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, inSuite := h.suite.Workloads[name]
	_, inGo := h.workloads[name]
	switch {
	case isNil(given):
		h.mistakes = append(h.mistakes, fmt.Errorf("workload %q: a function is nil", name))
		return
	case name == "":
		h.mistakes = append(h.mistakes, errors.New("a workload has no name"))
		return
	case inSuite || inGo:
		h.mistakes = append(h.mistakes, fmt.Errorf("workload %q: the suite has one of that name", name))
		return
	}
	function := describe(given)
	if _, ok := h.functions[function]; ok {
		function += " as " + name // one function for several workloads
	}
	h.functions[function] = call
	h.workloads[name] = plan.Workload{Steps: []plan.Step{{Name: name, Go: function}}}
}

// describe names a function for messages and records: its symbol and where it is.
func describe(f any) string {
	pc := reflect.ValueOf(f).Pointer()
	symbol := runtime.FuncForPC(pc)
	file, line := symbol.FileLine(pc)
	return fmt.Sprintf("%s (%s line %d)", symbol.Name(), filepath.Base(file), line)
}
