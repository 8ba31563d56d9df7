package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/cluster/embedded/snapshot"
)

// controlService is the name of the service on a cluster's control socket. The socket is in a directory that only the
// user can enter. A client opens a connection for each call, so that closing it cancels the call.
const controlService = "Cluster"

// Call contains the arguments of all methods; each method reads those it needs.
type Call struct {
	APIServer, Controller string
	Keep                  []types.UID // pods
	PID                   int
	Kill                  bool
	Given                 cluster.Given
}

// None is an empty message.
type None struct{}

// State is the reply of the method State.
type State struct {
	Running map[string]bool // by API server
	// Abandoned is etcd's revision when a run that held the cluster was killed; 0 if none was, or if the cluster has
	// been restored since.
	Abandoned int64
}

// controlServer serves a cluster's control socket.
type controlServer struct {
	cluster  *Cluster
	listener net.Listener
	stop     chan struct{}
	stopOnce sync.Once
	tasks    sync.WaitGroup
	ctx      context.Context
	cancel   context.CancelFunc

	abandoned atomic.Int64 // see State
}

func serveControl(c *Cluster) (*controlServer, error) {
	listener, err := net.Listen("unix", c.dir.File("control.sock"))
	if err != nil {
		return nil, fmt.Errorf("listen for commands: %w", err)
	}
	s := &controlServer{cluster: c, listener: listener, stop: make(chan struct{})}
	// What callers wait for is up to the cluster.
	s.ctx, s.cancel = context.WithCancel(clock.With(context.Background(), c.clock))
	s.tasks.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.tasks.Go(func() { s.serve(conn) })
		}
	})
	return s, nil
}

func (s *controlServer) close() {
	_ = s.listener.Close()
	s.cancel()
	s.tasks.Wait()
}

func (s *controlServer) serve(conn net.Conn) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	stopped := context.AfterFunc(s.ctx, func() { _ = conn.Close() })
	defer stopped()
	server, session := rpc.NewServer(), &session{ctx: ctx, server: s}
	if err := server.RegisterName(controlService, session); err != nil {
		panic(err) // a programming error
	}
	// A client that closes the connection no longer needs the reply.
	server.ServeConn(&hangUp{Conn: conn, notify: cancel})
	if session.holds.Load() {
		s.abandon()
	}
}

// abandon records when a run was killed.
func (s *controlServer) abandon() {
	ctx, cancel := clock.WithTimeout(s.ctx, abandonTimeout)
	defer cancel()
	revision, err := snapshot.Revision(ctx, etcdSocket(s.cluster.dir.Path()))
	if err != nil {
		s.cluster.config.Logger.Warn("a run was killed; objects applied from now on are taken for the run's",
			"error", err)
		return
	}
	s.abandoned.CompareAndSwap(0, revision)
}

// abandonTimeout bounds a request to etcd.
const abandonTimeout = 10 * time.Second

// hangUp calls notify when a read fails.
type hangUp struct {
	net.Conn
	notify func()
}

func (h *hangUp) Read(b []byte) (int, error) {
	n, err := h.Conn.Read(b)
	if err != nil {
		h.notify()
	}
	return n, err
}

// session is the service of one connection.
type session struct {
	ctx    context.Context
	server *controlServer
	holds  atomic.Bool
}

// Hold starts a run's use of the cluster, until Release. If the connection ends before that, the run was killed.
func (s *session) Hold(_ None, _ *None) error {
	s.holds.Store(true)
	return nil
}

func (s *session) Release(_ None, _ *None) error {
	s.holds.Store(false)
	return nil
}

// Restored reports that the cluster has been restored to its snapshot.
func (s *session) Restored(_ None, _ *None) error {
	s.server.abandoned.Store(0)
	return nil
}

func (s *session) KillAPIServer(call Call, _ *None) error {
	return s.server.cluster.KillAPIServer(s.ctx, call.APIServer)
}

func (s *session) StartAPIServer(call Call, _ *None) error {
	return s.server.cluster.StartAPIServer(s.ctx, call.APIServer)
}

func (s *session) Kill(call Call, _ *None) error {
	return s.server.cluster.processes.Kill(s.ctx, call.Controller)
}

func (s *session) Freeze(call Call, _ *None) error {
	return s.server.cluster.processes.Freeze(s.ctx, call.Controller, call.PID)
}

func (s *session) Thaw(call Call, frozen *int) error {
	var err error
	*frozen, err = s.server.cluster.processes.Thaw(s.ctx, call.Controller, call.Kill)
	return err
}

func (s *session) Start(call Call, _ *None) error {
	return s.server.cluster.processes.Start(s.ctx, call.Controller)
}

func (s *session) Give(call Call, _ *None) error {
	return s.server.cluster.processes.Give(s.ctx, call.Controller, call.Given)
}

func (s *session) Route(call Call, _ *None) error {
	return s.server.cluster.processes.Route(s.ctx, call.Controller, call.APIServer)
}

func (s *session) CutConnections(call Call, _ *None) error {
	return s.server.cluster.processes.CutConnections(s.ctx, call.Controller)
}

func (s *session) Status(call Call, answer *[]cluster.Process) error {
	var err error
	*answer, err = s.server.cluster.processes.Status(s.ctx, call.Controller)
	return err
}

func (s *session) StopPods(call Call, _ *None) error {
	return s.server.cluster.processes.Stop(s.ctx, call.Keep)
}

func (s *session) Faults(_ None, answer *[]cluster.Fault) error {
	var err error
	*answer, err = s.server.cluster.processes.Faults(s.ctx)
	return err
}

func (s *session) EndFaults(_ None, _ *None) error {
	return s.server.cluster.processes.EndFaults(s.ctx)
}

func (s *session) Reset(_ None, _ *None) error { return s.server.cluster.processes.Reset(s.ctx) }

func (s *session) State(_ None, answer *State) error {
	var err error
	answer.Abandoned = s.server.abandoned.Load()
	answer.Running, err = s.server.cluster.Running(s.ctx)
	return err
}

func (s *session) Stop(_ None, _ *None) error {
	s.server.stopOnce.Do(func() { close(s.server.stop) })
	return nil
}

// controlCall calls a method on a cluster's control socket.
func controlCall[Answer any](ctx context.Context, e Entry, method string, args any) (Answer, error) {
	var answer Answer
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", e.controlSocket())
	if err != nil {
		return answer, fmt.Errorf("cluster %q: %w", e.Name, err)
	}
	client := rpc.NewClient(conn)
	defer client.Close()
	call := client.Go(controlService+"."+method, args, &answer, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
	case <-ctx.Done():
		_ = client.Close()
		<-call.Done
		// Unless the reply came first.
		var answered rpc.ServerError
		if call.Error != nil && !errors.As(call.Error, &answered) {
			return answer, fmt.Errorf("cluster %q: %w", e.Name, ctx.Err())
		}
	}
	if call.Error != nil {
		return answer, fmt.Errorf("cluster %q: %w", e.Name, call.Error)
	}
	return answer, nil
}
