package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/cluster"
	_ "github.com/trommel-dev/trommel/internal/cluster/embedded" // a kind of cluster
	_ "github.com/trommel-dev/trommel/internal/cluster/existing" // a kind of cluster
	_ "github.com/trommel-dev/trommel/internal/cluster/kind"     // a kind of cluster
	"github.com/trommel-dev/trommel/internal/progress"
	"github.com/trommel-dev/trommel/internal/run/builds"
	"github.com/trommel-dev/trommel/internal/run/clientgo"
	"github.com/trommel-dev/trommel/internal/run/clusters"
	"github.com/trommel-dev/trommel/internal/run/journal"
	"github.com/trommel-dev/trommel/internal/workload"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Options configure a session. The zero value builds what is needed and runs plans on the session's own cluster.
type Options struct {
	// Variant of the suite; "" for none.
	Variant string
	// Cluster is the name of a running cluster (`trommel cluster up`). It is restored to its previous state after each
	// run. If empty, the session starts its own cluster and resets it between runs.
	Cluster string
	// Context is that of an existing cluster which the user has named for this session; it comes before the suite's.
	Context string
	// Fresh starts a new cluster for each run. A single run then needs no snapshot.
	Fresh bool
	// Binaries of the suite's controllers, in order. If nil, Open builds them.
	Binaries []builds.Binary
	// Builds are the suite's other builds, as another session has them; nil: they are made when they are needed.
	Builds *builds.Set
	// ControlPlane is the path of the control plane's executable. If empty, Open builds it if it is needed.
	ControlPlane string
	// Portable builds controllers for machines that may lack this one's C library: without cgo, unless the suite's
	// build or the environment says something of CGO_ENABLED.
	Portable bool
	// Trace records everything that can be observed of the API servers and the controllers, not only what a plan needs.
	Trace bool
	// Version of Trommel, for the record.
	Version string
	// Progress receives what the session and its runs do; default: none.
	Progress progress.Listener
	// Injector is the command of the injector of disruptions, an executable with arguments; only plans with the action
	// disrupt need it.
	Injector []string
	// DisruptionControllers is the command of the controllers of disruptions, an executable with arguments, of which
	// Injector is another command; only suites that install them need it.
	DisruptionControllers []string
	// Logger receives diagnostics; default: none.
	Logger *slog.Logger
}

// Session runs plans of one suite and variant, one after the other. Its methods may be called concurrently; they wait
// for each other.
type Session struct {
	suite   *plan.Suite // with the variant
	options Options

	mu           sync.Mutex
	closed       bool
	binaries     []builds.Binary
	builds       *builds.Set
	controlPlane string
	clusters     clusters.Source
}

// Choose returns the suite with the variant ("" for none) merged in. It refuses settings that this version of Trommel
// does not support; every error is the user's.
func Choose(suite *plan.Suite, variant string) (*plan.Suite, error) {
	if _, err := instrumentation.ResolveKubernetesVersion(suite.Cluster.KubernetesVersion); err != nil {
		return nil, fmt.Errorf("%s: kubernetesVersion: %w", suite.File, err)
	}
	if variant == "" {
		return suite, nil
	}
	return suite.WithVariant(variant)
}

