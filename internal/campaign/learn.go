package campaign

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/campaign/lab"
	"github.com/trommel-dev/trommel/internal/campaign/pattern"
	"github.com/trommel-dev/trommel/internal/campaign/propose"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/confirm"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Learned is what is known of a workload.
type Learned struct {
	Workload string // its name; see WorkloadOf. With a build: NAME@BUILD
	// Baseline is what the workload does without faults; nil with Err.
	Baseline *baseline.Baseline
	File     string // of the baseline
	Masks    string // file of the fields that never count; people may edit it
	Allowed  string // file of what does not count either, as campaigns have seen
	Anew     bool   // it was learned now
	// Err says why there is no baseline: the workload ends differently without faults (*baseline.UnstableError), or
	// not well, or a run could not be carried out.
	Err error

	wait       *plan.Step          // what a workload that waits for little can wait for; nil: see SuggestWait
	trouble    string              // what is wrong with its sample; see propose.Trouble
	steps      []plan.Step         // nil: the suite has the workload
	build      string              // with which it was learned; see workload
	scope      string              // of plans that upgrade; what runs without their actions show counts for them only
	source     baseline.Source     // what a baseline is made from now
	candidates []pattern.Candidate // also those without a plan
}

// id tells apart what is learned of a workload from runs that plans of different kinds have in common.
func (l *Learned) id() string { return l.Workload + l.scope }

// Options are those of a run of the workload that is compared with the baseline.
func (l *Learned) Options() run.RunOptions {
	if l.Baseline == nil {
		return run.RunOptions{}
	}
	return run.RunOptions{History: l.Baseline.Types, Baseline: l.Baseline}
}

// learner learns what workloads do without faults.
type learner struct {
	*Config
	*lab.Lab
	clock       *lab.Clock
	queue       *queue
	lessons     *lessons
	anyRuns     bool // see Settings.Learn
	executables hashes
	unstudied   []string // workloads for whose learning the budget was too short

	mu     sync.Mutex         // guards what follows
	found  []result.Outcome   // see unsteady
	newest map[string]*newest // by workload
}

// Learn takes the workloads' baselines, and learns those that are missing or were made from something else. The
// error is that of ctx.
func Learn(ctx context.Context, config Config) ([]Learned, error) {
	c := newCampaign(config)
	ctx, end := c.begun(ctx)
	defer end()
	return c.learner.learn(ctx)
}

// learn returns what is known of the workloads, in order. Those for whose learning the budget is too short are left
// out. The error is that of ctx.
func (lr *learner) learn(ctx context.Context) ([]Learned, error) {
	lr.build()
	workloads := lr.workloads()
	all := make([]Learned, len(workloads))
	why, errs := make([]string, len(workloads)), make([]error, len(workloads))
	for i, w := range workloads {
		all[i], why[i], errs[i] = lr.take(w)
		if errs[i] == nil && all[i].Baseline == nil {
			lr.lessons.toLearn(w.id(), lr.Learn+1)
		}
	}
	left := make([]bool, len(workloads)) // for another campaign
	var group errgroup.Group
	group.SetLimit(max(1, len(lr.Runners)))
	for _, i := range inPromise(workloads, lr.Workloads, lr.Suite) {
		group.Go(func() error {
			learns := errs[i] == nil && all[i].Baseline == nil
			if left[i] = learns && !lr.lessons.begin(workloads[i].name); left[i] {
				lr.lessons.toLearn(workloads[i].id(), 0)
				return nil
			}
			lr.learnOne(ctx, workloads[i], &all[i], why[i], errs[i])
			return nil
		})
	}
	_ = group.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var known []Learned
	for i := range all {
		if left[i] {
			lr.unstudied = append(lr.unstudied, all[i].Workload)
		} else {
			known = append(known, all[i])
		}
	}
	if n := len(lr.unstudied); n > 0 {
		lr.Say("learning has had a quarter of the budget; %s not learned: %s",
			wording.Count(n, "workload"), wording.First(lr.unstudied, result.Most))
	}
	return known, nil
}

// take takes the baseline of a workload, if there is one of what there is now. Otherwise why says why it is learned.
func (lr *learner) take(w workload) (l Learned, why string, err error) {
	l = Learned{Workload: w.id(), build: w.build, File: BaselineFile(lr.Baselines, w.id())}
	l.Masks, l.Allowed = MaskFile(lr.Baselines, w.id()), AllowedFile(lr.Baselines, w.id())
	if l.source, err = lr.source(w); err == nil {
		l.Baseline, why, err = lr.load(l.File, l.source)
	}
	return l, why, err
}

