package coordinator

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"sync"

	"github.com/trommel-dev/trommel/coordinator/monitor"
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/effect"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// requested returns what a write does, as far as its request alone says.
func requested(o *wire.Observation) (plan.EventKind, bool) {
	return effect.Of(&record.Observation{Point: wire.ControllerWrite, Phase: o.Phase, Op: o.Operation,
		Subresource: o.Subresource})
}

// needsForesight reports whether the coordinator must look up what a write would do before the machine can judge it.
func needsForesight(o *wire.Observation) bool {
	if o.Point != wire.ControllerWrite || o.Phase != wire.Before {
		return false
	}
	kind, ok := requested(o)
	return ok && kind != plan.Created && (o.Name != "" || o.Operation == wire.DeleteCollection)
}

// needsState reports whether the answer to a write lacks the object's new state: the answer to a scale update is a
// Scale, to a binding a Status, and a metadata client asks only for metadata.
func needsState(o *wire.Observation) bool {
	if o.Point != wire.ControllerWrite || o.Phase != wire.After || o.Name == "" ||
		!(&record.Observation{Error: o.Error, Failed: o.Failed, Code: o.Code}).Done() {
		return false
	}
	kind, ok := requested(o)
	if !ok || kind == plan.Deleted {
		return false
	}
	var about struct{ Kind string }
	return json.Unmarshal(o.Object, &about) != nil ||
		about.Kind != "" && o.Kind != "" && !strings.EqualFold(about.Kind, o.Kind)
}

// Lookup asks the cluster about the write of a controller. Its methods block until the API server has answered and may
// be called concurrently.
type Lookup interface {
	// Foresee returns what a write would do. It leaves out unknown parts, and the error says why.
	Foresee(ctx context.Context, controller string, o *wire.Observation) (Foresight, error)
	// State reads the object after a write, as JSON; nil if it does not exist.
	State(ctx context.Context, controller string, o *wire.Observation) ([]byte, error)
}

// Foresight is what a write would do to its object or to the objects of a collection, in JSON.
type Foresight struct {
	Absent  bool     // the object does not exist
	Old     []byte   // the current state; nil: absent or unknown
	New     []byte   // the state after the write; nil: none or unknown
	Objects [][]byte // the objects that the deletion of a collection would delete
}

// lookups are what the coordinator looks up about writes. The goroutine of Run owns them.
type lookups struct {
	done   chan arrival
	before map[call]Foresight         // of the writes in progress
	gone   map[*wire.Observation]bool // observations whose callers went on before they were looked up

	running sync.WaitGroup
}

// arrival is an observation and what was looked up for it.
type arrival struct {
	event    monitor.Event
	foreseen *Foresight // of an observation before a write
	state    []byte     // of the object after a write whose answer lacks it
	err      error
}

func newLookups() lookups {
	return lookups{done: make(chan arrival), before: map[call]Foresight{}, gone: map[*wire.Observation]bool{}}
}

// forget drops what was looked up for a session: it has ended, or was frozen for a time.
func (l *lookups) forget(session uint64) {
	maps.DeleteFunc(l.before, func(id call, _ Foresight) bool { return id.session == session })
}

// abandon records that the caller of an observation went on during the lookup.
func (l *lookups) abandon(o *wire.Observation) { l.gone[o] = true }

// abandoned reports whether abandon was called for an observation that arrives now.
func (l *lookups) abandoned(o *wire.Observation) bool {
	gone := l.gone[o]
	delete(l.gone, o)
	return gone
}

// begin looks up what an observation lacks. It does not delay other observations: this one arrives when the lookup is
// done.
func (l *lookups) begin(ctx context.Context, lookup func() arrival) {
	// The process that is looked up for waits for this one, not for time to pass.
	release := clock.Hold(ctx)
	l.running.Go(func() {
		defer release()
		a := lookup()
		select {
		case l.done <- a:
		case <-ctx.Done():
			a.event.Release()
		}
	})
}

// fillIn adds to the observation of a write the results of lookups, now or before the write. It keeps those of before
// the write for the observation after it, if the process is still connected.
func (l *lookups) fillIn(a arrival, live bool) {
	o := a.event.Observation
	id := call{a.event.Session.ID, o.Call}
	if o.Phase == wire.Before {
		if a.foreseen == nil {
			return
		}
		if live {
			l.before[id] = *a.foreseen
		}
		if o.PatchType != "" || a.foreseen.New != nil {
			o.Object = a.foreseen.New
		}
		o.OldObject, o.Objects = a.foreseen.old(), a.foreseen.Objects
	} else {
		foreseen := l.before[id]
		delete(l.before, id)
		if len(o.OldObject) == 0 {
			o.OldObject = foreseen.old()
		}
		o.Objects = foreseen.Objects
		if a.state != nil {
			o.Object = a.state
		}
	}
	if kind, ok := requested(o); ok && kind == plan.Deleted {
		// The request contains options, and the answer may be only a Status: the deleted object is the old one.
		o.Object = nil
		if !effect.Absent(o.OldObject) {
			o.Object = o.OldObject
		}
	}
}

func (f Foresight) old() []byte {
	if f.Absent {
		return effect.Nothing
	}
	return f.Old
}

// call identifies one call of a process.
type call struct{ session, id uint64 }
