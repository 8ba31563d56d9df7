// Package processnode injects faults into pods of a process node: it asks the node for them, which undoes them when it
// is asked to, or when their time is over.
package processnode

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/trommel-dev/trommel/chaos/fault"
	"github.com/trommel-dev/trommel/chaos/inject"
)

// Name is the backend's name.
const Name = "processnode"

// Backend implements inject.Backend.
type Backend struct {
	socket string
	client http.Client
}

// New returns a backend for the node that listens at the socket. An empty socket means that this is no process node, and
// everything is unsupported.
func New(socket string) *Backend {
	return &Backend{socket, http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}}
}

// Name implements inject.Backend.
func (b *Backend) Name() string { return Name }

// New implements inject.Backend.
func (b *Backend) New(request inject.Request, _ *inject.Notes) (inject.Injection, error) {
	switch {
	case b.socket == "":
		return nil, inject.Unsupported("%s is implemented for pods that run as processes only", request.Kind)
	case request.Target.NodeLevel:
		return nil, inject.Unsupported("%s cannot disturb a whole node here: choose pods", request.Kind)
	}
	return &injection{b, request}, nil
}

type injection struct {
	backend *Backend
	request inject.Request
}

// spare is how much later than its injector the node ends a fault.
const spare = 10 * time.Second

func (i *injection) fault() fault.Fault {
	f := fault.Fault{
		Disruption: i.request.Disruption, Kind: i.request.Kind, Pod: i.request.Target.UID,
		Node:       i.request.Target.Node,
		Containers: i.request.Target.Containers, Spec: i.request.Spec,
	}
	if !i.request.EndsAt.IsZero() {
		f.EndsAt = i.request.EndsAt.Add(spare)
	}
	return f
}

// Check asks the node whether it can do it.
func (i *injection) Check(ctx context.Context) error { return i.put(ctx, "?dryRun=1") }

// Inject returns when the fault is in effect.
func (i *injection) Inject(ctx context.Context) error { return i.put(ctx, "") }

func (i *injection) put(ctx context.Context, query string) error {
	body, err := json.Marshal(i.fault())
	if err != nil {
		return err
	}
	return i.do(ctx, http.MethodPut, query, body)
}

// Clean returns when nothing of the fault is left.
func (i *injection) Clean(ctx context.Context) error { return i.do(ctx, http.MethodDelete, "", nil) }

func (i *injection) do(ctx context.Context, method, query string, body []byte) error {
	to := "http://node/faults/" + url.PathEscape(i.request.ID()) + query
	request, err := http.NewRequestWithContext(ctx, method, to, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := i.backend.client.Do(request)
	if err != nil {
		return fmt.Errorf("ask the process node: %w", errors.Unwrap(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode < 300 {
		return nil
	}
	var reason fault.Error
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if json.Unmarshal(text, &reason) != nil || reason.Error == "" {
		reason.Error = resp.Status
	}
	if resp.StatusCode == http.StatusNotImplemented {
		return inject.Unsupported("%s", reason.Error)
	}
	return errors.New(reason.Error)
}
