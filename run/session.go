package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"

	"github.com/trommel-dev/trommel/cluster"
	_ "github.com/trommel-dev/trommel/cluster/embedded" // a kind of cluster
	"github.com/trommel-dev/trommel/cluster/kubelet"
	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
	"github.com/trommel-dev/trommel/reference"
)

// Options set up a session. The zero value builds what is needed and runs plans on a cluster of the session's own.
type Options struct {
	// Variant of the suite; "" is the suite as it is.
	Variant string
	// Cluster is the name of a running cluster (`trommel cluster up`). It is put back as it was after each run. Without
	// one the session starts a cluster of its own, and resets it between runs.
	Cluster string
	// Fresh starts a cluster for each run, and spares the single run what the reset of another one needs.
	Fresh bool
	// Binaries of the suite's controllers, in order. Without them Open builds them.
	Binaries []Binary
	// ControlPlane is the control plane's executable. Without it Open builds it, if it is needed.
	ControlPlane string
	// Trace records all that the API servers and the controllers can be observed at, beside what a plan needs.
	Trace bool
	// Version of Trommel, for the record.
	Version string
	// Console follows the session and its runs; default: nobody.
	Console Console
	// Progress, when set, is told how far a build has come.
	Progress func(text string)
	// Logger is for what nobody asked about; default: none.
	Logger *slog.Logger
}

// Session runs plans of one suite, in one variant, one after the other. Its methods may be called concurrently; then
// they wait for each other.
type Session struct {
	suite   *plan.Suite // with the variant
	options Options

	mu       sync.Mutex
	closed   bool
	binaries []Binary
	clusters clusters
}

// Choose gives the suite as a session with this variant ("" for none) takes it. It refuses what the suite may say and
// this version of Trommel cannot do; every error is the user's.
func Choose(suite *plan.Suite, variant string) (*plan.Suite, error) {
	if _, err := instrumentation.ResolveKubernetesVersion(suite.Cluster.KubernetesVersion); err != nil {
		return nil, fmt.Errorf("%s: kubernetesVersion: %w", suite.File, err)
	}
	if variant == "" {
		return suite, nil
	}
	return suite.WithVariant(variant)
}

// Open builds the suite's controllers and, where it is needed, the control plane, or finds them built. The cluster
// starts with the first run. A mistake of the user's is a *UserError. The caller closes the session.
func Open(ctx context.Context, suite *plan.Suite, options Options) (*Session, error) {
	if options.Console == nil {
		options.Console = nobody{}
	}
	if options.Progress == nil {
		options.Progress = func(string) {}
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	suite, err := Choose(suite, options.Variant)
	if err != nil {
		return nil, &UserError{err}
	}
	s := &Session{suite: suite, options: options, binaries: options.Binaries}
	controlPlane := options.ControlPlane
	if s.binaries == nil || controlPlane == "" && options.Cluster == "" {
		if s.binaries, controlPlane, err = build(ctx, suite, options); err != nil {
			return nil, err
		}
	}
	kind, err := cluster.Lookup(string(suite.Cluster.Type))
	if err != nil {
		return nil, &UserError{fmt.Errorf("%s: %w", suite.File, err)}
	}
	if options.Cluster != "" {
		s.clusters = &sharedCluster{func(ctx context.Context) (cluster.Cluster, error) {
			return kind.Attach(ctx, options.Cluster)
		}}
		return s, nil
	}
	s.clusters = &ownClusters{fresh: options.Fresh, logger: options.Logger,
		start: func(ctx context.Context, console Console) (cluster.Cluster, error) {
			return kind.Start(ctx, s.clusterConfig(controlPlane, console))
		}}
	return s, nil
}

// Run runs a plan, which is validated against the suite, and returns what its record says of it, with the verdict. The
// record's folder is created and must not hold a record yet. An error says that the run could not be carried out; the
// record, if there is one, then holds what there is. When Run returns, also with an error or since ctx was cancelled,
// nothing of the run goes on.
func (s *Session) Run(ctx context.Context, p *plan.Plan, recordDir string) (*record.Meta, error) {
	return s.RunWith(ctx, p, recordDir, RunOptions{Trace: s.options.Trace})
}

// RunOptions are those of one run of a session.
type RunOptions struct {
	// Trace is as in Options.
	Trace bool
	// History names types whose objects' states are recorded, beside those that the suite and the plan name.
	History []plan.ResourceKey
	// Reference is what the plan's workload does without faults: what the run does otherwise is a bug. Nil: none.
	Reference *reference.Reference
}

// RunWith is Run with options.
func (s *Session) RunWith(ctx context.Context, p *plan.Plan, recordDir string, o RunOptions) (*record.Meta, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.New("run: the session is closed")
	}
	if err := checkPoints(p, s.suite, s.binaries); err != nil {
		return nil, &UserError{err}
	}
	return execute(ctx, Config{
		Plan: p, Suite: s.suite, Variant: s.options.Variant, Binaries: s.binaries, RecordDir: recordDir,
		Trace: o.Trace, History: o.History, Reference: o.Reference, Version: s.options.Version, Console: s.options.Console, Logger: s.options.Logger, clusters: s.clusters,
	})
}

// Close ends the session's cluster if it is the session's own. Further calls do nothing.
func (s *Session) Close(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return s.clusters.close(ctx)
}

// clusterConfig describes a cluster as the suite does.
func (s *Session) clusterConfig(binary string, console Console) cluster.Config {
	removed, _ := RemovedAPIs(s.suite, s.binaries)
	spec := s.suite.Cluster
	return cluster.Config{
		Binary: binary, APIServers: spec.APIServers, Nodes: spec.Nodes, DisableControllers: spec.DisableControllers,
		FeatureGates: spec.FeatureGates, APIServerArgs: spec.APIServerArgs, ControllerManagerArgs: spec.ControllerManagerArgs,
		RemovedAPIs: removed,
		Answers:     answers(spec.Answers),
		Progress:    console.Info,
		Logger:      s.options.Logger,
	}
}

// answers are the suite's, which has checked them.
func answers(list []plan.Answer) []kubelet.Answer {
	var all []kubelet.Answer
	for _, a := range list {
		answer := kubelet.Answer{
			Namespace: a.Namespace, Pod: a.Pod, Container: a.Container, Stdout: a.Stdout, Stderr: a.Stderr, ExitCode: a.ExitCode, Log: a.Log,
		}
		if a.Command != "" {
			answer.Command = regexp.MustCompile(a.Command)
		}
		all = append(all, answer)
	}
	return all
}

// nobody is the console of a session that nobody follows.
type nobody struct{}

func (nobody) Fired(int, *plan.Action, string)    {}
func (nobody) Completed(int, *plan.Action, error) {}
func (nobody) Held(*record.Observation, string)   {}
func (nobody) Info(string)                        {}
func (nobody) Phase(string)                       {}
func (nobody) Finding(record.Finding)             {}
