package explore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/judge"
	"github.com/trommel-dev/trommel/internal/reference"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// confirm runs a plan again that has found something. What comes every time, and not without the plan's actions, is
// believed. A finding that another plan has, word for word, is believed at once: most plans find one of a few bugs, and
// each further run takes long, since it waits in vain for the end that it should have. So a plan is put off while
// another one is being confirmed that has found the same. The error is errPutOff, that of ctx, or of a record that
// cannot be read.
func (c *campaign) confirm(ctx context.Context, t *task, o *Outcome, first *record.Meta) error {
	o.Status, o.Came, o.Of = Unconfirmed, 1, 1
	if idle(t, first) {
		o.Status, o.Reason = OfWorkload, first.NotHappened()
		return nil
	}
	if c.wait(t, o, first) {
		return errPutOff
	}
	if like := c.like(o); like != "" {
		o.Status, o.Reason = Bug, "the same findings as those of "+like
		return nil
	}
	if tells, err := c.tells(ctx, t, o); err != nil || tells {
		return err
	}
	paces, err := c.paces(t, o)
	if err != nil {
		return err
	}
	for _, how := range paces {
		c.slowly(ctx, t, how)
		if explained, err := c.explained(t, o); err != nil || explained {
			return err
		}
	}
	incomplete := ""
	for tries := 0; o.Of < c.Repeat && tries < 2*c.Repeat; tries++ {
		r, meta, err := c.once(ctx, t.plan, c.options(t))
		o.took(meta)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			o.Reason = fmt.Sprintf("it could not be run again: %v", err)
			return nil
		}
		if idle(t, meta) {
			c.quiet(t, r)
		}
		if meta.Verdict == record.Inconclusive || idle(t, meta) {
			incomplete = cmp.Or(meta.Reason, meta.NotHappened())
			continue // it says nothing about what the plan finds
		}
		o.Of++
		again := bugs(r.Findings)
		common := slices.DeleteFunc(slices.Clone(o.Findings), func(f record.Finding) bool {
			return !slices.ContainsFunc(again, f.Same)
		})
		if len(common) > 0 {
			o.Came++
			o.Findings = common
		}
	}
	if o.Of < c.Repeat {
		o.Reason = fmt.Sprintf("only %d of %d runs could be completed; the last other one: %s", o.Of, c.Repeat,
			incomplete)
	}
	if o.Came < o.Of || o.Of < c.Repeat {
		return nil
	}
	quiet := 1
	if c.doubtful(o) || jumps(c.stepsOf(t)) {
		quiet = c.Repeat
	}
	for range quiet {
		err := c.without(ctx, t, o)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			o.Reason = fmt.Sprintf("the workload could not be run without the plan's actions: %v", err)
			return nil
		}
		if explained, err := c.explained(t, o); err != nil || explained {
			return err
		}
	}
	thawed, err := c.ofThawed(ctx, t, o.Findings)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		o.Reason = fmt.Sprintf("it could not be run with the frozen process killed: %v", err)
		return nil
	case len(thawed) == 0:
		o.Reason = "the same comes if the frozen process is killed and not thawed: it is not due to what the process " +
			"does too late"
		return nil
	}
	o.Status, o.Findings = Bug, thawed
	return nil
}

// doubtful reports whether another plan of the workload has found the same, but not every time: it may come by itself
// now and then, so that one run without a plan's actions does not show much.
func (c *campaign) doubtful(o *Outcome) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, known := range c.done {
		if known.Status == Unconfirmed && known.Workload == o.Workload &&
			slices.ContainsFunc(known.Findings, func(f record.Finding) bool {
				return slices.ContainsFunc(o.Findings, f.Same)
			}) {
			return true
		}
	}
	return false
}

// jumps reports whether a workload lets the clock jump. That is hard on all processes: requests expire, and everything
// that is put off comes at once.
func jumps(steps []plan.Step) bool {
	return slices.ContainsFunc(steps, func(s plan.Step) bool { return s.AdvanceTime > 0 })
}

