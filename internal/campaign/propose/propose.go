// Package propose derives workloads from a sample of a custom resource and the schema of its definition: create, delete
// and create again, and for each field of the spec that a controller reacts to a change, a change there and back, and a
// change before the last one is done. It tries everything out: each workload that it proposes has run once and passed.
//
// The idea of generating operations from the schema, and of taking a state that differs from that of a fresh creation
// for a finding, is Acto's (SOSP '23).
package propose

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/confirm"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Config says what to derive workloads from. Runner, Suite and Dir are required.
type Config struct {
	Runner   run.Runner
	Suite    *plan.Suite   // as the runner has it
	Dir      string        // created; for the records of the trial runs
	Workload string        // whose first apply has the sample; default: the first that has one
	Sample   string        // a file with the sample instead
	Fields   []string      // only these fields of the spec, with dots, and those below; default: all
	Budget   time.Duration // no new field is tried after it; 0: no limit
	// Differential compares the state after each change with that of an object that is created like that.
	Differential bool
	// Progress receives a line for people now and then; default: none.
	Progress func(format string, args ...any)
}

// Text is the suite's text with the proposed workloads added at the end of its workloads, or, if alone, instead of
// them, and how many these are. Names that the suite has already get a number. What a workload of the suite does
// already is not added.
func (r *Result) Text(suite *plan.Suite, alone bool) (text []byte, added int, err error) {
	all := slices.Clone(r.Workloads)
	if !alone {
		if all, err = missing(suite, all); err != nil {
			return nil, 0, err
		}
		taken := maps.Clone(suite.Workloads)
		if taken == nil {
			taken = map[string]plan.Workload{}
		}
		for i := range all {
			all[i].Name = unused(all[i].Name, func(name string) bool { _, ok := taken[name]; return ok })
			taken[all[i].Name] = plan.Workload{}
		}
	}
	if len(all) == 0 {
		return suite.Text(), 0, nil
	}
	if text, err = withWorkloads(suite, all, alone); err != nil {
		return nil, 0, fmt.Errorf("%s: add the proposed workloads: %w", suite.File, err)
	}
	// The written text must be read as the value that was tried out.
	written, err := plan.ParseSuite(text, suite.File)
	if err != nil {
		return nil, 0, fmt.Errorf("the suite with the proposed workloads: %w", err)
	}
	for _, w := range all {
		if len(written.Workloads[w.Name].Steps) != len(w.Steps) {
			return nil, 0, fmt.Errorf("%s: workload %s cannot be added to it", suite.File, w.Name)
		}
	}
	return text, len(all), nil
}

// missing are those workloads that do what no workload of the suite does.
func missing(suite *plan.Suite, all []Workload) ([]Workload, error) {
	if len(all) == 0 {
		return nil, nil
	}
	// Both are compared as they are read: with defaults.
	text, err := withWorkloads(suite, all, true)
	if err != nil {
		return nil, err
	}
	read, err := plan.ParseSuite(text, suite.File)
	if err != nil {
		return nil, fmt.Errorf("the proposed workloads: %w", err)
	}
	return slices.DeleteFunc(all, func(w Workload) bool {
		for _, there := range suite.Workloads {
			if same(there.Steps, read.Workloads[w.Name].Steps) {
				return true
			}
		}
		return false
	}), nil
}

// withWorkloads is the suite's text with workloads added, or with these only.
func withWorkloads(suite *plan.Suite, all []Workload, alone bool) ([]byte, error) {
	text := suite.Text()
	prefix := "proposed-"
	for !alone && strings.Contains(string(text), "&"+prefix) {
		prefix += "2-"
	}
	block, err := Render(all, prefix)
	if err != nil {
		return nil, err
	}
	return Insert(text, block, alone)
}

// Result is what was derived.
type Result struct {
	Workloads []Workload
	Dropped   []Dropped
	// Planless are proposed workloads from which no plan can be made, each with the reason.
	Planless []Dropped
	Findings []Finding
	Runs     int
	// Trouble is what is wrong with the sample without any fault; see [Trouble]. Empty: nothing is known to be.
	Trouble string
}

// Finding is something that an operation without any fault has shown.
type Finding struct {
	What    string // the operation
	Title   string
	Lines   []string
	Records []string // directories
}