// learnOne learns a workload of which there is no baseline, and says so, unless there was an error. It takes in what
// people and campaigns have said about the baseline.
func (lr *learner) learnOne(ctx context.Context, w workload, l *Learned, why string, err error) {
	workload := w.id()
	if err == nil && l.Baseline == nil {
		lr.Say("%s: learning what it does without faults%s", workload, why)
		l.Anew = true
		l.Baseline, err = lr.study(ctx, w)
		if err == nil {
			l.Baseline.Source = l.source
			err = errors.Join(l.Baseline.Write(l.File), l.Baseline.WriteMasks(l.Masks), forget(l.Allowed))
		}
	}
	if err == nil {
		err = l.Baseline.ReadAllowed(l.Allowed)
	}
	if err == nil {
		var edited []baseline.MaskEntry
		edited, err = baseline.ReadMasks(l.Masks)
		l.Baseline.Override(edited)
	}
	l.wait, l.trouble = lr.endings(w, l.Baseline, err)
	if err != nil {
		l.Baseline, l.Err = nil, fmt.Errorf("learn workload %q: %w", workload, err)
		if ctx.Err() == nil {
			lr.Say("%v", l.Err)
		}
	}
}

// endings returns what the ends of runs without faults tell of the workload: what it can wait for, if it waits for
// little (nil: nothing), and what is wrong with its sample. The baseline is nil if a run did not pass; the error then
// has the run.
func (lr *learner) endings(w workload, ref *baseline.Baseline, err error) (wait *plan.Step, trouble string) {
	var runs [][]facts.Change
	var failed *notPassedError
	switch {
	case errors.As(err, &failed):
		changes, err := facts.Changes(failed.run)
		if err != nil {
			return nil, ""
		}
		runs = [][]facts.Change{changes}
	case err == nil:
		runs = append([][]facts.Change{ref.Changes}, ref.Others...)
	}
	steps := slices.Concat(w.steps, lr.Suite.Workloads[w.name].Steps)
	return propose.SuggestWait(steps, runs...), propose.Trouble(runs...)
}

// advice says what to mend in a workload: what it can wait for, and what is wrong with its sample.
func (l *Learned) advice() (all []string) {
	if l.wait != nil {
		if step, err := propose.StepText(l.wait); err == nil {
			all = append(all, "it waits for little; without faults it ended with this, to wait for:\n    "+step)
		}
	}
	if l.trouble != "" {
		all = append(all, "without faults "+l.trouble+"\n    "+propose.TroubleAdvice)
	}
	return all
}

// adviceLines is the advice as further lines below what is known of the workload.
func (l *Learned) adviceLines() (lines string) {
	for _, advice := range l.advice() {
		lines += "  " + advice + "\n"
	}
	return lines
}

// ReferenceFile is the file of a workload's baseline in a directory of baselines.
func BaselineFile(dir, workload string) string {
	return filepath.Join(dir, workload, "baseline.json")
}

// MaskFile is the file of the fields that never count, beside the baseline, for people to edit.
func MaskFile(dir, workload string) string { return filepath.Join(dir, workload, "masks.yaml") }

// AllowedFile is the file of what does not count either, as campaigns have seen after the baseline was learned.
func AllowedFile(dir, workload string) string { return filepath.Join(dir, workload, "allowed.json") }

