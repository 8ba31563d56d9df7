package shrink

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/baseline/findings"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/judge"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// checker runs plans to see whether they show the finding.
type checker struct {
	Config
	began     time.Time
	runs      int
	ended     int                  // of them without an error
	took      time.Duration        // these, by the machine's clock
	complete  bool                 // the finding counts only if every action is carried out, as in the first runs
	workloads map[string]*workload // by text

	original *workload // that of the plan itself

	finding  record.Finding // as the last plan that showed it did
	last     *record.Run    // of that plan
	lastPlan *plan.Plan
}

// workload is one of the workloads that the plans run.
type workload struct {
	baseline *baseline.Baseline
	// unfit says why nothing can be found with it; empty: it is fit. Of a workload that is not the plan's own it is
	// known once quiet is true.
	unfit string
	quiet bool // it was run without faults
}

func newChecker(config Config) *checker {
	c := &checker{Config: config, began: time.Now(), workloads: map[string]*workload{}}
	if c.Runs == 0 {
		c.Runs = 2
	}
	if c.Learn == 0 {
		c.Learn = 2
	}
	if c.Written == nil {
		c.Written = c.Plan
	}
	if c.Progress == nil {
		c.Progress = func(string, ...any) {}
	}
	if c.once == nil {
		c.once = c.byRunner
	}
	return c
}

// fromReference reports whether the finding was judged with a baseline, or may have been.
func (c *checker) fromBaseline() bool {
	switch c.Finding.Judge {
	case "", record.JudgeInvariant, record.JudgeWorkload, record.JudgeCrash, record.JudgePanic,
		record.JudgeDependent, record.JudgeFinalizer: // the last two are judged only without one
		return false
	}
	return true
}

// byRunner runs a plan and reads its record.
func (c *checker) byRunner(ctx context.Context, p *plan.Plan, o run.RunOptions) (*record.Run, error) {
	dir := filepath.Join(c.Dir, fmt.Sprintf("%04d-%s", c.runs, p.TestName))
	if _, err := c.Runner.RunWith(ctx, p, dir, o); err != nil {
		return nil, fmt.Errorf("%s: %w", p.TestName, err)
	}
	return record.Open(dir)
}

// run runs a plan.
func (c *checker) run(ctx context.Context, p *plan.Plan, o run.RunOptions) (*record.Run, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	c.runs++
	began := time.Now()
	r, err := c.once(ctx, p, o)
	if err == nil {
		c.took += max(r.Meta.Took(), time.Since(began)) // also what comes before and after it
		c.ended++
	}
	return r, err
}

// begins says what begins, and about how long the runs take with which it begins, as far as that is known.
func (c *checker) begins(what string, runs int) {
	if usual := c.usual(); usual > 0 {
		what += ", about " + wording.Roughly(usual*time.Duration(runs)) + " left"
	}
	c.Progress("%s", what)
}

// usual is how long a run takes, of those that there were; 0: unknown.
func (c *checker) usual() time.Duration {
	if c.ended == 0 {
		return c.Took
	}
	return c.took / time.Duration(c.ended)
}

// inTime reports whether that many more runs end within the budget, as far as the runs so far tell.
func (c *checker) inTime(runs int) bool {
	return c.Budget == 0 || time.Since(c.began)+time.Duration(runs)*c.usual() <= c.Budget
}

// concluding is how many runs conclude usually needs: those without a baseline, and those with an invariant.
func (c *checker) concluding() int {
	if !c.fromBaseline() {
		return 0
	}
	return c.Runs + 1 + c.Runs
}

// tries is how many runs it takes to see that a plan shows the finding.
func (c *checker) tries(p *plan.Plan) int {
	w := c.workloads[workloadText(p)]
	switch {
	case w != nil && w.unfit != "":
		return 0
	case w != nil && w.quiet:
		return c.Runs
	case w == nil && c.fromBaseline():
		return c.Learn + c.Runs
	}
	return c.Runs + 1 // without faults
}