// Check reports whether there is a sample: in the file, or applied by the workload, or, if both are empty, by any
// workload of the suite. The error is the user's.
func Check(suite *plan.Suite, workload, file string) error {
	_, err := findSample(suite, workload, file)
	return err
}

// Run tries out what can be done with the sample, and proposes what has passed. The error says what kept it from going
// on; the result is what it had until then. A mistake in the configuration is a *run.UserError.
func Run(ctx context.Context, config Config) (*Result, error) {
	p := &proposer{Config: config, result: &Result{}, effects: map[string]string{}, began: time.Now()}
	if p.Progress == nil {
		p.Progress = func(string, ...any) {}
	}
	var err error
	if p.sample, err = findSample(p.Suite, p.Workload, p.Sample); err != nil {
		return p.result, &run.UserError{Err: err}
	}
	if err := os.MkdirAll(p.Dir, record.DirMode); err != nil {
		return p.result, err
	}
	err = p.run(ctx)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return p.result, err
}

type proposer struct {
	Config
	sample  *sample
	result  *Result
	effects map[string]string // names of workloads, by what a change of a field does in them
	began   time.Time

	types   []plan.ResourceKey // whose objects' states are recorded
	key     facts.Key          // of the sample
	probes  probes
	created map[string]any   // the sample as the API server has created it
	ends    []map[string]any // the sample at the end of runs that only create it
	ready   *plan.Step       // waits for the sample; nil: its status says nothing
	masks   []baseline.Mask  // nil: the creation ends differently each time, and nothing can be compared with it

	creationChanges []facts.Change // of a run that only creates the sample
	waits           []*plan.Step   // after the creation
}

// trial is a run of a workload.
type trial struct {
	suite    *plan.Suite // that has only the workload
	run      *record.Run
	changes  []facts.Change
	verdict  record.Verdict
	findings []record.Finding // bugs only
}

// errInconclusive says that nothing can be said of a run.
var errInconclusive = errors.New("inconclusive")

// try runs a workload without faults. If it shows types that were not recorded, it runs it again.
func (p *proposer) try(ctx context.Context, w Workload) (*trial, error) {
	const most = 3
	for i := 1; ; i++ {
		t, err := p.once(ctx, w)
		if err != nil {
			return nil, err
		}
		more := false
		for _, key := range baseline.Types(t.run) {
			if !slices.Contains(p.types, key) {
				p.types, more = append(p.types, key), true
			}
		}
		if !more || i == most {
			return t, nil
		}
	}
}

func (p *proposer) once(ctx context.Context, w Workload) (*trial, error) {
	text, err := withWorkloads(p.Suite, []Workload{w}, true)
	if err != nil {
		return nil, err
	}
	suite, err := plan.ParseSuite(text, p.Suite.File)
	if err != nil {
		return nil, fmt.Errorf("workload %s: %w", w.Name, err)
	}
	quiet := &plan.Plan{TestName: w.Name, Steps: suite.Workloads[w.Name].Steps}
	quiet.Complete(p.Suite)
	if err := quiet.Validate(p.Suite); err != nil {
		return nil, err
	}
	p.result.Runs++
	dir := filepath.Join(p.Dir, fmt.Sprintf("%04d-%s", p.result.Runs, w.Name))
	meta, err := p.Runner.RunWith(ctx, quiet, dir, run.RunOptions{Trace: true, History: p.types})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.Name, err)
	}
	r, err := record.Open(dir)
	if err != nil {
		return nil, err
	}
	t := &trial{suite: suite, run: r, verdict: meta.Verdict}
	t.findings = confirm.Bugs(r.Findings)
	if meta.Verdict == record.Inconclusive {
		return t, fmt.Errorf("%s: %w: %s", w.Name, errInconclusive, meta.Reason)
	}
	t.changes, err = facts.Changes(r)
	return t, err
}