// forget deletes a file that may not be there.
func forget(file string) error {
	if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// load reads the baseline if there is one of this source. Otherwise why says why it is learned, unless there was none.
func (lr *learner) load(file string, source baseline.Source) (ref *baseline.Baseline, why string, err error) {
	if lr.Anew {
		return nil, "", nil
	}
	ref, err = baseline.Read(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", nil
	}
	if err != nil {
		return nil, fmt.Sprintf(" again: the baseline cannot be read: %v", err), nil
	}
	if lr.anyRuns {
		source.Runs = ref.Source.Runs
	}
	if differ := source.Differs(ref.Source); len(differ) > 0 {
		return nil, fmt.Sprintf(" again: %s changed", and(differ)), nil
	}
	return ref, "", nil
}

// and joins words.
func and(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// study runs a workload without faults. Its steps begin when the controllers are at rest, unless the suite or the
// workload does not allow that: so what it does depends less on who is faster. The first run shows which types the
// controllers have to do with; the others follow it, side by side if there are runners for that. The last of them keeps
// the other pace: what it ends like is right, too. All begin at different phases of the controllers' loops: see shift.
// If two runs already differ in more than fields, it begins no others.
func (lr *learner) study(ctx context.Context, w workload) (*baseline.Baseline, error) {
	lr.lessons.toLearn(w.id(), lr.Learn+1)
	defer lr.lessons.toLearn(w.id(), 0)
	ended := lr.lessons.learning(w, 1, lr.Learn+1)
	quiet, first, err := lr.firstLook(ctx, w)
	ended(first, err)
	if err != nil {
		return nil, err
	}
	for _, f := range first.Findings {
		if f.Judge == record.JudgeHot {
			lr.Say("%s: %s", w.id(), f.Title)
		}
	}
	return lr.compareRuns(ctx, w, quiet, first, lr.Learn, true)
}

// compareRuns goes on with study after the first of that many runs. Paces: there is one more, with the other pace.
func (lr *learner) compareRuns(
	ctx context.Context, w workload, quiet *plan.Plan, first *record.Run, number int, paces bool,
) (*baseline.Baseline, error) {
	all := number
	if paces {
		all++
	}
	lr.lessons.toLearn(w.id(), all-1)
	defer lr.lessons.toLearn(w.id(), 0)
	runs := make([]*record.Run, number)
	runs[0] = first
	types := baseline.Types(runs[0])
	for _, key := range w.types {
		if !slices.Contains(types, key) {
			types = append(types, key)
		}
	}
	options := run.RunOptions{Trace: true, History: types}
	if !runs[0].Meta.Rested {
		// It has waited for ten minutes of its own time. The others wait as long as plans do.
		options.Polls = runs[0].Meta.Polls
	}
	var mu sync.Mutex // guards runs
	var ref *baseline.Baseline
	group, others := errgroup.WithContext(ctx)
	group.SetLimit(max(1, len(lr.Runners)))
	for i := 1; i < number; i++ {
		group.Go(func() error {
			if others.Err() != nil {
				return nil
			}
			ended := lr.lessons.learning(w, i+1, all)
			own := options
			own.Shift = shift(i)
			r, err := lr.fine(others, quiet, own)
			ended(r, err)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			runs[i] = r
			there := slices.DeleteFunc(slices.Clone(runs), func(r *record.Run) bool { return r == nil })
			ref, err = baseline.Learn(w.name, there, lr.Suite.Masks...)
			return err
		})
	}
	odd := *quiet
	if odd.Pace == plan.PaceRest {
		odd.Pace = plan.PaceNone
	} else {
		odd.Pace = plan.PaceRest
	}
	var other *record.Run
	var meta *record.Meta
	group.Go(func() (err error) {
		if others.Err() != nil || !paces {
			return nil
		}
		ended := lr.lessons.learning(w, all, all)
		own := options
		own.Shift = shift(number)
		other, meta, err = lr.Once(others, &odd, own)
		ended(other, err)
		return err
	})
	if err := group.Wait(); err != nil {
		if failed := (*notPassedError)(nil); errors.As(err, &failed) {
			for _, r := range runs {
				if r != nil {
					failed.passed++
				}
			}
		}
		lr.unsteady(ctx, w, quiet, runs, options, err)
		return nil, err
	}
	ref.Types, ref.Reached, ref.Pace = types, facts.Reached(runs[0]), quiet.Pace
	ref.Calls = facts.Calls(runs)
	ref.Took = usual(runs)
	ref.Unlisted = runs[0].Meta.Unlisted
	ref.Rested = true
	for _, r := range runs {
		ref.Rested = ref.Rested && r.Meta.Rested
		ref.Startup = max(ref.Startup, r.Meta.Startup)
		for _, p := range r.Meta.Polls {
			if !slices.Contains(ref.Polls, p) {
				ref.Polls = append(ref.Polls, p)
			}
		}
	}
	for _, title := range wasted(runs) {
		lr.Say("%s: without faults, %s", w.id(), title)
	}
	if meta == nil {
		return ref, nil
	}
	if meta.Verdict == record.Pass {
		return ref, lr.allowOther(ctx, w, &odd, ref, other)
	}
	if odd.Pace == plan.PaceRest {
		// The workload may wait for what is there only for a moment.
		lr.Say("%s: it does not pass if the controllers get time after each step: %s", w.id(), meta.Reason)
	} else {
		lr.Say("%s: it does not pass if its steps follow one another at once: %s", w.id(), meta.Reason)
	}
	return ref, nil
}

// wasted lists the titles of the notes about what controllers create for nothing in each of the runs.
func wasted(runs []*record.Run) (titles []string) {
	for _, f := range runs[0].Findings {
		in := func(r *record.Run) bool { return slices.ContainsFunc(r.Findings, f.Same) }
		if f.Judge == record.JudgeWaste && !slices.ContainsFunc(runs, func(r *record.Run) bool { return !in(r) }) {
			titles = append(titles, f.Title)
		}
	}
	return titles
}

// allowOther takes in the end of a run with the other pace. If that is none, the end may be the wrong one of a race, so
// it is compared with what the controllers make of what the workload asks for in the end.
func (lr *learner) allowOther(
	ctx context.Context, w workload, odd *plan.Plan, ref *baseline.Baseline, other *record.Run,
) error {
	if odd.Pace == plan.PaceRest {
		return ref.Allow(other)
	}
	end, err := facts.Follow(other)
	if err != nil {
		return err
	}
	steps := slices.Concat(w.steps, lr.Suite.Workloads[w.name].Steps)
	var fresh *record.Run
	if len(ref.Compare(end.Objects())) > 0 {
		fresh, err = lr.freshly(ctx, lr.Once, w, steps, ref.Pace, ref, other, nil)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			lr.Say("%s: %v", w.id(), err)
		}
	}
	return ref.AllowUnpaced(other, fresh, confirm.Waits(steps))
}

// firstLook runs the workload for the first time, and returns the plan for the further runs. If the workload fails with
// time between its steps, a second run follows without, unless that run could only fail in the same way.
func (lr *learner) firstLook(ctx context.Context, w workload) (*plan.Plan, *record.Run, error) {
	quiet, err := lr.withoutFaults(w)
	if err != nil {
		return nil, nil, err
	}
	options := run.RunOptions{Trace: true, FindTypes: true, History: w.types}
	if quiet.Pace == plan.PaceRest {
		r, meta, err := lr.Once(ctx, quiet, options)
		if err != nil || meta.Verdict == record.Pass {
			return quiet, r, err
		}
		if hopeless(slices.Concat(w.steps, lr.Suite.Workloads[w.name].Steps), r) || !lr.queue.holds(meta.Took()) {
			return quiet, nil, &notPassedError{run: r, meta: meta}
		}
		quiet.Pace = plan.PaceNone
	}
	r, err := lr.fine(ctx, quiet, options)
	return quiet, r, err
}

// withoutFaults is the plan that runs only a workload.
func (lr *learner) withoutFaults(w workload) (*plan.Plan, error) {
	p := &plan.Plan{TestName: w.id() + "-without-faults", Steps: w.steps, Build: w.build, Pace: plan.PaceRest}
	if lr.Suite.Pace == plan.PaceNone {
		p.Pace = plan.PaceNone
	}
	if w.steps == nil {
		p.Workload = w.name
	}
	p.Complete(lr.Suite)
	return p, p.Validate(lr.Suite)
}

// fine runs a plan that must pass.
func (lr *learner) fine(ctx context.Context, p *plan.Plan, o run.RunOptions) (*record.Run, error) {
	r, meta, err := lr.Once(ctx, p, o)
	if err != nil {
		return nil, err
	}
	if meta.Verdict != record.Pass {
		return nil, &notPassedError{run: r, meta: meta}
	}
	return r, nil
}

// notPassedError says that a workload does not pass without faults.
type notPassedError struct {
	run    *record.Run
	meta   *record.Meta
	passed int // runs of the same workload that have passed
}

func (e *notPassedError) Error() string {
	text := "it does not pass without faults"
	if e.passed > 0 {
		text = fmt.Sprintf("it fails in 1 of %d runs without faults", e.passed+1)
	}
	text += fmt.Sprintf(": %s: %s", e.meta.Verdict, e.meta.Reason)
	for _, f := range e.run.Findings {
		if f.Judge == record.JudgeHot && !strings.Contains(text, f.Title) {
			text += "; " + f.Title
		}
	}
	return fmt.Sprintf("%s (%s)", text, e.run.Dir)
}

// Text says what is known of a workload, and which fields differ without faults.
func (l *Learned) Text() string {
	if l.Err != nil {
		return fmt.Sprintf("%s: not learned: %v\n", l.Workload, l.Err) + l.adviceLines()
	}
	how := "nothing has changed since it was learned"
	if l.Anew {
		how = fmt.Sprintf("learned from %d runs", l.Baseline.Runs)
	}
	ours := 0
	for i := range l.Baseline.Changes {
		if l.Baseline.Changes[i].By != "" {
			ours++
		}
	}
	text := fmt.Sprintf("%s: %s: %s, %s, %d of them by the controllers\n", l.Workload, how,
		wording.Count(len(l.Baseline.Objects), "object"), wording.Count(len(l.Baseline.Changes), "change"), ours)
	var fields []string
	for _, m := range l.Baseline.Found {
		if m.Reason == baseline.Differs && !m.Compare {
			fields = append(fields, string(m.Object)+" "+m.Path)
		}
	}
	if len(fields) > 0 {
		text += "  never counts, because it differs without faults: " + wording.First(fields, result.Most) + "\n"
	}
	return text + l.adviceLines() +
		fmt.Sprintf("  %s; what never counts can be edited in %s\n", l.File, filepath.Base(l.Masks))
}
