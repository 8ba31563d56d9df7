// Package clusters has the command that manages clusters that keep running.
package clusters

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/disruptions"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/flags"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/internal/buildcache"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/cluster/embedded"
	"github.com/trommel-dev/trommel/internal/run/addons"
)

// defaultCluster is the name of a cluster if none is given.
const defaultCluster = "default"

// EnvControlPlaneBinary names a control plane executable to use instead of building one.
const EnvControlPlaneBinary = "TROMMEL_CONTROLPLANE_BINARY"

// envReadyFD names the descriptor on which the background process of `cluster up` reports its start.
const envReadyFD = "TROMMEL_READY_FD"

// NewCommand returns `trommel cluster`.
func NewCommand(s output.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Manage a cluster to explore or to run plans on repeatedly",
		Example: `  trommel cluster up
  trommel cluster status
  trommel cluster down`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newClusterUpCommand(s), newClusterStatusCommand(s), newClusterDownCommand(s),
		newClusterRestoreCommand(s))
	return cmd
}

// clusterUp holds the options of `cluster up`.
type clusterUp struct {
	config       embedded.Config
	kubernetes   string
	featureGates map[string]string
	foreground   bool
	progress     output.Flags
}

func newClusterUpCommand(s output.Streams) *cobra.Command {
	up := clusterUp{}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster that runs until `trommel cluster down`",
		Example: `  trommel cluster up
  trommel cluster up --name small --api-servers 1 --nodes 1
  trommel cluster up --kubernetes-version 1.35
  trommel cluster up --with disruptions,cycling
  trommel cluster up --disable-controllers statefulset-controller --foreground`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return up.run(cmd.Context(), s) },
	}
	f := cmd.Flags()
	f.StringVar(&up.config.Name, "name", defaultCluster, "name of the cluster")
	flags.KubernetesVersion(f, &up.kubernetes)
	f.IntVar(&up.config.APIServers, "api-servers", 3, "number of API servers, 1 to "+
		strconv.Itoa(embedded.MaxAPIServers))
	f.IntVar(&up.config.Nodes, "nodes", 3, "number of simulated nodes")
	f.StringSliceVar(&up.config.DisableControllers, "disable-controllers", nil,
		"controllers that kube-controller-manager leaves out")
	f.StringToStringVar(&up.featureGates, "feature-gates", nil,
		"feature gates of the API servers, the controller manager and the scheduler")
	f.StringArrayVar(&up.config.APIServerArgs, "api-server-arg", nil,
		"a further argument of the API servers (may be repeated)")
	f.StringArrayVar(&up.config.ControllerManagerArgs, "controller-manager-arg", nil,
		"a further argument of the controller manager (may be repeated)")
	f.BoolVar(&up.config.RemovedAPIs, "removed-apis", false, "serve API versions that Kubernetes has removed, "+
		"for old controllers")
	f.StringSliceVar(&up.config.Equipment, "with", nil, "controllers to run on it: "+
		strings.Join(addons.Equipment(), ", "))
	f.StringVar(&up.config.LogDir, "log-dir", "", "directory for the logs (default: in the cluster's own directory)")
	f.BoolVarP(&up.progress.Quiet, "quiet", "q", false, "show how to use the cluster, and errors, only")
	flags.FromSource(f)
	f.BoolVar(&up.foreground, "foreground", false, "stay in the foreground; Ctrl-C stops the cluster")
	f.StringVar(&up.config.Binary, "control-plane-binary", os.Getenv(EnvControlPlaneBinary), "")
	_ = f.MarkHidden("control-plane-binary")
	return cmd
}

