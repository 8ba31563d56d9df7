package run

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/reference"
	"github.com/trommel-dev/trommel/record"
)

// trace returns the rules for what processes report beside what the plan needs. That is always what the controllers have
// written: it shows judges who did what. In a traced run it is also the events that API servers and controllers receive,
// and the controllers' reconciles, reads, writes and annotated calls.
func (r *runner) trace() map[string][]wire.Rule {
	rules := map[string][]wire.Rule{}
	add := func(by string, phase wire.Phase, points ...wire.Point) {
		for _, point := range points {
			rules[by] = append(rules[by], wire.Rule{Point: point, Phase: phase, AnyGroup: true})
		}
	}
	if r.Trace {
		for _, name := range r.cluster.APIServers() {
			add(name, wire.After, wire.APIServerRecv)
		}
	}
	for _, c := range r.meta.Controllers {
		if !c.Hooks {
			continue
		}
		if !r.Trace {
			add(c.Name, wire.After, wire.ControllerWrite)
			continue
		}
		// What is received or read is known only after the call; the start of a write is when it was decided.
		add(c.Name, wire.Before, wire.ControllerWrite, wire.Reconcile, wire.AnnotatedCall)
		add(c.Name, wire.After, wire.ControllerRecv, wire.ControllerRead, wire.ControllerWrite, wire.Reconcile,
			wire.AnnotatedCall)
	}
	return rules
}

// heard keeps what judges need to know of what the controllers did.
func (r *runner) heard(e record.Event) {
	o := e.Observation
	if r.FindTypes {
		if key, ok := reference.TypeOf(o); ok {
			r.eventsMu.Lock()
			r.types[key] = true
			r.eventsMu.Unlock()
		}
	}
	if o == nil || o.Point != wire.ControllerWrite && o.Point != wire.Reconcile {
		return
	}
	r.eventsMu.Lock()
	defer r.eventsMu.Unlock()
	r.events = append(r.events, e)
}

// becalm records that from now on nothing disturbs the controllers, and how long their logs are.
func (r *runner) becalm(ctx context.Context) error {
	r.meta.Calm = time.Now()
	processes, err := r.processes(ctx)
	sizes := map[string]int64{}
	for _, p := range processes {
		if info, err := os.Stat(filepath.Join(r.RecordDir, filepath.FromSlash(p.LogFile))); err == nil {
			sizes[p.LogFile] = info.Size()
		}
	}
	r.logCalm = sizes
	return err
}