// explained takes away the findings that runs without a plan's actions explain, and reports whether these are all.
func (c *campaign) explained(t *task, o *Outcome) (bool, error) {
	planOnly, err := c.planOnly(t, o)
	if err != nil {
		return false, err
	}
	if len(planOnly) == 0 {
		o.Status = OfWorkload
		o.Reason, err = c.excuse(t, o)
		return true, err
	}
	o.Findings = planOnly
	return false, nil
}

// excuse says why what a plan has found does not count: which other run has ended like that. Empty: runs without the
// plan's actions have found the same.
func (c *campaign) excuse(t *task, o *Outcome) (string, error) {
	ref := c.options(t).Reference
	if ref == nil {
		return "", nil
	}
	objects, err := objectsOf(o)
	if err != nil {
		return "", err
	}
	var all []string
	for _, x := range ref.Excuses(objects) {
		if line := fmt.Sprintf("%s ends like that %s", x.Differences[0].Key, x.How); !slices.Contains(all, line) {
			all = append(all, line)
		}
	}
	return strings.Join(all, "; "), nil
}

// ofThawed returns those findings of a plan that are due to what its thawed processes do: they do not come if these
// processes are killed instead. A frozen leader also leaves its work undone until there is a new one, which may take
// longer than a workload waits. Of a plan that thaws nothing, it returns all findings.
func (c *campaign) ofThawed(ctx context.Context, t *task, found []record.Finding) ([]record.Finding, error) {
	p := *t.plan
	p.TestName += "-killed"
	p.Actions = slices.Clone(p.Actions)
	thaws := false
	for i := range p.Actions {
		if e := p.Actions[i].Effects(); e.Thaws != "" && !e.Kills {
			p.Actions[i].Kill, thaws = true, true
		}
	}
	if !thaws {
		return found, nil
	}
	r, _, err := c.once(ctx, &p, c.options(t))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(found), func(f record.Finding) bool {
		return slices.ContainsFunc(bugs(r.Findings), f.Same)
	}), nil
}

// like returns the plan of the outcome of this campaign that is confirmed and has all the same findings; empty: there
// is none.
func (c *campaign) like(o *Outcome) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(c.done)) {
		known := c.done[name]
		if known.Status == Bug && known.Of >= c.Repeat && within(o.Findings, known.Findings) {
			return name
		}
	}
	return ""
}

// wait puts the plan off if another one is being confirmed that has found the same, and says so. Otherwise the plan is
// being confirmed from now on.
func (c *campaign) wait(t *task, o *Outcome, first *record.Meta) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.inWork(o) {
		c.confirming[o.Plan] = slices.Clone(o.Findings)
		return false
	}
	t.known, t.first = o, first
	c.putOff = append(c.putOff, t)
	c.running = slices.DeleteFunc(c.running, func(name string) bool { return name == o.Plan })
	return true
}

// inWork reports whether a plan is being confirmed that has all the same findings. The caller holds the lock.
func (c *campaign) inWork(o *Outcome) bool {
	for _, findings := range c.confirming {
		if within(o.Findings, findings) {
			return true
		}
	}
	return false
}

// within reports whether all findings are, word for word, among others.
func within(findings, others []record.Finding) bool {
	return !slices.ContainsFunc(findings, func(f record.Finding) bool {
		return !slices.ContainsFunc(others, func(k record.Finding) bool { return k.Same(f) && k.Title == f.Title })
	})
}

// without runs the plan without its actions once more.
func (c *campaign) without(ctx context.Context, t *task, o *Outcome) error {
	if len(t.plan.Actions) == 0 {
		return nil // what it finds is what it is for
	}
	p := *t.plan
	p.TestName += "-without"
	p.Actions = nil
	p.Complete(c.Suite)
	r, meta, err := c.once(ctx, &p, c.options(t))
	o.took(meta)
	if err == nil {
		c.quiet(t, r)
	}
	return err
}