// passes runs a workload and reports whether it passed. Why not is noted: a controller that panics without any fault is
// a finding, a workload that cannot be carried out is dropped.
func (p *proposer) passes(ctx context.Context, w Workload, field string) (*trial, bool, error) {
	t, err := p.try(ctx, w)
	if errors.Is(err, errInconclusive) {
		p.drop(field, "%v", err)
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	if t.verdict == record.Pass {
		p.Progress("%s: passes", w.Name)
		return t, true, nil
	}
	p.judge(w, field, t)
	return t, false, nil
}

// judge notes why a run did not pass.
func (p *proposer) judge(w Workload, field string, t *trial) {
	for _, f := range t.findings {
		p.Progress("%s: %s", w.Name, f.Title)
		if f.Judge == record.JudgeWorkload {
			p.drop(field, "%s", f.Title)
			continue
		}
		p.result.Findings = append(p.result.Findings, Finding{
			What: w.Comment, Title: f.Judge + ": " + f.Title, Records: []string{t.run.Dir},
		})
		p.drop(field, "it does not pass without faults: %s", f.Title)
	}
}

func (p *proposer) drop(field, format string, args ...any) {
	p.result.Dropped = append(p.result.Dropped, Dropped{field, fmt.Sprintf(format, args...)})
}

// propose proposes a workload that has passed, unless another one does the same. The trial is that of the workload, or
// of its beginning.
func (p *proposer) propose(w Workload, t *trial) error {
	for i := range p.result.Workloads {
		if same(p.result.Workloads[i].steps(), w.steps()) {
			p.drop(w.Name, "it does the same as %s", p.result.Workloads[i].Name)
			return nil
		}
	}
	p.result.Workloads = append(p.result.Workloads, w)
	why, err := planless(t.suite, w.Name, t)
	if why != "" {
		p.Progress("%s: no plan: %s", w.Name, why)
		p.result.Planless = append(p.result.Planless, Dropped{w.Name, why})
	}
	return err
}

func (p *proposer) run(ctx context.Context) error {
	if err := p.creation(ctx); err != nil {
		return err
	}
	if err := p.lifecycle(ctx); err != nil {
		return err
	}
	fields, dropped := Fields(p.sample.schema, p.created, p.sample.others...)
	p.result.Dropped = append(p.result.Dropped, dropped...)
	var paths [][]string
	for _, f := range fields {
		paths = append(paths, f.Path)
	}
	fields = slices.DeleteFunc(fields, func(f Field) bool { return !p.wanted(f) })
	p.toProbe(fields)
	began := time.Now()
	for i, f := range fields {
		p.tell(began, i, len(fields))
		if p.Budget > 0 && time.Since(p.began) > p.Budget {
			p.drop(strings.Join(f.Path, "."), "not tried: the budget is used up")
			continue
		}
		if err := p.field(ctx, f, shortName(f.Path, paths)); err != nil {
			return err
		}
	}
	return nil
}

func (p *proposer) wanted(f Field) bool {
	path := strings.Join(f.Path, ".") + "."
	return len(p.Fields) == 0 || slices.ContainsFunc(p.Fields, func(field string) bool {
		return strings.HasPrefix(path, strings.TrimSuffix(field, ".")+".")
	})
}

// start is how each workload begins.
func (p *proposer) start(more ...*plan.Step) []*plan.Step {
	return slices.Concat(p.sample.before, []*plan.Step{p.sample.create}, p.waits, more)
}

// creation finds out what the creation of the sample does, and how it shows that it is done.
func (p *proposer) creation(ctx context.Context) error {
	s := p.sample
	group := s.object.GroupVersionKind().Group
	p.types = append([]plan.ResourceKey{{Type: s.key.Type, Group: group, Namespace: "*", Name: "*"}}, held...)
	p.key = facts.Key(s.key.Type + "." + group + "/" + s.key.Namespace + "/" + s.key.Name)
	create := Workload{Name: "create", Comment: "Creates the " + s.object.GetKind() + ".", Steps: p.start()}
	p.Progress("%s: learning what its creation does", s.key)
	var runs []*record.Run
	var both [][]facts.Change
	for range 2 {
		t, ok, err := p.passes(ctx, create, "")
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("the sample cannot be created: %s", p.result.Dropped[len(p.result.Dropped)-1].Reason)
		}
		runs, both = append(runs, t.run), append(both, t.changes)
		p.ends = append(p.ends, states(t.changes)[p.key])
	}
	changes := both[1]
	p.creationChanges = changes
	for _, c := range changes {
		if c.Key == p.key && c.Event == record.Created {
			p.created = c.Cur
		}
	}
	if p.created == nil {
		return fmt.Errorf("the sample %s was not created by its workload", s.key)
	}
	learned, err := baseline.Learn(create.Name, runs, p.Suite.Masks...)
	var unstable *baseline.UnstableError
	switch {
	case errors.As(err, &unstable):
		p.Progress("%v", err)
	case err != nil:
		return err
	default:
		p.masks = learned.ByType()
	}
	if p.result.Trouble = Trouble(both...); p.result.Trouble != "" {
		p.Progress("%s; %s", p.result.Trouble, TroubleAdvice)
	}
	if p.ends[1] != nil {
		if condition := ready(p.ends[1], p.ends[0]); condition != "" {
			name := "it is ready"
			if p.result.Trouble != "" {
				name = "its status is what it was"
			}
			p.ready = until(s.key, condition, name)
			p.waits = append(p.waits, p.ready)
		}
	}
	if p.ready == nil {
		// The status says nothing; what the controllers have made does.
		if b := findBarrier(changes, -1, p.key); b != nil {
			p.waits = append(p.waits, b.wait)
		}
	}
	create.Steps = p.start()
	t, ok, err := p.passes(ctx, create, "")
	if err != nil || !ok {
		return errors.Join(err, errors.New("the sample's creation does not come to the same end again"))
	}
	return p.propose(create, t)
}

