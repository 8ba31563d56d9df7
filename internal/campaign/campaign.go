// Package explore looks for bugs without being told where: it learns what a suite's workloads do without faults, makes
// plans that strike at each moment, runs them, and believes what comes again. It keeps what it has found after each
// plan, so that a campaign that was interrupted or killed can be resumed.
package campaign

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/campaign/pattern"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/progress"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/internal/run/builds"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Config says what to look for. Runners, Suite and Dir are required.
type Config struct {
	Settings
	// Runners are used side by side; all run the same suite and executables.
	Runners []run.Runner
	Suite   *plan.Suite // as the runners have it
	// Dir is the directory for plans, records and the state. If it has a state, the campaign goes on from there.
	Dir string
	// Binaries and ControlPlane are the executables that the runners run, and Version is Trommel's: a baseline of
	// others is not used.
	Binaries     []builds.Binary
	ControlPlane string
	Version      string
	Builds       Builds       // the suite's other builds; nil: there are none
	Anew         bool         // learn also what there is a baseline of
	Plans        []*plan.Plan // run these; nil: generate plans
	// Shrink looks for a smaller plan; see Shrinking. It is called at the end, for the simplest plan of each group of
	// bugs. Alone: the smaller plan shows the finding without a baseline. If nil, plans stay as they are.
	Shrink func(ctx context.Context, r run.Runner, s Shrinking) (alone bool, err error)
	// Progress receives how the campaign goes; default: nobody. The runners report their runs themselves.
	Progress progress.Listener
}

// Builds are those of a suite; a *builds.Set is one.
type Builds interface {
	Get(ctx context.Context, name string) (*builds.Build, error)
}

// Run runs the campaign. The error says what kept it from going on; the result is what it had until then.
func Run(ctx context.Context, config Config) (*Result, error) {
	c := newCampaign(config)
	ctx, end := c.begun(ctx)
	defer end()
	err := c.run(ctx)
	if rest := c.keepRest(); rest != nil {
		err = errors.Join(err, rest)
	}
	return c.finish(err), err
}

// Generate learns the workloads and writes the plans that a campaign would run, without running them. It returns all
// candidates, the plans in the order in which a campaign would run them, then those without a plan. The result says
// what could not be learned.
func Generate(ctx context.Context, config Config) ([]pattern.Candidate, *Result, error) {
	c := newCampaign(config)
	ctx, end := c.begun(ctx)
	defer end()
	all, err := c.prepare(ctx)
	var candidates []pattern.Candidate
	for _, place := range inOrder(all) {
		candidate := all[place.Workload].candidates[place.Index]
		if _, err := c.write(candidate.Plan); err != nil {
			return nil, c.finish(err), err
		}
		candidates = append(candidates, candidate)
	}
	for _, l := range all {
		for _, candidate := range l.candidates {
			if candidate.Plan == nil {
				candidates = append(candidates, candidate)
			}
		}
	}
	return candidates, c.finish(err), err
}

func newCampaign(config Config) *campaign {
	c := &campaign{
		Config: config, began: time.Now(),
		result: &Result{
			Settings: config.Settings, Outcomes: []Outcome{}, NotRun: []string{}, Next: []result.Unrun{},
			Unlearned: []result.Unlearned{}, Dropped: map[string]int{}, Empty: []string{}, Suggested: []result.Suggestion{},
		},
		numbers: map[string]int{}, done: map[string]*Outcome{}, quietly: map[string][]record.Finding{},
		widened: map[*Learned]*baseline.Baseline{}, extra: map[string]*extra{},
		anew: map[string][]record.Finding{}, faultless: map[string]*Faultless{},
		confirming: map[string]Outcome{}, lasted: map[string]time.Duration{},
	}
	c.changed.L = &c.mu
	if c.Learn == 0 {
		c.Learn, c.anyRuns = 3, true
	}
	if c.Repeat == 0 {
		c.Repeat = 3
	}
	if c.Progress == nil {
		c.Progress = progress.Nobody
	}
	c.cold = slices.Clone(c.Runners)
	return c
}

type campaign struct {
	Config
	began       time.Time
	spent       time.Duration   // before it was resumed
	anyRuns     bool            // see Settings.Learn
	life        context.Context // ends when the campaign does
	starts      sync.WaitGroup  // of runners that get ready
	executables hashes
	tasks       []*task // in the order in which they are run

	mu       sync.Mutex   // guards what follows
	cold     []run.Runner // that are not ready
	starting bool         // one is getting ready
	free     []run.Runner // that are ready, and that no run uses; the one that was used last is used first
	result   *Result
	numbers  map[string]int      // of runs, by plan
	done     map[string]*Outcome // by plan
	next     int                 // of tasks
	running  []string            // plans
	// The plans whose findings are being confirmed, with what their first runs have found, and those that wait for one
	// of them. changed is signalled when there may be something new to do.
	confirming map[string]Outcome
	putOff     []*task
	changed    sync.Cond
	stopped    string // why no new plan is begun; empty: it is
	failures   int    // plans in a row that could not be run
	// What runs without a plan's actions have found, by workload, and the baselines with how they ended.
	quietly map[string][]record.Finding
	widened map[*Learned]*baseline.Baseline
	// How the runs went in which no action of a plan was carried out, by workload.
	faultless map[string]*Faultless
	newest    map[string]*newest // by workload
	extra     map[string]*extra  // runs that add something to baselines, by workload and name
	// toldNotReset: it was said why a cluster could not be reset.
	toldNotReset bool
	anew         map[string][]record.Finding // what the workloads end like if all is created at once; see madeAnew
	still        map[string]*still           // the runs without actions, by the plan without its actions
	// How long it took to write the state, and when that was; appended: some outcomes are only in the file beside it.
	keeping  time.Duration
	kept     time.Time
	appended bool
	forecast forecast
	lessons  lessons
	lasted   map[string]time.Duration // the newest run, by plan and by the machine's clock
	// confirmed is how long the runs took that confirm findings, by the machine's clock; all runners together.
	confirmed time.Duration
}