// prepare runs the plan itself, finds out what to keep, and returns a plan of the same meaning to begin with.
func (c *checker) prepare(ctx context.Context) (*plan.Plan, error) {
	if err := os.MkdirAll(c.Dir, record.DirMode); err != nil {
		return nil, err
	}
	first, err := c.again(c.Plan, func(*plan.Plan) {})
	if err != nil {
		return nil, &run.UserError{Err: err}
	}
	w := &workload{baseline: c.Baseline, quiet: true}
	c.workloads[workloadText(first)], c.original = w, w
	if c.Finding.Judge == "" {
		if err := c.choose(ctx, first, w); err != nil {
			return nil, err
		}
	}
	if c.fromBaseline() {
		if err := c.learnFirst(ctx, first, w); err != nil {
			return nil, err
		}
	}
	came := 0
	c.complete = true
	var shown *record.Run
	for i := range c.Runs {
		c.begins(fmt.Sprintf("the plan as it is: run %d of %d", i+1, c.Runs), c.Runs-i)
		r, err := c.run(ctx, first, c.options(w))
		if err != nil {
			return nil, err
		}
		if f := c.found(r); f != nil {
			came++
			c.complete = c.complete && r.Meta.Unfinished == ""
			c.finding, shown = *f, r
		}
	}
	if came < c.Runs {
		return nil, &NotShownError{c.Finding.Title, came, c.Runs}
	}
	c.last, c.lastPlan = shown, first
	c.Progress("the plan as it is: %d of %d runs: %s", came, c.Runs, c.finding.Title)
	return first, nil
}

// choose runs the plan to find what is to be kept: a bug that is found without a baseline, or else with one.
func (c *checker) choose(ctx context.Context, first *plan.Plan, w *workload) error {
	c.begins("running the plan to see what it finds", 1+c.Runs)
	r, err := c.run(ctx, first, run.RunOptions{})
	if err != nil {
		return err
	}
	if c.Finding = firstBug(r.Findings); c.Finding.Judge != "" {
		return nil
	}
	c.Progress("the plan finds nothing by itself")
	if err := c.learnFirst(ctx, first, w); err != nil {
		return err
	}
	if r, err = c.run(ctx, first, run.RunOptions{History: c.History, Baseline: w.baseline}); err != nil {
		return err
	}
	if c.Finding = firstBug(r.Findings); c.Finding.Judge == "" {
		return &NotShownError{Came: 0, Of: 2}
	}
	return nil
}

// again returns a plan after a change, as if it had been read from a file.
func (c *checker) again(p *plan.Plan, change func(p *plan.Plan)) (*plan.Plan, error) {
	q, err := clone(p)
	if err != nil {
		return nil, err
	}
	change(q)
	if q, err = clone(q); err != nil {
		return nil, err
	}
	q.Complete(c.Suite)
	return q, q.Validate(c.Suite)
}

// firstBug returns the bug with the greatest harm, preferably one for which no baseline is needed; zero: there is
// none.
func firstBug(all []record.Finding) record.Finding {
	var bug record.Finding
	for _, f := range slices.SortedStableFunc(slices.Values(all), record.ByHarm) {
		if f.IsBug() && f.Judge != record.JudgeBaseline {
			return f
		}
		if f.IsBug() && bug.Judge == "" {
			bug = f
		}
	}
	return bug
}

// options are those of the runs of plans with a workload. Nothing is recorded that is not needed: a plan that is
// committed runs without it too.
func (c *checker) options(w *workload) run.RunOptions {
	if c.fromBaseline() {
		return run.RunOptions{History: c.History, Baseline: w.baseline}
	}
	return run.RunOptions{}
}

// found returns the finding of a run that is the one to keep; nil: there is none.
func (c *checker) found(r *record.Run) *record.Finding {
	for i := range r.Findings {
		if f := &r.Findings[i]; f.IsBug() && c.Finding.SameStep(*f) {
			return f
		}
	}
	return nil
}

// shows reports whether the plan has the finding in every run.
func (c *checker) shows(ctx context.Context, p *plan.Plan) (ok bool, seen string, err error) {
	if !c.inTime(c.tries(p) + c.concluding()) {
		return false, "", errBudget
	}
	w, err := c.workloadOf(ctx, p)
	if err != nil || w.unfit != "" {
		return false, w.unfit, err
	}
	var finding *record.Finding
	var r *record.Run
	for i := range c.Runs {
		if !c.inTime(c.Runs - i + c.concluding()) {
			return false, "", errBudget
		}
		if r, err = c.run(ctx, p, c.options(w)); err != nil {
			var user *run.UserError
			if errors.As(err, &user) {
				return false, wording.FirstLine(err.Error()), nil
			}
			return false, "", err
		}
		if finding = c.found(r); finding == nil {
			return false, fmt.Sprintf("%d of %d runs show it", i, i+1), nil
		}
		if c.complete && r.Meta.Unfinished != "" {
			return false, fmt.Sprintf("%d of %d actions are carried out", r.Meta.ActionsFired, r.Meta.ActionsTotal), nil
		}
	}
	if err := c.withoutFaults(ctx, p, w); err != nil || w.unfit != "" {
		return false, w.unfit, err
	}
	c.finding, c.last, c.lastPlan = *finding, r, p
	return true, fmt.Sprintf("%d of %d", c.Runs, c.Runs), nil
}