func (up *clusterUp) run(ctx context.Context, s output.Streams) error {
	for name, value := range up.featureGates {
		on, err := strconv.ParseBool(value)
		if err != nil {
			return exit.With(exit.Usage, fmt.Errorf("--feature-gates: %s=%s: want true or false", name, value))
		}
		if up.config.FeatureGates == nil {
			up.config.FeatureGates = map[string]bool{}
		}
		up.config.FeatureGates[name] = on
	}
	if up.config.APIServers < 1 || up.config.APIServers > embedded.MaxAPIServers {
		return exit.With(exit.Usage, fmt.Errorf("--api-servers: %d: want 1 to %d", up.config.APIServers,
			embedded.MaxAPIServers))
	}
	for _, name := range up.config.Equipment {
		if !slices.Contains(addons.Equipment(), name) {
			return exit.With(exit.Usage, fmt.Errorf("--with: unknown controllers %q (known: %s)", name,
				strings.Join(addons.Equipment(), ", ")))
		}
	}
	up.config.Pods.PodTimes = cluster.DefaultPodTimes()
	if up.config.Nodes <= 0 {
		up.config.Nodes = -1 // none
	}
	if _, err := instrumentation.ResolveKubernetesVersion(up.kubernetes); err != nil {
		return exit.With(exit.Usage, err)
	}
	if _, err := embedded.RegistryFile(up.config.Name, ".json"); err != nil {
		return exit.With(exit.Usage, err)
	}
	if _, err := embedded.Attach(ctx, up.config.Name); err == nil {
		return exit.With(exit.CannotRun, fmt.Errorf("cluster %q is already running; trommel cluster down%s stops it",
			up.config.Name, nameFlag(up.config.Name)))
	}
	if up.config.Binary == "" {
		console, _, err := up.progress.Open(s)
		if err != nil {
			return err
		}
		built, err := instrumentation.BuildControlPlane(ctx, instrumentation.ControlPlaneConfig{
			KubernetesVersion: up.kubernetes,
			Progress:          func(text string) { console.Build("control plane", text) },
			Notice:            console.Info,
		})
		console.Close()
		if err != nil {
			return exit.With(exit.CannotRun, err)
		}
		up.config.Binary = built.Binary
	}
	buildcache.KeepInUse(up.config.Binary) // as long as the cluster's process runs
	if up.foreground {
		return up.serve(ctx, s)
	}
	return up.startDaemon(ctx, s)
}

// serve runs the cluster in this process until it is asked to stop.
func (up *clusterUp) serve(ctx context.Context, s output.Streams) error {
	report, err := readyPipe()
	if err != nil {
		return exit.With(exit.CannotRun, err)
	}
	up.config.Logger = slog.New(slog.NewTextHandler(s.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if report == nil && up.progress.Quiet {
		up.config.Progress = nil
	} else if report == nil {
		up.config.Progress = func(line string) { fmt.Fprintln(s.Err, line) }
	} else {
		up.config.Progress = func(line string) { fmt.Fprintln(report, line) }
	}
	if with := up.config.Equipment; len(with) > 0 {
		up.config.Equip = func(ctx context.Context, c cluster.Cluster) (func() error, error) {
			if up.config.Progress != nil {
				up.config.Progress("starting the controllers of " + strings.Join(with, " and of "))
			}
			return addons.Equip(ctx, c, with, disruptions.Injector(), c.(*embedded.Cluster).Dir(), up.config.Logger)
		}
	}
	err = embedded.Serve(ctx, up.config, func(e embedded.Entry) {
		if report != nil {
			fmt.Fprintln(report, readyLine)
			_ = report.Close()
			return
		}
		printUp(s.Out, e)
		fmt.Fprintln(s.Err, "Ctrl-C stops it")
	})
	if err != nil {
		if report != nil {
			fmt.Fprintln(report, errorLine)
			fmt.Fprintln(report, err)
			_ = report.Close()
		}
		return exit.With(exit.CannotRun, err)
	}
	return nil
}

// Prefixes of lines of the background process of `cluster up` that are not progress. The error follows errorLine.
const (
	readyLine = "\x00ready"
	errorLine = "\x00error"
)

// readyPipe returns the pipe that the starting process reads, or nil if there is none.
func readyPipe() (*os.File, error) {
	value := os.Getenv(envReadyFD)
	if value == "" {
		return nil, nil
	}
	_ = os.Unsetenv(envReadyFD)
	fd, err := strconv.Atoi(value)
	if err != nil || fd < 3 {
		return nil, fmt.Errorf("%s=%q: not an inherited descriptor", envReadyFD, value)
	}
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), "ready"), nil
}