// begun returns the context of everything that the campaign does. The caller calls end when the campaign has ended.
func (c *campaign) begun(ctx context.Context) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancel(ctx)
	c.life = ctx
	return ctx, func() {
		cancel()
		c.starts.Wait()
	}
}

// workload is one of the suite, or that of a plan with steps of its own.
type workload struct {
	name  string
	steps []plan.Step // nil: the suite has it
	build string      // of the suite, with which it is run; empty: the suite itself
	// types are recorded besides those that the first run shows.
	types []plan.ResourceKey
}

// id names the workload with its build, in names of files and plans, and in messages.
func (w workload) id() string {
	if w.build == "" {
		return w.name
	}
	return w.name + "@" + w.build
}

// workloadOf is what a plan is compared with: its workload without faults. A plan that upgrades is to end as if its
// last build had done all, unless its own steps upgrade.
func workloadOf(p *plan.Plan) workload {
	w := workload{name: WorkloadOf(p), build: p.LastBuild()}
	if len(p.Steps) > 0 {
		w.steps = p.Steps
		if upgradeIn(p.Steps) {
			w.build = p.Build
		}
	}
	return w
}

// workloads are those that are learned.
func (c *campaign) workloads() []workload {
	var all []workload
	if c.Plans != nil {
		for _, p := range c.Plans {
			w := workloadOf(p)
			if !slices.ContainsFunc(all, func(other workload) bool { return other.id() == w.id() }) {
				all = append(all, w)
			}
		}
		return all
	}
	chosen := c.Workloads
	if len(chosen) == 0 {
		chosen = slices.Sorted(maps.Keys(c.Suite.Workloads))
	}
	for _, name := range chosen {
		all = append(all, workload{name: name})
	}
	if c.upgrades(pattern.Upgrade) || c.upgrades(pattern.Rollback) {
		for _, name := range chosen {
			for _, build := range c.Suite.BuildNames() {
				all = append(all, workload{name: name, build: build})
			}
		}
	}
	return all
}

func (c *campaign) say(format string, args ...any) {
	c.show(progress.Event{Type: progress.Info, Text: fmt.Sprintf(format, args...)})
}

func (c *campaign) show(e progress.Event) {
	e.Time = time.Now()
	c.Progress.Show(e)
}

// partialSuffix marks the record of a run that has not ended.
const partialSuffix = ".partial"

// starter is a runner that can get ready before its first run, such as a session, which starts its cluster.
type starter interface {
	Start(ctx context.Context) error
}

// acquire waits for a free runner; the caller releases it. If none is free it also gets another one ready: one at a
// time, since the start of a cluster keeps all cores busy, and not more than there is work for. The error is that of
// ctx.
func (c *campaign) acquire(ctx context.Context) (run.Runner, error) {
	defer context.AfterFunc(ctx, c.wake)()
	c.mu.Lock()
	defer c.mu.Unlock()
	for ctx.Err() == nil {
		if last := len(c.free) - 1; last >= 0 {
			r := c.free[last]
			c.free = c.free[:last]
			return r, nil
		}
		c.getReady()
		c.changed.Wait()
	}
	return nil, context.Cause(ctx)
}

// getReady gets the next runner ready in the background, unless one is getting ready. The caller holds the lock.
func (c *campaign) getReady() {
	if c.starting || len(c.cold) == 0 {
		return
	}
	r := c.cold[0]
	c.cold = c.cold[1:]
	c.starting = true
	c.starts.Go(func() {
		if s, ok := r.(starter); ok {
			// After an error its first run tries again, and says what is wrong.
			if err := s.Start(c.life); err != nil && c.life.Err() == nil {
				c.say("%v", err)
			}
		}
		c.mu.Lock()
		c.starting = false
		c.mu.Unlock()
		c.release(r)
	})
}

func (c *campaign) release(r run.Runner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free = append(c.free, r)
	c.changed.Broadcast()
}

// once runs a plan on a free runner, and reads its record. It waits for the runner. The record is whole, or absent.
func (c *campaign) once(ctx context.Context, p *plan.Plan, o run.RunOptions) (*record.Run, *record.Meta, error) {
	runner, err := c.acquire(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer c.release(runner)
	c.mu.Lock()
	c.numbers[p.TestName]++
	dir := filepath.Join(c.Dir, "runs", p.TestName, fmt.Sprint(c.numbers[p.TestName]))
	c.mu.Unlock()
	if err := os.MkdirAll(filepath.Dir(dir), record.DirMode); err != nil {
		return nil, nil, err
	}
	partial := dir + partialSuffix
	for _, old := range []string{dir, partial} { // of a campaign that was interrupted
		if err := os.RemoveAll(old); err != nil {
			return nil, nil, err
		}
	}
	began := time.Now()
	meta, err := runner.RunWith(ctx, p, partial, o)
	c.mu.Lock()
	c.lasted[p.TestName] = time.Since(began)
	tell := meta != nil && meta.NotReset != "" && !c.toldNotReset
	c.toldNotReset = c.toldNotReset || tell
	c.mu.Unlock()
	if tell {
		c.say("runs take longer, because each starts a cluster of its own: %s", meta.NotReset)
	}
	if ctx.Err() != nil {
		return nil, nil, errors.Join(context.Cause(ctx), os.RemoveAll(partial))
	}
	if _, missing := os.Stat(partial); missing == nil {
		err = errors.Join(err, os.Rename(partial, dir))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", p.TestName, err)
	}
	r, err := record.Open(dir)
	return r, meta, err
}
