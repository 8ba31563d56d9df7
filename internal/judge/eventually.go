package judge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/cel"
	"github.com/trommel-dev/trommel/record"
)

// eventually judges the invariants that must become true. It does nothing if the run has not waited for them because
// its workload failed.
type eventually struct{}

func (eventually) Name() string { return "eventually" }

func (eventually) Judge(_ context.Context, e Evidence) ([]record.Finding, error) {
	if e.Meta.GivenBack.IsZero() {
		return nil, nil
	}
	return e.Invariants.Eventually(e.History, e.Meta.WorkloadEnd, e.Meta.GivenBack), nil
}

// Eventually returns a finding for each eventually that was true at no moment between from and the end of its within,
// which counts from givenBack: the time at which everything was restored that the plan had held, paused or killed. If a
// plan goes on after its workload, from may be much earlier.
func (c *Invariants) Eventually(history []record.HistoryEntry, from, givenBack time.Time) []record.Finding {
	h := c.hopes(from, givenBack)
	for i := range history {
		h.take(&history[i])
	}
	h.begin()
	for _, p := range h.pending {
		h.findings = append(h.findings, p.unfulfilled(&h.world, p.err, p.deadline))
	}
	return h.findings
}

// Growing is a history that is still being recorded.
type Growing interface {
	// Since returns the entries from index n on, and a channel that is closed when there are more.
	Since(n int) ([]record.HistoryEntry, <-chan struct{})
	// Sync blocks until everything is recorded that was written before the call.
	Sync(ctx context.Context) error
}

// Await blocks until the history has what [Invariants.Eventually] needs: every eventually was true at some moment since
// from, or its within, which counts from the call, is over. It returns the time of the call. The error is that of ctx.
func (c *Invariants) Await(ctx context.Context, g Growing, from time.Time) (givenBack time.Time, err error) {
	givenBack = time.Now()
	h := c.hopes(from, givenBack)
	read := 0
	synced := false
	for {
		entries, changed := g.Since(read)
		for i := range entries {
			h.take(&entries[i])
		}
		read += len(entries)
		h.begin()
		if len(h.pending) == 0 || ctx.Err() != nil {
			return givenBack, ctx.Err()
		}
		next := slices.MinFunc(h.pending, func(a, b *hope) int { return a.deadline.Compare(b.deadline) }).deadline
		if wait := time.Until(next); wait > 0 {
			timer := time.NewTimer(wait)
			select {
			case <-changed:
			case <-timer.C:
			case <-ctx.Done():
			}
			timer.Stop()
			continue
		}
		// Events that happened in time may not have arrived yet.
		if !synced {
			synced = true
			_ = g.Sync(ctx) // on an error, a finding may be wrong because the API server was slow
			continue
		}
		synced = false
		h.pending = slices.DeleteFunc(h.pending, func(p *hope) bool { return !p.deadline.After(next) })
	}
}

// hope is an eventually that has not been true yet.
type hope struct {
	*invariant
	deadline time.Time
	err      error // of the newest evaluation
}

// hopes follows a history and keeps the eventuallys that have not been true yet.
type hopes struct {
	from     time.Time
	began    bool // the state at from was evaluated
	world    world
	pending  []*hope
	findings []record.Finding
}

func (c *Invariants) hopes(from, givenBack time.Time) *hopes {
	h := &hopes{from: from}
	for i := range c.all {
		if v := &c.all[i]; v.word == "eventually" {
			h.pending = append(h.pending, &hope{invariant: v, deadline: givenBack.Add(v.within())})
		}
	}
	return h
}

func (v *invariant) within() time.Duration {
	if v.Within <= 0 {
		return defaultWithin
	}
	return v.Within
}

// take applies an entry and evaluates, if the entry is later than from.
func (h *hopes) take(e *record.HistoryEntry) {
	if e.Time.After(h.from) {
		h.begin()
	}
	if _, _, err := h.world.step(e); err != nil {
		h.findings = append(h.findings, record.Finding{
			Severity: record.SeverityInconclusive, Judge: record.JudgeHistory, Title: err.Error(), Time: e.Time,
		})
	}
	if h.began {
		h.evaluate(e.Time)
	}
}

// begin evaluates the state as of from, once.
func (h *hopes) begin() {
	if !h.began {
		h.began = true
		h.evaluate(h.from)
	}
}

// evaluate drops what is true now.
func (h *hopes) evaluate(at time.Time) {
	h.pending = slices.DeleteFunc(h.pending, func(p *hope) bool {
		holds, err := p.expr.Holds(map[string]any{"objects": h.world.objects})
		p.err = err
		return err == nil && holds && !at.After(p.deadline)
	})
}

// unfulfilled returns the finding about an eventually that did not become true before the deadline.
func (v *invariant) unfulfilled(w *world, err error, deadline time.Time) record.Finding {
	if err != nil && !errors.Is(err, cel.ErrMissing) {
		return v.unevaluated(err, "it failed at its deadline")
	}
	within := v.within()
	detail := fmt.Sprintf("eventually: %s\nnot within %s; the recorded objects at the end: %s", v.expr, within,
		w.counts())
	if err != nil {
		detail += fmt.Sprintf("\nthe last evaluation failed: %v", err)
	}
	title := v.say(map[string]any{"objects": w.objects}, "it did not become true within "+within.String())
	return record.Finding{
		Severity: record.SeverityBug, Judge: record.JudgeInvariant, Title: title, Subject: v.Name, Detail: detail,
		Time: deadline,
	}
}