// startDaemon starts this program again, detached, and returns when its cluster is ready.
func (up *clusterUp) startDaemon(ctx context.Context, s output.Streams) error {
	logFile, err := embedded.RegistryFile(up.config.Name, ".log")
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	cmd, report, err := up.spawn(logFile)
	if err != nil {
		return exit.With(exit.CannotRun, fmt.Errorf("start the cluster's process: %w", err))
	}
	defer report.Close()
	stopped := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer stopped()

	var failure []string
	ready, failed := false, false
	lines := bufio.NewScanner(report)
	for lines.Scan() && !ready {
		switch line := lines.Text(); {
		case line == readyLine:
			ready = true
		case line == errorLine:
			failed = true
		case failed:
			failure = append(failure, line)
		case !up.progress.Quiet:
			fmt.Fprintln(s.Err, line)
		}
	}
	if !ready {
		_ = cmd.Wait()
		if ctx.Err() != nil {
			return exit.With(exit.CannotRun, errors.New("interrupted; nothing is left running"))
		}
		if !failed {
			return exit.With(exit.CannotRun, fmt.Errorf("the cluster's process exited; its log is %s", logFile))
		}
		return exit.With(exit.CannotRun, errors.New(strings.Join(failure, "\n")))
	}
	_ = cmd.Process.Release()
	attached, err := embedded.Attach(ctx, up.config.Name)
	if err != nil {
		return exit.With(exit.CannotRun, err)
	}
	printUp(s.Out, attached.Entry())
	return nil
}

// spawn starts the cluster's process in its own session; report ends when it is ready or has failed.
func (up *clusterUp) spawn(logFile string) (cmd *exec.Cmd, report io.ReadCloser, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer log.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer write.Close()
	cmd = exec.Command(self, up.args()...)
	cmd.Args[0] = os.Args[0] // an executable may depend on its name
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{write}
	cmd.Env = append(os.Environ(), envReadyFD+"=3")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		_ = read.Close()
		return nil, nil, err
	}
	return cmd, read, nil
}

// args returns the options of this command as arguments for the background process.
func (up *clusterUp) args() []string {
	c := up.config
	args := []string{
		"cluster", "up", "--foreground", "--name=" + c.Name, fmt.Sprintf("--api-servers=%d", c.APIServers),
		fmt.Sprintf("--nodes=%d", c.Nodes), "--control-plane-binary=" + c.Binary,
	}
	if len(c.DisableControllers) > 0 {
		args = append(args, "--disable-controllers="+strings.Join(c.DisableControllers, ","))
	}
	for name, on := range c.FeatureGates {
		args = append(args, fmt.Sprintf("--feature-gates=%s=%t", name, on))
	}
	for _, a := range c.APIServerArgs {
		args = append(args, "--api-server-arg="+a)
	}
	for _, a := range c.ControllerManagerArgs {
		args = append(args, "--controller-manager-arg="+a)
	}
	if c.RemovedAPIs {
		args = append(args, "--removed-apis")
	}
	if len(c.Equipment) > 0 {
		args = append(args, "--with="+strings.Join(c.Equipment, ","))
	}
	if c.LogDir != "" {
		args = append(args, "--log-dir="+c.LogDir)
	}
	return args
}

func printUp(w io.Writer, e embedded.Entry) {
	fmt.Fprintf(w, "cluster %q is up: %s\n", e.Name, strings.Join(e.APIServers, ", "))
	fmt.Fprintf(w, "  explore it:   export KUBECONFIG=%s\n", e.Kubeconfigs[e.APIServers[0]])
	if len(e.Equipment) > 0 {
		fmt.Fprintf(w, "  it runs:      the controllers of %s\n", strings.Join(e.Equipment, " and of "))
	}
	fmt.Fprintf(w, "  run a plan:   trommel run --cluster %s -p PLAN\n", e.Name)
	fmt.Fprintf(w, "  stop it:      trommel cluster down%s\n", nameFlag(e.Name))
}

func nameFlag(name string) string {
	if name == defaultCluster {
		return ""
	}
	return " --name " + name
}

// clusterStatus is a running cluster as it is listed.
type clusterStatus struct {
	Name       string         `json:"name"`
	PID        int            `json:"pid"` // of the process that runs it
	Started    time.Time      `json:"started"`
	APIServers []serverStatus `json:"apiServers"`
	With       []string       `json:"with,omitempty"` // controllers that run on it
	Dir        string         `json:"dir"`
	LogDir     string         `json:"logDir"`
}

// serverStatus is an API server of a running cluster.
type serverStatus struct {
	Name       string `json:"name"`
	State      string `json:"state"` // up, down or unknown
	Kubeconfig string `json:"kubeconfig"`
}