// quiet is the plan without its actions.
func quiet(p *plan.Plan) *plan.Plan {
	q := *p
	q.Actions, q.TestName = nil, p.TestName+"-without-faults"
	if q.Schedule != nil {
		q.Schedule = &plan.Schedule{}
	}
	return &q
}

// workloadText distinguishes workloads.
func workloadText(p *plan.Plan) string {
	return textOf(&plan.Plan{Workload: p.Workload, Steps: p.Steps})
}

// workloadOf returns what is known of the plan's workload. If it was shortened and the finding is one of the baseline,
// that of the longer one does not apply: this one's end without faults is learned.
func (c *checker) workloadOf(ctx context.Context, p *plan.Plan) (*workload, error) {
	text := workloadText(p)
	if w := c.workloads[text]; w != nil {
		return w, nil
	}
	w := &workload{}
	if c.fromBaseline() {
		if err := c.learn(ctx, p, w, c.original.baseline.Given); err != nil {
			return w, err
		}
		if w.baseline != nil {
			w.baseline.Adopt(c.original.baseline)
		}
	}
	c.workloads[text] = w
	return w, nil
}

// learnFirst learns the baseline of the plan's own workload, if there is none. The first run shows which types matter.
func (c *checker) learnFirst(ctx context.Context, p *plan.Plan, w *workload) error {
	if w.baseline != nil {
		return nil
	}
	c.begins("learning what the workload does without faults", 1+c.Learn+c.Runs)
	r, err := c.run(ctx, quiet(p), run.RunOptions{Trace: true})
	if err != nil {
		return err
	}
	c.History = baseline.Types(r)
	if err := c.learn(ctx, p, w, c.Suite.Masks); err != nil {
		return err
	}
	if w.unfit != "" {
		return fmt.Errorf("the workload cannot be compared: %s", w.unfit)
	}
	return nil
}

// learn runs the workload without faults. It is not an error if the workload is unfit to be compared.
func (c *checker) learn(ctx context.Context, p *plan.Plan, w *workload, masks []baseline.Mask) error {
	var runs []*record.Run
	for range c.Learn {
		r, err := c.run(ctx, quiet(p), run.RunOptions{Trace: true, History: c.History})
		var user *run.UserError
		if errors.As(err, &user) {
			w.unfit = wording.FirstLine(err.Error())
			return nil
		}
		if err != nil {
			return err
		}
		if r.Meta.Verdict != record.Pass {
			w.unfit = fmt.Sprintf("without faults the workload does not pass: %s", wording.FirstLine(r.Meta.Reason))
			return nil
		}
		runs = append(runs, r)
	}
	name := p.Workload
	if name == "" {
		name = p.TestName
	}
	var err error
	w.baseline, err = baseline.Learn(name, runs, masks...)
	var unstable *baseline.UnstableError
	if errors.As(err, &unstable) {
		w.unfit = "the workload ends differently each time without faults"
		return nil
	}
	w.quiet = true
	return err
}

// withoutFaults makes sure that a shortened workload alone does not show the finding: then the plan would prove
// nothing.
func (c *checker) withoutFaults(ctx context.Context, p *plan.Plan, w *workload) error {
	if w.quiet || !p.Disturbs() {
		return nil
	}
	r, err := c.run(ctx, quiet(p), c.options(w))
	if err != nil {
		return err
	}
	w.quiet = true
	if c.found(r) != nil {
		w.unfit = "the workload alone shows it"
	}
	return nil
}

// objects lists the objects that the plan's runs had to do with, without those with generated names.
func (c *checker) objects() []plan.ResourceKey {
	var all []plan.ResourceKey
	changes, err := facts.Changes(c.last)
	if err != nil {
		return nil
	}
	for _, change := range changes {
		key, err := plan.ParseResourceKey(change.Key.Local())
		if err == nil && !change.Generated && !slices.Contains(all, key) {
			all = append(all, key)
		}
	}
	return all
}

