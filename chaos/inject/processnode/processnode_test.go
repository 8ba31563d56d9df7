package processnode

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/chaos/inject"
)

// node is a process node that only notes what it is asked.
func node(t *testing.T) (socket string, asked *[]string, stop func()) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "faults.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	asked = &[]string{}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = append(*asked, r.Method+" "+r.URL.String())
		w.WriteHeader(http.StatusNoContent)
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	stop = func() {
		_ = server.Close()
		<-served
	}
	t.Cleanup(func() { _ = server.Close() })
	return socket, asked, stop
}

// diesWithIt is a backend whose injections are never cleaned, as if their injector had been killed.
type diesWithIt struct{ *Backend }

type neverCleaned struct{ inject.Injection }

func (neverCleaned) Clean(context.Context) error { return errors.New("killed") }

func (b diesWithIt) New(r inject.Request, n *inject.Notes) (inject.Injection, error) {
	i, err := b.Backend.New(r, n)
	return neverCleaned{i}, err
}

// killed runs an injector that leaves its fault and its entry, and returns the journal.
func killed(t *testing.T, socket string) string {
	t.Helper()
	journal := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b := diesWithIt{New(socket)}
	err := inject.Run(ctx, inject.Config{
		Request: inject.Request{
			Kind: "apiFault", Spec: []byte(`{"hang":true}`), DisruptionUID: "d",
			Target: inject.Target{Namespace: "default", Pod: "p", UID: "u", Node: "n"},
			EndsAt: time.Now().Add(time.Minute),
		},
		Backends: []inject.Backend{b}, Backend: Name, Journal: journal,
		Report: func(inject.State) { cancel() }, // it is in effect
	})
	if !errors.Is(err, inject.ErrLeft) {
		t.Fatal(err)
	}
	return journal
}

// TestCleanUpByTheJournalAlone has no environment that names the node.
func TestCleanUpByTheJournalAlone(t *testing.T) {
	for _, tt := range []struct {
		name string
		gone bool // the node has ended
		want string
	}{
		{name: "the node runs", want: "DELETE /faults/d.u.apiFault"},
		{name: "the node has gone, and its faults with it", gone: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			socket, asked, stop := node(t)
			journal := killed(t, socket)
			*asked = nil
			if tt.gone {
				stop()
			}
			log := slog.New(slog.DiscardHandler)
			removed, err := inject.CleanAll(t.Context(), journal, []inject.Backend{New("")}, log)
			if removed != 1 || err != nil {
				t.Errorf("removed %d, %v", removed, err)
			}
			if tt.want != "" && !slices.Equal(*asked, []string{tt.want}) {
				t.Errorf("asked %q", *asked)
			}
			if left, err := os.ReadDir(journal); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		})
	}
}