// lifecycle tries what can be done with any object: delete it, create it again, have two of them.
func (p *proposer) lifecycle(ctx context.Context) error {
	s := p.sample
	kind := s.object.GetKind()
	remove := &plan.Step{Name: "delete it", Delete: &plan.DeleteStep{ResourceKey: s.key}}
	gone := &plan.Step{Name: "it is gone", Wait: &plan.WaitStep{ResourceKey: s.key, Absent: true}}

	deletion := Workload{Name: "delete", Comment: "Creates and deletes the " + kind + ".", Steps: p.start(remove, gone)}
	t, ok, err := p.passes(ctx, deletion, "deletion")
	if err != nil {
		return err
	}
	if !ok {
		p.drop("deletion", "recreate, recreate-later, delete-early and two were not tried: they contain a deletion")
		return nil
	}
	rest := leftovers(t.changes, p.key)
	if left := stays(t.changes); len(left) > 0 {
		deletion.Comment += "\nWhat stays: " + strings.Join(left, ", ") + "."
	}
	deletion.Steps = append(deletion.Steps, rest...)
	list := []Workload{
		deletion,
		{
			Name: "recreate", Comment: "Deletes the " + kind + " and creates it again as soon as it is gone.",
			Steps: slices.Concat(p.start(remove, gone, s.create), p.waits),
		},
	}
	if len(rest) > 0 {
		list = append(list, Workload{
			Name:    "recreate-later",
			Comment: "Deletes the " + kind + " and creates it again when everything of it is gone.",
			Steps:   slices.Concat(p.start(remove, gone), rest, []*plan.Step{s.create}, p.waits),
		})
	}
	for _, w := range list {
		if err := p.passing(ctx, w); err != nil {
			return err
		}
	}
	second, key := s.second()
	two := slices.Concat(s.before, []*plan.Step{s.create, second}, p.waits)
	if p.ready != nil {
		two = append(two, until(key, p.ready.Wait.Condition, "the second one is ready"))
	}
	for _, w := range []Workload{
		{
			Name: "delete-early", Comment: "Deletes the " + kind + " while it is being created.",
			Steps: slices.Concat(s.before, []*plan.Step{s.create, remove, gone}),
		},
		{Name: "two", Comment: "Creates two at a time, and deletes the first.", Steps: append(two, remove, gone)},
	} {
		if err := p.passingUntilGone(ctx, w, rest); err != nil {
			return err
		}
	}
	return nil
}

// passing proposes a workload if it passes.
func (p *proposer) passing(ctx context.Context, w Workload) error {
	t, ok, err := p.passes(ctx, w, w.Name)
	if err != nil || !ok {
		return err
	}
	return p.propose(w, t)
}

// passingUntilGone proposes a workload that ends with a deletion, and that then waits for what the deletion takes
// along. Which of it was there depends on the workload. The given steps are those of a deletion when everything was
// there.
func (p *proposer) passingUntilGone(ctx context.Context, w Workload, all []*plan.Step) error {
	t, ok, err := p.passes(ctx, w, w.Name)
	if err != nil || !ok {
		return err
	}
	var rest []*plan.Step
	for _, s := range leftovers(t.changes, p.key) {
		// The steps are shared, so that they are written once.
		at := slices.IndexFunc(all, func(o *plan.Step) bool { return o.Wait.ResourceKey == s.Wait.ResourceKey })
		if at >= 0 {
			s = all[at]
		}
		rest = append(rest, s)
	}
	if len(rest) > 0 {
		longer := w
		longer.Steps = slices.Concat(w.Steps, rest)
		if again, ok, err := p.passes(ctx, longer, w.Name); err != nil {
			return err
		} else if ok {
			w, t = longer, again
		}
	}
	return p.propose(w, t)
}

