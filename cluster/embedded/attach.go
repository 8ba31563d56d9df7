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
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/trommel-dev/trommel/cluster"
	"github.com/trommel-dev/trommel/cluster/egress"
	"github.com/trommel-dev/trommel/cluster/processnode"
)

// Attached is a cluster that another process runs (see Serve). It implements cluster.Cluster.
type Attached struct{ entry Entry }

var (
	_ capabilities   = (*Attached)(nil)
	_ cluster.Shared = (*Attached)(nil)
)

// Attach finds the running cluster of that name; a NotRunningError says that there is none.
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

// Entry is what the cluster says of itself.
func (a *Attached) Entry() Entry { return a.entry }

// Running says which API servers run.
func (a *Attached) Running(ctx context.Context) (map[string]bool, error) {
	state, err := a.State(ctx)
	return state.Running, err
}

// State is how the cluster is now.
func (a *Attached) State(ctx context.Context) (State, error) {
	return controlCall[State](ctx, a.entry, "State", None{})
}

// Stop ends the cluster and returns when it is gone.
func (a *Attached) Stop(ctx context.Context) error {
	// The cluster may be gone before it could answer: what counts is that it goes.
	_, callErr := controlCall[None](ctx, a.entry, "Stop", None{})
	err := poll(ctx, func(context.Context) error {
		live, err := a.entry.live()
		if live {
			err = fmt.Errorf("process %d still runs", a.entry.PID)
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

// APIServers names the API servers, apiserver-1 first.
func (a *Attached) APIServers() []string { return slices.Clone(a.entry.APIServers) }

// InstrumentedAPIServers names the API servers that have hooks: all.
func (a *Attached) InstrumentedAPIServers() []string { return a.APIServers() }

// RESTConfig gives cluster-admin access through the named API server.
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

// Kubeconfig is the path of a kubeconfig file for the same access.
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

// Rendezvous is where the API servers look for a coordinator.
func (a *Attached) Rendezvous() (address, token string) { return a.entry.Coordinator, a.entry.Token }

// Lock gives the caller sole use of the cluster for a run.
func (a *Attached) Lock() (unlock func(), err error) {
	unlockRun, err := lockRun(a.entry.Name, runLock(a.entry.Dir))
	if err != nil {
		return nil, err
	}
	// The cluster's process notices by this connection that we are killed.
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

// KillAPIServer sends SIGKILL and returns when the process is gone.
func (a *Attached) KillAPIServer(ctx context.Context, name string) error {
	return a.call(ctx, "KillAPIServer", Call{APIServer: name})
}

// StartAPIServer starts a killed API server and returns when it is ready.
func (a *Attached) StartAPIServer(ctx context.Context, name string) error {
	return a.call(ctx, "StartAPIServer", Call{APIServer: name})
}

// DialInside connects to what stands behind an address of the cluster.
func (a *Attached) DialInside(ctx context.Context, address string) (net.Conn, error) {
	return egress.Dial(ctx, filepath.Join(a.entry.Dir, egressSocket), address)
}

// Processes is the process node.
func (a *Attached) Processes() cluster.ProcessNode { return attachedNode{a} }

// LogDir holds the logs of the control plane's processes, and in pods/ those of the process node.
func (a *Attached) LogDir() string { return a.entry.LogDir }

// Logs lists the logs of the control plane's processes.
func (a *Attached) Logs(context.Context) ([]cluster.Log, error) { return logsIn(a.entry.LogDir) }

// KeepBaseline keeps a baseline in the cluster's directory.
func (a *Attached) KeepBaseline(b cluster.Baseline) error {
	return b.(*baseline).writeFile(a.baselineFile())
}

// KeptBaseline reads the baseline that is kept in the cluster's directory.
func (a *Attached) KeptBaseline() (cluster.Baseline, error) {
	b, err := readBaseline(a.baselineFile())
	if err != nil {
		return nil, err
	}
	return b, nil
}

// DropBaseline deletes the baseline in the cluster's directory.
func (a *Attached) DropBaseline() error { return os.Remove(a.baselineFile()) }

// baselineFile is there while a run is under way, and after one that was killed.
func (a *Attached) baselineFile() string { return filepath.Join(a.entry.Dir, "baseline.json") }

// Close ends the use of the cluster, which goes on running.
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

func (n attachedNode) Start(ctx context.Context, controller string) error {
	return n.a.call(ctx, "Start", Call{Controller: controller})
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

func (n attachedNode) Reset(ctx context.Context) error {
	_, err := controlCall[None](ctx, n.a.entry, "Reset", None{})
	return err
}

// Age is how long the cluster has been running.
func (e Entry) Age() time.Duration { return time.Since(e.Started) }