// Open builds the suite's controllers and, if needed, the control plane, or finds them in the cache. The cluster starts
// with the first run. A mistake in the suite is a *UserError. The caller closes the session.
func Open(ctx context.Context, suite *plan.Suite, options Options) (*Session, error) {
	if options.Progress == nil {
		options.Progress = progress.Nobody
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	suite, err := Choose(suite, options.Variant)
	if err != nil {
		return nil, &UserError{Err: err}
	}
	if options.Cluster != "" && suite.ClusterNames() != nil {
		return nil, &UserError{Err: fmt.Errorf("%s: the suite has several clusters, which a run starts itself; it "+
			"cannot use the cluster %q instead", suite.File, options.Cluster)}
	}
	kind, err := cluster.Lookup(string(suite.Cluster.Type))
	if err != nil {
		return nil, &UserError{Err: fmt.Errorf("%s: %w", suite.File, err)}
	}
	if options.Cluster != "" && kind.Attach == nil {
		return nil, &UserError{Err: fmt.Errorf("%s: the suite's cluster is of type %s; it cannot use the cluster %q "+
			"instead", suite.File, suite.Cluster.Type, options.Cluster)}
	}
	s := &Session{suite: suite, options: options, binaries: options.Binaries}
	if kind.Check != nil {
		if err := kind.Check(s.settings().Join(nil)); err != nil {
			return nil, &UserError{Err: fmt.Errorf("%s: %w", suite.File, err)}
		}
	}
	controlPlane := options.ControlPlane
	if s.binaries == nil || controlPlane == "" && needsControlPlane(kind, options) {
		if s.binaries, controlPlane, err = builds.Make(ctx, suite, builds.Options{
			Binaries: options.Binaries, ControlPlane: options.ControlPlane, Portable: options.Portable,
			NeedsCluster: needsControlPlane(kind, options), Progress: options.Progress,
		}); err != nil {
			return nil, err
		}
	}
	s.controlPlane, s.builds = controlPlane, options.Builds
	if s.builds == nil {
		s.builds = builds.NewSet(suite, s.binaries, options.Portable, options.Progress)
	}
	if kind.Join != nil {
		s.clusters = &clusters.Shared{Attach: func(ctx context.Context) (cluster.Cluster, error) {
			return kind.Join(ctx, s.settings().Join(journal.NewConsole(options.Progress, "").Info))
		}}
		return s, nil
	}
	if options.Cluster != "" {
		s.clusters = &clusters.Shared{Attach: func(ctx context.Context) (cluster.Cluster, error) {
			return kind.Attach(ctx, options.Cluster)
		}}
		return s, nil
	}
	settings := s.settings()
	settings.Kind, settings.ControlPlane = kind, controlPlane
	settings.RemovedAPIs, _ = clientgo.RemovedAPIs(suite, s.binaries)
	s.clusters = &clusters.Own{Fresh: options.Fresh, Logger: options.Logger, Start: settings.Start}
	return s, nil
}

// settings are what the session's clusters have in common, without what only those need that it starts.
func (s *Session) settings() *clusters.Settings {
	return &clusters.Settings{Suite: s.suite, Context: s.options.Context, Logger: s.options.Logger}
}

// needsControlPlane reports whether the session starts a control plane that Trommel builds.
func needsControlPlane(kind cluster.Kind, options Options) bool {
	return kind.ControlPlane && options.Cluster == ""
}

// Run runs a plan, which must have been validated against the suite, and returns its record's metadata with the
// verdict. It creates recordDir, which must not contain a record yet. With an error the run could not be carried out;
// the record, if there is one, then contains what there is. When Run returns, even with an error or after ctx was
// cancelled, nothing of the run is still active.
func (s *Session) Run(ctx context.Context, p *plan.Plan, recordDir string) (*record.Meta, error) {
	return s.RunWith(ctx, p, recordDir, RunOptions{Trace: s.options.Trace})
}

// RunOptions are those of one run of a session.
type RunOptions struct {
	// Trace is as in Options.
	Trace bool
	// History names types whose objects' states are recorded, beside those that the suite and the plan name.
	History []plan.ResourceKey
	// FindTypes records, in a traced run, also the states of all objects that the controllers take in, read or write,
	// although their types are unknown before.
	FindTypes bool
	// Baseline is what the plan's workload does without faults: what the run does otherwise is a bug. Nil: none.
	Baseline *baseline.Baseline
	// Brief: of a run that passes, only the metadata and the findings are needed. A runner on another machine may send
	// no more; a session records all.
	Brief bool
	// Shift is for how long the controllers under test run before the workload begins, in addition to their start.
	// In real time it is a twelfth of that.
	Shift time.Duration
	// Polls is what the controllers look at again and again without faults, if there is no Baseline that says so: the
	// run does not wait for that.
	Polls []record.Poll
	// Functions are what the workload's go steps call, by the names in these steps.
	Functions map[string]workload.Function
}

// Runner runs plans, one at a time; a *Session is one.
type Runner interface {
	RunWith(ctx context.Context, p *plan.Plan, recordDir string, o RunOptions) (*record.Meta, error)
}

// Start starts the session's own cluster if it does not run, so that the first run finds it. It does nothing if each
// run has a cluster of its own, or if the session uses a running one. When it returns with an error, or after ctx was
// cancelled, no cluster runs.
func (s *Session) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	own, ok := s.clusters.(*clusters.Own)
	if !ok {
		return nil
	}
	return own.Prepare(ctx, journal.NewConsole(s.options.Progress, "").Info, s.realTime(nil) != "")
}

var errClosed = errors.New("run: the session is closed")

// RunWith is Run with options.
func (s *Session) RunWith(ctx context.Context, p *plan.Plan, recordDir string, o RunOptions) (*record.Meta, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	needed, err := s.needed(ctx, p)
	if err != nil {
		return nil, err
	}
	if err := checkFunctions(p, s.suite, o.Functions); err != nil {
		return nil, &UserError{Err: err}
	}
	return execute(ctx, task{
		realTime: s.realTime(p),
		plan:     p, builds: needed, suite: needed[p.Build].Suite, binaries: needed[p.Build].Binaries,
		recordDir: recordDir, session: s.options, options: o,
		clusters: s.clusters,
	})
}

// needed returns the builds that a run of the plan needs, by name, each with what the plan has of its own. It refuses a
// plan that observes a controller at a point which one of them does not have.
func (s *Session) needed(ctx context.Context, p *plan.Plan) (map[string]*builds.Build, error) {
	all := map[string]*builds.Build{}
	suite, workload := p.Within(s.suite)
	for _, name := range p.Builds(suite.Workloads[workload].Steps) {
		b, err := s.builds.Get(ctx, name)
		if err != nil {
			return nil, err
		}
		if err := checkPoints(p, b.Suite, b.Binaries); err != nil {
			if name != "" {
				err = fmt.Errorf("in the build %s: %w", name, err)
			}
			return nil, &UserError{Err: err}
		}
		own := *b
		own.Suite, _ = p.Within(b.Suite)
		all[name] = &own
	}
	return all, nil
}

// checkFunctions refuses a workload that calls Go functions which this program does not have.
func checkFunctions(p *plan.Plan, suite *plan.Suite, have map[string]workload.Function) error {
	merged, name := p.Within(suite)
	names, err := workload.FunctionsOf(merged, name)
	if err != nil {
		return err
	}
	for _, name := range names {
		if have[name] == nil {
			return workload.Missing(name)
		}
	}
	return nil
}

// Built returns what the session runs: the suite's controllers, in order, and the control plane's executable, which is
// empty on a running cluster. Another session with these options runs the same.
func (s *Session) Built() (binaries []builds.Binary, controlPlane string) {
	return s.binaries, s.controlPlane
}

// Builds returns the suite's builds, for other sessions of the same suite and variant.
func (s *Session) Builds() *builds.Set { return s.builds }

// Close stops the session's cluster if the session started it. Further calls do nothing.
func (s *Session) Close(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return s.clusters.Close(ctx)
}