// accepted is a change that the controllers react to, and how to wait for it.
type accepted struct {
	Change
	name  string
	patch *plan.Step
	waits []*plan.Step
	undo  *plan.Step
	backs []*plan.Step // waits until it is undone
	goes  bool         // it can be undone
}

// field tries the changes of a field.
func (p *proposer) field(ctx context.Context, f Field, short string) error {
	var done []*accepted
	for _, c := range f.Changes {
		a, err := p.change(ctx, f, c, short)
		if err != nil {
			return err
		}
		if a != nil {
			done = append(done, a)
		}
	}
	if len(done) == 0 {
		return nil
	}
	a := done[0]
	second, waits, then := a.undo, a.backs, "back"
	switch {
	case len(done) > 1:
		second, waits, then = done[1].patch, done[1].waits, "to "+show(done[1].To)
	case !a.goes:
		return nil
	}
	w := Workload{
		Name:    short + "-overtaken",
		Comment: fmt.Sprintf("Change: %s, and at once %s, before the first change is done.", a, then),
		Steps:   slices.Concat(p.start(a.patch, second), waits),
	}
	t, ok, err := p.passes(ctx, w, strings.Join(f.Path, "."))
	if err != nil || !ok {
		return err
	}
	return p.propose(w, t)
}

// change tries a change. It returns nil if no controller reacts to it, if another change of its kind has the same
// effect, or if it does not pass.
func (p *proposer) change(ctx context.Context, f Field, c Change, short string) (*accepted, error) {
	field := strings.Join(c.Path, ".")
	a := &accepted{Change: c, name: short + "-" + c.Label}
	patch := patchStep(p.created, c.Path, c.To)
	patch.ResourceKey = p.sample.key
	a.patch = &plan.Step{Name: c.String(), Patch: patch}
	undo := undoStep(p.created, c)
	undo.ResourceKey = p.sample.key
	a.undo = &plan.Step{Name: c.Back(), Patch: undo}

	known, tried, err := p.probe(ctx, c)
	switch {
	case err != nil:
		return nil, err
	case !tried:
	case known.reason != "":
		p.drop(field, "%s", known.reason)
		return nil, nil
	case p.alike(field, c, known.effect):
		return nil, nil
	}
	// Controllers that write after they have come to rest do so because of the change.
	rest := &plan.Step{Name: "the controllers come to rest", Sleep: p.Suite.Timeouts.Quiet}
	w := Workload{Name: a.name, Comment: "Change: " + c.String() + ".", Steps: p.start(rest, a.patch)}
	t, ok, err := p.passes(ctx, w, field)
	if err != nil || !ok {
		return nil, err
	}
	at := slices.IndexFunc(t.changes, func(change facts.Change) bool { return p.makes(c, change) })
	switch {
	case at < 0:
		p.drop(field, "%s", keepsOld(c))
		return nil, nil
	case !reacts(t.changes[at+1:], p.key) && p.masks != nil && facts.Finished(p.ends[1]):
		return nil, p.early(ctx, a)
	case !reacts(t.changes[at+1:], p.key):
		p.drop(field, "%s", noReaction(c))
		return nil, nil
	}
	p.failing(w, t, t.changes[at].Time)
	effect := effect(f.rank, t.changes[at+1:], p.key)
	if p.alike(field, c, effect) {
		return nil, nil
	}
	end := states(t.changes)[p.key]
	b := findBarrier(t.changes, at, p.key)
	if end == nil {
		a.waits = []*plan.Step{absent(p.sample.key)}
	} else {
		a.waitsFor(p, t, at, end, b)
	}
	a.goes = !c.OneWay && end != nil
	if a.goes {
		back := Workload{
			Name: a.name + "-and-back", Comment: "Change: " + c.String() + ", and back.",
			Steps: slices.Concat(p.start(a.patch), a.waits, []*plan.Step{a.undo}, a.backs),
		}
		var there *trial
		if there, a.goes, err = p.passes(ctx, back, field); err != nil {
			return nil, err
		}
		if a.goes {
			w.Steps = slices.Concat(p.start(a.patch), a.waits) // it has run as the beginning of the other one
			if err := errors.Join(p.propose(w, t), p.propose(back, there)); err != nil {
				return nil, err
			}
		}
	}
	if !a.goes {
		w.Steps = slices.Concat(p.start(a.patch), a.waits)
		t, ok, err := p.passes(ctx, w, field)
		if err != nil || !ok {
			return nil, err
		}
		if err := p.propose(w, t); err != nil {
			return nil, err
		}
	}
	if effect != "" {
		p.effects[effect] = a.name
	}
	switch {
	case !p.Differential || end == nil:
		return a, nil
	case p.masks == nil:
		p.drop(field, "%s: not compared with a fresh creation: the creation itself ends differently each time", c)
		return a, nil
	}
	return a, p.compare(ctx, a, t)
}

