// Package processnode injects faults into pods of a process node: it asks the node for them, which undoes them when it
// is asked to, when their time is over, or when it ends itself. The node's socket is in the journal, so that a clean-up
// needs nothing else.
package processnode

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"github.com/trommel-dev/trommel/chaos/inject"
	"github.com/trommel-dev/trommel/chaos/inject/fault"
)

// Name is the backend's name.
const Name = "processnode"

// Backend implements inject.Backend.
type Backend struct{ socket string }

// New returns a backend for the node that listens at the socket. An empty socket means that this is not a process node:
// everything is unsupported but cleaning up.
func New(socket string) *Backend { return &Backend{socket} }

// Name implements inject.Backend.
func (b *Backend) Name() string { return Name }

// New implements inject.Backend.
func (b *Backend) New(request inject.Request, notes *inject.Notes) (inject.Injection, error) {
	return &injection{b.socket, request, notes}, nil
}

type injection struct {
	socket  string
	request inject.Request
	notes   *inject.Notes
}

// noted is what the journal has.
type noted struct {
	Socket string `json:"socket"`
}

// spare is how much later than its injector the node ends a fault.
const spare = 10 * time.Second

func (i *injection) fault() fault.Fault {
	return fault.Fault{
		Disruption: i.request.Disruption, Kind: i.request.Kind, Pod: i.request.Target.UID,
		Node:       i.request.Target.Node,
		Containers: i.request.Target.Containers, Spec: i.request.Spec,
		EndsAt: i.request.EndsAt.Add(spare),
	}
}

// Check asks the node whether it can do it.
func (i *injection) Check(ctx context.Context) error {
	switch {
	case i.socket == "":
		return inject.Unsupported("%s is implemented for pods that run as processes only", i.request.Kind)
	case i.request.Target.NodeLevel:
		return inject.Unsupported("%s cannot disturb a whole node here: choose pods", i.request.Kind)
	}
	return i.put(ctx, "?dryRun=1")
}

// Foresee implements inject.Foresees.
func (i *injection) Foresee() any { return noted{i.socket} }

// Inject returns when the fault is in effect.
func (i *injection) Inject(ctx context.Context) error {
	if err := i.notes.Save(i.Foresee()); err != nil {
		return err
	}
	return i.put(ctx, "")
}

func (i *injection) put(ctx context.Context, query string) error {
	body, err := json.Marshal(i.fault())
	if err != nil {
		return err
	}
	return do(ctx, i.socket, http.MethodPut, i.path(query), body)
}

// Clean returns when nothing of the fault is left.
func (i *injection) Clean(ctx context.Context) error {
	var n noted
	if saved, err := i.notes.Load(&n); !saved || err != nil {
		return err // the node was not asked
	}
	err := do(ctx, n.Socket, http.MethodDelete, i.path(""), nil)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil // the node has ended, and its faults with it
	}
	return err
}

func (i *injection) path(query string) string {
	return "/faults/" + url.PathEscape(i.request.ID()) + query
}

// do asks the node that listens at the socket.
func do(ctx context.Context, socket, method, path string, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, method, "http://node"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(request)
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