// conclude names the plan, and makes it show the bug without a baseline if that can be done. Only what was seen in
// runs is claimed.
func (c *checker) conclude(ctx context.Context, r *Result) error {
	p, err := c.again(r.Plan, func(p *plan.Plan) {
		if !strings.HasSuffix(p.TestName, "-small") && len(p.TestName) < 90 {
			p.TestName += "-small"
		}
		p.Description = described(p.Description, "The smallest plan that shows: "+r.Finding.Title)
	})
	if err != nil {
		return err
	}
	r.Plan = p
	if !c.fromBaseline() {
		r.Alone = true
		return nil
	}
	if !c.inTime(c.Runs) {
		r.Note = outOfTime
		return nil
	}
	// The suite may say itself what is wrong.
	if ok, err := c.showsAlone(ctx, p, ""); err != nil || ok {
		r.Alone = ok
		return err
	}
	invariants := c.invariants()
	if len(invariants) == 0 {
		r.Note = "no invariant can be derived from the finding: the plan shows it only when it is compared with runs " +
			"without faults"
		return nil
	}
	for _, i := range invariants {
		if !c.inTime(1 + c.Runs) {
			r.Note = outOfTime
			return nil
		}
		with, err := c.again(p, func(p *plan.Plan) {
			p.Invariants = append(p.Invariants, i.invariant)
			for _, k := range i.recorded {
				if !slices.Contains(p.History, k) && !slices.Contains(c.Suite.History, k) {
					p.History = append(p.History, k)
				}
			}
		})
		if err != nil {
			r.Note = fmt.Sprintf("invariant %s was left out: %v", i.invariant.Name, err)
			continue
		}
		q, err := c.run(ctx, quiet(with), run.RunOptions{})
		if err != nil {
			return err
		}
		if q.Meta.Verdict != record.Pass {
			r.Note = fmt.Sprintf("invariant %s was left out: without faults the run does not pass: %s",
				i.invariant.Name, wording.FirstLine(q.Meta.Reason))
			continue
		}
		ok, err := c.showsAlone(ctx, with, i.invariant.Name)
		if err != nil {
			return err
		}
		if ok {
			c.Progress("invariant %s: the plan shows the bug without a baseline too", i.invariant.Name)
			r.Plan, r.Alone, r.Invariant, r.Note = with, true, i.invariant.Name, ""
			return nil
		}
		r.Note = fmt.Sprintf("invariant %s was left out: the plan does not violate it every time", i.invariant.Name)
	}
	return nil
}

// outOfTime says why no invariant was derived.
const outOfTime = "the budget left no time to derive an invariant: the plan shows the finding only when it is " +
	"compared with runs without faults"

// showsAlone reports whether the plan has a bug in every run without a baseline: one of the invariant, if one is
// named.
func (c *checker) showsAlone(ctx context.Context, p *plan.Plan, invariant string) (bool, error) {
	for range c.Runs {
		r, err := c.run(ctx, p, run.RunOptions{})
		if err != nil {
			return false, err
		}
		shown := slices.ContainsFunc(r.Findings, func(f record.Finding) bool {
			return f.IsBug() && (invariant == "" || f.OfInvariant(invariant))
		})
		if r.Meta.Verdict != record.Bug || !shown || c.complete && r.Meta.Unfinished != "" {
			return false, nil
		}
	}
	return true, nil
}

// described adds a sentence to a description: a line of its own if there are several already.
func described(text, more string) string {
	text = strings.TrimSpace(text)
	switch {
	case text == "":
		return more
	case strings.Contains(text, "\n"):
		return text + "\n" + more
	case !strings.HasSuffix(text, "."):
		text += "."
	}
	return text + " " + more
}

type derived struct {
	invariant plan.Invariant
	recorded  []plan.ResourceKey
}

// invariants derives invariants from what the last run that showed the finding did otherwise.
func (c *checker) invariants() []derived {
	ref := c.workloads[workloadText(c.lastPlan)].baseline
	run, err := facts.Follow(c.last)
	if err != nil {
		return nil
	}
	changes := run.Changes()
	differ := judge.Differences(ref, c.lastPlan, run)
	var all []derived
	for _, d := range differ {
		if string(d.Key) != c.finding.Subject {
			continue
		}
		if i, recorded := findings.Invariant(ref, d, changes); i != nil {
			all = append(all, derived{*i, recorded})
		}
		if len(all) == maxInvariants {
			break
		}
	}
	return all
}

// maxInvariants is how many derived invariants are tried; each takes up to three runs.
const maxInvariants = 2