// makes reports whether a change of an object is a user's change of the field.
func (p *proposer) makes(c Change, change facts.Change) bool {
	return change.Key == p.key && change.Event == record.Updated && change.By == "" &&
		fmt.Sprint(lookup(change.Prev, c.Path)) != fmt.Sprint(lookup(change.Cur, c.Path))
}

// keepsOld and noReaction are reasons why no workload has a change.
func keepsOld(c Change) string {
	return fmt.Sprintf("%s: the API server accepts the change and keeps the old value", c)
}

func noReaction(c Change) string {
	return fmt.Sprintf("%s: no controller under test writes anything afterwards", c)
}

// alike reports whether another change of its kind has the same effect, and drops the change then.
func (p *proposer) alike(field string, c Change, effect string) bool {
	first := p.effects[effect]
	if first == "" || p.Differential {
		return false
	}
	p.drop(field, "%s: the controllers do the same after it as in workload %s", c, first)
	return true
}

// early tries a change right after the creation, before the sample is finished. Whether controllers react to it shows
// only in the end.
func (p *proposer) early(ctx context.Context, a *accepted) error {
	field := strings.Join(a.Path, ".")
	w := Workload{
		Name: a.name + "-early", Comment: "Change: " + a.String() + ", right after the creation.",
		Steps: slices.Concat(p.sample.before, []*plan.Step{p.sample.create, a.patch}),
	}
	t, ok, err := p.passes(ctx, w, field)
	if err != nil || !ok {
		return err
	}
	end := states(t.changes)[p.key]
	differ := slices.DeleteFunc(Differences(p.key, p.masks, t.changes, p.creationChanges),
		func(d baseline.Difference) bool { return d.Key == p.key && strings.HasPrefix(d.Field, "spec.") })
	if len(differ) == 0 {
		p.drop(field, "%s: no controller under test writes anything afterwards, and right after the creation it "+
			"makes no difference in the end", a)
		return nil
	}
	switch condition := conditionAfter(end, p.ends); {
	case end == nil:
		w.Steps = append(w.Steps, absent(p.sample.key))
	case condition != "":
		w.Steps = append(w.Steps, until(p.sample.key, condition, "the change is done"))
	}
	if t, ok, err = p.passes(ctx, w, field); err != nil || !ok {
		return err
	}
	return p.propose(w, t)
}

// waitsFor finds what shows that the change has taken effect, and that it is undone.
func (a *accepted) waitsFor(p *proposer, t *trial, at int, end map[string]any, b *barrier) {
	condition := conditionAfter(end, p.ends)
	turned := len(t.changes) // when the condition held first
	for i := at; i < len(t.changes) && condition != ""; i++ {
		if c := &t.changes[i]; c.Key == p.key && c.Cur != nil && meets(condition, c.Cur) {
			turned = i
			break
		}
	}
	// The sample's status is enough if it describes the last thing.
	if b != nil && (condition == "" || turned < b.at) {
		a.waits = append(a.waits, b.wait)
		if b.back != nil {
			a.backs = append(a.backs, b.back)
		}
	}
	switch {
	case condition == "" || turned == len(t.changes):
	case p.ready != nil && p.ready.Wait.Condition == condition:
		a.waits = append(a.waits, p.ready)
	default:
		a.waits = append(a.waits, until(p.sample.key, condition, "the change is done"))
	}
	if p.ready != nil {
		a.backs = append(a.backs, p.ready)
	} else if len(a.backs) == 0 {
		a.backs = p.waits
	}
}

