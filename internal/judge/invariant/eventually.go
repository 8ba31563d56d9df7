package invariant

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/cel"
	"github.com/trommel-dev/trommel/record"
)

// Eventually returns a finding for each eventually that was true at no moment between from and the end of its within,
// which counts from givenBack: the time at which everything was restored that the plan had held, paused or killed. If a
// plan goes on after its workload, from may be much earlier.
func (c *Set) Eventually(history []record.HistoryEntry, from, givenBack time.Time) []record.Finding {
	h := c.Hopes(from, givenBack)
	h.Take(history...)
	h.begin()
	for _, p := range h.pending {
		h.findings = append(h.findings, p.unfulfilled(h.worlds, p.err, p.deadline))
	}
	return h.findings
}

// hope is an eventually that has not been true yet.
type hope struct {
	*invariant
	deadline time.Time
	err      error // of the newest evaluation
}

// Hopes follows a history and keeps the eventuallys that have not been true yet. [Set.Hopes] makes one.
type Hopes struct {
	from     time.Time
	began    bool // the state at from was evaluated
	worlds   worlds
	pending  []*hope
	findings []record.Finding
}

// Awaited reports whether there is an eventually.
func (c *Set) Awaited() bool {
	return slices.ContainsFunc(c.all, func(v invariant) bool { return v.word == "eventually" })
}

// Hopes returns the eventuallys that [Set.Eventually] judges with the same arguments, for a history that is still being
// recorded.
func (c *Set) Hopes(from, givenBack time.Time) *Hopes {
	h := &Hopes{from: from, worlds: worlds{}}
	for i := range c.all {
		if v := &c.all[i]; v.word == "eventually" {
			h.pending = append(h.pending, &hope{invariant: v, deadline: givenBack.Add(v.within())})
		}
	}
	return h
}

// Take goes on with the history's next entries.
func (h *Hopes) Take(entries ...record.HistoryEntry) {
	for i := range entries {
		h.take(&entries[i])
	}
}

// Next returns the earliest deadline of the eventuallys that have not been true so far, and false if there are none.
func (h *Hopes) Next() (deadline time.Time, pending bool) {
	h.begin()
	if len(h.pending) == 0 {
		return time.Time{}, false
	}
	return slices.MinFunc(h.pending, func(a, b *hope) int { return a.deadline.Compare(b.deadline) }).deadline, true
}

// GiveUp drops the eventuallys whose deadline is not after the given time.
func (h *Hopes) GiveUp(at time.Time) {
	h.pending = slices.DeleteFunc(h.pending, func(p *hope) bool { return !p.deadline.After(at) })
}

func (v *invariant) within() time.Duration {
	if v.Within <= 0 {
		return defaultWithin
	}
	return v.Within
}

// take applies an entry and evaluates, if the entry is later than from.
func (h *Hopes) take(e *record.HistoryEntry) {
	if e.Time.After(h.from) {
		h.begin()
	}
	if _, _, err := h.worlds.of(e.Cluster).step(e); err != nil {
		h.findings = append(h.findings, record.Finding{
			Severity: record.SeverityInconclusive, Judge: record.JudgeHistory, Title: err.Error(), Time: e.Time,
		})
	}
	if h.began {
		h.evaluate(e.Time)
	}
}

// begin evaluates the state as of from, once.
func (h *Hopes) begin() {
	if !h.began {
		h.began = true
		h.evaluate(h.from)
	}
}

// evaluate drops what is true now.
func (h *Hopes) evaluate(at time.Time) {
	h.pending = slices.DeleteFunc(h.pending, func(p *hope) bool {
		holds, err := p.expr.Holds(h.worlds.variables(p.Cluster, map[string]any{}))
		p.err = err
		return err == nil && holds && !at.After(p.deadline)
	})
}

// unfulfilled returns the finding about an eventually that did not become true before the deadline.
func (v *invariant) unfulfilled(w worlds, err error, deadline time.Time) record.Finding {
	if err != nil && !errors.Is(err, cel.ErrMissing) {
		return v.unevaluated(err, "it failed at its deadline")
	}
	within := v.within()
	detail := fmt.Sprintf("eventually: %s\nnot within %s; the recorded objects at the end: %s", v.expr, within,
		w.of(v.Cluster).counts())
	if err != nil {
		detail += fmt.Sprintf("\nthe last evaluation failed: %v", err)
	}
	title := v.say(w.variables(v.Cluster, map[string]any{}), "it did not become true within "+within.String())
	return record.Finding{
		Severity: record.SeverityBug, Judge: record.JudgeInvariant, Title: title, Subject: v.Name, Detail: detail,
		Time: deadline,
	}
}