// clusterRow is what a table has in a row.
type clusterRow struct {
	clusterStatus
	server serverStatus
}

func newClusterStatusCommand(s output.Streams) *cobra.Command {
	var name string
	var format output.Format
	cmd := &cobra.Command{
		Use:   "status",
		Short: "List running clusters",
		Example: `  trommel cluster status
  trommel cluster status --name small -o wide`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			entries, err := embedded.List()
			if err != nil {
				return exit.With(exit.CannotRun, err)
			}
			if name != "" {
				if _, err := embedded.Attach(cmd.Context(), name); err != nil {
					return exit.With(exit.CannotRun, err)
				}
				entries = slices.DeleteFunc(entries, func(e embedded.Entry) bool { return e.Name != name })
			}
			return exit.IfUnprinted(printStatus(cmd.Context(), s.Out, format, entries))
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "only this cluster; it is an error if it is not running")
	format.Register(cmd)
	return cmd
}

// statusTable has a row for each API server.
var statusTable = output.List[clusterRow]{
	Columns: []output.Column[clusterRow]{
		{Title: "NAME", Text: func(r clusterRow) string { return r.Name }},
		{Title: "PID", Text: func(r clusterRow) string { return strconv.Itoa(r.PID) }},
		{Title: "AGE", Text: func(r clusterRow) string { return time.Since(r.Started).Round(time.Second).String() }},
		{Title: "API SERVER", Text: func(r clusterRow) string { return r.server.Name }},
		{Title: "STATE", Text: func(r clusterRow) string { return r.server.State }},
		{Title: "KUBECONFIG", Text: func(r clusterRow) string { return r.server.Kubeconfig }},
		{Title: "WITH", Wide: true, Text: func(r clusterRow) string {
			return output.OrDash(strings.Join(r.With, ","))
		}},
		{Title: "LOGS", Text: func(r clusterRow) string { return r.LogDir }, Wide: true},
	},
	None: "no cluster is running",
}

func printStatus(ctx context.Context, w io.Writer, format output.Format, entries []embedded.Entry) error {
	var all []clusterStatus
	var rows []clusterRow
	for _, e := range entries {
		status := clusterStatus{
			Name: e.Name, PID: e.PID, Started: e.Started, APIServers: []serverStatus{}, With: e.Equipment, Dir: e.Dir,
			LogDir: e.LogDir,
		}
		var running map[string]bool
		if c, err := embedded.Attach(ctx, e.Name); err == nil {
			running, _ = c.Running(ctx)
		}
		for _, server := range e.APIServers {
			state := "down"
			if running == nil {
				state = "unknown"
			} else if running[server] {
				state = "up"
			}
			status.APIServers = append(status.APIServers, serverStatus{server, state, e.Kubeconfigs[server]})
			rows = append(rows, clusterRow{status, status.APIServers[len(status.APIServers)-1]})
		}
		all = append(all, status)
	}
	if format.Table() {
		return statusTable.Print(w, format, rows)
	}
	list := output.List[clusterStatus]{Name: func(c clusterStatus) string { return c.Name }}
	return list.Print(w, format, all)
}

func newClusterDownCommand(s output.Streams) *cobra.Command {
	var (
		name string
		all  bool
	)
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop a running cluster and remove its files",
		Example: `  trommel cluster down
  trommel cluster down --name small
  trommel cluster down --all`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			names := []string{name}
			if all {
				entries, err := embedded.List()
				if err != nil {
					return exit.With(exit.CannotRun, err)
				}
				names = nil
				for _, e := range entries {
					names = append(names, e.Name)
				}
			}
			for _, name := range names {
				if err := stopCluster(cmd.Context(), name); err != nil {
					return exit.With(exit.CannotRun, err)
				}
				fmt.Fprintf(s.Out, "cluster %q is down\n", name)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&name, "name", defaultCluster, "name of the cluster")
	f.BoolVar(&all, "all", false, "stop every running cluster")
	cmd.MarkFlagsMutuallyExclusive("name", "all")
	return cmd
}

// stopTimeout limits how long a cluster may take to stop.
const stopTimeout = 30 * time.Second

func stopCluster(ctx context.Context, name string) error {
	c, err := embedded.Attach(ctx, name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	return c.Stop(ctx)
}