// conditionAfter is the condition that the sample meets at the end of a change. What differs between runs that only
// create it does not count; what the change has changed does.
func conditionAfter(end map[string]any, ends []map[string]any) string {
	if len(ends) < 2 || ends[0] == nil || ends[1] == nil {
		return done(end)
	}
	steady := map[string]any{}
	for k, v := range end {
		steady[k] = v
	}
	if status, ok := end["status"].(map[string]any); ok {
		kept := map[string]any{}
		for name, value := range status {
			first, second := lookup(ends[0], []string{"status", name}), lookup(ends[1], []string{"status", name})
			if _, scalar := literal(value); !scalar || fmt.Sprint(first) == fmt.Sprint(second) {
				kept[name] = value
			}
		}
		steady["status"] = kept
	}
	return done(steady)
}

// reacts reports whether controllers under test have written anything that a user sees as more than a note that they
// have seen the change.
func reacts(changes []facts.Change, sample facts.Key) bool {
	return slices.ContainsFunc(changes, func(c facts.Change) bool {
		if c.By == "" {
			return false
		}
		if c.Event != record.Updated {
			return true
		}
		return slices.ContainsFunc(baseline.Fields(&c), func(field string) bool {
			return c.Key != sample || !strings.HasPrefix(field, "status.conditions")
		})
	})
}

// failing notes reconciles that fail again and again after a change, until the end of the run.
func (p *proposer) failing(w Workload, t *trial, after time.Time) {
	const enough = 3
	type request struct{ by, reconciler, name string }
	times, last := map[request]int{}, map[request]string{}
	var order []request
	for _, e := range t.run.Events {
		o := e.Observation
		if o == nil || o.Point != wire.Reconcile || o.Phase != wire.After || e.Time.Before(after) {
			continue
		}
		r := request{o.By, o.Reconciler, o.Request}
		if times[r]++; o.Error == "" {
			times[r] = 0
		}
		last[r] = o.Error
		if !slices.Contains(order, r) {
			order = append(order, r)
		}
	}
	for _, r := range order {
		if times[r] < enough {
			continue
		}
		p.result.Findings = append(p.result.Findings, Finding{
			What: w.Comment,
			Title: fmt.Sprintf("%s: the last %d reconciles of %s by %s failed: %s", r.by, times[r], r.name,
				r.reconciler, last[r]),
			Records: []string{t.run.Dir},
		})
	}
}

// compare compares the end of a changed object with that of one that was created like that. A difference is believed
// if it differs again.
func (p *proposer) compare(ctx context.Context, a *accepted, first *trial) error {
	field := strings.Join(a.Path, ".")
	create, err := p.sample.with(p.Suite, a.Change)
	if errors.Is(err, errNoPlace) {
		p.drop(field, "%s: not compared with a fresh creation: %v", a.Change, err)
		return nil
	}
	if err != nil {
		return err
	}
	w := Workload{Name: a.name + "-fresh", Comment: "Creates it like that.",
		Steps: slices.Concat(p.sample.before, []*plan.Step{create})}
	changing := Workload{Name: a.name, Comment: "Change: " + a.String() + ".",
		Steps: slices.Concat(p.start(a.patch), a.waits)}
	var differ []baseline.Difference
	var records []string
	for i := range 2 {
		if i > 0 {
			var ok bool
			if first, ok, err = p.passes(ctx, changing, field); err != nil || !ok {
				return err
			}
		}
		fresh, ok, err := p.passes(ctx, w, field+" (fresh)")
		if err != nil || !ok {
			return err
		}
		found := Differences(p.key, p.masks, first.changes, fresh.changes)
		records = append(records, first.run.Dir, fresh.run.Dir)
		if i == 0 {
			differ = found
		} else {
			differ = slices.DeleteFunc(differ, func(d baseline.Difference) bool {
				return !slices.ContainsFunc(found, func(f baseline.Difference) bool {
					return d.Key == f.Key && d.Field == f.Field
				})
			})
		}
		if len(differ) == 0 {
			return nil
		}
	}
	finding := Finding{What: changing.Comment, Title: "the end differs from that of a fresh creation", Records: records}
	for _, d := range differ {
		finding.Lines = append(finding.Lines, strings.ReplaceAll(d.String(), "without faults", "created like that"))
	}
	p.result.Findings = append(p.result.Findings, finding)
	return nil
}
