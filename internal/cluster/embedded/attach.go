package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/cluster/egress"
	"github.com/trommel-dev/trommel/internal/cluster/embedded/snapshot"
	"github.com/trommel-dev/trommel/internal/processnode"
)

// Attached is a cluster that another process runs (see Serve). It implements cluster.Cluster.
type Attached struct{ entry Entry }

var (
	_ capabilities   = (*Attached)(nil)
	_ cluster.Shared = (*Attached)(nil)

	_ cluster.Equipped = (*Attached)(nil)
)

// Attach finds a running cluster by name; it returns a NotRunningError if there is none.
func Attach(ctx context.Context, name string) (*Attached, error) {
	entry, err := find(name)
	if err != nil {
		return nil, err
	}
	if _, err := controlCall[State](ctx, entry, "State", None{}); err != nil {
		return nil, err
	}
	return &Attached{entry: entry}, nil
}

// Entry describes the cluster.
func (a *Attached) Entry() Entry { return a.entry }

// Equipment implements cluster.Equipped.
func (a *Attached) Equipment() []string { return a.entry.Equipment }

// Running reports for each API server whether it is running.
func (a *Attached) Running(ctx context.Context) (map[string]bool, error) {
	state, err := a.State(ctx)
	return state.Running, err
}

// State returns the cluster's current state.
func (a *Attached) State(ctx context.Context) (State, error) {
	return controlCall[State](ctx, a.entry, "State", None{})
}