// quiet takes in a run with a plan's workload in which no action of a plan was carried out: what it has found is not a
// plan's, and where it ended differently from the reference, other runs may end like it.
func (c *campaign) quiet(t *task, r *record.Run) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := t.learned.Workload
	c.quietly[w] = append(c.quietly[w], bugs(r.Findings)...)
	c.widen(t, r, (*reference.Reference).Allow)
}

// widen adds what a run shows to the reference that the next runs are compared with. c.mu is held.
func (c *campaign) widen(t *task, r *record.Run, allow func(*reference.Reference, *record.Run) error) {
	c.change(t, func(ref *reference.Reference) error {
		if err := allow(ref, r); err != nil {
			return fmt.Errorf("%s: %w", r.Dir, err)
		}
		return nil
	})
}

// change changes the reference that the next runs are compared with, and keeps what is new for others. c.mu is held.
func (c *campaign) change(t *task, what func(*reference.Reference) error) {
	w := t.learned.Workload
	ref := c.widened[w]
	if ref == nil {
		ref = t.learned.Reference
	}
	if ref == nil {
		return
	}
	wider := *ref // runs that are going on read it
	wider.Alternatives = slices.Clone(ref.Alternatives)
	if err := what(&wider); err != nil {
		c.say("%v", err)
		return
	}
	wider.Later(len(ref.Alternatives))
	c.widened[w] = &wider
	if len(wider.Alternatives) == len(ref.Alternatives) && len(wider.Kept) == len(ref.Kept) &&
		len(wider.Tried) == len(ref.Tried) {
		return
	}
	if err := wider.WriteAllowed(t.learned.Allowed); err != nil {
		c.say("%v", err)
	}
}

// options are those of the next run of a plan.
func (c *campaign) options(t *task) run.RunOptions {
	o := t.learned.Options()
	c.mu.Lock()
	defer c.mu.Unlock()
	if wider := c.widened[t.learned.Workload]; wider != nil {
		o.Reference = wider
	}
	return o
}

// planOnly returns those of an outcome's findings that no run without a plan's actions explains.
func (c *campaign) planOnly(t *task, o *Outcome) ([]record.Finding, error) {
	var before, after map[string]bool // the objects in which its first run differs
	if ref := t.learned.Reference; ref != nil {
		objects, err := objectsOf(o)
		if err != nil {
			return nil, err
		}
		before = differing(ref, t.plan, objects)
		after = differing(c.options(t).Reference, t.plan, objects)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	quietly := c.quietly[t.learned.Workload]
	return slices.DeleteFunc(slices.Clone(o.Findings), func(f record.Finding) bool {
		if f.Judge == record.JudgeReference && before[f.Subject] {
			return !after[f.Subject]
		}
		return slices.ContainsFunc(quietly, f.Same)
	}), nil
}

// objectsOf is what became of the objects in the first run of an outcome's plan.
func objectsOf(o *Outcome) (map[reference.Key]*reference.Object, error) {
	r, err := record.Open(o.Record)
	if err != nil {
		return nil, err
	}
	followed, err := reference.Follow(r)
	if err != nil {
		return nil, err
	}
	return followed.Objects(), nil
}

// differing lists the objects in which a run of a plan differs from a reference.
func differing(
	ref *reference.Reference, p *plan.Plan, objects map[reference.Key]*reference.Object,
) map[string]bool {
	keys := map[string]bool{}
	for _, d := range judge.Differences(ref, p, objects) {
		keys[string(d.Key)] = true
	}
	return keys
}

// idle reports whether a run carried out none of its plan's actions: what it has found is not the plan's.
func idle(t *task, m *record.Meta) bool { return len(t.plan.Actions) > 0 && m.ActionsFired == 0 }

// bugs are the findings about the controllers.
func bugs(all []record.Finding) []record.Finding {
	return slices.DeleteFunc(slices.Clone(all), func(f record.Finding) bool { return !f.IsBug() })
}