// Stop stops the cluster and waits until its process has exited.
func (a *Attached) Stop(ctx context.Context) error {
	// The cluster may exit before it responds; only its exit matters.
	_, callErr := controlCall[None](ctx, a.entry, "Stop", None{})
	// The process that runs the cluster is not part of it, and ends in real time.
	err := cluster.Poll(clock.With(ctx, nil), pollInterval, func(context.Context) error {
		live, err := a.entry.live()
		if live {
			err = fmt.Errorf("process %d is still running", a.entry.PID)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("stop cluster %q: %w", a.entry.Name, errors.Join(err, callErr))
	}
	return nil
}

// Name identifies the cluster on this machine.
func (a *Attached) Name() string { return a.entry.Name }

// APIServers returns the names of the API servers, apiserver-1 first.
func (a *Attached) APIServers() []string { return slices.Clone(a.entry.APIServers) }

// InstrumentedAPIServers returns the names of the API servers that have hooks: all.
func (a *Attached) InstrumentedAPIServers() []string { return a.APIServers() }

// RESTConfig returns a configuration for cluster-admin access through the named API server.
func (a *Attached) RESTConfig(apiServer string) (*rest.Config, error) {
	file, err := a.Kubeconfig(apiServer)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.UserAgent = "trommel"
	return config, nil
}

// Kubeconfig returns the path of a kubeconfig file for the same access.
func (a *Attached) Kubeconfig(apiServer string) (string, error) {
	if apiServer == "" {
		apiServer = a.entry.APIServers[0]
	}
	file, ok := a.entry.Kubeconfigs[apiServer]
	if !ok {
		return "", noAPIServer(apiServer, a.entry.APIServers)
	}
	return file, nil
}

func noAPIServer(name string, all []string) error {
	return fmt.Errorf("no API server %q (there are %s)", name, strings.Join(all, ", "))
}

// Rendezvous returns the address at which the API servers look for a coordinator, and their token.
func (a *Attached) Rendezvous() (address, token string) { return a.entry.Coordinator, a.entry.Token }

// Lock takes exclusive use of the cluster for a run.
func (a *Attached) Lock() (unlock func(), err error) {
	unlockRun, err := lockRun(a.entry.Name, runLock(a.entry.Dir))
	if err != nil {
		return nil, err
	}
	// If this process is killed, the connection ends, and the cluster's process notices.
	conn, err := net.Dial("unix", a.entry.controlSocket())
	if err == nil {
		client := rpc.NewClient(conn)
		unlock = func() {
			_ = client.Call(controlService+".Release", None{}, &None{})
			_ = client.Close()
			unlockRun()
		}
		if err = client.Call(controlService+".Hold", None{}, &None{}); err == nil {
			return unlock, nil
		}
		_ = client.Close()
	}
	unlockRun()
	return nil, fmt.Errorf("lock cluster %q: %w", a.entry.Name, err)
}

// KillAPIServer sends SIGKILL and waits until the process has exited.
func (a *Attached) KillAPIServer(ctx context.Context, name string) error {
	return a.call(ctx, "KillAPIServer", Call{APIServer: name})
}

// StartAPIServer starts a killed API server and waits until it is ready.
func (a *Attached) StartAPIServer(ctx context.Context, name string) error {
	return a.call(ctx, "StartAPIServer", Call{APIServer: name})
}

// DialInside connects to an address of the cluster.
func (a *Attached) DialInside(ctx context.Context, address string) (net.Conn, error) {
	return egress.Dial(ctx, filepath.Join(a.entry.Dir, egressSocket), address)
}

// Processes returns the process node.
func (a *Attached) Processes() cluster.ProcessNode { return attachedNode{a} }

// LogDir is the directory with the logs of the control plane's processes; its directory pods/ contains those of the
// process node.
func (a *Attached) LogDir() string { return a.entry.LogDir }

// Logs lists the logs of the control plane's processes.
func (a *Attached) Logs(context.Context) ([]cluster.Log, error) { return logsIn(a.entry.LogDir) }

// KeepSnapshot stores a snapshot in the cluster's directory.
func (a *Attached) KeepSnapshot(b cluster.Snapshot) error {
	return snapshot.Write(b, a.snapshotFile())
}

// KeptSnapshot reads the snapshot stored in the cluster's directory.
func (a *Attached) KeptSnapshot() (cluster.Snapshot, error) {
	return snapshot.Read(a.snapshotFile())
}

// DropSnapshot deletes the snapshot stored in the cluster's directory.
func (a *Attached) DropSnapshot() error { return os.Remove(a.snapshotFile()) }

// snapshotFile exists while a run is in progress, and after one that was killed.
func (a *Attached) snapshotFile() string { return filepath.Join(a.entry.Dir, "snapshot.json") }

// Close ends the use of the cluster, which keeps running.
func (a *Attached) Close(context.Context) error { return nil }

func (a *Attached) call(ctx context.Context, method string, call Call) error {
	_, err := controlCall[None](ctx, a.entry, method, call)
	return err
}

// attachedNode is the process node of a cluster that another process runs.
type attachedNode struct{ a *Attached }

func (n attachedNode) NodeName() string { return n.a.entry.Node }

func (n attachedNode) Kill(ctx context.Context, controller string) error {
	return n.a.call(ctx, "Kill", Call{Controller: controller})
}

func (n attachedNode) Freeze(ctx context.Context, controller string, pid int) error {
	return n.a.call(ctx, "Freeze", Call{Controller: controller, PID: pid})
}

func (n attachedNode) Thaw(ctx context.Context, controller string, kill bool) (frozen int, err error) {
	return controlCall[int](ctx, n.a.entry, "Thaw", Call{Controller: controller, Kill: kill})
}

func (n attachedNode) Start(ctx context.Context, controller string) error {
	return n.a.call(ctx, "Start", Call{Controller: controller})
}

func (n attachedNode) Give(ctx context.Context, controller string, given cluster.Given) error {
	return n.a.call(ctx, "Give", Call{Controller: controller, Given: given})
}

func (n attachedNode) Route(ctx context.Context, controller, apiServer string) error {
	return n.a.call(ctx, "Route", Call{Controller: controller, APIServer: apiServer})
}

func (n attachedNode) CutConnections(ctx context.Context, controller string) error {
	return n.a.call(ctx, "CutConnections", Call{Controller: controller})
}

func (n attachedNode) Status(ctx context.Context, controller string) ([]cluster.Process, error) {
	return controlCall[[]cluster.Process](ctx, n.a.entry, "Status", Call{Controller: controller})
}

func (n attachedNode) OpenLog(p cluster.Process) (io.ReadCloser, error) {
	return processnode.OpenLog(p)
}

func (n attachedNode) Stop(ctx context.Context, keep []types.UID) error {
	return n.a.call(ctx, "StopPods", Call{Keep: keep})
}

func (n attachedNode) Faults(ctx context.Context) ([]cluster.Fault, error) {
	return controlCall[[]cluster.Fault](ctx, n.a.entry, "Faults", None{})
}

func (n attachedNode) EndFaults(ctx context.Context) error {
	_, err := controlCall[None](ctx, n.a.entry, "EndFaults", None{})
	return err
}

func (n attachedNode) Reset(ctx context.Context) error {
	_, err := controlCall[None](ctx, n.a.entry, "Reset", None{})
	return err
}
